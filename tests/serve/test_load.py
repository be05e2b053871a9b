"""Load: one subscriber, target or publisher that cannot keep up does not harm the others."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]
import pytest

from tests.serve.webhooks.webhook_targets import answer, hang, serve
from tests.support.requirements import FULL, SLOWDOWN
from tests.support.service.listeners import EventListener
from tests.support.service.running_server import RunningServer

pytestmark = [pytest.mark.slow, pytest.mark.anyio]
_SOON = 2.0 * SLOWDOWN
"""seconds in which what nobody holds up has to come, on a machine that is shared"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _import(client: httpx.Client, rows: list[dict[str, Any]]) -> None:
    report = client.post("/v1/imports", content="\n".join(map(json.dumps, rows)), timeout=120).json()
    assert report["added"] == len(rows), report["errors"][:3]


def _publish(client: httpx.Client, body: str) -> None:
    reply = client.post("/v1/streams/s/messages", content=body)
    assert reply.status_code == 201, reply.text


def test_a_subscriber_that_never_acknowledges_keeps_to_its_limit(tmp_path: Path) -> None:
    with RunningServer(tmp_path) as server, server.client() as client:
        client.put("/v1/subscribers/slow", json={"limit": 100, "policy": "drop-oldest"}).raise_for_status()
        _import(client, [{"id": name, "query": "/a", "subscriber": name} for name in ("slow", "quick")])
        with EventListener(server.url, "quick") as quick:
            for number in range(400):
                _publish(client, f"<a>{number}</a>")
            quick.wait_for(400, _SOON)
        assert [each.body.decode() for each in quick.deliveries.values()] == [
            f"<a>{number}</a>" for number in range(400)
        ]
        assert not quick.gaps and not quick.repeated
        assert client.get("/v1/subscribers/slow").json()["backlog"] == 100
        page = client.get("/v1/subscribers/slow/deliveries", params={"limit": 1_000}).json()
        assert [each["body"] for each in page["deliveries"]] == [f"<a>{n}</a>" for n in range(300, 400)]
        gaps = client.get("/v1/subscribers/slow/gaps").json()["gaps"]
        assert sum(gap["count"] for gap in gaps) == 300
        assert {gap["reason"] for gap in gaps} == {"full"}


async def test_targets_of_webhooks_that_misbehave_delay_nobody_else(tmp_path: Path) -> None:
    """One hangs, one fails, and one redirects to an address that the server must not ask."""
    config = '[webhooks]\nallowed = ["127.0.0.1"]\n'
    async with serve() as private, serve(hang) as hanging, serve(answer(500)) as failing:
        location = f"location: http://127.0.0.1:{private.port}/\r\n"
        async with serve(answer(302, location)) as redirecting:
            targets = {"hanging": hanging, "failing": failing, "redirecting": redirecting}
            urls = {name: target.url for name, target in targets.items()}
            await asyncio.to_thread(_publish_beside_webhooks, tmp_path, config, urls)
            assert all(target.requests for target in targets.values())
            assert not private.requests


def _publish_beside_webhooks(folder: Path, config: str, urls: dict[str, str]) -> None:
    with RunningServer(folder, config) as server, server.client() as client:
        for name, url in urls.items():
            settings = {"webhook": {"url": url, "first_delay": 0.1, "max_delay": 1, "timeout": 60}}
            client.put(f"/v1/subscribers/{name}", json=settings).raise_for_status()
        _import(client, [{"id": name, "query": "/a", "subscriber": name} for name in (*urls, "quick")])
        with EventListener(server.url, "quick") as quick:
            for number in range(1, 61):
                _publish(client, f"<a>{number}</a>")
                quick.wait_for(number, _SOON)
        assert [client.get(f"/v1/subscribers/{name}").json()["backlog"] for name in urls] == [60] * 3


# -- many listeners ----------------------------------------------------------------------------------------


@contextmanager
def _many_files(wanted: int) -> Iterator[None]:
    """Allow this process, and those that it starts, to open many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"the machine allows {hard} open files, and {wanted} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _listen(port: int, name: str, count: int, begun: asyncio.Semaphore) -> list[str]:
    """Return the bodies of the first deliveries to a subscriber."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET /v1/subscribers/{name}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert b" 200 " in await reader.readline()
        begun.release()
        bodies: list[str] = []
        while len(bodies) < count:
            line = await reader.readline()
            assert line, f"{name} lost its connection"
            if line.startswith(b"data: "):
                bodies.append(json.loads(line[6:])["body"])
        return bodies
    finally:
        writer.close()


