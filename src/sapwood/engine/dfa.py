"""The path tree, determinised as messages need it.

A `State` stands for a set of tree states that are active together. It is a dict from element name to the
next State, and fills itself on a miss, so that in a warm machine an element costs one look-up, however many
queries there are. It also knows what is found on arriving at it:

    slots, anchors   marks of paths that end here (arrays, made when first read)
    attributes       attribute name → Probe, or None where no query asks for attributes
    text, value      Probes for text nodes and for the string-value, or None

Everything here is a cache over the path tree and can be thrown away at any time. Adding or removing one
query touches only the States that hold the tree state it changed (`_holders`), so a warm machine stays warm
while queries come and go.

The cache is bounded by a budget of cells, some twenty bytes each. What does not fit is made for the message
at hand only, and before the next message all is dropped: data with ever new paths, or names, or values,
costs stepping, not memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sapwood.engine.leaves import VALUE
from sapwood.engine.nfa import DEEP, ROOT, PathTree
from sapwood.engine.values import NOTHING, Gathered, Hits, Ints, Marks, ValueIndex
from sapwood.lang.pattern import TEXT

# What things cost in cells.
_STATE, _MEMBER, _LINK, _VALUE = 32, 1, 8, 20


class Stop:
    """What queries ask of the elements at one state of the path tree."""

    __slots__ = ("here", "targets")

    def __init__(self) -> None:
        self.here = Marks()
        self.targets: dict[str, ValueIndex] = {}

    def __bool__(self) -> bool:
        return bool(self.here or self.targets)


class Probe(dict[str, Hits | None]):
    """Value → what it hits, over all tests of one target in one State; remembers values seen."""

    __slots__ = ("_indexes", "_machine")

    def __init__(self, machine: Machine, indexes: list[ValueIndex]) -> None:
        self._machine = machine
        self._indexes = indexes

    def __missing__(self, value: str) -> Hits | None:
        gathered = Gathered()
        for index in self._indexes:
            index.collect(value, gathered)
        hits = gathered.hits()
        if len(value) <= 64 and self._machine.affords(_VALUE):
            self[value] = hits
        return hits


class AttributeProbes(dict[str, "Probe | None"]):
    """Attribute name → Probe in one State."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def __missing__(self, name: str) -> Probe | None:
        machine = self._state.machine
        indexes = machine.indexes(self._state, [f"@{test}" for test in tests_passed_by(name)])
        probe = Probe(machine, indexes) if indexes else None
        if machine.affords(_LINK):
            self[name] = probe
        return probe


class State(dict[str, "State"]):
    """A set of active tree states; see the module's description."""

    __slots__ = ("anchors", "attributes", "machine", "members", "reach", "slots", "text", "value")
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    def __init__(self, machine: Machine, members: tuple[int, ...]) -> None:
        self.machine = machine
        self.members = members
        self.slots: Ints | None = None
        self.anchors: Ints | None = None
        self.reach: dict[tuple[str, ...], tuple[Ints, Ints]] = {}  # kept for `join`
        self.attributes: AttributeProbes | None = None
        self.text: Probe | None = None
        self.value: Probe | None = None

    def __missing__(self, name: str) -> State:
        return self.machine.step(self, name)


