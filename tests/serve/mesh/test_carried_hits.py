"""Messages that carry which routes they meet: deliveries are the same, and who only forwards does not read.

The null twin is `hits = "never"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.mesh.core.frames import MessageFrame
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.tables import route_table
from sapwood.mesh.core.tables.route_table import RouteTable
from sapwood.mesh.wire.frame_codec import decode_payload, encode_payload
from sapwood.mesh.wire.message_content import MOST_HITS, Hits, MessageContent
from sapwood.serve.engine.frames import ChangeStore, Publish
from sapwood.serve.tenants.evaluation import Publication
from sapwood.store import NewSubscription
from tests.support.mesh.linked_engines import LinkedEngine, LinkedEngines

pytestmark = pytest.mark.slow

TREE: dict[str, str | None] = {"a": None, "b": "a", "c": "b", "d": "c", "e": "b"}
"""b and c are inner brokers; what a publishes passes both on its way to d"""
SKUS = "for $i in //item return <got>{$i/@sku}</got>"
QUERIES = {
    "d": [
        "//item[@sku = 'A1']",
        "/order[note][item/@sku = 'A2']/total",
        "//order[not(item)]",
        "//item[2]",
        "/order[count(item) > 1]",
        SKUS,
    ],
    "e": [
        "/order[@id > 130]",
        "/order/item[last()]/@sku[. = 'A3']",
        "for $o in /order where $o/total > 900 return <due>{$o/@id}{$o/total}</due>",
        "//order[contains(note, 'urgent')]",
    ],
}
UNUSUAL = [
    "<?xml version='1.0' encoding='utf-16'?><order id='ü'><item sku='A1'/></order>".encode("utf-16"),
    b"\xef\xbb\xbf<order><item sku='A1'/><note><![CDATA[<item/>]]></note></order>",
    b"<!DOCTYPE order [<!ENTITY e 'A1'>]><order><item sku='&e;'/></order>",
    b"<order  id = '200' ><!-- <item sku='A1'/> --><total>1<b/>00</total></order >",
    b"<order/>",
    b"<other/>",
]


def order(number: int) -> bytes:
    items = b"".join(b'<item sku="A%d"/>' % ((number + each) % 5) for each in range(number % 3))
    note = b"<note>urgent</note>" if number % 7 == 0 else b"<note>none</note>"
    return b'<order id="%d">%b%b<total>%d</total></order>' % (number, items, note, 7 * number)


MakeMesh = Callable[..., LinkedEngines]


@pytest.fixture
def make_mesh(tmp_path: Path) -> Iterator[MakeMesh]:
    made: list[LinkedEngines] = []

    def make(hits: str = "auto", **settings: Any) -> LinkedEngines:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(LinkedEngines(folder, TREE, **{"project": "never", **settings, "hits": hits}))
        return made[-1]

    yield make
    for mesh in made:
        mesh.stop()


def bodies(engine: LinkedEngine, tenant: str = "") -> list[bytes]:
    return [body for _, body in engine.deliveries(tenant=tenant)]


def count(mesh: LinkedEngines, name: str, counter: str = "decided by hits") -> int:
    return mesh[name].counters().get(counter, 0)


def begin_to_subscribe(engine: LinkedEngine, id: str, query: str) -> None:
    """Let a broker have a subscription of which no other has heard yet."""
    engine.tell(ChangeStore(900, "", "put", {"row": NewSubscription(id, query, "desk")}))


def begin_to_publish(engine: LinkedEngine, body: bytes) -> None:
    """Publish at a broker, which matches the message before it hears anything more of the others."""
    engine.tell(Publish(901, [Publication("", "news", "early", body)]))


def forbid_reading(engine: LinkedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a broker fail that matches a message."""

    def fail(*arguments: object) -> None:
        raise AssertionError("a message is read")

    for name in ("evaluate", "evaluate_links"):
        for _, tenant_engine in engine.engine._engines:
            monkeypatch.setattr(tenant_engine, name, fail)


# -- null twins --------------------------------------------------------------------------------------------