@pytest.mark.parametrize("listeners", [1_000])
async def test_a_thousand_listeners_get_what_is_theirs(tmp_path: Path, listeners: int) -> None:
    with _many_files(2 * listeners + 500), RunningServer(tmp_path) as server, server.client() as client:
        rows = [
            {"id": f"own-{n}", "query": f"/a[@to='{n}']", "subscriber": f"l{n}"} for n in range(listeners)
        ]
        rows += [{"id": f"all-{n}", "query": "/all", "subscriber": f"l{n}"} for n in range(listeners)]
        await asyncio.to_thread(_import, client, rows)
        begun = asyncio.Semaphore(0)
        port = int(server.url.rpartition(":")[2])
        tasks = [asyncio.create_task(_listen(port, f"l{n}", 3, begun)) for n in range(listeners)]
        async with asyncio.timeout(60 * SLOWDOWN):
            for _ in range(listeners):
                await begun.acquire()
            await asyncio.to_thread(_publish, client, "<all>first</all>")
            lines = "\n".join(f'<a to="{n}"/>' for n in range(listeners))
            headers = {"Content-Type": "application/x-xmll"}
            path = "/v1/streams/s/messages"
            reply = await asyncio.to_thread(client.post, path, content=lines, headers=headers)
            assert reply.json()["published"] == listeners
            await asyncio.to_thread(_publish, client, "<all>last</all>")
            found = await asyncio.gather(*tasks)
        for number, bodies in enumerate(found):
            assert bodies == ["<all>first</all>", f'<a to="{number}"/>', "<all>last</all>"]


# -- overload ----------------------------------------------------------------------------------------------

_OVERLOAD = """
[overload]
pending_bytes = "256 kB"
cache = "4 MB"
"""
_LINES = 200
_BODY = "\n".join(f"<a>{'x' * 400}</a>" for _ in range(_LINES)).encode()


class _Flood:
    """Publishers that send the next request without waiting for better times."""

    def __init__(self, url: str, seconds: float) -> None:
        self._path = f"{url}/v1/streams/s/messages"
        self._end = time.monotonic() + seconds
        self.accepted: set[str] = set()
        self.statuses: Counter[int] = Counter()
        self.resets = 0
        """requests without an answer, which publishers repeat"""

    async def run(self, publishers: int) -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=60, limits=limits) as client:
            await asyncio.gather(*(self._publish(client, f"p{n}") for n in range(publishers)))

    async def _publish(self, client: httpx.AsyncClient, name: str) -> None:
        number = 0
        while time.monotonic() < self._end:
            number += 1
            key = f"{name}-{number}"
            headers = {"Content-Type": "application/x-xmll", "Idempotency-Key": key}
            try:
                reply = await client.post(self._path, content=_BODY, headers=headers)
            except httpx.TransportError:  # a refusal in the middle of a body may reset the connection
                self.resets += 1
                continue
            self.statuses[reply.status_code] += 1
            if reply.status_code == 200:
                assert f'"published":{_LINES},' in reply.text
                self.accepted.update(f"{key}-{line}" for line in range(1, _LINES + 1))
            else:
                assert reply.status_code in (429, 503), reply.text
                assert int(reply.headers["Retry-After"]) >= 1


async def _probe(url: str, flood: asyncio.Task[None]) -> float:
    """Return the longest time that other requests took during a flood."""
    longest = 0.0
    async with httpx.AsyncClient(timeout=30) as client:
        while not flood.done():
            for path in ("/healthz", "/v1/subscribers/desk/deliveries?limit=10"):
                started = time.monotonic()
                assert (await client.get(url + path)).status_code == 200
                longest = max(longest, time.monotonic() - started)
            await asyncio.sleep(0.2)
    return longest


async def _watch(processes: list[psutil.Process], flood: asyncio.Task[None]) -> list[int]:
    """Return the memory of processes together, in bytes, from time to time."""
    sizes: list[int] = []
    while not flood.done():
        sizes.append(sum(process.memory_info().rss for process in processes))
        await asyncio.sleep(0.25)
    return sizes


async def test_publishers_beyond_capacity_are_told_to_wait(tmp_path: Path) -> None:
    seconds = 60 if FULL else 8
    with RunningServer(tmp_path, _OVERLOAD) as server, server.client() as client:
        _import(client, [{"id": "a", "query": "/a", "subscriber": "desk"}])
        client.put("/v1/subscribers/desk", json={"limit": 10_000_000}).raise_for_status()
        flood = _Flood(server.url, seconds)
        task = asyncio.create_task(flood.run(60))
        processes = [psutil.Process(server.process_id), psutil.Process(server.engine_id)]
        longest, sizes, _ = await asyncio.gather(_probe(server.url, task), _watch(processes, task), task)
        assert flood.statuses[429] and flood.statuses[200], flood.statuses
        early, late = max(sizes[: len(sizes) // 2]), max(sizes[len(sizes) // 2 :])
        beyond = flood.statuses.total() / flood.statuses[200]
        print(f"{beyond:.1f} times as much as was accepted: {flood.statuses}, {flood.resets} resets")
        print(f"{len(flood.accepted)} messages, others took up to {longest:.2f} s")
        print(f"memory {sizes[0] >> 20}, then up to {early >> 20} and {late >> 20} MiB")
        assert flood.resets < 0.02 * flood.statuses.total()
        assert late < 1.2 * early + 32 * 2**20
        assert longest < _SOON
        found = await asyncio.to_thread(_read_ids, client)
    assert len(found) == len(set(found)), "a message was delivered twice"
    assert flood.accepted <= set(found), "a message that was accepted is lost"


def _read_ids(client: httpx.Client) -> list[str]:
    found: list[str] = []
    after = 0
    while True:
        query = {"after": after, "limit": 1_000}
        page = client.get("/v1/subscribers/desk/deliveries", params=query).json()
        if not page["deliveries"]:
            return found
        found += [each["message"] for each in page["deliveries"]]
        after = page["cursor"]
