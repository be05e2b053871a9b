"""Links that carry only what somebody beyond reads: deliveries are those of whole messages.

The null twin is `project = "never"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from sapwood.serve.engine.frames import ChangeStore, Publish
from sapwood.serve.mesh.node import mesh_schema
from sapwood.serve.tenants.evaluation import Publication
from sapwood.store import NewSubscription
from tests.support.mesh.linked_engines import LinkedEngine, LinkedEngines

pytestmark = pytest.mark.slow

TREE: dict[str, str | None] = {"a": None, "b": "a", "c": "b", "d": "b"}
TOTALS = "for $o in /order where $o/total > 100 return <due>{$o/@id}{$o/total}</due>"
SKUS = "for $i in //item return <got>{$i/@sku}</got>"
SOME = "for $i in //item where $i/@sku = 'A1' return <some>{$i/@qty}{$i/note}</some>"
UNUSUAL = [
    "<?xml version='1.0' encoding='utf-16'?><order id='ü'><total>200</total><note/></order>".encode("utf-16"),
    b"\xef\xbb\xbf<order id='1'><item sku='A1'/><note><![CDATA[<item/>]]></note>"
    b"<total>1<b/>11</total></order>",
    b"<!DOCTYPE order [<!ENTITY e 'A1'>]><order><item sku='&e;'/><note>x</note></order>",
    b"<order  id = '7' ><!-- <item sku='A1'/> --><total>200</total><note> n </note></order >",
    b"<o:order xmlns:o='urn:o' xmlns='urn:i'><item sku='A1'/></o:order>",
]


def order(number: int) -> bytes:
    return (
        b'<order id="%d"><note>%b</note><item sku="A%d" qty="2"><note>gift</note></item>'
        b"<total>%d</total></order>" % (number, b"long " * 20, number % 5, 7 * number)
    )


MakeMesh = Callable[..., LinkedEngines]


@pytest.fixture
def make_mesh(tmp_path: Path) -> Iterator[MakeMesh]:
    made: list[LinkedEngines] = []

    def make(project: str = "always", tree: dict[str, str | None] = TREE, **settings: Any) -> LinkedEngines:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        mesh = LinkedEngines(folder, tree, project=project, **settings)
        made.append(mesh)
        return mesh

    yield make
    for mesh in made:
        mesh.stop()


def bodies(engine: LinkedEngine) -> list[bytes]:
    return [body for _, body in engine.deliveries()]


def has_cut(mesh: LinkedEngines, sender: str, receiver: str) -> bool:
    """Return whether anything was cut from messages on a link."""
    return bool(mesh[sender].link(receiver).get("cut bytes out", 0))


def begin_to_subscribe(engine: LinkedEngine, id: str, query: str) -> None:
    """Let a broker have a subscription of which no other has heard yet."""
    row = NewSubscription(id, query, "desk")
    engine.tell(ChangeStore(900, "", "put", {"row": row}))


def publish_at_once(mesh: LinkedEngines, engine: LinkedEngine, body: bytes, id: str = "early") -> None:
    """Publish at a broker, which sends the message on before it hears anything more of the others."""

    def count_sent() -> int:
        return sum(engine.link(name).get("messages out", 0) for name in mesh.topology.neighbours(engine.name))

    before = count_sent()
    engine.tell(Publish(901, [Publication("", "news", id, body)]))
    mesh.run(lambda: count_sent() > before, only=(engine.name,))


def wait_until_all_know(mesh: LinkedEngines, engine: LinkedEngine) -> None:
    mesh.run(lambda: 900 in engine.answers and engine.confirmed >= engine.answers[900].version)
    mesh.settle()


# -- null twins --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    """The deliveries of links that carry whole messages."""
    mesh = LinkedEngines(tmp_path_factory.mktemp("whole"), TREE, project="never")
    try:
        found = publish_all(mesh)
        assert not has_cut(mesh, "a", "b")
        return found
    finally:
        mesh.stop()


def publish_all(mesh: LinkedEngines) -> dict[str, list[bytes]]:
    mesh["c"].subscribe("totals", TOTALS)
    mesh["c"].subscribe("some", SOME)
    mesh["d"].subscribe("skus", SKUS)
    mesh["d"].subscribe("late", "for $o in //order where not($o/total > 100) return <small>{$o/@id}</small>")
    for name, published in (
        ("a", [*(order(i) for i in range(40)), *UNUSUAL]),
        ("b", [order(70), *UNUSUAL]),
        ("c", [order(80)]),
    ):
        mesh[name].publish(*published)
        mesh.settle()  # since there is no order between sources
    mesh["d"].subscribe("notes", "for $n in /order/note return <n>{$n}</n>")
    mesh["a"].publish(*(order(i) for i in range(40, 50)))
    mesh.settle()
    mesh["d"].unsubscribe("notes")
    mesh["a"].publish(*(order(i) for i in range(50, 60)))
    mesh.settle()
    mesh["c"].subscribe("filter", "/order[@id > 60]")
    mesh["a"].publish(*(order(i) for i in range(60, 70)))
    mesh.settle()
    assert mesh["c"].counters()["late"] == 0
    return {name: bodies(mesh[name]) for name in ("c", "d")}


@pytest.mark.parametrize("scheduling", ["dependencies", "fcfs", "priority"])
@pytest.mark.parametrize("project", ["always", "auto"])
def test_deliveries_are_those_of_whole_messages(
    make_mesh: MakeMesh, whole: dict[str, list[bytes]], project: str, scheduling: str
) -> None:
    mesh = make_mesh(project, scheduling=scheduling)
    assert publish_all(mesh) == whole
    assert min(map(len, whole.values())) > 40
    assert has_cut(mesh, "a", "b") and has_cut(mesh, "b", "c")
    assert mesh["b"].link("c")["cut messages out"] > (10 if project == "always" else 0)
    assert all(mesh[name].counters().get("withheld deliveries", 0) == 0 for name in TREE)


@pytest.mark.parametrize("format", ["text", "named-elements-zstd-trained", "text-zstd-trained"])
def test_cut_messages_in_other_formats(
    make_mesh: MakeMesh, whole: dict[str, list[bytes]], format: str
) -> None:
    mesh = make_mesh(format=format, skeletons="always", dictionary_samples=8)
    assert publish_all(mesh) == whole
    assert has_cut(mesh, "a", "b")


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("/order/total", id="a filter"),
        pytest.param("for $o in /order/*[2] return <r>{$o/@sku}</r>", id="a position"),
        pytest.param("for $o in /order return <r>{count($o/*)}</r>", id="a count"),
        pytest.param("for $i in //item where $i/ancestor::order = 'x' return <r>{$i}</r>", id="an ancestor"),
        pytest.param("news//a[@k->x] FOLLOWED BY{x = y, 1 h} news//b[@k->y]", id="a join"),
    ],
)
def test_one_query_beyond_a_link_that_reads_all_switches_projection_off(
    make_mesh: MakeMesh, query: str
) -> None:
    mesh = make_mesh()
    mesh["c"].subscribe("skus", SKUS)
    mesh["a"].publish(order(1))
    mesh.settle()
    assert has_cut(mesh, "a", "b")
    before = mesh["a"].link("b")["cut bytes out"], mesh["b"].link("c")["cut bytes out"]
    mesh["d"].subscribe("whole", query)
    mesh["a"].publish(order(2))
    mesh.settle()
    assert mesh["a"].link("b")["cut bytes out"] == before[0]
    assert mesh["b"].link("c")["cut bytes out"] > before[1]  # where nobody reads all
    assert bodies(mesh["c"]) == [b'<got sku="A1"/>', b'<got sku="A2"/>']


def test_messages_of_other_streams_are_cut_beside_a_join(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["c"].subscribe("join", "orders//order[@id->x] FOLLOWED BY{x = y, 1 h} orders//order[@id->y]")
    mesh["c"].subscribe("skus", SKUS)
    mesh["a"].publish(order(1))
    mesh["a"].publish(order(2), order(2), stream="orders")
    mesh.settle()
    assert mesh["a"].link("b")["cut messages out"] == 1
    assert bodies(mesh["c"])[0] == b'<got sku="A1"/>'
    assert len(bodies(mesh["c"])) == 4


# -- what is not covered -----------------------------------------------------------------------------------


def test_a_message_is_withheld_from_a_subscription_that_reads_what_was_cut(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["c"].subscribe("skus", SKUS)
    begin_to_subscribe(mesh["c"], "notes", "for $o in /order return <n>{$o/note}</n>")
    publish_at_once(mesh, mesh["a"], order(1))
    wait_until_all_know(mesh, mesh["c"])
    assert bodies(mesh["c"]) == [b'<got sku="A1"/>']
    assert mesh["c"].counters()["withheld deliveries"] == 1
    mesh["a"].publish(order(2))
    mesh.settle()
    assert len(bodies(mesh["c"])) == 3


def test_a_cut_message_is_withheld_from_a_filter(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["c"].subscribe("skus", SKUS)
    begin_to_subscribe(mesh["c"], "all", "/order")
    publish_at_once(mesh, mesh["a"], order(1))
    wait_until_all_know(mesh, mesh["c"])
    assert bodies(mesh["c"]) == [b'<got sku="A1"/>']
    mesh["a"].publish(order(2))
    mesh.settle()
    assert bodies(mesh["c"])[1:] == [order(2), b'<got sku="A2"/>']


@pytest.mark.parametrize("is_restarted", [False, True])
def test_joins_do_not_see_cut_messages(make_mesh: MakeMesh, is_restarted: bool) -> None:
    mesh = make_mesh()
    mesh["c"].subscribe("skus", SKUS)
    begin_to_subscribe(mesh["c"], "join", "news//order[@id->x] FOLLOWED BY{x = y, 1 h} news//order[@id->y]")
    publish_at_once(mesh, mesh["a"], order(1))
    wait_until_all_know(mesh, mesh["c"])
    if is_restarted:  # and what is in the log is replayed
        mesh["c"].stop(save=False)
        mesh["c"].start()
        mesh.run(mesh.is_linked)
    mesh["a"].publish(order(1), ids=("again",))
    mesh.settle()
    assert bodies(mesh["c"]) == [b'<got sku="A1"/>'] * 2
    mesh["a"].publish(order(1), ids=("once more",))
    mesh.settle()
    assert len(bodies(mesh["c"])) == 4  # joined with the one before, not with the cut one


def test_a_cut_message_that_is_evaluated_after_a_restart(
    make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = make_mesh(tree={"a": None, "b": "a", "c": "b"})
    mesh["b"].subscribe("skus", SKUS)
    runtime = mesh["b"].engine._mesh
    assert runtime is not None
    monkeypatch.setattr(runtime.local_work, "defers", lambda tenant: True)
    monkeypatch.setattr(runtime.local_work, "run", lambda seconds=None: None)
    begin_to_subscribe(mesh["b"], "all", "/order")
    publish_at_once(mesh, mesh["a"], order(1))
    mesh.run(lambda: len(runtime.local_work) == 1)
    mesh["b"].engine._commits.drain()
    mesh["b"].stop(save=False)
    mesh["b"].start()
    mesh.run(mesh.is_linked)
    mesh.settle()
    assert bodies(mesh["b"]) == [b'<got sku="A1"/>']


# -- what is stored ----------------------------------------------------------------------------------------


def test_a_cut_message_is_forwarded_after_a_restart(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["c"].subscribe("totals", TOTALS)
    mesh["d"].subscribe("skus", SKUS)
    mesh.cut.add(frozenset("bc"))
    mesh["a"].publish(*(order(i) for i in range(20, 30)))
    mesh.run(lambda: len(bodies(mesh["d"])) == 10)
    mesh["b"].stop(save=False)
    mesh.cut.clear()
    mesh["b"].start()
    mesh.run(mesh.is_linked)
    mesh.settle()
    assert bodies(mesh["c"]) == [b'<due id="%d"><total>%d</total></due>' % (i, 7 * i) for i in range(20, 30)]


def test_whole_messages_come_again_after_a_change_of_the_tree(make_mesh: MakeMesh) -> None:
    """A message that was cut for one side of the old tree goes another way in the new one."""
    mesh = make_mesh(tree={"a": None, "b": "a", "c": "b", "d": "a"})
    mesh["c"].subscribe("skus", SKUS)
    mesh["d"].subscribe("all", "/order")
    mesh.cut |= {frozenset("bc"), frozenset("ad")}
    mesh["a"].publish(order(1))
    mesh.run(lambda: bool(mesh["b"].link("a").get("messages in")))
    assert has_cut(mesh, "a", "b")
    mesh.cut.clear()
    mesh.change(mesh.topology.move("d", "b"))
    mesh.settle()
    assert bodies(mesh["d"]) == [order(1)]
    assert bodies(mesh["c"]) == [b'<got sku="A1"/>']


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("project", ["never", "always"])
def test_the_same_message_from_two_brokers_is_delivered_once(
    make_mesh: MakeMesh, project: str, is_restarted: bool
) -> None:
    """Both copies meet at b, where nobody wants them, and again at c."""
    mesh = make_mesh(project)
    mesh["c"].subscribe("skus", SKUS)
    mesh["c"].subscribe("totals", TOTALS)
    mesh["a"].publish(order(20), ids=("same",))
    mesh.settle()
    mesh.cut.add(frozenset("bc"))
    mesh["d"].publish(order(20), order(21), ids=("same", "other"))
    mesh.run(lambda: mesh["b"].link("d").get("messages in", 0) == 2)
    if is_restarted:
        mesh["b"].engine._commits.drain()
        mesh["b"].stop(save=False)
        mesh["b"].start()
    mesh.cut.clear()
    mesh.settle()
    mesh["a"].publish(order(22), ids=("other",))
    mesh.settle()
    assert [name for name, _ in mesh["c"].deliveries()] == ["same"] * 2 + ["other"] * 2 + ["other@a/2"] * 2
    assert bodies(mesh["c"])[2:] == [
        b'<got sku="A1"/>',
        b'<due id="21"><total>147</total></due>',
        b'<got sku="A2"/>',
        b'<due id="22"><total>154</total></due>',
    ]


def test_plans_that_no_message_needs_are_deleted(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["c"].subscribe("skus", SKUS)
    mesh["a"].publish(order(1))
    mesh.settle()
    runtime = mesh["c"].engine._mesh
    assert runtime is not None
    database = runtime.store._database

    def count() -> int:
        with database.reading() as connection:
            return connection.scalar(select(func.count()).select_from(mesh_schema.plans)) or 0

    assert count() == 1
    with database.writing() as connection:
        runtime.expire(None, 10**9).write(connection)
    assert count() == 0


# -- what pays, and why ------------------------------------------------------------------------------------


def test_what_does_not_pay_is_not_done(make_mesh: MakeMesh) -> None:
    mesh = make_mesh("auto")
    mesh["c"].subscribe("most", "for $o in /order return <r>{$o/item/@sku}{$o/note}{$o/total}</r>")
    mesh["a"].publish(*(order(i) for i in range(20)))
    mesh.settle()
    (report,) = mesh["a"].ask("projection", tenant="")
    assert not report["is_cut"]
    assert "of the bytes" in report["reason"]
    cut = mesh["a"].link("b")["cut messages out"]
    mesh["a"].publish(*(order(i) for i in range(20)))
    mesh.settle()
    assert mesh["a"].link("b")["cut messages out"] == cut


def test_an_operator_sees_what_is_cut_and_why(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["c"].subscribe("skus", SKUS)
    mesh["a"].publish(order(1))
    mesh.settle()
    (report,) = mesh["a"].ask("projection", tenant="")
    assert report["is_cut"]
    assert report["stream"] == "news"
    assert report["reads"] == ["//item"]
    assert 0.3 < report["saved"] < 0.9
    mesh["d"].subscribe("all", "/order")
    (report,) = mesh["a"].ask("projection", tenant="")
    assert not report["is_cut"]
    assert "whole messages" in report["reason"]
