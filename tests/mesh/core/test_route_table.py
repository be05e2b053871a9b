"""Route tables: masks against a naive model, and two tables that tell each other all they know."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sapwood.mesh.core.frames import UNNUMBERED, TableFrame
from sapwood.mesh.core.tables import route_table
from sapwood.mesh.core.tables.route_table import RouteTable
from tests.mesh.core.routes import SimpleRoute, route

ROUTES = [route(f"route {i}") for i in range(8)]
SOME = st.lists(st.sampled_from(ROUTES), max_size=4)
LINKS = ["a", "b", "c"]


class TableMachine(RuleBasedStateMachine):
    """A table, beside sets by side; neighbours keep what they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.uses: Counter[SimpleRoute] = Counter()
        self.sides: dict[str, set[SimpleRoute]] = {}
        self.copies: dict[str, set[int]] = {}
        """by neighbour, the keys it was told"""
        self.versions: dict[str, int] = {}

    def wanted(self, besides: str | None = None) -> set[SimpleRoute]:
        """What is wanted on all sides but one."""
        return set(self.uses).union(*(routes for link, routes in self.sides.items() if link != besides))

    @precondition(lambda self: len(self.sides) < len(LINKS))
    @rule(data=st.data())
    def add_link(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from([each for each in LINKS if each not in self.sides]))
        self.table.add_link(link)
        self.sides[link] = set()
        self.versions[link] = 0
        self.take_all(link)

    @precondition(lambda self: self.sides)
    @rule(data=st.data())
    def remove_link(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.sides)))
        removed = self.table.remove_link(link).removed
        assert sorted(removed) == sorted(each.key for each in self.sides.pop(link))
        del self.copies[link]

    @rule(routes=SOME)
    def add_local(self, routes: list[SimpleRoute]) -> None:
        self.table.change_local(routes, ())
        self.uses.update(routes)

    @rule(routes=SOME)
    def remove_local(self, routes: list[SimpleRoute]) -> None:
        removed = [each for each in routes if self.uses[each]]
        self.table.change_local((), removed)
        self.uses -= Counter(removed)

    @precondition(lambda self: self.sides)
    @rule(data=st.data(), added=SOME, removed=SOME, begins=st.booleans())
    def receive(
        self, data: st.DataObject, added: list[SimpleRoute], removed: list[SimpleRoute], begins: bool
    ) -> None:
        link = data.draw(st.sampled_from(sorted(self.sides)))
        self.versions[link] += 1
        keys = () if begins else tuple(each.key for each in removed if each not in added)
        before = {each.key for each in self.sides[link]}
        frame = TableFrame(self.versions[link], tuple(added), keys, begins=begins)
        change = self.table.receive(link, frame)
        kept = set() if begins else {each for each in self.sides[link] if each.key not in keys}
        self.sides[link] = kept | set(added)
        after = {each.key for each in self.sides[link]}
        assert {each.key for each in change.added} == after - before
        assert set(change.removed) == before - after

    @precondition(lambda self: self.sides)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.sides)))
        self.table.forget(link)
        self.sides[link] = set()
        assert self.table.is_unknown(link)

    @precondition(lambda self: self.sides)
    @rule(data=st.data(), removals=st.booleans())
    def tell(self, data: st.DataObject, removals: bool) -> None:
        link = data.draw(st.sampled_from(sorted(self.sides)))
        frame = self.table.take_removals(link) if removals else self.table.take_additions(link)
        if frame is not None:
            self.copies[link] |= {each.key for each in frame.added}
            self.copies[link] -= set(frame.removed)

    def take_all(self, link: str) -> None:
        frames = self.table.take_all(link)
        assert [frame.begins for frame in frames] == [True] + [False] * (len(frames) - 1)
        assert [frame.ends for frame in frames] == [False] * (len(frames) - 1) + [True]
        self.copies[link] = {each.key for frame in frames for each in frame.added}

    @precondition(lambda self: self.sides)
    @rule(data=st.data())
    def tell_all(self, data: st.DataObject) -> None:
        self.take_all(data.draw(st.sampled_from(sorted(self.sides))))

    @invariant()
    def sides_are_the_same(self) -> None:
        assert len(self.table) == len(self.wanted())
        assert set(self.table.local_routes()) == set(self.uses)
        for link, routes in self.sides.items():
            assert set(self.table.routes_of(link)) == routes
        for each in ROUTES:
            sides = [link for link, routes in self.sides.items() if each in routes]
            assert self.table.sides_of(each.key) == ["local"] * (each in self.uses) + sides

    @invariant()
    def a_neighbour_never_lacks_a_route_that_it_is_not_to_be_told(self) -> None:
        for link, keys in self.copies.items():
            needed = {each.key for each in self.wanted(besides=link)}
            told = self.table.told[link]
            assert keys - set(told.stale) | set(told.added) == needed
            digest = 0
            for key in keys:
                digest ^= key
            assert (told.digest, told.count) == (digest, len(keys))


TestTable = TableMachine.TestCase


def copy_changes(teller: RouteTable, hearer: RouteTable) -> None:
    for frame in (teller.take_additions("hearer"), teller.take_removals("hearer")):
        if frame is not None:
            hearer.receive("teller", frame)


