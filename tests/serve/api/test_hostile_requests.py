"""Publishers that mean harm, or are broken: bombs, lies about lengths, ended connections, hostile XML."""

from __future__ import annotations

import gzip
import io
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import zstandard

from tests.serve.api.calls import bodies, check_problem, publish, pull, subscribe, unique
from tests.support.service.running_server import RunningServer
from tests.support.shared_data import DATA, folder


@pytest.fixture
def stream(client: httpx.Client) -> str:
    """A stream, whose messages a subscriber of the same name gets."""
    name = unique("hostile")
    subscribe(client, name, streams=(name,))
    return name


def check_healthy(client: httpx.Client, stream: str) -> None:
    """Check that a good message is accepted and delivered."""
    mark = unique("healthy")
    assert publish(client, stream, f"<{mark}/>").status_code == 201
    assert pull(client, stream, limit=1_000)["deliveries"][-1]["body"] == f"<{mark}/>"


# -- bombs -------------------------------------------------------------------------------------------------


def gzip_bomb() -> bytes:
    """Return three gigabytes of zeros, in twelve members."""
    return gzip.compress(bytes(2**28), 9, mtime=0) * 12


def zstd_bomb() -> bytes:
    """Return two gigabytes of zeros, in one frame."""
    found = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(found, closefd=False) as file:
        zeros = bytes(2**24)
        for _ in range(2**31 // len(zeros)):
            file.write(zeros)
    return found.getvalue()


def peak_memory(server: RunningServer) -> int:
    """Return the highest resident memory that the server had, in bytes."""
    for line in Path(f"/proc/{server.process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    pytest.skip("this system does not tell the highest memory of a process")


@pytest.mark.parametrize(("coding", "make"), [("gzip", gzip_bomb), ("zstd", zstd_bomb)])
def test_bombs(
    server: RunningServer, client: httpx.Client, stream: str, coding: str, make: Callable[[], bytes]
) -> None:
    bomb = make()
    assert len(bomb) < 4_000_000
    publish(client, stream, b"<a>" + b" " * 3_900_000 + b"</a>")  # which takes as much as a body may
    before = peak_memory(server)
    answer = publish(client, stream, bomb, headers={"Content-Encoding": coding})
    check_problem(answer, 413, "too-large")
    assert peak_memory(server) - before < 40_000_000
    check_healthy(client, stream)


@pytest.mark.parametrize(
    ("coding", "member"),
    [("gzip", gzip.compress(b"", mtime=0)), ("zstd", zstandard.compress(b""))],
    ids=["gzip", "zstd"],
)
def test_many_empty_members_take_little_time(
    client: httpx.Client, stream: str, coding: str, member: bytes
) -> None:
    body = member * (3_900_000 // len(member))
    started = time.monotonic()
    check_problem(publish(client, stream, body, headers={"Content-Encoding": coding}), 400, "bad-request")
    assert time.monotonic() - started < 5
    check_healthy(client, stream)


# -- below HTTP --------------------------------------------------------------------------------------------


def send(server: RunningServer, *pieces: bytes, wait: float = 0.0, shut: bool = False) -> bytes:
    """Send bytes to the server; returns what it answers until it ends the connection, or for a moment."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 5) as raw:
        for piece in pieces:
            raw.sendall(piece)
            time.sleep(wait)
        if shut:
            raw.shutdown(socket.SHUT_WR)
        raw.settimeout(1)
        found = b""
        try:
            while piece := raw.recv(65_536):
                found += piece
        except (TimeoutError, ConnectionResetError):
            pass
        return found


def head(stream: str, *lines: str, connection: str = "close") -> bytes:
    start = f"POST /v1/streams/{stream}/messages HTTP/1.1"
    return "\r\n".join([start, "Host: 127.0.0.1", f"Connection: {connection}", *lines, "", ""]).encode()


def test_a_chunked_body(server: RunningServer, client: httpx.Client, stream: str) -> None:
    def pieces() -> Iterator[bytes]:
        for piece in ("<a>", "1", "", "</a>"):
            yield piece.encode()

    assert client.post(f"/v1/streams/{stream}/messages", content=pieces()).status_code == 201
    chunked = head(stream, "Transfer-Encoding: chunked")
    answer = send(server, chunked, b"4\r\n<b><\r\n", b"3\r\n/b>\r\n", b"0\r\n\r\n", wait=0.05)
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert bodies(client, stream) == ["<a>1</a>", "<b></b>"]


def test_a_chunked_body_without_end_is_bounded(
    server: RunningServer, client: httpx.Client, stream: str
) -> None:
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    start = head(stream, "Transfer-Encoding: chunked", connection="keep-alive")
    answer = send(server, start, *([chunk] * 70))
    assert answer.startswith(b"HTTP/1.1 413 ")
    check_healthy(client, stream)


@pytest.mark.parametrize(
    ("pieces", "statuses"),
    [
        ([b"Content-Length: 100", b"", b"<a/>"], (b"400", b"")),
        ([b"Content-Length: 4", b"", b"<a/><b/>GARBAGE"], (b"201",)),
        ([b"Content-Length: 2", b"", b"<a/>"], (b"422",)),
        ([b"Content-Length: -1", b"", b"<a/>"], (b"400",)),
        ([b"Content-Length: many", b"", b"<a/>"], (b"400",)),
        ([b"Content-Length: 4", b"Content-Length: 5", b"", b"<a/>"], (b"400",)),
        ([b"Content-Length: 99999999999999999999999", b"", b"<a/>"], (b"400",)),
        ([b"Content-Length: 4", b"Transfer-Encoding: chunked", b"", b"0\r\n\r\n"], (b"400", b"422")),
        ([b"Transfer-Encoding: nonsense", b"", b"<a/>"], (b"400", b"422")),
        ([b"Transfer-Encoding: chunked", b"", b"zz\r\n<a/>\r\n0\r\n\r\n"], (b"400", b"")),
        ([b"Transfer-Encoding: chunked", b"", b"4\r\n<a/>\r\n"], (b"400", b"")),
        ([b"Sapwood-Message-Id: a\x00b", b"Content-Length: 4", b"", b"<a/>"], (b"400", b"422")),
        ([b"Sapwood-Message-Id: \xff\xfe", b"Content-Length: 4", b"", b"<a/>"], (b"201",)),
        ([b"X: " + b"y" * 200_000, b"Content-Length: 4", b"", b"<a/>"], (b"400", b"431", b"201")),
    ],
)
def test_lies_about_the_body(
    server: RunningServer, client: httpx.Client, stream: str, pieces: list[bytes], statuses: tuple[bytes, ...]
) -> None:
    start = head(stream).removesuffix(b"\r\n")
    answer = send(server, start + b"\r\n".join(pieces), shut=b"" in statuses)
    assert answer[9:12] in statuses, answer[:300]
    check_healthy(client, stream)


def test_a_connection_that_ends_midway(server: RunningServer, client: httpx.Client, stream: str) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), 5) as raw:
            raw.sendall(head(stream, "Content-Length: 1000000") + b"<a>" + b" " * 500_000)
    deadline = time.monotonic() + 10
    while True:  # the bytes of an ended connection count no more
        lines = client.get("/metrics").text.splitlines()
        if "sapwood_pending_bytes 0.0" in lines:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    check_healthy(client, stream)


def test_garbage_instead_of_http(server: RunningServer, client: httpx.Client, stream: str) -> None:
    for garbage in (
        b"\0" * 1_000,
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        answer = send(server, garbage, shut=True)
        assert not answer or answer.startswith(b"HTTP/1.1 4")
    check_healthy(client, stream)


# -- hostile XML -------------------------------------------------------------------------------------------

FILES = sorted(path.name for path in (DATA / "hostile").glob("*.*ml")) or ["absent"]


@pytest.mark.parametrize("name", FILES)
def test_hostile_files(client: httpx.Client, stream: str, name: str) -> None:
    body = (folder("hostile") / name).read_bytes()
    started = time.monotonic()
    answer = publish(client, stream, body)
    if answer.status_code != 201:
        check_problem(answer, answer.status_code)
        assert answer.status_code in (413, 422)
    assert time.monotonic() - started < 10
    check_healthy(client, stream)


@pytest.mark.parametrize(
    "body",
    [
        b"<a>" * 100_000,
        b"<a>" * 100_000 + b"</a>" * 100_000,
        b"<a " + b" ".join(b"a%d='x'" % number for number in range(100_000)) + b"/>",
        b"<" + b"a" * 3_000_000 + b"/>",
        b"<a xmlns='" + b"x" * 1_000_000 + b"'/>",
        b"<a>" + b"<!---->" * 400_000 + b"</a>",
        b"<a>" + b"&#65;" * 600_000 + b"</a>",
        b"<a>" + b"<![CDATA[x]]>" * 200_000 + b"</a>",
        b"<?xml version='1.0' encoding='nonsense'?><a/>",
        b"<?xml version='1.0' encoding='utf-16'?><a/>",
        "<a>ü</a>".encode("utf-16"),
        b"\xef\xbb\xbf<a/>",
        b"<a>\xff</a>",
        b"\x00<a/>",
        b"<a\x00/>",
    ],
    ids=range(15),
)
def test_hostile_shapes(client: httpx.Client, stream: str, body: bytes) -> None:
    answer = publish(client, stream, body)
    if answer.status_code != 201:
        check_problem(answer, 422, "message")
    check_healthy(client, stream)
