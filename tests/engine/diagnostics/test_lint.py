"""Warnings of queries that are valid and likely not meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.engine.diagnostics.lint import find_warnings, uses_prefixes
from sapwood.lang.languages import compile_text
from sapwood.lang.pattern import use_prefixes
from tests.cli.test_match import records
from tests.support.in_process import sapwood

NAMESPACES = {"p": "urn:p", "q": "urn:q"}


def found(query: str) -> list[str]:
    with use_prefixes(NAMESPACES):
        return find_warnings(compile_text(query, NAMESPACES))


@pytest.mark.parametrize(
    "query",
    [
        "/a[false()]",
        "/a[0]",
        "/a[self::b]",
        "//text()/b",
        "//@x/y",
        "false() and //a",
        "contains('a', 'b')",
        "//a[text()/b]",
        "for $a in //a[false()] return $a",
        "S//a[false()][x->v] JOIN{v = w, 1 s} S//b[y->w]",
        "S//a[x->v] JOIN{v = w, 1 s} S//b[0][y->w]",
    ],
)
def test_queries_that_never_match_are_warned_of(query: str) -> None:
    assert found(query) == ["no message can match it"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("/a[@d > '2024-01-31']", "'2024-01-31' is none, so this is never true"),
        ('/a["2024-01-31T00:00:00" <= @d]', '"2024-01-31T00:00:00" is none'),
        ("/a[@d >= 2024-01-31]", "2024-01-31 is a subtraction, 1992, and no date"),
        ("/a[@d = 2024-01-31]", "is a subtraction"),
        ("for $a in /a where $a/d < '2024-01-31' return <r/>", "is never true"),
        ("S//a[@d > '2024-01-31'][x->v] JOIN{v = w, 1 s} S//b[y->w]", "is never true"),
    ],
)
def test_dates_compared_as_numbers_are_warned_of(query: str, told: str) -> None:
    (line,) = found(query)
    assert told in line
    assert "translate(d, '-', '') > 20240131" in line


@pytest.mark.parametrize(
    "query",
    [
        "/a[@d = '2024-01-31']",
        "/a[starts-with(@d, '2024-01-31')]",
        "/a[translate(@d, '-', '') > 20240131]",
        "/a[@d = 2024 - 1]",
        "/a[. = '> 2024-01-31']",
        "for $a in /a return <r>2024-01-31</r>",
        "for $a in /a return <r d='2024-01-31'/>",
        "<all>{for $a in /a return <r>2024-01-31</r>}</all>",
        "SELECT <d>2024-01-31</d> FROM S//a[x->v] JOIN{v = w, 1 s} S//b[y->w]",
    ],
)
def test_dates_that_are_compared_as_strings_are_fine(query: str) -> None:
    assert found(query) == []


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("/p:a/b", ["b"]),
        ("/p:a//b", ["b"]),
        ("/p:a[b = 1]", ["b"]),
        ("/p:a[not(b) or p:c/d]", ["b", "d"]),
        ("//p:a/q:b/c/@x", ["c"]),
        ("/p:a/*/c", ["c"]),
        ("count(/p:a/b) > 3", ["b"]),
        ("for $a in /p:x where $a/y = 1 return <r>{$a/z}</r>", ["y", "z"]),
        ("for $a in /p:x, $b in $a/y return <r>{$b/q:z}</r>", ["y"]),
        ("S//p:a[b->v] JOIN{v = w, 1 s} S//c[p:d->w]", ["b"]),
    ],
)
def test_names_below_a_prefixed_one_are_warned_of_once_each(query: str, names: list[str]) -> None:
    assert [line.split(" ")[0] for line in found(query)] == names
    assert all("has no prefix" in line for line in found(query))


def test_the_warning_suggests_the_prefixed_name() -> None:
    assert found("/p:a/q:b/c") == [
        "c has no prefix, so no namespace, though it stands below q:b; write q:c if it is in one"
    ]


@pytest.mark.parametrize(
    "query",
    [
        "/a/b",
        "/a/p:b",
        "/p:a/p:b[@c = 1]",
        "/p:a/q:b/text()",
        "//p:a | //b",
        "//p:a and //b",
        "/p:*/b",
        "/*[local-name() = 'a']/b",
        "//a[@p:x]/b",
        "not(//a)",
        "count(//a) = 0",
        "//a[position() > 3]",
        "for $a in //p:a return <r>{$a/p:b}</r>",
        "for $a in //a, $b in //p:b return <r>{$a/c}</r>",
        "S//p:a[p:b->v] JOIN{v = w, 1 s} S//c[d->w]",
    ],
)
def test_plausible_queries_are_not_warned_of(query: str) -> None:
    assert found(query) == []


@pytest.mark.parametrize(
    ("query", "uses"),
    [
        ("/a/b", False),
        ("/a[b/@p:x = 1]", True),
        ("//p:*", True),
        ("//*[namespace-uri() = 'urn:p']", True),
        ("//*[local-name() = 'b']", False),
        ("for $a in //a return <r>{$a/p:b}</r>", True),
        ("S//a[b->v] JOIN{v = w, 1 s} S//c[d->w]", False),
    ],
)
def test_whether_a_query_uses_prefixes(query: str, uses: bool) -> None:
    assert uses_prefixes(compile_text(query, NAMESPACES)) is uses


# -- on the command line -----------------------------------------------------------------------------------


def store(folder: Path, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    command, *rest = arguments
    place = str(folder / "s.db")
    run = sapwood("subscriptions", command, "--store", place, *rest, stdin=stdin)
    return run.returncode, run.stdout, run.stderr


def test_add_and_replace_warn_and_go_on(tmp_path: Path) -> None:
    never = "warning: [b]: no message can match it\n"
    assert store(tmp_path, "add", "[b]", "/a[false()]") == (0, "version 1\n", never)
    assert store(tmp_path, "add", "ok", "//a") == (0, "version 2\n", "")
    code, out, err = store(tmp_path, "add", "s", "/p:a/b", "-n", "p=urn:p")
    assert (code, out) == (0, "version 4\n")
    assert err.startswith("warning: s: b has no prefix")
    code, _, err = store(tmp_path, "replace", "s", "/a/b", "-n", "q=urn:q")
    assert code == 0
    assert err == "warning: nothing uses the prefix q, and names without a prefix have no namespace\n"
    assert store(tmp_path, "replace", "s", "/a/c")[2] == ""


def test_a_prefix_beside_any_namespace_may_be_unused(tmp_path: Path) -> None:
    assert store(tmp_path, "add", "s", "/a/b", "-n", "any", "-n", "q=urn:q")[2] == ""


def test_import_warns_with_the_place_and_not_too_often(tmp_path: Path) -> None:
    lines = "//a\n/a[0]\n/a[0]\n/p:a/b\n"
    code, out, err = store(tmp_path, "import", "-", "-n", "p=urn:p", stdin=lines)
    assert (code, out) == (0, "added 4, refused 0; version 2\n")
    assert [line.split(": ")[1] for line in err.splitlines()] == ["-:2", "-:4"]  # equal queries once
    many = "".join(f"/a{n}[0]\n" for n in range(30))
    _, _, err = store(
        tmp_path / "..", "import", "--upsert", "-", "--store", str(tmp_path / "t.db"), stdin=many
    )
    assert len(err.splitlines()) == 21
    assert err.endswith("warning: and 10 more like these\n")


@pytest.mark.parametrize("engine", ["automaton", "relational"])
def test_match_warns_on_the_standard_error(tmp_path: Path, engine: str) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("/a\n/a[0]\n")
    run = sapwood("match", "--engine", engine, "-n", "p=urn:p", str(queries), "-", stdin="<a/>\n")
    assert run.returncode == 0
    assert records(run) == [{"message": "-:1", "matches": [1]}]
    assert run.stderr.splitlines() == [
        f"warning: {queries}:2: no message can match it",
        "warning: nothing uses the prefix p, and names without a prefix have no namespace",
    ]


def test_explain_warns_too() -> None:
    run = sapwood("explain", "-n", "p=urn:p", "-n", "q=urn:q", "/p:a/b")
    assert run.returncode == 0
    assert run.stderr.startswith("warning: the query: b has no prefix")
