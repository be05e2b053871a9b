"""Engines that are brokers of a mesh, linked in this process: what they store, send and deliver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sapwood import Broker
from sapwood.errors import SapwoodError
from sapwood.serve.mesh.node.mesh_store import MeshIdentityError, MeshStore, open_mesh_store
from tests.support.mesh.linked_engines import LinkedEngines

pytestmark = pytest.mark.slow


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[LinkedEngines]:
    mesh = LinkedEngines(tmp_path, {"a": None, "b": "a", "c": "b"}, lateness=1_000.0)
    yield mesh
    mesh.stop()


def links_out(mesh: LinkedEngines, name: str, link: str) -> int:
    runtime = mesh[name].engine._mesh
    assert runtime is not None
    return int(runtime.describe().links[link].get("messages out", 0))


def test_a_message_crosses_only_links_behind_which_it_is_wanted(chain: LinkedEngines) -> None:
    chain["c"].subscribe("c1", "/order[@id = 2]")
    chain["b"].subscribe("b1", "/order")
    chain["a"].publish(*(b"<order id='%d'/>" % i for i in range(4)), b"<other/>")
    chain.settle()
    assert len(chain["b"].deliveries()) == 4
    assert [body for _, body in chain["c"].deliveries()] == [b"<order id='2'/>"]
    assert (links_out(chain, "a", "b"), links_out(chain, "b", "c")) == (4, 1)


def test_transformations_and_streams(chain: LinkedEngines) -> None:
    chain["c"].subscribe("t", "for $o in //o return <r>{$o/text()}</r>", streams=("orders",))
    chain["a"].publish(b"<x><o>1</o></x>", stream="orders")
    chain["a"].publish(b"<x><o>2</o></x>", stream="news")
    chain.settle()
    assert [body for _, body in chain["c"].deliveries()] == [b"<r>1</r>"]
    assert links_out(chain, "a", "b") == 1


def test_a_refused_message_is_refused_once_and_goes_nowhere(chain: LinkedEngines) -> None:
    chain["c"].subscribe("all", "/*")
    results = chain["a"].publish(b"<a>", b"<b/>")
    assert "line 1" in str(results[0].reason) or results[0].line == 1
    chain.settle()
    assert [body for _, body in chain["c"].deliveries()] == [b"<b/>"]


def test_joins_get_messages_of_all_sites_and_publish_to_all(chain: LinkedEngines) -> None:
    join = "SELECT <pair>{$x}{$y}</pair> FROM book//b->x JOIN{x = y, 100 s} blog//p->y PUBLISH pairs"
    chain["b"].subscribe("join", join)
    chain["c"].subscribe("pairs", "/pair", streams=("pairs",))
    chain["a"].publish(b"<k><b>1</b></k>", stream="book", times=(10.0,))
    chain.settle()
    chain["c"].publish(b"<k><p>1</p></k>", stream="blog", times=(20.0,))
    chain.settle()
    expected = [b"<pair><b>1</b><p>1</p></pair>"]
    assert [body for _, body in chain["b"].deliveries()] == expected
    assert [body for _, body in chain["c"].deliveries()] == expected


def test_deliveries_equal_one_broker(chain: LinkedEngines) -> None:
    queries = {
        "a": ["//b[. = 1]", "/d[count(b) = 2]"],
        "b": ["for $b in //b where $b > 1 return <x>{$b}</x>", "//b[last()]"],
        "c": ["/d[not(b)]", "//@k", "/d/b[2]"],
    }
    broker = Broker()
    for name, texts in queries.items():
        for i, text in enumerate(texts):
            chain[name].subscribe(f"{name}{i}", text)
            broker.subscribe((name, i), text)
    documents = [b"<d/>", b"<d><b>1</b></d>", b"<d k='1'><b>1</b><b>2</b></d>", b"<d><c k=''/></d>"]
    for name in queries:
        chain[name].publish(*documents)
    chain.settle()
    for name in queries:
        expected = sorted(
            delivery.body
            for document in documents * 3
            for delivery in broker.publish(document)
            if isinstance(delivery.subscription, tuple) and delivery.subscription[0] == name
        )
        assert sorted(body for _, body in chain[name].deliveries()) == expected


def test_an_engine_that_is_started_again_goes_on(chain: LinkedEngines, tmp_path: Path) -> None:
    chain["c"].subscribe("all", "/*")
    chain["a"].publish(b"<m>1</m>")
    chain.settle()
    chain["b"].stop(save=False)
    b = chain.engines.pop("b")
    chain["a"].publish(b"<m>2</m>", b"<m>3</m>")
    chain.engines["b"] = b
    b.start()
    chain.run(chain.is_linked)
    chain["a"].publish(b"<m>4</m>")
    chain.settle()
    assert [body for _, body in chain["c"].deliveries()] == [b"<m>%d</m>" % i for i in (1, 2, 3, 4)]


def test_a_link_that_is_down_delays_and_loses_nothing(chain: LinkedEngines) -> None:
    chain["c"].subscribe("all", "/*")
    chain.cut.add(frozenset("ab"))
    chain["a"].publish(b"<m>1</m>", b"<m>2</m>")
    chain["b"].publish(b"<m>b</m>")
    chain.run(lambda: len(chain["c"].deliveries()) == 1)
    chain.cut.clear()
    chain.settle()
    assert [body for _, body in chain["c"].deliveries()] == [b"<m>b</m>", b"<m>1</m>", b"<m>2</m>"]


def test_the_tree_may_change(chain: LinkedEngines) -> None:
    chain["c"].subscribe("all", "/*")
    chain["a"].publish(b"<m>1</m>")
    chain.change(chain.topology.move("c", "a"))
    chain["a"].publish(b"<m>2</m>")
    chain["b"].publish(b"<m>3</m>")
    chain.settle()
    assert sorted(body for _, body in chain["c"].deliveries()) == [b"<m>%d</m>" % i for i in (1, 2, 3)]


def test_the_same_message_published_at_two_brokers_is_delivered_once(chain: LinkedEngines) -> None:
    chain["c"].subscribe("all", "/*")
    chain["a"].publish(b"<m>1</m>", ids=("order-1",))
    chain.settle()
    chain["b"].publish(b"<m>1</m>", ids=("order-1",))
    chain["b"].publish(b"<m>2</m>", ids=("order-2",))
    chain["a"].publish(b"<other/>", ids=("order-2",))
    chain.settle()
    delivered = chain["c"].deliveries()
    assert sorted(body for _, body in delivered) == [b"<m>1</m>", b"<m>2</m>", b"<other/>"]
    assert len({id for id, _ in delivered}) == 3


def test_routes_go_with_their_subscriptions(chain: LinkedEngines) -> None:
    runtime = chain["a"].engine._mesh
    assert runtime is not None
    chain["c"].subscribe("one", "//x")
    chain["c"].subscribe("two", "//x")
    assert [route["condition"] for route in chain["a"].ask("routes", link="b")] == [".//x"]
    chain["c"].unsubscribe("one")
    chain["c"].unsubscribe("two")
    chain.run(lambda: not runtime.node.table.routes_of("b"))
    chain["a"].publish(b"<d><x/></d>")
    chain.settle()
    assert links_out(chain, "a", "b") == 0


def test_a_log_belongs_to_one_broker(chain: LinkedEngines) -> None:
    store = MeshStore(open_mesh_store(chain["a"].location))
    with pytest.raises(MeshIdentityError, match="is that of the broker 'a' in the mesh 'test'"):
        store.begin("test", "z")
    store.close()


def test_a_payload_that_cannot_be_read_is_asked_for_again(chain: LinkedEngines) -> None:
    chain["c"].subscribe("all", "/*")
    carry = chain.carry
    damaged: list[bytes] = []

    def damage(sender: str, receiver: str, payload: bytes) -> bool:
        if sender == "a" and not damaged and b"<m>1</m>" in payload:
            damaged.append(payload)
            payload = payload[: len(payload) // 2]
        return carry(sender, receiver, payload)

    chain.carry = damage  # type: ignore[method-assign]
    chain["a"].publish(b"<m>1</m>")
    chain["a"].publish(b"<m>2</m>")
    chain.settle()
    assert damaged
    assert [body for _, body in chain["c"].deliveries()] == [b"<m>1</m>", b"<m>2</m>"]
    runtime = chain["b"].engine._mesh
    assert runtime is not None
    assert runtime.counters["refused payloads"] == 1


def test_an_error_of_an_operation_is_told(chain: LinkedEngines) -> None:
    error = chain["a"].ask("prepare", tenant="", query="//[", streams=())
    assert isinstance(error, SapwoodError)
