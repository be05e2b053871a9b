"""What a node knows of a source's messages, compared with sets."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sapwood.mesh.core.messages.source_history import Entry, SourceHistory

LINKS = st.frozensets(st.sampled_from(["a", "b", "c"]))
NUMBERS = st.integers(1, 30)


@dataclass
class Known:
    """What the model knows of a message."""

    links: set[str] | None
    store: int = 0
    is_partial: bool = False


class HistoryMachine(RuleBasedStateMachine):
    """The history, beside sets in which everything is looked up anew."""

    def __init__(self) -> None:
        super().__init__()
        self.history = SourceHistory("s")
        self.known: dict[int, Known] = {}
        self.floor = self.arrived = self.store = self.stored = self.resent = 0

    @rule(number=NUMBERS, links=LINKS | st.none(), is_partial=st.booleans())
    def handle(self, number: int, links: frozenset[str] | None, is_partial: bool) -> None:
        if number in self.history:
            return
        self.store += 1
        self.history.add(number, Entry(None, links), self.store, is_partial)
        self.known[number] = Known(set(links) if links is not None else None, self.store, is_partial)
        if links is None:
            self.resent = max(self.resent, number)
        self.arrive(number)

    @rule(number=NUMBERS, is_partial=st.booleans())
    def replace(self, number: int, is_partial: bool) -> None:
        if number in self.known:
            self.history.set_partial(number, is_partial)
            self.known[number].is_partial = is_partial

    @rule(number=NUMBERS)
    def arrive(self, number: int) -> None:
        self.history.arrive(number)
        self.arrived = max(self.arrived, number)

    @rule(links=LINKS)
    def resolve_first(self, links: frozenset[str]) -> None:
        unresolved = self.history.unresolved()
        assert unresolved == sorted(n for n, known in self.known.items() if known.links is None)
        if unresolved:
            self.history.resolve(unresolved[0], Entry(None, links))
            self.known[unresolved[0]].links = set(links)

    @rule()
    def skip_unresolved(self) -> None:
        self.history.skip_unresolved()
        for number, known in self.known.items():
            if number <= self.arrived and known.links is None:
                known.links = set()

    @rule(steps=st.integers(0, 3))
    def become_durable(self, steps: int) -> None:
        self.stored = min(self.store, self.stored + steps)
        self.history.stored(self.stored)

    @rule(link=st.sampled_from(["a", "b", "c"]), upto=NUMBERS)
    def settle(self, link: str, upto: int) -> None:
        changed = False
        for number, known in self.known.items():
            if number <= upto and known.links is not None and link in known.links:
                known.links.discard(link)
                changed = True
        assert self.history.settle(link, upto) == changed

    @rule(link=st.sampled_from(["a", "b", "c"]), number=NUMBERS)
    def settle_one(self, link: str, number: int) -> None:
        self.history.settle_one(link, number)
        known = self.known.get(number)
        if known is not None and known.links is not None:
            known.links.discard(link)

    @rule(link=st.sampled_from(["a", "b", "c"]))
    def drop_link(self, link: str) -> None:
        self.history.drop_link(link)
        for known in self.known.values():
            if known.links is not None:
                known.links.discard(link)

    @rule()
    def begin_anew(self) -> None:
        self.history.forget_links()
        assert self.history.resent == self.history.last
        self.resent = self.history.last
        self.arrived = self.floor
        for known in self.known.values():
            known.links = None

    @rule(floor=NUMBERS)
    def raise_floor(self, floor: int) -> None:
        assert self.history.raise_floor(floor) == (floor > self.floor)
        self.floor = max(self.floor, floor)
        self.arrived = max(self.arrived, self.floor)
        self.known = {n: known for n, known in self.known.items() if n > self.floor}

    @invariant()
    def duplicates_are_known(self) -> None:
        for number in range(1, 31):
            assert (number in self.history) == (number <= self.floor or number in self.known)

    @invariant()
    def pending_is_the_same(self) -> None:
        for link in "abc":
            expected = sorted(n for n, known in self.known.items() if known.links and link in known.links)
            assert list(self.history.pending(link)) == expected

    @invariant()
    def have_is_the_same(self) -> None:
        have = [n for first, last in self.history.have() for n in range(first, last + 1)]
        assert have == sorted(n for n, known in self.known.items() if not known.is_partial)

    @invariant()
    def partial_is_the_same(self) -> None:
        for number in range(1, 31):
            known = self.known.get(number)
            assert self.history.is_partial(number) == (known is not None and known.is_partial)
        assert self.history.resent == self.resent

    @invariant()
    def settled_is_the_same(self) -> None:
        open_numbers = [
            n
            for n, known in self.known.items()
            if known.links is None or known.links or known.store > self.stored
        ]
        bound = min([self.arrived, *(n - 1 for n in open_numbers)])
        assert self.history.settled() == max(bound, self.floor)


TestHistory = HistoryMachine.TestCase


def test_partial_messages_are_not_had_and_forgotten_with_the_floor() -> None:
    history = SourceHistory("s")
    for number in (1, 2, 3, 4, 5):
        history.add(number, Entry("a", frozenset()), is_partial=number in (2, 4))
    assert history.have() == ((1, 1), (3, 3), (5, 5))
    history.forget_links()
    assert history.have() == ((1, 1), (3, 3), (5, 5))
    history.set_partial(4, False)
    assert history.have() == ((1, 1), (3, 5))
    history.raise_floor(2)
    assert history.have() == ((3, 5),)
    assert not any(map(history.is_partial, range(1, 6)))


def test_many_messages_settle_in_linear_time() -> None:
    """Entries and pending numbers are taken from the start; 200,000 messages would take minutes otherwise."""
    history = SourceHistory("s")
    entry = Entry(None, frozenset({"a", "b"}))
    for number in range(1, 200_001):
        history.add(number, entry, number)
        history.arrive(number)
    history.stored(200_000)
    for number in range(10, 200_001, 10):
        history.settle("a", number)
        history.settle("b", number)
        assert history.raise_floor(history.settled())
    assert history.floor == 200_000
    assert not history.entries
