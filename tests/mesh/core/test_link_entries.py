"""Tables under a budget: entries that stand for several routes, told so that no route is ever missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sapwood.mesh.core import events
from sapwood.mesh.core.frames import Route, TableFrame
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.node_state import NodeState
from sapwood.mesh.core.tables.generaliser import EXACT
from sapwood.mesh.core.tables.link_entries import LinkEntries
from sapwood.mesh.core.tables.route_table import RouteTable
from sapwood.mesh.core.topology import build_tree
from tests.mesh.core.routes import route as key_route

LINKS = ["a", "b", "c"]


@dataclass(frozen=True, slots=True)
class GroupRoute:
    """A route of a group, or all of it."""

    key: int
    group: str
    is_all: bool = False

    def covers(self, other: GroupRoute) -> bool:
        return self == other or (self.is_all and self.group == other.group)


def route(name: str) -> GroupRoute:
    return GroupRoute(key_route(name).key, name[0])


def all_of(group: str) -> GroupRoute:
    return GroupRoute(key_route(f"all of {group}").key, group, is_all=True)


class GroupCovering:
    """The routes of some groups are one."""

    def __init__(self, groups: frozenset[str]) -> None:
        self._groups = groups

    def cover(self, route: Route) -> Route | None:
        assert isinstance(route, GroupRoute)
        return all_of(route.group) if route.group in self._groups else route if route.is_all else None


class GroupGeneraliser:
    """Makes the largest groups one route each, until there are few enough; a route takes 1."""

    def __init__(self, budget: int) -> None:
        self.budget: int | None = budget
        self.is_sampled = False
        self.runs = 0

    def set_sample(self, messages: Sequence[object]) -> None:
        self.is_sampled = bool(messages)

    def size(self, route: Route) -> int:
        return 1

    def generalise(self, routes: Sequence[Route], budget: int) -> GroupCovering:
        self.runs += 1
        groups = Counter(route.group for route in routes if isinstance(route, GroupRoute))
        size, chosen = len(routes), set()
        for group, count in groups.most_common():
            if size > budget:
                size -= count - 1
                chosen.add(group)
        return GroupCovering(frozenset(chosen))


ROUTES = [route(f"{group}{number}") for group in "xyz" for number in range(5)] + [all_of("x")]
SOME = st.lists(st.sampled_from(ROUTES), max_size=6)


class BudgetMachine(RuleBasedStateMachine):
    """A table with a small budget, beside sets by side; neighbours keep what they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.generaliser = GroupGeneraliser(4)
        self.table = RouteTable(self.generaliser)
        self.table.change_local((), ())
        self.uses: Counter[GroupRoute] = Counter()
        self.sides: dict[str, set[GroupRoute]] = {}
        self.copies: dict[str, dict[int, Route]] = {}
        self.versions: dict[str, int] = {}

    def wanted(self, besides: str) -> set[GroupRoute]:
        """What is wanted on all sides but one."""
        others = [routes for link, routes in self.sides.items() if link != besides]
        return set(self.uses).union(*others)

    @precondition(lambda self: len(self.sides) < len(LINKS))
    @rule(data=st.data())
    def add_link(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from([each for each in LINKS if each not in self.sides]))
        self.table.add_link(link)
        self.table.receive(link, TableFrame(1, begins=True))
        self.sides[link], self.versions[link] = set(), 1
        self.tell_all_to(link)

    @precondition(lambda self: self.sides)
    @rule(data=st.data())
    def remove_link(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.sides)))
        self.table.remove_link(link)
        del self.sides[link], self.copies[link]

    @rule(routes=SOME)
    def add_local(self, routes: list[GroupRoute]) -> None:
        self.table.change_local(routes, ())
        self.uses.update(routes)

    @rule(routes=SOME)
    def remove_local(self, routes: list[GroupRoute]) -> None:
        removed = list((Counter(routes) & self.uses).elements())
        self.table.change_local((), removed)
        self.uses -= Counter(removed)

    @precondition(lambda self: self.sides)
    @rule(data=st.data(), added=SOME, removed=SOME)
    def receive(self, data: st.DataObject, added: list[GroupRoute], removed: list[GroupRoute]) -> None:
        link = data.draw(st.sampled_from(sorted(self.sides)))
        self.versions[link] += 1
        gone = [each for each in removed if each not in added]
        self.table.receive(link, TableFrame(self.versions[link], tuple(added), tuple(r.key for r in gone)))
        self.sides[link] = self.sides[link].difference(gone).union(added)

    @precondition(lambda self: self.sides)
    @rule(data=st.data(), removals=st.booleans())
    def tell(self, data: st.DataObject, removals: bool) -> None:
        link = data.draw(st.sampled_from(sorted(self.sides)))
        frame = self.table.take_removals(link) if removals else self.table.take_additions(link)
        if frame is not None:
            copy = self.copies[link]
            copy.update((each.key, each) for each in frame.added)
            for key in frame.removed:
                del copy[key]
        if not removals:
            assert self.is_covered(link), "all was told that is wanted"
            told = self.table.told[link]
            assert told.count - len(told.stale) <= 5  # the budget, and a quarter of it

    @precondition(lambda self: self.sides)
    @rule(data=st.data())
    def tell_all(self, data: st.DataObject) -> None:
        self.tell_all_to(data.draw(st.sampled_from(sorted(self.sides))))

    def tell_all_to(self, link: str) -> None:
        frames = self.table.take_all(link)
        self.copies[link] = {each.key: each for frame in frames for each in frame.added}
        assert self.is_covered(link)

    def is_covered(self, link: str, more: Sequence[Route] = ()) -> bool:
        known = [each for each in (*self.copies[link].values(), *more) if isinstance(each, GroupRoute)]
        return all(any(each.covers(one) for each in known) for one in self.wanted(link))

    @invariant()
    def a_neighbour_never_lacks_what_it_is_not_to_be_told(self) -> None:
        for link, copy in self.copies.items():
            told = self.table.told[link]
            assert self.is_covered(link, tuple(told.added.values()))
            kept = [each for key, each in copy.items() if key not in told.stale]
            known = [each for each in (*kept, *told.added.values()) if isinstance(each, GroupRoute)]
            assert all(any(each.covers(one) for each in known) for one in self.wanted(link))
            digest = 0
            for key in copy:
                digest ^= key
            assert (told.digest, told.count) == (digest, len(copy))

    @invariant()
    def entries_are_counted(self) -> None:
        for link in self.copies:
            entries = self.table.told[link].entries
            assert entries is not None
            wanted = self.wanted(link)
            found = [entries.find_entry(each.key) for each in wanted]
            assert set(entries.list_entries()) == set(found)
            members = Counter(each.key for each in found if each is not None)
            assert all(entries.count_members(key) == count for key, count in members.items())
            standing = {
                entry.key
                for one, entry in zip(wanted, found, strict=True)
                if entry is not None and entry.key != one.key
            }
            assert entries.generalised == len(standing)
            for one, entry in zip(wanted, found, strict=True):
                assert self.table.find_entry(link, one.key) == (entry if entry != one else None)