def publish_all(mesh: LinkedEngines) -> dict[str, list[bytes]]:
    for name, queries in QUERIES.items():
        for number, query in enumerate(queries):
            mesh[name].subscribe(f"{name}{number}", query)
    mesh["d"].subscribe("of a stream", "//item", streams=("extra",))
    mesh["d"].subscribe("of a tenant", "/order[item]", tenant="acme")
    for name, published in (
        ("a", [*(order(i) for i in range(100, 160)), *UNUSUAL]),
        ("b", [order(7), *UNUSUAL[:2]]),
        ("d", [order(8)]),
    ):
        mesh[name].publish(*published)
        mesh.settle()  # since there is no order between sources
    mesh["a"].publish(*(order(i) for i in range(10)), stream="extra")
    mesh["a"].publish(*(order(i) for i in range(10)), tenant="acme")
    mesh.settle()
    mesh["e"].publish(order(1), order(2))
    mesh.settle()
    mesh["d"].unsubscribe("d3")
    mesh["b"].subscribe("local", "/order[@id = 171]")
    mesh["a"].publish(*(order(i) for i in range(160, 180)))
    mesh.settle()
    assert all(count(mesh, name, "late") == 0 for name in TREE)
    found = {name: bodies(mesh[name]) for name in ("b", "d", "e")}
    return {**found, "acme": bodies(mesh["d"], "acme")}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    """The deliveries of links that carry no hits."""
    mesh = LinkedEngines(tmp_path_factory.mktemp("plain"), TREE, hits="never", project="never")
    try:
        found = publish_all(mesh)
        assert all(count(mesh, name) == 0 for name in TREE)
        assert mesh["a"].link("b")["hits out"] == 0
        return found
    finally:
        mesh.stop()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"project": "always"},
        {"scheduling": "priority"},
        {"scheduling": "fcfs", "project": "always", "format": "text"},
        {"skeletons": "always", "dictionary_samples": 8},
    ],
    ids=str,
)
def test_deliveries_are_the_same(
    make_mesh: MakeMesh, plain: dict[str, list[bytes]], settings: dict[str, str]
) -> None:
    mesh = make_mesh(**settings)
    assert publish_all(mesh) == plain
    assert min(map(len, plain.values())) > 0 and len(plain["d"]) > 40
    assert count(mesh, "b") > 80 and count(mesh, "c") > 50
    assert mesh["a"].link("b")["hits out"] > 80
    assert mesh["c"].link("d")["hits out"] == 0  # which is a leaf


@pytest.mark.parametrize("project", ["never", "always"])
def test_cut_messages_carry_hits(make_mesh: MakeMesh, project: str) -> None:
    mesh = make_mesh(project=project)
    mesh["d"].subscribe("d", SKUS)
    mesh["e"].subscribe("e", "for $o in /order where $o/total > 100 return <due>{$o/@id}</due>")
    mesh["d"].subscribe("also", "for $i in //item return <also>{$i}</also>")  # the same condition
    mesh["a"].publish(*(order(i) for i in range(30)))
    mesh.settle()
    assert (mesh["a"].link("b").get("cut messages out", 0) > 0) == (project == "always")
    assert count(mesh, "b") == mesh["a"].link("b")["messages out"]
    assert count(mesh, "c") == 20 and mesh["b"].link("c")["hits out"] == 20
    assert len(bodies(mesh["d"])) == 40 and len(bodies(mesh["e"])) == 15


# -- inner brokers -----------------------------------------------------------------------------------------