def test_ten_thousand_additions_and_removals_end_at_the_first_digest() -> None:
    teller, hearer = RouteTable(), RouteTable()
    teller.add_link("hearer")
    hearer.add_link("teller")
    teller.change_local([route("first")], ())
    for frame in teller.take_all("hearer"):
        hearer.receive("teller", frame)
    wanted = hearer.wanted["teller"]
    first = wanted.digest, wanted.count
    random = Random(3)
    standing: list[SimpleRoute] = []
    for number in range(10_000):
        made = route(f"query {number // 3}")  # most of them several times
        teller.change_local([made], ())
        standing.append(made)
        if random.random() < 0.7:
            teller.change_local((), [standing.pop(random.randrange(len(standing)))])
        if random.random() < 0.2:
            copy_changes(teller, hearer)
    assert len(standing) > 1_000
    copy_changes(teller, hearer)
    assert wanted.count == len(set(standing)) + 1
    teller.change_local((), standing)
    copy_changes(teller, hearer)
    assert (wanted.digest, wanted.count) == first
    told = teller.told["hearer"]
    assert (told.digest, told.count) == first
    assert (len(teller), len(hearer)) == (1, 1)


@settings(max_examples=50)
@given(st.integers(0, 25), st.integers(1, 7))
def test_a_whole_table_in_parts(count: int, part: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route_table, "PART", part)
        teller, hearer = RouteTable(), RouteTable()
        teller.add_link("hearer")
        hearer.add_link("teller")
        stale = route("stale")
        hearer.receive("teller", TableFrame(1, (stale,)))
        teller.change_local([route(f"r{i}") for i in range(count)], ())
        frames = teller.take_all("hearer")
        assert len(frames) == max(1, -(-count // part))
        for frame in frames:
            assert hearer.is_unknown("teller")
            hearer.receive("teller", frame)
        assert not hearer.is_unknown("teller")
        assert len(hearer.routes_of("teller")) == count
        wanted, told = hearer.wanted["teller"], teller.told["hearer"]
        assert (wanted.digest, wanted.count, wanted.version) == (told.digest, told.count, told.version)


# -- what is not known -----------------------------------------------------------------------------------


def table_with(*links: str) -> RouteTable:
    table = RouteTable()
    for link in links:
        table.add_link(link)
    table.change_local((), ())
    return table


def test_a_neighbour_without_a_table_is_unknown() -> None:
    table = table_with("a", "b")
    assert table.unknown_links() == ["a", "b"]
    table.receive("a", TableFrame(1, begins=True))
    assert table.unknown_links() == ["b"]


def test_an_open_table_is_unknown_until_the_neighbour_has_all() -> None:
    table = table_with("a")
    table.receive("a", TableFrame(1, begins=True, is_open=True))
    assert table.is_unknown("a")
    table.receive("a", TableFrame(2))
    assert not table.is_unknown("a")


def test_a_node_that_lacks_a_table_says_so_to_the_others() -> None:
    table = table_with("a", "b")
    (frame,) = table.take_all("a")
    assert frame.is_open
    table.receive("b", TableFrame(1, begins=True))
    later = table.take_additions("a")
    assert later is not None
    assert not later.is_open
    assert table.take_additions("a") is None


def test_a_node_that_does_not_know_its_own_subscriptions_says_so() -> None:
    table = RouteTable()
    table.add_link("a")
    assert table.take_all("a")[0].is_open
    table.change_local((), ())
    frame = table.take_additions("a")
    assert frame is not None
    assert not frame.is_open


def test_routes_are_told_when_the_table_is_not_open_any_more() -> None:
    """Meanwhile, the neighbour sends everything."""
    table = table_with("a", "b")
    table.take_all("a")
    table.change_local([ROUTES[0]], ())
    table.receive("b", TableFrame(1, (ROUTES[1],), begins=True, is_open=True))
    assert table.take_additions("a") is None
    table.receive("b", TableFrame(2, (ROUTES[2],)))
    frame = table.take_additions("a")
    assert frame is not None
    assert (set(frame.added), frame.is_open) == (set(ROUTES[:3]), False)


def test_renumbering_keeps_the_table() -> None:
    table = table_with("a")
    table.receive("a", TableFrame(7, (ROUTES[0],), begins=True, is_open=True))
    assert table.renumber("a").version == UNNUMBERED
    assert table.routes_of("a") == [ROUTES[0]]
    assert table.is_unknown("a")


def test_a_restored_table_has_the_digest_that_it_had() -> None:
    table, again = table_with("a"), table_with("a")
    table.receive("a", TableFrame(3, tuple(ROUTES), begins=True))
    again.restore("a", table.routes_of("a"), 3, is_open=False)
    assert again.wanted["a"] == table.wanted["a"]


def test_a_route_that_comes_back_before_it_was_removed_is_not_told() -> None:
    table = table_with("a")
    table.take_all("a")
    table.change_local([ROUTES[0]], ())
    assert table.take_additions("a") is not None
    table.change_local((), [ROUTES[0]])
    table.change_local([ROUTES[0]], ())
    assert table.take_additions("a") is None
    assert table.take_removals("a") is None
