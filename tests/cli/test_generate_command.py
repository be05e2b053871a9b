"""The errors of `sapwood generate` name the options of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.in_process import sapwood


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            "joins --window foo",
            "--window must be a length of time such as '60 s' or '1 day', or INF, not 'foo'",
        ),
        ("joins --window 10", "--window must be"),
        ("joins --stream a+b", "--stream must be a name that is no keyword of joins, not 'a+b'"),
        ("joins --stream join", "--stream must be"),
        ("joins --schema flat --leaves 0", "--leaves must be at least 1, not 0"),
        ("joins --schema levels --fan-out 0", "--fan-out must be at least 1, not 0"),
        (
            "feeds --reposts 0.6 --crossposts 0.6",
            "--reposts, --crossposts and --columns must be at most 1 together, not 1.21",
        ),
        ("feeds --channel-skew -1", "--channel-skew must be at least 0, not -1.0"),
        ("messages --dtd news --max-depth 0", "--max-depth must be at least 1, not 0"),
        ("queries --dtd news --wildcard 2", "--wildcard must be a probability from 0 to 1, not 2.0"),
        ("transformations --dtd news --return-paths 0", "--return-paths must be at least 1, not 0"),
    ],
)
def test_an_error_in_a_parameter_names_its_option(arguments: str, error: str) -> None:
    run = sapwood("generate", *(argument.replace("+", " ") for argument in arguments.split()))
    assert (run.returncode, run.stdout) == (2, "")
    assert f"error: {error.replace('+', ' ')}" in run.stderr


def test_too_few_distinct_queries_are_an_error_that_names_the_option(tmp_path: Path) -> None:
    dtd = tmp_path / "small.dtd"
    dtd.write_text("<!ELEMENT a (b, c)><!ELEMENT b (#PCDATA)><!ELEMENT c EMPTY>")
    for kind in ("queries", "transformations"):
        run = sapwood("generate", kind, "--dtd", str(dtd), "--count", "1000")
        assert run.returncode == 2
        assert (
            "distinct queries on DTD 'small', and no new one in 2,000 tries: allow more depth" in run.stderr
        )
        assert run.stderr.endswith(", or equal ones with --duplicates\n")
        again = sapwood("generate", kind, "--dtd", str(dtd), "--count", "1000", "--duplicates")
        assert (again.returncode, len(again.stdout.splitlines())) == (0, 1000)


def test_impossible_queries_are_an_error_that_says_what_to_change() -> None:
    run = sapwood(
        "generate", "queries", "--dtd", "quotes", "--predicates", "1", "--words", "--operators", "<"
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert "no path of DTD 'quotes' can take 1 predicates" in run.stderr
    assert run.stderr.endswith(": choose other operators or targets of predicates, or allow more depth\n")
