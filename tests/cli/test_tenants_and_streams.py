"""Tenants of a store, and subscriptions that are restricted to streams, on the command line."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.in_process import Run, Sapwood
from tests.support.in_process import sapwood as run_here

JOIN = "orders/order[@id->i] FOLLOWED BY{i = j, 1 day} payments/payment[@for->j]"


@pytest.fixture
def sapwood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sapwood:
    """Runs `sapwood …` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return run_here


def listed(run: Run) -> dict[object, list[str]]:
    """The ids and streams of a list."""
    assert run.returncode == 0, run.stderr
    return {row["id"]: row["streams"] for row in map(json.loads, run.stdout.splitlines())}


def told(run: Run) -> str:
    """The error of a refused command, without a traceback."""
    assert run.returncode == 2, run
    assert run.stderr.startswith("error: ")
    assert "Traceback" not in run.stderr
    return run.stderr


# -- tenants -----------------------------------------------------------------------------------------------


def test_all_changes_and_lists_are_those_of_a_tenant(sapwood: Sapwood) -> None:
    def acme(*arguments: str, stdin: str = "") -> Run:
        return sapwood("subscriptions", *arguments, "--tenant", "acme", stdin=stdin)

    sapwood("subscriptions", "add", "s", "//p:a", "-n", "p=urn:p")
    ours = sapwood("subscriptions", "list").stdout
    assert "prefix 'p' is not declared" in told(acme("add", "s", "//p:a"))
    assert (
        acme("import", "-", stdin='{"id": "s", "query": "//a"}\n{"id": "t", "query": "//b"}\n').returncode
        == 0
    )
    assert acme("namespaces", "-n", "q=urn:q").stdout == '{"prefix": "q", "uri": "urn:q"}\n'
    for change in (
        ("add", "u", "//q:c"),
        ("replace", "s", "//d"),
        ("deactivate", "u"),
        ("activate", "u"),
        ("remove", "t"),
    ):
        assert acme(*change).stdout.startswith("version "), change
    assert list(listed(acme("list"))) == ["s", "u"]
    assert sapwood("subscriptions", "list").stdout == ours
    assert json.loads(acme("list", "--at", "2").stdout or "null") is None
    assert listed(sapwood("subscriptions", "list", "--tenant", "nobody")) == {}
    assert "no subscription 'u'" in told(sapwood("subscriptions", "remove", "u"))


def test_messages_are_matched_with_the_filters_of_a_tenant(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "message.xml").write_text("<a/>")
    sapwood("subscriptions", "add", "ours", "//a")
    sapwood("subscriptions", "add", "theirs", "//a", "--tenant", "acme")
    sapwood("subscriptions", "add", "restricted", "//a", "--tenant", "acme", "--stream", "news")
    command = "match", "--store", "subscriptions.db", "message.xml"
    for options in ((), ("--engine", "relational", "--tables", "tables.duckdb")):
        run = sapwood(*command, *options, "--tenant", "acme")
        assert json.loads(run.stdout)["matches"] == ["theirs"]
        assert "1 subscriptions are restricted to streams" in run.stderr
        assert json.loads(sapwood(*command, *options).stdout)["matches"] == ["ours"]
    assert "--tenant goes with --store" in told(sapwood("match", "q", "message.xml", "--tenant", "acme"))


def test_tables_of_a_tenant_need_a_file_of_their_own(sapwood: Sapwood, tmp_path: Path) -> None:
    sapwood("subscriptions", "add", "s", "//a", "--tenant", "acme")
    (tmp_path / "message.xml").write_text("<a/>")
    for command in (
        ("relational", "load"),
        ("match", "--store", "subscriptions.db", "message.xml", "--engine", "relational"),
    ):
        assert "give one with --tables FILE" in told(sapwood(*command, "--tenant", "acme"))
    run = sapwood("relational", "load", "--tenant", "acme", "--tables", "acme.duckdb")
    assert run.stdout.startswith("version 1: 1 subscriptions")


# -- streams -----------------------------------------------------------------------------------------------


def test_streams_are_given_changed_and_lifted(sapwood: Sapwood) -> None:
    def change(*arguments: str) -> list[str]:
        assert sapwood("subscriptions", *arguments).returncode == 0
        return listed(sapwood("subscriptions", "list"))["s"]

    assert change("add", "s", "//a", "--stream", "news", "--stream", "stocks") == ["news", "stocks"]
    assert change("replace", "s", "//b") == ["news", "stocks"]
    assert change("replace", "s", "//b", "--stream", "news") == ["news"]
    assert change("replace", "s", "//b", "--all-streams") == []
    both = sapwood("subscriptions", "replace", "s", "//b", "--all-streams", "--stream", "news")
    assert "--stream and --all-streams exclude each other" in told(both)


