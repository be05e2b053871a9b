"""Changes of subscriptions wait for all brokers, which know of a new query before it is used."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.errors import QueryError
from sapwood.serve.mesh.administration.confirmed_changes import ConfirmedChange, list_changed
from sapwood.store import Subscription


class StubMesh:
    """A mesh whose brokers confirm at once, or never."""

    def __init__(self, confirms: bool = True) -> None:
        self.config = SimpleNamespace(confirm_seconds=5.0)
        self.confirms = confirms
        self.calls: list[tuple[Any, ...]] = []
        self.waits: list[float] = []

    async def request_all(self, operation: str, wait: float, **arguments: Any) -> tuple[int, bool]:
        self.calls.append((operation, arguments["queries"]))
        return 7, self.confirms

    async def request(self, operation: str, **arguments: Any) -> None:
        self.calls.append((operation, arguments))

    async def wait_confirmed(self, version: int, wait: float) -> bool:
        self.waits.append(wait)
        return self.confirms


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def change(mesh: StubMesh | None, wait: bool = True) -> ConfirmedChange:
    service: Any = SimpleNamespace(mesh=mesh)
    return ConfirmedChange(service, wait)


QUERY = ("/b", (), None)


def test_a_query_is_prepared_and_released() -> None:
    mesh = StubMesh()

    async def work() -> None:
        made = change(mesh)
        async with made.prepared("", [QUERY]):
            mesh.calls.append(("changed",))
        assert await made.confirm(3) is True

    run(work())
    assert mesh.calls == [("prepare all", [QUERY]), ("changed",), ("release", {"prepared": 7})]
    assert 4.0 < mesh.waits[0] <= 5.0


def test_what_was_prepared_is_released_if_the_change_is_refused() -> None:
    mesh = StubMesh()

    async def work() -> None:
        async with change(mesh).prepared("", [QUERY]):
            raise QueryError("wrong", "/b", 0)

    with pytest.raises(QueryError):
        run(work())
    assert mesh.calls[-1] == ("release", {"prepared": 7})


@pytest.mark.parametrize(("mesh", "expected"), [(None, None), (StubMesh(), True), (StubMesh(False), False)])
def test_confirmation(mesh: StubMesh | None, expected: bool | None) -> None:
    async def work() -> None:
        assert await change(mesh).confirm(1) is expected

    run(work())


def test_who_does_not_wait_is_answered_at_once() -> None:
    mesh = StubMesh(False)

    async def work() -> None:
        made = change(mesh, wait=False)
        async with made.prepared("", [QUERY]):
            pass
        assert await made.confirm(1) is False

    run(work())
    assert (mesh.calls, mesh.waits) == ([], [0.0])


def make(query: str = "/a", active: bool = True, streams: tuple[str, ...] = ()) -> Subscription:
    return Subscription("s", query, "desk", "xpath", active, 1, 1, streams)


@pytest.mark.parametrize(
    ("old", "query", "streams", "active", "expected"),
    [
        (None, "/b", (), True, []),
        (make(), "/a", (), True, []),
        (make(), "/b", (), True, [("/b", (), None)]),
        (make(), "/a", ("s",), True, [("/a", ("s",), None)]),
        (make(streams=("s", "t")), "/a", ("t", "s"), True, []),
        (make(active=False), "/b", (), True, []),
        (make(), "/b", (), False, []),
    ],
)
def test_only_a_query_in_place_of_another_is_prepared(
    old: Subscription | None, query: str, streams: tuple[str, ...], active: bool, expected: list[Any]
) -> None:
    assert list_changed(old, query, streams, None, active) == expected
