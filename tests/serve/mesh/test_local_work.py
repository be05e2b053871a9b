"""Scheduling: messages are forwarded before local work, which is neither lost nor starved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from sapwood.errors import MessageError
from sapwood.serve.engine.frames import ChangeStore, Committed
from sapwood.serve.log import log_schema
from sapwood.serve.log.log_database import open_log
from sapwood.serve.mesh.mesh_frames import MeshOutput, PayloadOut
from sapwood.serve.mesh.node import local_work, mesh_schema
from sapwood.store import NewSubscription, SubscriptionStore
from tests.support.mesh.linked_engines import LinkedEngine, LinkedEngines

pytestmark = pytest.mark.slow
_CHAIN = {"a": None, "b": "a", "c": "b"}
_TRANSFORMATION = "for $b in //b where $b > 0 return <x>{$b/text()}</x>"
_JOIN = "SELECT <pair>{$x}{$y}</pair> FROM book//b->x JOIN{x = y, 100 s} blog//p->y PUBLISH pairs"


@pytest.fixture(autouse=True)
def always_defer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defer whatever may be deferred, however short its evaluation."""
    monkeypatch.setattr(local_work, "WORTH", -1.0)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[LinkedEngines]:
    mesh = LinkedEngines(tmp_path, _CHAIN, lateness=1_000.0)
    yield mesh
    mesh.stop()