def test_joins_are_not_restricted(sapwood: Sapwood) -> None:
    run = sapwood("subscriptions", "add", "j", JOIN, "--stream", "orders")
    assert "the join 'j' cannot be restricted to streams ('orders')" in told(run)
    sapwood("subscriptions", "add", "j", "//order", "--stream", "orders")
    assert "a join names its streams itself" in told(sapwood("subscriptions", "replace", "j", JOIN))
    assert sapwood("subscriptions", "replace", "j", JOIN, "--all-streams").returncode == 0


def test_streams_are_imported_and_what_is_listed_can_be_imported_again(sapwood: Sapwood) -> None:
    lines = [
        {"id": "a", "query": "//a", "streams": ["news", ""]},
        {"id": "b", "query": "//b", "streams": []},
        {"id": "c", "query": "//c", "streams": None},
        {"id": "d", "query": "//d"},
        {"id": "e", "query": "//e", "streams": "news"},
        {"id": "f", "query": "//f", "streams": [7]},
        {"id": "g", "query": "//g", "streams": ["news", "news"]},
        {"id": "h", "query": JOIN, "streams": ["orders"]},
    ]
    run = sapwood("subscriptions", "import", "-", stdin="\n".join(map(json.dumps, lines)))
    assert (run.returncode, run.stdout) == (1, "added 4, refused 4; version 1\n")
    assert run.stderr.splitlines() == [
        "-:5: 'streams' must be a list of strings",
        "-:6: 'streams' must be a list of strings",
        "-:7: a stream is named twice",
        "-:8: the join 'h' cannot be restricted to streams ('orders'): a join names its streams itself",
    ]
    written = sapwood("subscriptions", "list", "--json").stdout
    assert listed(sapwood("subscriptions", "list")) == {"a": ["news", ""], "b": [], "c": [], "d": []}
    again = sapwood("subscriptions", "import", "-", "--store", "other.db", stdin=written)
    assert again.stdout == "added 4, refused 0; version 1\n"
    other = sapwood("subscriptions", "list", "--json", "--store", "other.db")
    assert other.stdout == written


def test_an_upsert_reports_changed_streams(sapwood: Sapwood) -> None:
    def upsert(**more: object) -> str:
        line = json.dumps({"id": "s", "query": "//a", **more})
        return sapwood("subscriptions", "import", "--upsert", "-", stdin=line).stderr

    assert upsert(streams=["news"]) == ""
    assert upsert(streams=["news", "stocks"]) == "s: streams news, stocks, was news\n"
    assert upsert() == "", "streams that are absent stay"
    assert upsert(streams=[]) == "s: streams all, was news, stocks\n"


def test_a_list_of_a_version_says_what_is_missing(sapwood: Sapwood) -> None:
    sapwood("subscriptions", "add", "all", "//a")
    sapwood("subscriptions", "add", "some", "//a", "--stream", "news")
    run = sapwood("subscriptions", "list", "--at", "2")
    assert run.stdout == '{"id": "all", "query": "//a"}\n'
    assert run.stderr == "1 subscriptions that were restricted to streams are not listed\n"


@pytest.mark.parametrize("command", ["match", "transform"])
def test_commands_without_streams_refuse_files_that_name_some(
    sapwood: Sapwood, tmp_path: Path, command: str
) -> None:
    (tmp_path / "queries.jsonl").write_text('{"id": "s", "query": "//a", "streams": ["news"]}\n')
    (tmp_path / "message.xml").write_text("<a/>")
    run = sapwood(command, "queries.jsonl", "message.xml")
    assert "queries.jsonl:1: 'streams' are for the service" in told(run)


@pytest.mark.parametrize("stream", [None, "[news]"])
def test_a_terminal_shows_streams_where_there_are_any(
    sapwood: Sapwood, tmp_path: Path, stream: str | None
) -> None:
    sapwood("subscriptions", "add", "s", "//a", *([] if stream is None else ["--stream", stream]))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sapwood.cli", "subscriptions", "list"]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=tmp_path):
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
    os.close(ours)
    assert ("streams" in shown.decode()) == (stream is not None)
    assert stream is None or stream in shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # its other end is closed
        return b""
