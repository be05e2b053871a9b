"""The directory of a mesh at real hubs: values, compare-and-set, and watches that survive restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sapwood.errors import ArgumentError, SapwoodError
from sapwood.mesh.nats.directory import MeshDirectory
from sapwood.mesh.nats.errors import MeshUnavailable, RevisionConflict
from sapwood.mesh.nats.local_servers import LocalServer, LocalServers
from tests.support.nats import running, settings, tasks_left, until

pytestmark = pytest.mark.server


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LocalServers]:
    with running(tmp_path) as servers:
        yield servers


@asynccontextmanager
async def directory(server: LocalServer, hub: str | None, wait: bool = True) -> AsyncIterator[MeshDirectory]:
    opened = MeshDirectory(settings(server, "a", hub))
    await opened.start()
    try:
        if wait:
            await opened.wait_reachable(20)
        yield opened
    finally:
        await opened.stop()
        assert not (left := tasks_left()), f"tasks are left: {left}"


def start(servers: LocalServers, layout: str) -> tuple[LocalServer, str | None]:
    if layout == "single":
        return servers.start_single(), None
    servers.start_hub()
    return servers.start_site("a"), "hub"


@pytest.mark.parametrize("layout", ["single", "leaf"])
def test_values_and_compare_and_set(servers: LocalServers, layout: str) -> None:
    server, hub = start(servers, layout)

    async def main() -> None:
        async with directory(server, hub) as mesh:
            assert await mesh.read("topology") is None
            first = await mesh.create("topology", b"one")
            assert await mesh.read("topology") == (b"one", first)
            with pytest.raises(RevisionConflict, match="exists already"):
                await mesh.create("topology", b"two")
            second = await mesh.update("topology", b"two", first)
            with pytest.raises(RevisionConflict, match=f"not at revision {first}"):
                await mesh.update("topology", b"three", first)
            assert await mesh.read("topology") == (b"two", second)
            with pytest.raises(RevisionConflict):
                await mesh.delete("topology", first)
            await mesh.delete("topology", second)
            assert await mesh.read("topology") is None
            third = await mesh.update("topology", b"", 0)
            assert await mesh.read("topology") == (b"", third)
            lease = await mesh.put("brokers.a", b"lease")
            await mesh.put("brokers.b", b"gone")
            await mesh.delete("brokers.b")
            assert await mesh.list("brokers.") == {"brokers.a": (b"lease", lease)}
            assert list(await mesh.list()) == ["brokers.a", "topology"]
            with pytest.raises(ArgumentError, match="cannot be a key"):
                await mesh.put("brokers.*", b"")
            assert issubclass(RevisionConflict, SapwoodError)

    asyncio.run(main())


def test_a_site_reaches_the_bucket_of_the_hub_and_not_one_of_its_own(servers: LocalServers) -> None:
    servers.start_hub()
    a, b = servers.start_site("a"), servers.start_site("b")

    async def main() -> None:
        async with directory(a, "a") as own:  # the same bucket, in the domain of the site
            await own.put("topology", b"own")
        async with directory(a, "hub") as one:
            await one.put("topology", b"hub")
        async with directory(b, "hub") as other:
            found = await other.read("topology")
            assert found is not None and found[0] == b"hub"
        async with directory(a, "a") as own:
            found = await own.read("topology")
            assert found is not None and found[0] == b"own"

    asyncio.run(main())


@pytest.mark.parametrize("layout", ["single", "leaf"])
def test_a_watch_reports_what_is_there_and_what_changes(servers: LocalServers, layout: str) -> None:
    server, hub = start(servers, layout)
    reports: list[tuple[str, bytes | None]] = []
    completions: list[int] = []

    async def main() -> None:
        async with directory(server, hub) as mesh:
            await mesh.put("topology", b"1")
            await mesh.put("brokers.a", b"lease")
            await mesh.put("brokers.b", b"lease")
            await mesh.delete("brokers.b")
            watch = mesh.watch(
                lambda key, value, revision: reports.append((key, value)),
                lambda: completions.append(len(reports)),
            )
            await until(lambda: completions == [2])
            assert sorted(reports) == [("brokers.a", b"lease"), ("topology", b"1")]
            await mesh.put("topology", b"2")
            await mesh.delete("brokers.a")
            await until(lambda: len(reports) == 4)
            assert reports[2:] == [("topology", b"2"), ("brokers.a", None)]
            await watch.stop()
            await mesh.put("topology", b"3")
            await asyncio.sleep(0.1)
            assert len(reports) == 4

    asyncio.run(main())


def test_an_empty_directory_is_complete_at_once(servers: LocalServers) -> None:
    server = servers.start_single()
    completions: list[bool] = []

    async def main() -> None:
        async with directory(server, None) as mesh:
            mesh.watch(lambda key, value, revision: None, lambda: completions.append(True))
            await until(lambda: completions == [True])

    asyncio.run(main())


@pytest.mark.parametrize("layout", ["single", "leaf"])
def test_a_watch_goes_on_after_the_hub_was_killed(servers: LocalServers, layout: str) -> None:
    server, hub = start(servers, layout)
    victim = hub or server.name
    reports: list[tuple[str, bytes | None]] = []
    completions: list[int] = []

    async def main() -> None:
        async with directory(server, hub) as mesh:
            await mesh.put("topology", b"1")
            await mesh.put("brokers.a", b"lease")
            mesh.watch(
                lambda key, value, revision: reports.append((key, value)),
                lambda: completions.append(len(reports)),
            )
            await until(lambda: completions == [2])
            assert await mesh.hub_reachable()
            await asyncio.sleep(0.2)  # or the last write would be lost with the server's buffer
            servers.kill(victim)
            assert not await mesh.hub_reachable()
            with pytest.raises(MeshUnavailable):
                await mesh.put("topology", b"nowhere")
            servers.restart(victim)
            await mesh.wait_reachable(20)
            await mesh.put("topology", b"2")
            await until(lambda: reports[2:] == [("topology", b"2")])  # the rest is as it was
            await until(lambda: len(completions) >= 2)

    asyncio.run(main())


def test_keys_that_vanish_with_the_bucket_are_reported(servers: LocalServers) -> None:
    server = servers.start_single()
    reports: list[tuple[str, bytes | None, int]] = []

    async def main() -> None:
        async with directory(server, None) as mesh:
            await mesh.put("topology", b"1")
            mesh.watch(lambda key, value, revision: reports.append((key, value, revision)))
            await until(lambda: reports == [("topology", b"1", 1)])
            jetstream = await mesh._bucket()
            await jetstream.request(f"STREAM.DELETE.{mesh.stream}")
            await until(lambda: reports[1:] == [("topology", None, 0)])
            await mesh.put("topology", b"again")
            await until(lambda: reports[2:] == [("topology", b"again", 1)])

    asyncio.run(main())


def test_a_directory_without_a_server_says_so(servers: LocalServers) -> None:
    server = servers.start_single()
    servers.kill("single")

    async def main() -> None:
        async with directory(server, None, wait=False) as mesh:
            with pytest.raises(MeshUnavailable, match="no connection to a NATS server"):
                await mesh.read("topology")
            with pytest.raises(MeshUnavailable):
                await mesh.wait_reachable(0.1)
            assert not mesh.connected
            assert not await mesh.hub_reachable()

    asyncio.run(main())
