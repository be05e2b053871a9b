"""`sapwood publish` against a stub of the service."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.in_process import Run, sapwood
from tests.support.service.service_command import start, wait_until
from tests.support.service.stub_server import StubServer

pytestmark = pytest.mark.slow


@pytest.fixture
def stub() -> Iterator[StubServer]:
    server = StubServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "messages.xmll").write_text("<a/>\n\n<b></c>\n<d/>\n")
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / "one.xml").write_text("<one/>")
    (tmp_path / "news" / "two.xml").write_text("<two>\n<b></two>")
    return tmp_path


def publish(stub: StubServer, *arguments: str, stdin: str = "") -> Run:
    return sapwood("publish", "--stream", "news", *arguments, stdin=stdin, SAPWOOD_URL=stub.url)


def test_files_folders_and_lines_are_published(stub: StubServer) -> None:
    stub.state.subscribe({"id": "all", "query": "//*", "subscriber": "desk"})
    done = publish(stub, "messages.xmll", "news", "-", stdin="<stdin/>\n")
    assert done.stdout == "published 4, refused 2; deliveries 4\n"
    assert "messages.xmll:3: line 1, column 6: " in done.stderr
    assert "news/two.xml: line 2, column 6: " in done.stderr
    assert "refused, or without an answer: 2 queries or messages" in done.stderr
    assert done.returncode == 1
    bodies = [one["body"] for one in stub.state.inboxes["desk"].deliveries]
    assert bodies == ["<a/>", "<d/>", "<one/>", "<stdin/>"]
    assert {one["stream"] for one in stub.state.inboxes["desk"].deliveries} == {"news"}


def test_receipts_and_refusals_are_json_lines(stub: StubServer) -> None:
    done = publish(stub, "messages.xmll", "--json", "--wait-delivered", "--time", "7")
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert (first["message"], first["stream"], first["seq"], first["duplicate"]) == (
        "messages.xmll:1",
        "news",
        1,
        False,
    )
    assert second["message"] == "messages.xmll:3"
    assert (second["error"]["line"], second["error"]["column"]) == (1, 6)
    assert third["seq"] == 2
    assert done.returncode == 1


def test_the_same_command_publishes_again_unless_told_once(stub: StubServer) -> None:
    for _ in range(2):
        assert publish(stub, "news/one.xml").stdout == "published 1, refused 0; deliveries 0\n"
    assert publish(stub, "news/one.xml", "--once").stdout == "published 1, refused 0; deliveries 0\n"
    again = publish(stub, "news/one.xml", "--once")
    assert again.stdout == "published 0, known before 1, refused 0; deliveries 0\n"
    assert again.returncode == 0
    Path("news/one.xml").write_text("<changed/>")
    assert publish(stub, "news/one.xml", "--once").stdout == "published 1, refused 0; deliveries 0\n"
    assert len(stub.state.messages) == 4


def test_lines_that_are_equal_are_messages_of_their_own(stub: StubServer) -> None:
    assert publish(stub, "-", "--once", stdin="<a/>\n<a/>\n").stdout.startswith("published 2,")


def test_an_error_states_what_was_published_before(stub: StubServer) -> None:
    Path("good.xmll").write_text("<a/>\n" * 4)
    done = publish(stub, "good.xmll", "missing.xml", "--batch", "3", "--once")
    assert done.returncode == 2
    assert "published 3, refused 0; deliveries 0; the last was good.xmll:3" in done.stderr
    assert "the same command publishes the rest" in done.stderr
    assert "error: there is no file or folder 'missing.xml'" in done.stderr
    assert "may have been" not in done.stderr


def test_a_key_that_is_refused(stub: StubServer) -> None:
    stub.state.required_key = "sw_a_b"
    done = publish(stub, "news/one.xml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing was published" in done.stderr
    assert "--key" in done.stderr
    assert publish(stub, "news/one.xml", "--key", "sw_a_b").returncode == 0


def test_no_messages_are_a_note(stub: StubServer, folder: Path) -> None:
    (folder / "empty").mkdir()
    done = publish(stub, "empty")
    assert (done.returncode, done.stdout) == (0, "")
    assert "there were no messages" in done.stderr


def test_an_address_that_is_none() -> None:
    done = sapwood("publish", "news", "--stream", "s", "--url", "broker")
    assert done.returncode == 2
    assert "error: the address 'broker' of the broker must be such as http://127.0.0.1:8080" in done.stderr


def test_ctrl_c_states_what_was_published(stub: StubServer) -> None:
    process = start("publish", "-", "--stream", "news", "--batch", "2", url=stub.url)
    assert process.stdin is not None
    process.stdin.write(b"<a/>\n" * 5)
    process.stdin.flush()
    wait_until(lambda: len(stub.state.messages) == 4)
    wait_until(lambda: len(stub.api.requests) == 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"published 4, refused 0; deliveries 0; the last was -:4\n" in err
    assert b"Traceback" not in err
    assert len(stub.state.messages) == 4