def test_inner_brokers_do_not_read_what_they_forward(
    make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = make_mesh()
    mesh["d"].subscribe("d", "//item[@sku = 'A1'][last()]")
    mesh["e"].subscribe("e", "/order[not(item)]")
    for name in "bc":
        forbid_reading(mesh[name], monkeypatch)
    mesh["a"].publish(*(order(i) for i in range(30)))
    mesh.settle()
    passed = [mesh["b"].link(name)["messages out"] for name in "ce"]
    assert passed == [len(bodies(mesh["d"])), 10] and passed[0] > 5
    assert count(mesh, "b") == sum(passed) and count(mesh, "c") == passed[0]


@pytest.mark.parametrize("is_deferring", [False, True])
def test_what_an_inner_broker_wants_itself(
    make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch, is_deferring: bool
) -> None:
    mesh = make_mesh()
    mesh["d"].subscribe("d", "/order")
    mesh["b"].subscribe("b", "//item[@sku = 'A1']")
    runtime = mesh["b"].engine._mesh
    assert runtime is not None
    monkeypatch.setattr(runtime.local_work, "defers", lambda tenant: is_deferring)
    mesh["a"].publish(*(order(i) for i in range(30)))
    mesh.settle()
    wanted = [order(i) for i in range(30) if b'"A1"' in order(i)]
    assert bodies(mesh["b"]) == wanted
    assert bodies(mesh["d"]) == [order(i) for i in range(30)]
    assert count(mesh, "b") == (30 if is_deferring else 30 - len(wanted))
    assert count(mesh, "b", "deferred messages") == (len(wanted) if is_deferring else 0)
    assert count(mesh, "c") == 30


def test_joins_see_every_message(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["b"].subscribe("join", "news//a[@k->x] FOLLOWED BY{x = y, 100 s} news//b[@k->y]")
    mesh["d"].subscribe("all", "/*")
    mesh["a"].publish(order(1))
    mesh.settle()
    assert (count(mesh, "b"), count(mesh, "c")) == (0, 1)


def test_a_message_that_meets_many_routes_carries_some(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    for number in range(2 * MOST_HITS):
        mesh["d"].subscribe(f"d{number}", f"/order[@id > {number}]")
    mesh["a"].publish(order(50))
    mesh.settle()
    assert (count(mesh, "b"), count(mesh, "c")) == (1, 1)  # nobody else wants anything
    mesh["e"].subscribe("e", "//item[@sku = 'A3']")
    mesh["a"].publish(order(52), order(53), order(54))
    mesh.settle()
    assert bodies(mesh["e"]) == [order(i) for i in (52, 53) if b'"A3"' in order(i)]
    assert count(mesh, "b") <= 2 and count(mesh, "c") == 4
    mesh["c"].subscribe("c", "/order[@id = 61]")
    mesh["a"].publish(order(60), order(61))
    mesh.settle()
    assert bodies(mesh["c"]) == [order(61)]
    assert count(mesh, "c") == 4  # which would have to know all of them
    mesh["c"].unsubscribe("c")
    mesh["a"].publish(order(62))
    mesh.settle()
    assert count(mesh, "c") == 5
    assert len(bodies(mesh["d"])) == 7 * 2 * MOST_HITS


def test_some_routes_stay_some_on_their_way(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    for number in range(2 * MOST_HITS):
        mesh["d"].subscribe(f"d{number}", f"/order[@id > {number}]")
    for number in range(60, 64):  # one of which at most is listed by chance
        mesh["c"].subscribe(f"c{number}", f"/order[@id = {number}]")
    mesh["a"].publish(*(order(i) for i in range(59, 65)))
    mesh.settle()
    assert count(mesh, "b") == 6 and count(mesh, "c") == 0
    assert bodies(mesh["c"]) == [order(i) for i in range(60, 64)]


def test_skeletons_are_not_made_where_hits_are_carried(
    make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = make_mesh(dictionary_samples=8)
    mesh["d"].subscribe("d", "/order")
    runtime = mesh["a"].engine._mesh
    assert runtime is not None
    monkeypatch.setattr(runtime._codec, "_least_routes", 0)
    mesh["a"].publish(*(order(i) for i in range(8)))
    mesh.settle()
    mesh.run(
        lambda: any(runtime._codec._exchange.is_shared("b", name) for name in runtime._codec.dictionaries)
    )
    mesh["a"].publish(order(9))
    mesh.settle()
    assert mesh["a"].link("b")["skeletons out"] == 0
    monkeypatch.setattr(runtime._hits, "get", lambda link, key: None)
    monkeypatch.setattr(runtime._links, "_find_hits", lambda link, key: None)
    mesh["a"].publish(order(10))
    mesh.settle()
    assert mesh["a"].link("b")["skeletons out"] == 1


# -- changes -----------------------------------------------------------------------------------------------


def subscribe_late(mesh: LinkedEngines, at: str) -> list[bytes]:
    """Subscribe at a broker while a message is on its way to an inner one; return what is delivered there."""
    mesh["d"].subscribe("d", "/order")
    mesh["a"].publish(order(1))
    mesh.settle()
    table = mesh["b"].engine._mesh.node.table  # type: ignore[union-attr]
    before = table.told["a"].version
    begin_to_subscribe(mesh[at], "late", "//item")
    mesh.run(lambda: table.told["a"].version > before, only={at, "b"})
    begin_to_publish(mesh["a"], order(2))
    mesh.run(lambda: 900 in mesh[at].answers and mesh[at].confirmed >= mesh[at].answers[900].version)
    mesh.settle()
    assert bodies(mesh["d"]) == [order(1), order(2)]
    return bodies(mesh[at])


@pytest.mark.parametrize("at", ["b", "e"])
def test_a_subscription_that_the_sender_has_not_heard_of(make_mesh: MakeMesh, at: str) -> None:
    mesh = make_mesh()
    assert subscribe_late(mesh, at) == [order(2)]
    assert count(mesh, "b", "outdated hits") == 1
    assert count(mesh, "c") == 2  # whose routes are what they were


def test_a_change_of_local_routes_that_waits(make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = make_mesh()
    mesh["d"].subscribe("d", "/order")
    monkeypatch.setattr(Node, "has_local_changes", property(lambda node: node.name == "b"))
    mesh["a"].publish(order(1))
    mesh.settle()
    assert (count(mesh, "b"), count(mesh, "c")) == (0, 1)


def test_a_route_that_nobody_wants_any_more_is_passed_over(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["d"].subscribe("d", "/order[@id > 5]")
    mesh["e"].subscribe("e", "/order")
    mesh["e"].unsubscribe("e")
    told = mesh["b"].engine._mesh.node.table.told["a"]  # type: ignore[union-attr]
    mesh["a"].publish(order(1), order(6))
    mesh.settle()
    assert bodies(mesh["d"]) == [order(6)] and bodies(mesh["e"]) == []
    mesh.run(lambda: not told.stale and mesh["a"].link("b")["routes in"] == 1)
    sent = mesh["a"].link("b")["messages out"]
    mesh["a"].publish(order(2), order(7))
    mesh.settle()
    assert mesh["a"].link("b")["messages out"] == sent + 1
    assert bodies(mesh["d"]) == [order(6), order(7)]
    assert count(mesh, "b") + count(mesh, "b", "outdated hits") == sent + 1


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_restart(make_mesh: MakeMesh, name: str) -> None:
    mesh = make_mesh()
    mesh["d"].subscribe("d", "//item")
    mesh["e"].subscribe("e", "/order[@id > 20]")
    mesh.cut.add(frozenset("bc"))
    mesh["a"].publish(*(order(i) for i in range(15)))
    mesh.run(lambda: mesh["b"].link("a").get("messages in", 0) == 10)
    mesh["b"].engine._commits.drain()
    mesh[name].stop(save=False)
    mesh[name].start()
    mesh.cut.clear()
    mesh.run(mesh.is_linked)
    mesh["a"].publish(*(order(i) for i in range(15, 30)))
    mesh.settle()
    assert bodies(mesh["d"]) == [order(i) for i in range(30) if i % 3]
    assert bodies(mesh["e"]) == [order(i) for i in range(21, 30)]
    before = count(mesh, "b"), count(mesh, "c")
    mesh["a"].publish(order(31))
    mesh.settle()
    assert (count(mesh, "b"), count(mesh, "c")) == (before[0] + 1, before[1] + 1)


def test_a_change_of_the_tree(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["d"].subscribe("d", "/order")
    mesh["e"].subscribe("e", "//item")
    mesh.cut |= {frozenset("bc"), frozenset("be")}
    mesh["a"].publish(*(order(i) for i in range(10)))
    mesh.run(lambda: mesh["b"].link("a").get("messages in", 0) == 10)
    mesh.cut.clear()
    mesh.change(mesh.topology.move("e", "c"))
    mesh["a"].publish(*(order(i) for i in range(10, 20)))
    mesh.settle()
    assert bodies(mesh["d"]) == [order(i) for i in range(20)]
    assert bodies(mesh["e"]) == [order(i) for i in range(20) if i % 3]
    before = count(mesh, "b"), count(mesh, "c")
    mesh["a"].publish(order(31))
    mesh.settle()
    assert (count(mesh, "b"), count(mesh, "c")) == (before[0] + 1, before[1] + 1)


def test_entries_that_stand_for_several_routes(make_mesh: MakeMesh) -> None:
    mesh = make_mesh(table_budget=200)
    for number in range(40):
        mesh["d"].subscribe(f"d{number}", f"/order[@id = '{number}'][note]/total")
    links = [("d", "c"), ("c", "b"), ("b", "a")]  # entries that one link tells may be few enough for the next
    mesh.run(lambda: any(mesh[one].link(other)["generalised"] for one, other in links))
    mesh.run(lambda: mesh["a"].link("b")["routes in"] < 40)
    mesh["a"].publish(*(order(i) for i in range(30, 50)))
    mesh.settle()
    assert bodies(mesh["d"]) == [order(i) for i in range(30, 40)]
    assert count(mesh, "b") == 0 and count(mesh, "b", "outdated hits") >= 10


# -- what peers may send -----------------------------------------------------------------------------------


def change_hits(mesh: LinkedEngines, change: Callable[[Hits], Hits]) -> None:
    """Let all links carry other hits than were sent."""

    def damage(payload: bytes) -> bytes:
        epoch, first, frames = decode_payload(payload)
        changed = []
        for frame in frames:
            if isinstance(frame, MessageFrame) and isinstance(frame.content, MessageContent):
                content = frame.content
                if content.hits is not None:
                    content = content._replace(hits=change(content.hits))
                frame = MessageFrame(frame.key, content, frame.table, frame.floor, frame.is_partial)
            changed.append(frame)
        return encode_payload(epoch, first, changed)

    mesh.damage = damage


def test_the_hits_of_another_table_are_ignored(make_mesh: MakeMesh) -> None:
    mesh = make_mesh(format="text")
    mesh["d"].subscribe("d", "//item")
    mesh["e"].subscribe("e", "/order[@id = 7]")
    change_hits(mesh, lambda hits: Hits(hits.table ^ 1, (5,), True))
    mesh["a"].publish(*(order(i) for i in range(9)))
    mesh.settle()
    assert bodies(mesh["d"]) == [order(i) for i in range(9) if i % 3]
    assert bodies(mesh["e"]) == [order(7)]
    assert count(mesh, "b") == count(mesh, "c") == 0
    assert count(mesh, "b", "outdated hits") == 6


def test_routes_that_are_nowhere_wanted_are_passed_over(make_mesh: MakeMesh) -> None:
    mesh = make_mesh(format="text")
    mesh["d"].subscribe("d", "//item")
    change_hits(mesh, lambda hits: Hits(hits.table, (5, *hits.keys), hits.is_complete))
    mesh["a"].publish(*(order(i) for i in range(9)))
    mesh.settle()
    assert bodies(mesh["d"]) == [order(i) for i in range(9) if i % 3]
    assert count(mesh, "b") == count(mesh, "c") == 6


def test_hits_that_cannot_be_are_refused_and_sent_again(
    make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = make_mesh(format="text")
    mesh["d"].subscribe("d", "//item")
    wrong = 3

    def damage(payload: bytes) -> bytes:
        nonlocal wrong
        frames = decode_payload(payload).frames
        has_hits = any(isinstance(each, MessageFrame) and each.content is not None for each in frames)
        if not (has_hits and wrong):
            return payload
        wrong -= 1
        epoch, first, _ = decode_payload(payload)
        twice = [
            MessageFrame(each.key, each.content._replace(hits=Hits(1, (5, 5), True)), each.table, each.floor)
            if isinstance(each, MessageFrame) and isinstance(each.content, MessageContent)
            else each
            for each in frames
        ]
        return encode_payload(epoch, first, twice)

    mesh.damage = damage
    mesh["a"].publish(*(order(i) for i in range(9)))
    mesh.settle()
    assert wrong == 0
    assert sum(count(mesh, name, "refused payloads") for name in TREE) == 3
    assert bodies(mesh["d"]) == [order(i) for i in range(9) if i % 3]


# -- mutants -----------------------------------------------------------------------------------------------


def test_a_broker_that_does_not_compare_tables_is_found_out(
    make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RouteTable, "covers", lambda table, digest, link: True)
    assert subscribe_late(make_mesh(), "e") == []


def test_a_broker_that_forgets_its_own_subscriptions_is_found_out(
    make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_sides = RouteTable.find_sides

    def forget_local(*arguments: Any) -> int | None:
        sides = find_sides(*arguments)
        return None if sides is None else sides & ~route_table.LOCAL

    monkeypatch.setattr(RouteTable, "find_sides", forget_local)
    mesh = make_mesh()
    mesh["d"].subscribe("d", "/order")
    mesh["b"].subscribe("b", "//item")
    mesh["a"].publish(order(1))
    mesh.settle()
    assert bodies(mesh["b"]) == [] and bodies(mesh["d"]) == [order(1)]
