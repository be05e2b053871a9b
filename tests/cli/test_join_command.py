"""The command `sapwood join`: files in, JSON lines out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_match import records
from tests.support.in_process import sapwood

QUERIES = """\
books//book->b[author->a] FOLLOWED BY{a = w, 1 day} blogs//post->p[author->w]
SELECT <alert by="{$a}"/> FROM books//book[author->a] JOIN{a = w, 1 h} blogs//post[author->w] PUBLISH alerts
FROM alerts/alert
//title
"""
BOOKS = """\
<book at="2026-01-01T10:00:00"><author>Ann</author></book>
<book at="2026-01-03T10:00:00"><author>Bob</author></book>
"""
POSTS = """\
<post at="2026-01-01T10:30:00"><author>Ann</author></post>
<post at="2026-01-04T09:00:00Z"><author>Bob</author><title>Oak</title></post>
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    contents = {"queries.txt": QUERIES, "books.xmll": BOOKS, "blogs.xmll": POSTS}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    return {name.partition(".")[0]: str(tmp_path / name) for name in contents}


def times() -> tuple[str, ...]:
    return "--time", "books=/book/@at", "--time", "blogs=/post/@at"


def test_streams_are_merged_by_time(files: dict[str, str]) -> None:
    run = sapwood("join", files["queries"], f"blogs={files['blogs']}", f"books={files['books']}", *times())
    assert run.returncode == 0, run.stderr
    told = [
        (line["subscription"], [str(name).rsplit("/")[-1] for name in named])
        for line in records(run)
        if isinstance(named := line.get("messages"), list)
    ]
    assert told == [
        (1, ["books.xmll:1", "blogs.xmll:1"]),
        (2, ["books.xmll:1", "blogs.xmll:1"]),
        (3, ["blogs.xmll:1)"]),
        (1, ["books.xmll:2", "blogs.xmll:2"]),
    ]
    assert [line["body"] for line in records(run) if line["subscription"] == 3] == ['<alert by="Ann"/>']


def test_raw_writes_bodies_alone(files: dict[str, str]) -> None:
    run = sapwood(
        "join", "--raw", files["queries"], f"books={files['books']}", f"blogs={files['blogs']}", *times()
    )
    lines = run.stdout.splitlines()
    assert lines[0].startswith("<joined><book") and lines[1] == '<alert by="Ann"/>'


def test_without_times_files_are_read_in_turn(files: dict[str, str]) -> None:
    run = sapwood("join", files["queries"], f"books={files['books']}", f"blogs={files['blogs']}")
    assert [line["subscription"] for line in records(run)].count(1) == 2


def test_late_messages_are_reported_and_the_others_joined(files: dict[str, str], tmp_path: Path) -> None:
    late = tmp_path / "late.xmll"
    late.write_text(
        POSTS + '<post at="2026-01-01T00:00:00"><title>x</title></post>\n' + POSTS.splitlines()[1]
    )
    run = sapwood("join", files["queries"], f"blogs={late}", "--time", "blogs=/post/@at")
    assert run.returncode == 1
    errors = [line["error"] for line in records(run) if "error" in line]
    assert len(errors) == 1 and "too late for joins" in str(errors)
    assert [line["subscription"] for line in records(run) if "body" in line] == [4, 4, 4]
    patient = sapwood(
        "join", files["queries"], f"blogs={late}", "--time", "blogs=/post/@at", "--lateness", "1 week"
    )
    assert patient.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--lateness", "10"], "unit"),
        (["--lateness", "soon"], "expected"),
        (["--time", "books=count(/book)"], "a time is read from a path"),
    ],
)
def test_invalid_options_are_reported(files: dict[str, str], arguments: list[str], told: str) -> None:
    run = sapwood("join", files["queries"], f"books={files['books']}", *arguments)
    assert run.returncode != 0 and told in run.stderr
    assert "Traceback" not in run.stderr


def test_explain_shows_the_template(files: dict[str, str]) -> None:
    run = sapwood("explain", QUERIES.splitlines()[0], "--among", files["queries"])
    assert "l0  r0  l0 = r0: 1 row" in run.stdout
    assert "books//book/author" in run.stdout
