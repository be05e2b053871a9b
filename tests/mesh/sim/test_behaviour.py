"""How a mesh behaves, in virtual time: acceptance tests 4 to 6, 19 and 20, and tables that have drifted."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from sapwood.mesh.core.frames import Frame, MessageFrame, TableFrame
from sapwood.mesh.core.membership import DEAD
from sapwood.mesh.core.topology import Topology, build_tree
from sapwood.mesh.sim.broker_workload import QUERIES, broker_workload
from sapwood.mesh.sim.check import check_deliveries, find_unrest
from sapwood.mesh.sim.faults import Faults
from sapwood.mesh.sim.scale import make_tree
from sapwood.mesh.sim.sim_broker import SimBroker, StreamedFrame
from sapwood.mesh.sim.world import SimSubscription, World

CHAIN = build_tree({"a": None, "b": "a", "c": "b", "d": "c"})
EXACT = Faults(spread=0.0)
"""every frame takes 20 ms, every store 10 ms"""


def world_of(tree: Topology, faults: Faults = EXACT) -> World:
    return World(1, tree, broker_workload(), faults)


def rest(world: World, longest: float = 60.0) -> None:
    end = world.now + longest
    while (unrest := find_unrest(world)) is not None:
        assert world.now < end, unrest
        world.run(world.now + 0.5)


def query(text: str) -> int:
    return next(number for number, each in enumerate(QUERIES) if each.text == text)


def document(matching: str, *, besides: str = "") -> int:
    """A document that matches one query, and not another."""
    workload = broker_workload()
    return next(
        number
        for number in range(workload.documents)
        if query(matching) in workload.matching(number)
        and not (besides and query(besides) in workload.matching(number))
    )


def subscribe(world: World, name: str, text: str) -> SimSubscription:
    made = world.subscribe(name, query(text))
    assert made is not None
    return made


def deliveries(world: World, name: str) -> int:
    return len(world.brokers[name].storage.deliveries)


def sources(world: World, name: str) -> set[str]:
    """Where the messages were published that were delivered at a broker."""
    return {delivery.key.source for delivery in world.brokers[name].storage.deliveries}


def depth_of(tree: Topology, name: str) -> int:
    depth, parent = 0, tree.parents[name]
    while parent is not None:
        depth, parent = depth + 1, tree.parents[parent]
    return depth


# -- acceptance tests 4 to 6 -----------------------------------------------------------------------------


def test_4_a_message_crosses_only_links_behind_which_it_is_wanted() -> None:
    world = world_of(CHAIN)
    subscribe(world, "c", "//title")
    rest(world)
    world.frames.clear()
    world.publish("a", document("//title"))
    world.publish("a", document("/order[item/@sku = 'A1' or item/@sku = 'B2']"))
    world.publish("d", document("//title"))
    rest(world)
    assert sorted((sender, receiver) for sender, receiver, _ in world.frames) == [
        ("a", "b"),
        ("b", "c"),
        ("d", "c"),
    ]


class TableFilter:
    """Changes or drops the frames that a broker sends another."""

    def __init__(self, world: World, sender: str, receiver: str) -> None:
        self._send = world.network.send
        self._way = sender, receiver
        self.is_on = True
        self.changed = 0
        world.network.send = self.send  # type: ignore[method-assign]

    def send(self, sender: SimBroker, receiver: str, item: StreamedFrame) -> None:
        if self.is_on and (sender.name, receiver) == self._way and isinstance(item.frame, TableFrame):
            self.changed += 1
            item = StreamedFrame(item.epoch, item.number, self.change(item.frame))
        self._send(sender, receiver, item)

    def change(self, frame: TableFrame) -> Frame:
        raise NotImplementedError


class WithoutRoutes(TableFilter):
    """Lets tables arrive without the routes that they add, as if their number alone had come."""

    def change(self, frame: TableFrame) -> Frame:
        return replace(frame, added=(), removed=())


class Incomplete(TableFilter):
    """Lets a whole table never end."""

    def change(self, frame: TableFrame) -> Frame:
        return replace(frame, ends=False)


def test_5_a_link_without_a_table_forwards_everything() -> None:
    """All brokers upstream of the one that lacks a table do so, too, and nobody downstream of it."""
    world = world_of(CHAIN)
    subscribe(world, "d", "//title")
    broken = Incomplete(world, "c", "b")
    world.run(8.0)
    assert broken.changed
    assert world.brokers["b"].node is not None
    assert world.brokers["b"].node.table.unknown_links() == ["c"]
    world.frames.clear()
    world.publish("a", document("/nitf/body"))
    unwanted = document("//order[@id]", besides="//title")
    world.publish("a", unwanted)
    world.run(12.0)
    crossed = sorted((s, r, world.publications[key].document) for s, r, key in world.frames)
    assert ("a", "b", unwanted) in crossed
    assert ("b", "c", unwanted) in crossed
    assert ("c", "d", unwanted) not in crossed
    broken.is_on = False


def test_5_an_empty_table_on_a_new_link_loses_nothing_while_it_is_open() -> None:
    """A broker that has just joined tells what it knows: nothing, and that more may be wanted."""
    world = world_of(build_tree({"a": None, "b": "a"}))
    subscribe(world, "a", "//title")
    rest(world)
    world.join("c", "b")
    for _ in range(40):  # from the first moment on, and before any table has come
        world.publish("c", document("//title"))
        world.run(world.now + 0.05)
    rest(world)
    assert deliveries(world, "a") == 40
    assert not check_deliveries(world)


def test_6_no_message_is_late_while_tables_change_under_load() -> None:
    world = world_of(CHAIN, Faults(match=0.05, store=0.05))
    rest(world)
    random = Random(4)
    texts = ["//title", "//order[@id]", "//item[@qty = 2]", "not(//title)"]
    for _ in range(300):
        world.publish(random.choice("abcd"), random.randrange(30))
        if random.random() < 0.3:
            subscribe(world, random.choice("abcd"), random.choice(texts))
        world.run(world.now + 0.01)
    rest(world)
    assert world.counts["confirmed"] > 50
    assert world.counts["report late"] == 0
    assert not check_deliveries(world)


def test_subscribers_are_confirmed_while_messages_never_pause() -> None:
    """More messages are being matched at any time: a change of tables must not wait until there are none."""
    world = world_of(build_tree({"a": None, "b": "a"}), Faults(spread=0.0, match=0.2))
    rest(world)
    made = None
    for step in range(200):
        world.publish("a", document("//title"))
        world.publish("b", document("//title"))
        if step == 50:
            made = subscribe(world, "b", "//title")
        world.run(world.now + 0.02)
    assert made is not None
    confirmed, since = made.periods[0].confirmed_at, made.periods[0].since
    assert confirmed is not None
    assert confirmed - since < 1.0


# -- digests ---------------------------------------------------------------------------------------------


def test_a_table_that_has_drifted_is_healed() -> None:
    """A change arrives without its content; the next digests differ, and the table is sent again."""
    world = world_of(CHAIN)
    rest(world)
    lost = WithoutRoutes(world, "c", "b")
    subscribe(world, "d", "//title")
    world.run(world.now + 0.5)
    lost.is_on = False
    assert lost.changed == 1
    world.publish("a", document("//title"))  # which is lost to the subscription: nobody knows yet
    world.run(world.now + 5.0)
    assert world.counts["report healed"] == 1
    before = deliveries(world, "d")
    world.publish("a", document("//title"))
    rest(world)
    assert deliveries(world, "d") == before + 1
    node = world.brokers["b"].node
    assert node is not None
    assert len(node.table.routes_of("c")) == 1


def test_a_table_that_never_ended_is_asked_for_again() -> None:
    world = world_of(CHAIN)
    broken = Incomplete(world, "c", "b")
    world.run(4.0)
    broken.is_on = False
    assert broken.changed > 2  # it is sent again every second
    rest(world)
    assert world.counts["report healed"] > 2


def test_thousands_of_subscriptions_that_come_and_go_leave_nothing() -> None:
    world = world_of(CHAIN)
    subscribe(world, "a", "//title")
    rest(world)

    def digests() -> list[tuple[int, int]]:
        nodes = [broker.node for broker in world.brokers.values()]
        return [(w.digest, w.count) for n in nodes if n is not None for w in n.table.wanted.values()]

    first = digests()
    random = Random(5)
    standing: list[SimSubscription] = []
    for _ in range(1_000):
        for _ in range(10):
            made = world.subscribe(random.choice("abcd"), random.randrange(len(QUERIES)))
            assert made is not None
            standing.append(made)
        for _ in range(10 if len(standing) > 30 else 0):
            world.unsubscribe(standing.pop(random.randrange(len(standing))))
        world.run(world.now + 0.02)
    assert digests() != first
    for each in standing:
        world.unsubscribe(each)
    rest(world)
    assert digests() == first
    assert world.counts["report healed"] == 0


# -- acceptance tests 19 and 20 --------------------------------------------------------------------------


@pytest.mark.slow
def test_19_a_subscription_is_confirmed_after_two_ways_through_the_tree() -> None:
    """1,000 brokers, depth 10, 20 ms for each link: at most 2 x depth x round trip, and what storing takes.

    The change goes out to the farthest leaf, 2 x depth links away, which stores it; the confirmation comes
    back. The brokers between have stored it meanwhile.
    """
    depth, latency = 10, 0.02
    tree = make_tree(1_000, depth, Random(1))
    world = world_of(tree, Faults(spread=0.0, latency=latency, store=0.01))
    rest(world)
    leaves = [name for name in tree.parents if depth_of(tree, name) == depth]
    longest = 0.0
    for name in leaves[:3]:
        made = subscribe(world, name, "//title")
        world.run(world.now + 3.0)
        confirmed = made.periods[0].confirmed_at
        assert confirmed is not None
        longest = max(longest, confirmed - made.periods[0].since)
    assert 0.5 < longest <= 2 * depth * (2 * latency) + 2 * world.faults.store


@pytest.mark.parametrize("dead", ["b", "a"])
def test_20_messages_flow_again_after_an_inner_broker_has_died(dead: str) -> None:
    """At most 15 s, without an operator: 10 s until it is taken for dead, then the tree is repaired."""
    tree = build_tree({"a": None, "b": "a", "c": "b", "d": "c", "e": "a", "f": "e"})
    world = world_of(tree)
    subscribe(world, "d", "//title")
    subscribe(world, "f", "//title")
    rest(world)
    world.crash(dead)
    died = world.now
    while not sources(world, "d") == sources(world, "f") == {"d", "f"}:
        assert world.now < died + 20.0
        world.publish("d", document("//title"))
        world.publish("f", document("//title"))
        world.run(world.now + 0.25)
    assert DEAD <= world.now - died <= 15.0
    assert world.counts["repair"] == 1
    world.restart(dead)  # and what it had is delivered, too
    rest(world)
    assert not check_deliveries(world)


def test_a_cut_off_site_serves_its_own_and_gets_the_rest_later() -> None:
    world = world_of(CHAIN)
    for name in "ad":
        subscribe(world, name, "//title")
    rest(world)
    world.network.cut = frozenset("cd")
    for _ in range(20):
        world.publish("a", document("//title"))
        world.publish("c", document("//title"))
        world.run(world.now + 1.0)
    assert (deliveries(world, "a"), deliveries(world, "d")) == (20, 20)
    world.network.cut = frozenset()
    rest(world)
    assert (deliveries(world, "a"), deliveries(world, "d")) == (40, 40)
    assert not check_deliveries(world)


@pytest.mark.parametrize("broken", ["a", "b", "c"])
def test_a_broker_whose_storage_is_set_back_is_told_and_goes_on(broken: str) -> None:
    """As after a loss of power, if the disk had not written what it said: what is lost is lost, not silently,
    and whatever is published afterwards arrives."""
    world = world_of(CHAIN)
    subscribe(world, "c", "//title")
    subscribe(world, "a", "//title")
    rest(world)
    kept = deepcopy(world.brokers[broken].storage)
    for name in "abc":
        for _ in range(20):
            world.publish(name, document("//title"))
    world.run(world.now + 1.5)
    world.crash(broken)
    kept.incarnation = world.brokers[broken].storage.incarnation
    world.brokers[broken].storage = kept
    world.restart(broken)
    rest(world)
    assert world.counts["report lost"] > 0
    before = {name: deliveries(world, name) for name in "ac"}
    for name in "abcd":
        world.publish(name, document("//title"))
    rest(world)
    assert {name: deliveries(world, name) - before[name] for name in "ac"} == {"a": 4, "c": 4}


def test_messages_for_a_link_that_is_down_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever waits for a neighbour is in the log; the node keeps a limited number of frames."""
    monkeypatch.setattr("sapwood.mesh.core.links.link_state.KEPT", 50)
    world = world_of(build_tree({"a": None, "b": "a"}), Faults(spread=0.0, match=0.0, store=0.001))
    subscribe(world, "b", "//title")
    rest(world)
    world.crash("b")
    for _ in range(2_000):
        world.publish("a", document("//title"))
    world.run(world.now + 5.0)
    node = world.brokers["a"].node
    assert node is not None
    assert node.outbox("b") == 2_000
    outbound = node._context.links["b"].outbound
    assert len(outbound.frames) == 50
    assert sum(isinstance(each.frame, MessageFrame) for each in outbound.frames) == 50
    world.restart("b")
    rest(world)
    assert deliveries(world, "b") == 2_000
    assert node.outbox("b") == 0