class Machine:
    """Determinises a path tree lazily and keeps what it made in step with the tree."""

    def __init__(self, tree: PathTree, budget: int) -> None:
        self._tree = tree
        self._budget = budget
        self._spent = 0
        self.stops: dict[int, Stop] = {}
        self._slot_at: dict[int, int] = {}  # the frequent case: one slot, nothing else, at a tree state
        self._states: dict[tuple[int, ...], State] = {}
        self._holders: dict[int, list[State]] = {}
        self.forget()

    def forget(self) -> None:
        """Drops every State; messages to come make them anew."""
        self._states.clear()
        self._holders.clear()
        self._spent = 0
        self.root = self._state((ROOT,))

    def __len__(self) -> int:
        return len(self._states)

    def settle(self) -> State:
        """The State to start the next message from; drops the cache if it is full."""
        if self._spent > self._budget:
            self.forget()
        return self.root

    def affords(self, cells: int) -> bool:
        """Whether the cache has room for something of that size; counts it, fitting or not."""
        self._spent += cells
        return self._spent <= self._budget

    # -- stepping --------------------------------------------------------------------------------------

    def step(self, state: State, name: str) -> State:
        edges = self._tree.edges
        symbol = self._tree.symbol
        tests = tests_passed_by(name)
        active: set[int] = set()
        for member in state.members:
            if symbol[member] == DEEP:
                active.add(member)
            row = edges[member]
            if row is None:
                continue
            for test in tests:
                target = row.get(test)
                if target is not None:
                    active.add(target)
            deep = row.get(DEEP)
            if deep is not None:
                active.add(deep)
                deep_row = edges[deep]
                if deep_row is not None:
                    for test in tests:
                        target = deep_row.get(test)
                        if target is not None:
                            active.add(target)
        following = self._state(tuple(sorted(active)))
        if self.affords(_LINK):
            state[name] = following
        return following

    def _state(self, members: tuple[int, ...]) -> State:
        state = self._states.get(members)
        if state is not None:
            return state
        state = State(self, members)
        for member in members:
            stop = self.stops.get(member)
            if stop is not None:
                self._equip(state, stop.targets)
        if self.affords(_STATE + _MEMBER * len(members)):
            self._states[members] = state
            for member in members:
                self._holders.setdefault(member, []).append(state)
        return state

    def _equip(self, state: State, targets: Iterable[str]) -> None:
        """Makes the State probe these targets."""
        for target in targets:
            if target == TEXT:
                state.text = Probe(self, self.indexes(state, (TEXT,)))
            elif target == VALUE:
                state.value = Probe(self, self.indexes(state, (VALUE,)))
            elif state.attributes is None:
                state.attributes = AttributeProbes(state)
            else:
                state.attributes.clear()

    def indexes(self, state: State, targets: Iterable[str]) -> list[ValueIndex]:
        """The indexes of all tests that the State's paths make of any of the targets."""
        found = []
        for member in state.members:
            stop = self.stops.get(member)
            if stop is not None:
                found += [stop.targets[target] for target in targets if target in stop.targets]
        return found

    def read(self, state: State) -> None:
        """Fills in the marks of the paths that end in the State."""
        slots: list[int] = []
        anchors: list[int] = []
        for member in state.members:
            slot = self._slot_at.get(member)
            if slot is not None:
                slots.append(slot)
            stop = self.stops.get(member)
            if stop is not None:
                slots += stop.here.slots
                anchors += stop.here.anchors
        state.slots = np.array(sorted(slots), np.int32) if slots else NOTHING
        state.anchors = np.array(sorted(anchors), np.int32) if anchors else NOTHING

    # -- changes ---------------------------------------------------------------------------------------

    def grown(self, state: int, symbol: str) -> None:
        """The tree state got an edge: States that hold it may lead elsewhere by it."""
        for holder in self._holders.get(state, ()):
            if symbol == DEEP or "*" in symbol:
                holder.clear()
            else:
                holder.pop(symbol, None)

    def pruned(self, states: list[int]) -> None:
        """Tree states are gone: so are the States that hold them, and what leads there."""
        for state in states:
            symbol, parent = self._tree.symbol[state], self._tree.parent[state]
            self.grown(parent, symbol)
            for holder in self._holders.pop(state, ()):
                self._states.pop(holder.members, None)
                holder.clear()

    def mark(self, state: int, kind: str, number: int) -> None:
        """Adds a mark, of kind `slots` or `anchors`, for elements that arrive at the tree state."""
        if kind == "slots" and state not in self._slot_at:
            self._slot_at[state] = number
        else:
            getattr(self.stops.setdefault(state, Stop()).here, kind).append(number)
        self._unread(state)

    def unmark(self, state: int, kind: str, number: int) -> None:
        if kind == "slots" and self._slot_at.get(state) == number:
            del self._slot_at[state]
        else:
            getattr(self.stops[state].here, kind).remove(number)
            self._discard_empty(state)
        self._unread(state)

    def target_changed(self, state: int, target: str) -> None:
        """The tests of a target at the tree state have changed."""
        self._discard_empty(state)
        for holder in self._holders.get(state, ()):
            if target == TEXT:
                holder.text = None
            elif target == VALUE:
                holder.value = None
            elif holder.attributes is not None:
                holder.attributes.clear()
            self._equip(holder, (target,))

    def _discard_empty(self, state: int) -> None:
        stop = self.stops.get(state)
        if stop is not None and not stop:
            del self.stops[state]

    def _unread(self, state: int) -> None:
        for holder in self._holders.get(state, ()):
            holder.slots = holder.anchors = None
            holder.reach = {}


def tests_passed_by(name: str) -> tuple[str, ...]:
    """All name tests that a name passes: itself, any, its namespace's, any namespace's."""
    uri, brace, local = name.rpartition("}")
    any_namespace = f"*}}{local}"
    return (name, "*", f"{uri}}}*", any_namespace) if brace else (name, "*", any_namespace)
