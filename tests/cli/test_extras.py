"""Commands without the libraries of an extra: each names the line that installs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_BLOCKED = """
import sys
for name in {blocked!r}: sys.modules[name] = None
sys.argv = ["sapwood", *{arguments!r}]
from sapwood.cli import main
main()
"""


def run_without(blocked: list[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where some libraries cannot be imported."""
    (folder / "queries.txt").write_text("//a\n")
    (folder / "message.xml").write_text("<a/>")
    program = _BLOCKED.format(blocked=blocked, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=folder
    )


@pytest.mark.parametrize(
    ("blocked", "arguments", "extra"),
    [
        ("sqlalchemy", ("subscriptions", "list"), "store"),
        ("sqlalchemy", ("match", "--store", "s.db", "message.xml"), "store"),
        ("sqlalchemy", ("match", "--store", "s.db", "message.xml", "--engine", "relational"), "store"),
        ("sqlalchemy", ("run", "pipeline.toml"), "spark"),
        ("jinja2", ("run", "pipeline.toml"), "spark"),
        ("pyspark", ("demo",), "spark"),
        ("httpx", ("publish", "message.xml", "--stream", "s"), "client"),
        ("httpx", ("listen", "--subscriber", "s"), "client"),
        ("duckdb", ("match", "queries.txt", "message.xml", "--engine", "relational"), "relational"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    blocked: str, arguments: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    done = run_without([blocked], tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"in a clone of Sapwood, pip install '.[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options", [(), ("--engine", "relational")])
def test_queries_of_a_file_need_no_store(options: tuple[str, ...], tmp_path: Path) -> None:
    done = run_without(["sqlalchemy", "pyspark"], tmp_path, "match", "queries.txt", "message.xml", *options)
    assert done.stdout == '{"message": "message.xml", "matches": [1]}\n', done.stderr