TestBudget = BudgetMachine.TestCase


def make_pair(generaliser: GroupGeneraliser) -> tuple[RouteTable, RouteTable]:
    teller, hearer = RouteTable(generaliser), RouteTable()
    teller.add_link("hearer")
    hearer.add_link("teller")
    teller.receive("hearer", TableFrame(1, begins=True))
    return teller, hearer


def copy_changes(teller: RouteTable, hearer: RouteTable) -> None:
    for frame in (teller.take_additions("hearer"), teller.take_removals("hearer")):
        if frame is not None:
            hearer.receive("teller", frame)


def test_ten_thousand_additions_and_removals_end_at_the_first_digest() -> None:
    generaliser = GroupGeneraliser(200)
    teller, hearer = make_pair(generaliser)
    teller.change_local([route("first"), route("other")], ())
    for frame in teller.take_all("hearer"):
        hearer.receive("teller", frame)
    wanted, told = hearer.wanted["teller"], teller.told["hearer"]
    first = wanted.digest, wanted.count
    random = Random(3)
    standing: list[GroupRoute] = []
    for number in range(10_000):
        made = route(f"{random.choice('abcdefgh')}{number // 3}")
        teller.change_local([made], ())
        standing.append(made)
        if random.random() < 0.7:
            teller.change_local((), [standing.pop(random.randrange(len(standing)))])
        if random.random() < 0.2:
            copy_changes(teller, hearer)
            assert told.count <= 250
    copy_changes(teller, hearer)
    assert len(set(standing)) > 1_000
    assert told.entries is not None and told.entries.generalised > 1
    random.shuffle(standing)
    while standing:
        teller.change_local((), [standing.pop()])
        if random.random() < 0.2:
            copy_changes(teller, hearer)
    copy_changes(teller, hearer)
    assert (wanted.digest, wanted.count) == first
    assert (told.digest, told.count, told.entries.generalised) == (*first, 0)
    assert (len(teller), len(hearer)) == (2, 2)
    assert generaliser.runs < 60, "the whole table is seldom generalised"


