"""A subscription that goes on at another broker gets what its former host has not handled, in one step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import SapwoodError
from sapwood.serve.engine.frames import ChangeStore
from sapwood.serve.mesh.mesh_frames import AdoptSubscription
from sapwood.store import NewSubscription
from tests.support.mesh.linked_engines import LinkedEngine, LinkedEngines

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[LinkedEngines]:
    engines = LinkedEngines(tmp_path, {"a": None, "b": "a"})
    yield engines
    engines.stop()


def hold(engines: LinkedEngines, host: LinkedEngine, id: str, query: str) -> int:
    """Store a copy for nobody, and wait until all brokers know; return its version."""
    row = NewSubscription(id, query, "")
    changed = host.call(lambda n: ChangeStore(n, "", "put", {"row": row}))
    engines.run(lambda: host.confirmed >= changed.version)
    version: int = changed.version
    return version


def adopt(host: LinkedEngine, id: str, positions: dict[str, int]) -> Any:
    return host.call(lambda n: AdoptSubscription(n, "", id, "desk", positions))


def positions(engine: LinkedEngine) -> dict[str, int]:
    found: dict[str, int] = engine.ask("positions")
    return found


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("/m[@n > 0]", '<m n="{}"/>'),
        ('for $m in /m return <t n="{$m/@n}"/>', '<t n="{}"/>'),
    ],
)
def test_what_is_behind_the_positions_is_delivered(pair: LinkedEngines, query: str, shown: str) -> None:
    a, b = pair["a"], pair["b"]
    # another subscription has outputs of the same messages, which must stay
    b.subscribe("other", 'for $m in /m return <other n="{$m/@n}"/>')
    a.publish(b'<m n="1"/>')
    pair.settle()
    hold(pair, b, "moved", query)
    a.publish(b'<m n="2"/>', b'<m n="3"/>')
    pair.settle()
    before = positions(a)
    a.publish(b'<m n="4"/>')
    pair.settle()  # since there is no order between sources
    b.publish(b'<m n="5"/>')
    a.publish(b'<m n="6"/>', b"<x/>")
    pair.settle()
    changed, count = adopt(b, "moved", before)
    assert changed.subscription.subscriber == "desk" and count == 3
    b.publish(b'<m n="7"/>')
    pair.settle()
    got = [body.decode() for _, body in b.deliveries() if b"other" not in body]
    assert got == [shown.replace("{}", str(n)) for n in (4, 5, 6, 7)]
    others = [body.decode() for _, body in b.deliveries() if b"other" in body]
    assert others == [f'<other n="{n}"/>' for n in range(1, 8)]


def test_a_restarted_engine_has_the_deliveries(pair: LinkedEngines) -> None:
    a, b = pair["a"], pair["b"]
    hold(pair, b, "moved", "/m")
    a.publish(b"<m>1</m>", b"<m>2</m>")
    pair.settle()
    adopt(b, "moved", {"a": 0})
    b.stop()
    b.start()
    pair.run(pair.is_linked)
    a.publish(b"<m>3</m>")
    pair.settle()
    assert [body for _, body in b.deliveries()] == [b"<m>1</m>", b"<m>2</m>", b"<m>3</m>"]


def test_a_step_that_is_repeated_delivers_nothing_again(pair: LinkedEngines) -> None:
    """An engine that ends after the deliveries, and before the store has the subscriber, does it again."""
    a, b = pair["a"], pair["b"]
    hold(pair, b, "moved", "/m")
    a.publish(b"<m>1</m>", b"<m>2</m>")
    pair.settle()
    run = b.engine._changes.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(b.engine._changes, "run", lambda *_: (_ for _ in ()).throw(SapwoodError("ended")))
        assert isinstance(adopt(b, "moved", {}), SapwoodError)
    assert b.engine._changes.run == run
    _, count = adopt(b, "moved", {})
    assert count == 0
    a.publish(b"<m>3</m>")
    pair.settle()
    assert [body for _, body in b.deliveries()] == [b"<m>1</m>", b"<m>2</m>", b"<m>3</m>"]


def test_nothing_before_the_copy_is_delivered(pair: LinkedEngines) -> None:
    a, b = pair["a"], pair["b"]
    b.subscribe("all", "/*")
    a.publish(b"<m>before</m>")
    pair.settle()
    hold(pair, b, "moved", "/m")
    _, count = adopt(b, "moved", {})
    assert count == 0


def test_a_subscription_that_is_not_there_is_not_adopted(pair: LinkedEngines) -> None:
    assert isinstance(adopt(pair["b"], "absent", {}), KeyError)
