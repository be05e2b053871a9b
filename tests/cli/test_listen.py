"""`sapwood listen` against a stub of the service."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

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


def fill(stub: StubServer, count: int) -> None:
    start = len(stub.state.inboxes["desk"].deliveries)
    for number in range(start + 1, start + count + 1):
        stub.state.deliver("desk", f"<m>{number}</m>".encode())


def listen(stub: StubServer, *arguments: str) -> Run:
    return sapwood("listen", "--subscriber", "desk", *arguments, SAPWOOD_URL=stub.url)


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def test_deliveries_are_printed_and_acknowledged(stub: StubServer) -> None:
    fill(stub, 5)
    done = listen(stub, "--count", "2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "<m>1</m>\n<m>2</m>\n", "")
    assert stub.state.inboxes["desk"].acks == [2]
    assert listen(stub, "--count", "1").stdout == "<m>3</m>\n"


def test_without_acknowledgement_all_is_printed_again(stub: StubServer) -> None:
    fill(stub, 3)
    for _ in range(2):
        assert listen(stub, "--count", "1", "--no-ack").stdout == "<m>1</m>\n"
    assert listen(stub, "--count", "1", "--no-ack", "--after", "2").stdout == "<m>3</m>\n"
    assert stub.state.inboxes["desk"].acks == []


def test_json_lines_have_all_fields(stub: StubServer) -> None:
    fill(stub, 2)
    stub.state.inboxes["desk"].deliveries[1]["body_base64"] = "/w=="
    stub.state.inboxes["desk"].gaps = [{"after": 1, "count": 1200, "reason": "the inbox was full"}]
    done = listen(stub, "--count", "2", "--json")
    first, gap, second = map(json.loads, done.stdout.splitlines())
    assert first == stub.state.inboxes["desk"].deliveries[0]
    assert gap == {"gap": {"after": 1, "count": 1200, "reason": "the inbox was full"}}
    assert "body" not in second
    assert second["body_base64"] == "/w=="
    assert done.stderr == "warning: 1,200 deliveries after number 1 are lost: the inbox was full\n"


def test_queries_are_subscribed_to_once(stub: StubServer) -> None:
    process = start(
        "listen", "--subscriber", "me", "-q", "//a", "-q", "//b", "--stream", "news", url=stub.url
    )
    wait_until(lambda: ("GET", "/v1/subscribers/me/events") in stub.api.requests)
    stub.state.publish("other", "0", b"<a/>", None)
    stub.state.publish("news", "1", b"<a/>", None)
    assert read_line(process) == b"<a/>\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert stub.state.inboxes["me"].acknowledged == 1
    assert len(stub.state.subscriptions) == 2  # which remain
    stub.state.publish("news", "2", b"<b/>", None)
    again = sapwood(
        *("listen", "--subscriber", "me", "-q", "//a", "-q", "//b", "--count", "1", "--unsubscribe"),
        SAPWOOD_URL=stub.url,
    )
    assert again.stdout == "<b/>\n"
    assert stub.state.subscriptions == {}


def test_a_query_that_is_refused_shows_the_place(stub: StubServer) -> None:
    done = listen(stub, "--query", "//a[")
    assert done.returncode == 2
    assert "\n  //a[\n      ^" in done.stderr


@pytest.mark.parametrize("options", [("--stream", "s"), ("--unsubscribe",)])
def test_options_that_need_a_query(options: tuple[str, ...], stub: StubServer) -> None:
    done = listen(stub, *options)
    assert done.returncode == 2
    assert "--query" in done.stderr


def test_a_subscriber_that_does_not_exist(stub: StubServer) -> None:
    done = listen(stub)
    assert done.returncode == 2
    assert "there is no subscriber 'desk'" in done.stderr


def test_ctrl_c_acknowledges_what_was_printed(stub: StubServer) -> None:
    fill(stub, 2)
    process = start("listen", "--subscriber", "desk", url=stub.url)
    assert [read_line(process), read_line(process)] == [b"<m>1</m>\n", b"<m>2</m>\n"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == (b"", b"", 130)
    assert stub.state.inboxes["desk"].acknowledged == 2


def test_a_reader_that_leaves_ends_it_quietly(stub: StubServer) -> None:
    fill(stub, 1)
    process = start("listen", "--subscriber", "desk", url=stub.url)
    assert process.stdout is not None
    assert process.stderr is not None
    assert read_line(process) == b"<m>1</m>\n"
    process.stdout.close()
    fill(stub, 1)
    assert process.wait(30) == 1  # as typer ends every command whose reader has left
    assert process.stderr.read() == b""
    assert process.stdin is not None
    process.stdin.close()
    process.stderr.close()
    assert stub.state.inboxes["desk"].acknowledged == 1


def test_a_broker_that_restarts_is_connected_to_again(stub: StubServer) -> None:
    fill(stub, 1)
    process = start("listen", "--subscriber", "desk", "--count", "2", url=stub.url)
    assert read_line(process) == b"<m>1</m>\n"
    wait_until(lambda: stub.state.inboxes["desk"].acknowledged == 1)
    stub.stop()
    fill(stub, 1)
    stub.start()
    out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == (b"<m>2</m>\n", 0)
    assert err.count(b"\n") == 1
    assert f"the connection to {stub.url} was lost; connecting again".encode() in err
    assert stub.state.inboxes["desk"].acknowledged == 2