def test_a_table_becomes_exact_when_routes_go() -> None:
    teller, hearer = make_pair(GroupGeneraliser(8))
    routes = [route(f"x{number}") for number in range(20)]
    teller.change_local(routes, ())
    copy_changes(teller, hearer)
    assert hearer.routes_of("teller") == [all_of("x")]
    teller.change_local([route("x20")], ())
    assert teller.take_additions("hearer") is None, "it has joined the entry"
    teller.change_local((), [*routes[5:], route("x20")])
    assert teller.is_due("hearer")
    frame = teller.take_additions("hearer")
    assert frame is not None
    assert (set(frame.added), frame.removed) == (set(routes[:5]), ()), "what replaces the entry comes first"
    hearer.receive("teller", frame)
    assert len(hearer.routes_of("teller")) == 6
    copy_changes(teller, hearer)
    assert set(hearer.routes_of("teller")) == set(routes[:5])
    assert not teller.is_due("hearer")


def test_a_budget_that_cannot_be_kept_is_not_tried_at_every_change() -> None:
    generaliser = GroupGeneraliser(4)
    teller, hearer = make_pair(generaliser)
    teller.change_local([route(f"{group}0") for group in "abcdefghijklmnopqrstuvwxyz"], ())
    copy_changes(teller, hearer)
    for number in range(1, 50):
        teller.change_local([route(f"a{number}")], ())
        copy_changes(teller, hearer)
    assert generaliser.runs == 1


def test_a_table_is_generalised_anew_with_the_first_sample() -> None:
    generaliser = GroupGeneraliser(4)
    routes = [route(f"x{number}") for number in range(6)]
    entries = LinkEntries(generaliser, 4, routes)
    due = [entries.is_due]
    entries.renew(routes)
    due.append(entries.is_due)
    generaliser.set_sample(["a message"])
    due.append(entries.is_due)
    entries.renew(routes)
    due.append(entries.is_due)
    assert due == [True, False, True, False]
    assert len(entries) == 1


def test_the_null_twin_has_no_entries() -> None:
    table = RouteTable()
    table.add_link("a")
    assert table.told["a"].entries is None
    assert not table.is_due("a") and table.find_entry("a", 7) is None
    assert (EXACT.budget, EXACT.is_sampled, EXACT.size(route("x"))) == (None, False, 0)
    assert EXACT.generalise([route("x")], 0).cover(route("x")) == route("x")
    EXACT.set_sample(["a message"])


def test_a_node_gives_samples_to_its_generaliser() -> None:
    generaliser = GroupGeneraliser(4)
    node = Node(NodeState("n"), build_tree({"n": None}), 1, generaliser)
    node.handle(events.Sampled(("a message",)))
    assert generaliser.is_sampled
