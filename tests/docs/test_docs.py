"""Every block of README and docs runs as it is printed, page by page, in an empty folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docs.doc_blocks import (
    PAGES,
    ROOT,
    RUN,
    Block,
    Interpreter,
    Reader,
    blocks,
    commands,
    matches,
    sapwood_arguments,
)
from tests.support.service.running_server import RunningServer

pytestmark = pytest.mark.slow

ALL = [block for page in PAGES for block in blocks(page)]


@pytest.fixture
def broker_url(tmp_path: Path) -> Iterator[str]:
    """The address of a broker service with its files in the folder of the page."""
    with RunningServer(tmp_path, '[webhooks]\nallowed = ["127.0.0.1"]') as server:
        yield server.url


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run_in_an_empty_folder(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path)
    if any(block.with_broker for block in blocks(page)):
        monkeypatch.setenv("SAPWOOD_URL", request.getfixturevalue("broker_url"))
    for block in blocks(page):
        if block.language in RUN and block.reason is None and not block.with_spark:
            reader.follow(block)


def test_blocks_are_of_known_kinds_and_marks() -> None:
    for block in ALL:
        assert block.language in RUN | {"", "xquery"}, f"{block}: ```{block.language}"
        if block.mark:
            assert block.language in RUN, f"{block}: a mark on a block that is not run anyway"
            known = block.with_spark or block.with_broker or block.reason is not None
            assert known, f"{block}: <!-- {block.mark} -->"


def test_blocks_that_are_not_run_have_a_reason() -> None:
    left_out = [block for block in ALL if block.reason is not None]
    for block in left_out:
        assert block.reason is not None
        assert len(block.reason.split()) >= 3, f"{block}: {block.reason!r} is no reason"
    assert len(left_out) == NOT_RUN, "\n".join(f"{block}: {block.reason}" for block in left_out)


NOT_RUN = 22
"""Blocks that cannot run in the tests; counted, so that a new one is a decision."""


def test_most_blocks_are_run() -> None:
    runnable = [block for block in ALL if block.language in RUN]
    assert len(runnable) - NOT_RUN >= 0.7 * len(runnable)
    assert {block.page for block in runnable} >= {
        "README.md",
        "docs/tutorial/first-steps.md",
        "docs/how-to/joins.md",
    }


_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_links_between_pages_have_targets(page: str) -> None:
    for link in _LINK.findall(_CODE.sub("", (ROOT / page).read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page}: {link}"
        assert not anchor or anchor in _anchors(target), f"{page}: {link}"


# -- the runner itself -------------------------------------------------------------------------------------


def _console(text: str) -> Block:
    return Block("page.md", 1, "console", text, "")


def test_commands_are_separated_from_their_output() -> None:
    block = _console("$ one\n$ two \\\n    more\nprinted\n  again\n$ three\n")
    assert commands(block) == [("one", ""), ("two more", "printed\n  again\n"), ("three", "")]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "a\nb\n", False),
        ("a…\n", "a\nb\n", True),
        ("…b\n", "a\nb\n", True),
        ("a … c\n", "a b c", True),
        ("a.c\n", "abc", False),
    ],
)
def test_an_ellipsis_is_any_text(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


@pytest.mark.parametrize("text", ["$ false\n", "$ echo a\nb\n", "$ echo a\nerror: a\n", "$ exit 2\n"])
def test_a_command_with_another_output_or_status_fails(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        Reader(tmp_path).follow(_console(text))


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("sapwood match a b/   # a comment", (["match", "a", "b/"], None)),
        ("sapwood generate queries --count 5 > q.txt", (["generate", "queries", "--count", "5"], "q.txt")),
        ('sapwood explain "//a[b < 1 or (c)]"', (["explain", "//a[b < 1 or (c)]"], None)),
        ("sapwood explain 'for $a in /a return $a'", (["explain", "for $a in /a return $a"], None)),
        ('sapwood explain "for $a in /a return $a"', None),
        ("sapwood match a b | head -1", None),
        ("sapwood match a b > c && ls", None),
        ("sapwood match $(ls) b", None),
        ("echo sapwood", None),
    ],
)
def test_plain_commands_need_no_shell(command: str, arguments: tuple[list[str], str | None] | None) -> None:
    assert sapwood_arguments(command) == arguments


@pytest.mark.parametrize(
    ("command", "shown"),
    [("sapwood explain /a[", ""), ("sapwood explain /a", "error: …\n"), ("sapwood explain /a", "b\n")],
)
def test_a_plain_command_with_another_output_or_status_fails(
    command: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        Reader(tmp_path).follow(_console(f"$ {command}\n{shown}"))


def test_python_blocks_share_their_names_and_fail_with_the_line_of_the_page(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.follow(Block("page.md", 3, "python", "x = 1\n", ""))
    reader.follow(Block("page.md", 7, "python", "assert x == 1\n", ""))
    with pytest.raises(ZeroDivisionError) as caught:
        reader.follow(Block("page.md", 11, "python", "\nx / 0\n", ""))
    assert caught.traceback[-1].lineno == 12  # counted from 0


def test_an_interpreter_of_its_own_does_the_same(tmp_path: Path) -> None:
    with Interpreter(tmp_path) as interpreter:
        reader = Reader(tmp_path, interpreter)
        reader.follow(Block("page.md", 3, "python", "x = 1; open('made', 'w').close()\n", ""))
        reader.follow(Block("page.md", 7, "python", "assert x == 1\n", ""))
        assert (tmp_path / "made").exists()
        with pytest.raises(AssertionError, match=r'File "page.md", line 13(?s:.*)ZeroDivisionError'):
            reader.follow(Block("page.md", 11, "python", "\nx / 0\n", ""))
        with pytest.raises(AssertionError, match="Python ended"):
            reader.follow(Block("page.md", 20, "python", "import os; os._exit(3)\n", ""))