@pytest.fixture
def no_slices(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Do no local work when there is nothing to route."""
    with monkeypatch.context() as patched:
        patched.setattr("sapwood.serve.engine.message_engine.MessageEngine.has_local_work", False)
        patched.setattr(local_work, "PATIENCE", 1e9)
        yield patched


def _bodies(engine: LinkedEngine) -> list[bytes]:
    return [body for _, body in engine.deliveries()]


def _deferred(engine: LinkedEngine) -> int:
    return engine.engine._deferred


def _run(mesh: LinkedEngines) -> dict[str, list[tuple[str, bytes]]]:
    """Publish at all brokers while subscriptions change; return the deliveries of each broker."""
    for name in _CHAIN:
        mesh[name].subscribe(f"{name}-filter", "//b[last()]")
        mesh[name].subscribe(f"{name}-transformation", _TRANSFORMATION)
    mesh["b"].subscribe("join", _JOIN)
    mesh["c"].subscribe("pairs", "/pair", streams=("pairs",))
    for number in range(12):
        moment = float(number)
        book, blog = f"<k><b>{number}</b></k>".encode(), f"<k><p>{number - 1}</p></k>".encode()
        mesh["a"].publish(book, stream="book", times=(moment,), ids=(f"book{number}",))
        mesh["c"].publish(blog, stream="blog", times=(moment,), ids=(f"blog{number}",))
        mesh["b"].publish(b"<k><b>%d</b></k>" % -number, ids=(f"news{number}",))
        if number == 4:
            mesh.settle()
            mesh["b"].subscribe("more", "for $p in //p return <p>{$p/text()}</p>")
        if number == 8:
            mesh.settle()
            mesh["b"].unsubscribe("b-transformation")
    mesh.settle()
    return {name: mesh[name].deliveries() for name in _CHAIN}


def _by_stream(deliveries: list[tuple[str, bytes]]) -> dict[tuple[str, bytes], list[tuple[str, bytes]]]:
    """Return deliveries by the prefix of their message and the first bytes of what is delivered."""
    found: dict[tuple[str, bytes], list[tuple[str, bytes]]] = {}
    for id, body in deliveries:
        if not id.startswith(("book", "blog", "news")):
            continue
        found.setdefault((id.rstrip("0123456789"), body[:2]), []).append((id, body))
    return found


def test_deliveries_are_those_of_arrival_order(tmp_path: Path) -> None:
    found: dict[str, Any] = {}
    for policy in ("fcfs", "priority", "dependencies"):
        (tmp_path / policy).mkdir()
        mesh = LinkedEngines(tmp_path / policy, _CHAIN, lateness=1_000.0, scheduling=policy)
        found[policy] = _run(mesh)
        assert (mesh["b"].counters().get("deferred messages", 0) > 0) == (policy != "fcfs")
        mesh.stop()
    for policy in ("priority", "dependencies"):
        for name in _CHAIN:
            mine, theirs = found[policy][name], found["fcfs"][name]
            assert Counter(body for _, body in mine) == Counter(body for _, body in theirs)
            assert _by_stream(mine) == _by_stream(theirs)
    assert any(b"<pair>" in body for _, body in found["fcfs"]["c"])


def test_a_message_is_forwarded_before_local_work(chain: LinkedEngines) -> None:
    chain["b"].subscribe("t", _TRANSFORMATION)
    chain["c"].subscribe("all", "/*")
    seen: list[str] = []
    engine = chain["b"]
    take = engine._take

    def watch(event: Any) -> bool:
        if isinstance(event, MeshOutput) and any(
            isinstance(item, PayloadOut) and item.link == "c" for item in event.items
        ):
            seen.append("sent")
        if isinstance(event, Committed) and event.entries:
            seen.append("delivered")
        return take(event)

    engine._take = watch  # type: ignore[method-assign]
    chain["a"].publish(b"<k><b>1</b></k>")
    chain.settle()
    assert seen[:2] == ["sent", "delivered"]


def test_deferred_messages_survive_a_crash(chain: LinkedEngines, no_slices: pytest.MonkeyPatch) -> None:
    chain["b"].subscribe("join", _JOIN)
    chain["b"].subscribe("t", _TRANSFORMATION, streams=("book",))
    chain["c"].subscribe("pairs", "/pair", streams=("pairs",))
    chain["a"].publish(b"<k><b>1</b></k>", b"<k><b>2</b></k>", stream="book", times=(1.0, 2.0))
    chain["c"].publish(b"<k><p>1</p></k>", stream="blog", times=(3.0,))
    chain.run(lambda: _deferred(chain["b"]) == 3)
    chain["b"].engine._commits.drain()
    assert _bodies(chain["b"]) == []
    chain["b"].stop(save=False)
    no_slices.undo()
    for _ in range(2):  # the second time, nothing is deferred
        chain["b"].start()
        chain.run(chain.is_linked)
        chain.settle()
        pair = b"<pair><b>1</b><p>1</p></pair>"
        assert _bodies(chain["b"]) == [b"<x>1</x>", b"<x>2</x>", pair]
        assert _bodies(chain["c"]) == [pair]
        chain["b"].stop(save=False)
    chain["b"].start()
    chain.run(chain.is_linked)
    chain["c"].publish(b"<k><p>2</p></k>", stream="blog", times=(4.0,))  # the join has seen each once
    chain.settle()
    assert _bodies(chain["b"])[3:] == [b"<pair><b>2</b><p>2</p></pair>"]


def test_a_change_of_the_store_by_another_process_after_a_crash(
    chain: LinkedEngines, no_slices: pytest.MonkeyPatch
) -> None:
    chain["b"].subscribe("t", _TRANSFORMATION)
    chain["a"].publish(b"<k><b>1</b></k>")
    chain.run(lambda: _deferred(chain["b"]) == 1)
    chain["b"].engine._commits.drain()
    chain["b"].stop(save=False)
    with SubscriptionStore(chain["b"].location) as store:
        store.add("later", "//b", subscriber="desk")
    no_slices.undo()
    chain["b"].start()
    chain.run(chain.is_linked)
    chain.settle()
    assert _bodies(chain["b"]) == [b"<x>1</x>"]


def test_a_store_change_waits_for_deferred_messages(
    chain: LinkedEngines, no_slices: pytest.MonkeyPatch
) -> None:
    chain["b"].subscribe("t", _TRANSFORMATION)
    chain["a"].publish(b"<k><b>1</b></k>")
    chain.run(lambda: _deferred(chain["b"]) == 1)
    row = NewSubscription("later", "//b", "desk")
    chain["b"].call(lambda n: ChangeStore(n, "", "put", {"row": row}))
    assert not _deferred(chain["b"])
    assert _bodies(chain["b"]) == [b"<x>1</x>"]


def test_a_barrier_and_positions_wait_for_deferred_messages(
    chain: LinkedEngines, no_slices: pytest.MonkeyPatch
) -> None:
    b = chain["b"]
    b.subscribe("t", _TRANSFORMATION)
    chain["a"].publish(b"<k><b>1</b></k>")
    chain.run(lambda: _deferred(b) == 1)
    request = b.ask("barrier")
    chain.run(lambda: request in b.done)
    assert not _deferred(b)
    chain["a"].publish(b"<k><b>2</b></k>")
    chain.run(lambda: _deferred(b) == 1)
    assert b.ask("positions")["a"] == 2
    assert not _deferred(b)


def test_a_published_message_is_evaluated_after_deferred_ones(
    chain: LinkedEngines, no_slices: pytest.MonkeyPatch
) -> None:
    chain["b"].subscribe("t", _TRANSFORMATION)
    chain["a"].publish(b"<k><b>1</b></k>", b"<k><b>2</b></k>")
    chain.run(lambda: _deferred(chain["b"]) == 2)
    [receipt] = chain["b"].publish(b"<k><b>3</b></k>")
    assert receipt.deliveries == 1
    assert _bodies(chain["b"]) == [b"<x>%d</x>" % number for number in (1, 2, 3)]


@pytest.mark.parametrize(("name", "value"), [("PATIENCE", 0.0), ("MOST_MESSAGES", 0)])
def test_local_work_goes_on_under_continuous_routing(
    chain: LinkedEngines, no_slices: pytest.MonkeyPatch, name: str, value: float
) -> None:
    no_slices.setattr(local_work, name, value)
    chain["b"].subscribe("t", _TRANSFORMATION)
    for number in range(1, 6):
        chain["a"].publish(b"<k><b>%d</b></k>" % number)
    chain.settle()
    assert chain["b"].counters()["deferred messages"] == 5
    assert _bodies(chain["b"]) == [b"<x>%d</x>" % number for number in range(1, 6)]


def test_retention_keeps_deferred_messages(chain: LinkedEngines, no_slices: pytest.MonkeyPatch) -> None:
    chain["b"].subscribe("t", _TRANSFORMATION)
    chain["a"].publish(b"<k><b>1</b></k>")
    chain.run(lambda: _deferred(chain["b"]) == 1)
    runtime = chain["b"].engine._mesh
    assert runtime is not None
    chain.run(lambda: not runtime.node.unsettled())
    assert runtime.find_needed() == 1


def test_a_message_that_only_local_subscriptions_refuse(
    chain: LinkedEngines, no_slices: pytest.MonkeyPatch
) -> None:
    chain["b"].subscribe("t", _TRANSFORMATION)
    chain["a"].publish(b"<k><b>1</b></k>")
    chain.run(lambda: _deferred(chain["b"]) == 1)
    tenant = chain["b"].engine._engines.of("")
    no_slices.setattr(tenant, "evaluate", lambda messages: iter([MessageError("no time")]))
    chain["b"].engine._drain_local_work()
    chain["b"].engine._commits.drain()
    with open_log(chain["b"].location).reading() as connection:
        reasons = list(connection.scalars(select(log_schema.rejects.c.reason)))
        rows = list(connection.execute(select(mesh_schema.messages.c.is_local)))
    assert reasons == ["no time"]
    assert [row.is_local for row in rows] == [False]
