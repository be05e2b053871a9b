"""Links that carry bodies in other formats, with dictionaries and skeletons: deliveries are the same.

Every format and skeletons have a null twin: text, and none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.engine.kernel import KERNEL
from sapwood.mesh.core.actions import Send
from sapwood.mesh.core.frames import Content, Epoch, MessageFrame, MessageKey
from sapwood.mesh.wire import held_payloads
from sapwood.mesh.wire.bodies.body_format import AUTO, LABELS
from sapwood.mesh.wire.bodies.dictionary_controls import OfferDictionary
from sapwood.mesh.wire.frame_codec import decode_control
from sapwood.mesh.wire.link_codec import LinkCodec
from sapwood.mesh.wire.skeletons import skeleton_router
from sapwood.serve.engine.frames import Publish
from sapwood.serve.tenants.evaluation import Publication
from tests.support.mesh.linked_engines import LinkedEngines

pytestmark = pytest.mark.slow

SAMPLES = 20
CHAIN: dict[str, str | None] = {"a": None, "b": "a", "c": "b", "d": "b"}
QUERIES = {
    "c": ["//item[@sku = 'A1']", "/order/total[. > 100]", "for $i in //item return <got>{$i/@sku}</got>"],
    "d": ["/order/note", "//order[not(item)]", "/order[item/@sku = 'A2']/total", "/order[@id = 7]"],
}
UNUSUAL = [
    "<?xml version='1.0' encoding='utf-16'?><order id='ü'><item sku='A1'/></order>".encode("utf-16"),
    b"\xef\xbb\xbf<order><item sku='A1'/><note><![CDATA[<item/>]]></note></order>",
    b"<!DOCTYPE order [<!ENTITY e 'A1'>]><order><item sku='&e;'/></order>",
    b"<order  id = '7' ><!-- <item sku='A1'/> --><total>1<b/>00</total></order >",
    b"<order/>",
    b"<other>" + b"x" * 5_000 + b"</other>",
]


def order(number: int) -> bytes:
    item = b'<item sku="A%d" qty="2"/>' % (number % 5) if number % 3 else b"<note>none</note>"
    return b'<order id="%d" currency="CHF">%b<total>%d</total></order>' % (number, item, 7 * number)


MakeMesh = Callable[..., LinkedEngines]


@pytest.fixture
def make_mesh(tmp_path: Path) -> Iterator[MakeMesh]:
    made: list[LinkedEngines] = []

    def make(**settings: Any) -> LinkedEngines:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        mesh = LinkedEngines(folder, CHAIN, dictionary_samples=SAMPLES, hits="never", **settings)
        made.append(mesh)
        return mesh

    yield make
    for mesh in made:
        mesh.stop()


def subscribe(mesh: LinkedEngines) -> None:
    for name, queries in QUERIES.items():
        for number, query in enumerate(queries):
            mesh[name].subscribe(f"{name}{number}", query)


def codec(mesh: LinkedEngines, name: str) -> LinkCodec:
    runtime = mesh[name].engine._mesh
    assert runtime is not None
    return runtime._codec


def share_dictionary(mesh: LinkedEngines) -> None:
    """Publish samples, and wait until all brokers have the dictionary."""
    mesh["a"].publish(*(order(i) for i in range(SAMPLES)))
    mesh.settle()
    mesh.run(lambda: all(len(codec(mesh, name).dictionaries) == 1 for name in CHAIN))
    links = [(codec(mesh, name), other) for name, other in (("a", "b"), ("b", "c"), ("b", "d"))]
    (identity,) = codec(mesh, "a").dictionaries
    mesh.run(lambda: all(here._exchange.is_shared(other, identity) for here, other in links))


def publish_all(mesh: LinkedEngines) -> dict[str, list[bytes]]:
    """Publish before and after the dictionary is there; return the bodies of all deliveries."""
    subscribe(mesh)
    share_dictionary(mesh)
    for name, bodies in (
        ("a", [*(order(i) for i in range(100, 140)), *UNUSUAL]),
        ("b", [order(7), *UNUSUAL[:2]]),
        ("c", [order(7)]),
    ):
        mesh[name].publish(*bodies)
        mesh.settle()  # since there is no order between sources
    assert mesh["c"].counters()["late"] == 0
    return {name: [body for _, body in mesh[name].deliveries()] for name in ("c", "d")}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    """The deliveries of links that carry text, without skeletons."""
    folder = tmp_path_factory.mktemp("plain")
    mesh = LinkedEngines(folder, CHAIN, dictionary_samples=SAMPLES, format="text", skeletons="never")
    try:
        return publish_all(mesh)
    finally:
        mesh.stop()


@pytest.mark.parametrize("skeletons", ["always", "never"])
@pytest.mark.parametrize("format", [AUTO, *LABELS])
def test_deliveries_are_the_same(
    make_mesh: MakeMesh, plain: dict[str, list[bytes]], format: str, skeletons: str
) -> None:
    mesh = make_mesh(format=format, skeletons=skeletons)
    assert publish_all(mesh) == plain
    assert min(map(len, plain.values())) > 20
    link = mesh["a"].link("b")
    assert link["format"] == (format if format != AUTO else "text-zstd-trained")
    assert (mesh["b"].counters().get("decided by skeleton", 0) > 0) == (skeletons == "always")
    if format == "text":
        assert link["bodies out"] == link["text out"]
    elif format == AUTO or LABELS[format].needs_dictionary:
        assert link["bodies out"] < 0.8 * link["text out"]
    else:  # such small messages are hardly smaller without a dictionary
        assert link["bodies out"] < link["text out"]


def test_a_body_is_forwarded_as_it_came(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    subscribe(mesh)
    share_dictionary(mesh)
    before = mesh["b"].counters().get("bodies encoded", 0)
    sent = mesh["b"].link("c").get("messages out", 0)
    mesh["a"].publish(*(order(i) for i in range(100, 140)))
    mesh.settle()
    assert mesh["b"].link("c")["messages out"] > sent + 10
    assert mesh["b"].counters().get("bodies encoded", 0) == before
    assert mesh["a"].counters()["dictionaries trained"] == 1


def test_an_inner_broker_decides_on_skeletons_what_nobody_there_wants(make_mesh: MakeMesh) -> None:
    mesh = make_mesh(skeletons="always")
    mesh["c"].subscribe("c", "//item[@sku = 'A1']")
    share_dictionary(mesh)
    decided = mesh["b"].counters().get("decided by skeleton", 0)
    mesh["a"].publish(*(order(i) for i in (1, 2, 11)), b"<order><item sku='A1'/></order>")
    mesh.settle()
    assert mesh["b"].counters()["decided by skeleton"] == decided + 3
    assert mesh["b"].link("c")["messages out"] == mesh["a"].link("b")["messages out"]
    mesh["b"].subscribe("b", "//item")
    mesh["a"].publish(order(1))
    mesh.settle()
    assert mesh["b"].counters()["decided by skeleton"] == decided + 3
    assert len(mesh["b"].deliveries()) == 1
    mesh["b"].unsubscribe("b")
    mesh["a"].publish(order(11))
    mesh.settle()
    assert mesh["b"].counters()["decided by skeleton"] == decided + 4


def test_joins_see_every_message(make_mesh: MakeMesh) -> None:
    mesh = make_mesh(skeletons="always")
    mesh["b"].subscribe("join", "news//a[@k->x] FOLLOWED BY{x = y, 100 s} news//b[@k->y]")
    mesh["c"].subscribe("all", "/*")
    share_dictionary(mesh)
    mesh["a"].publish(order(1))
    mesh.settle()
    assert mesh["b"].counters().get("decided by skeleton", 0) == 0


def test_skeletons_are_made_where_they_pay(make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = make_mesh()
    subscribe(mesh)
    share_dictionary(mesh)
    mesh["a"].publish(order(1))
    mesh.settle()
    assert (mesh["a"].link("b")["skeletons out"] > 0) == (KERNEL is None)
    for name in CHAIN:
        monkeypatch.setattr(codec(mesh, name), "_least_routes", 4)
    mesh["a"].publish(order(1))
    mesh.settle()
    assert mesh["a"].link("b")["skeletons out"] > 0


def test_too_many_routes_are_matched(make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton_router, "MOST_ROUTES", 4)
    mesh = make_mesh(skeletons="always")
    for number in range(6):
        mesh["c"].subscribe(f"c{number}", f"/order[@id = {number}]")
    share_dictionary(mesh)
    mesh["a"].publish(order(3))
    mesh.settle()
    assert mesh["b"].counters().get("decided by skeleton", 0) == 0
    for number in range(4):
        mesh["c"].unsubscribe(f"c{number}")
    mesh.run(lambda: mesh["b"].link("c")["routes in"] == 2 and mesh["a"].link("b")["routes in"] == 2)
    mesh["a"].publish(order(5))
    mesh.settle()
    assert mesh["b"].counters()["decided by skeleton"] == 1


def test_a_broker_that_has_forgotten_a_dictionary_asks_for_it(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["c"].subscribe("all", "/*")
    share_dictionary(mesh)
    mesh["b"].stop(save=False)
    mesh["b"].start()
    mesh.run(mesh.is_linked)
    mesh["a"].publish(*(order(i) for i in range(100, 110)))
    mesh.settle()
    assert [body for _, body in mesh["c"].deliveries()][-10:] == [order(i) for i in range(100, 110)]
    assert mesh["b"].counters()["held payloads"] >= 1
    assert mesh["b"].counters().get("refused payloads", 0) == 0


def test_what_cannot_be_read_is_sent_again_without_the_dictionary(
    make_mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_payloads, "GIVE_UP", 0.3)
    mesh = make_mesh()
    mesh["c"].subscribe("all", "/*")
    share_dictionary(mesh)
    mesh["b"].stop(save=False)
    mesh.lose_control = lambda payload: isinstance(decode_control(payload), OfferDictionary)
    mesh["b"].start()
    mesh.run(mesh.is_linked)
    mesh["a"].publish(*(order(i) for i in range(100, 110)))
    mesh.settle()
    assert [body for _, body in mesh["c"].deliveries()][-10:] == [order(i) for i in range(100, 110)]
    assert mesh["b"].counters()["refused payloads"] >= 1


def test_what_is_queued_for_a_neighbour_that_leaves_is_forgotten(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["d"].subscribe("all", "/*")
    runtime = mesh["b"].engine._mesh
    assert runtime is not None
    runtime._links.send(Send("d", Epoch(1, 1), 1, MessageFrame(MessageKey("b", 1), Content.STORED)))
    mesh.change(mesh.topology.move("d", "c"))
    mesh["a"].publish(order(1))
    mesh.settle()
    assert [body for _, body in mesh["d"].deliveries()] == [order(1)]


def test_the_same_message_from_two_brokers_in_one_batch_is_delivered_once(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["b"].subscribe("all", "/*")
    for name in ("c", "d"):
        messages = [Publication("", "news", "same", order(1))]
        mesh[name].engine.handle([Publish(999, messages)])
    mesh.run(lambda: all(999 in mesh[name].answers for name in ("c", "d")))
    mesh.settle()
    assert [body for _, body in mesh["b"].deliveries()] == [order(1)]


def test_damaged_payloads_are_refused_and_sent_again(make_mesh: MakeMesh) -> None:
    mesh = make_mesh()
    mesh["c"].subscribe("all", "/*")
    share_dictionary(mesh)
    carried = 0

    def damage(payload: bytes) -> bytes:
        nonlocal carried
        carried += 1
        if carried % 3:
            return payload
        at = carried * 7_919 % len(payload)
        return payload[:at] + bytes((payload[at] ^ 0x41,)) + payload[at + 1 :]

    mesh.damage = damage
    for number in range(100, 130):
        mesh["a"].publish(order(number))
    mesh.settle()
    refused = sum(mesh[name].counters().get("refused payloads", 0) for name in CHAIN)
    assert refused >= carried // 3 - 1 > 5
    assert [body for _, body in mesh["c"].deliveries()][-30:] == [order(i) for i in range(100, 130)]
