"""Query classes: queries whose paths end at exactly the same guide nodes, counted as one.

A message is counted by the guide nodes that it passes. The slots of their paths are thousands, and the same
ones at many nodes. But queries that no message seen so far tells apart are found together or not at all: they
are one *class*, and a message is the union of its nodes' classes. 154,000 paths on news messages are 4,400
classes, and a message has 290 entries of classes instead of 5,800 of slots.

    guide node   class_numbers     class   nodes              size   weight     slot     class_of
    /a           1, 2              1       /a                 2      5          0  /a    1
    /a/b         2, 3              2       /a, /a/b, /a/c     1      1          1  //*   2
    /a/c         2, 4              3       /a/b               1      1          2  /x    0, none
                                   4       /a/c               1      2          3  /*    1
                                                                                4  //b   3
                                                                                5  //c   4

The weight of a class is the sum of its slots' weights, which are the numbers of their subscriptions. The
classes of a node are disjoint and make up all slots that are posted there. So the count of a message is the
sum of the weights of its nodes' distinct classes: 5 + 1 + 2 for one that passes /a and /a/c. Only counting
uses classes; whoever has to list slots reads them from the nodes.

Classes are kept by partition refinement. A node that becomes *classed* splits each class of which it has some
slots but not all; the slots that it has go to a new class with one node more. A new query joins the class of
its set of nodes, or makes one; a class without slots is dropped. Sets are looked up by the exclusive or of
their nodes' hashes, which a split changes in one step, and then compared: a hash alone would count wrongly
when, some day, two sets have the same.

What it costs, and what bounds it:

1. Classing a node takes longer than reading its list of slots some ten times. So nodes *wait* until messages
   have read so many slots from lists that all waiting nodes could have been classed meanwhile. Data with ever
   new paths, or with a few matches to a message, or whose matches are listed and not counted, has no classes.
2. When they are due, nodes are classed a few with each message, so that none takes long.
3. A node with nearly as many classes as slots stays a list, since its classes would only be another list.
4. Entries, pairs of a class and a node, are bounded; where there are too many, further nodes stay lists.

Nodes in both forms are counted together: of the listed slots, those are left out whose class was counted.

Rejected: the classes of all nodes at once, by sorting the slots of all nodes, which costs as much for one new
node as for all; and the slots of each class as lists, which splits would have to take apart.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sapwood.engine.automaton.predicate_index import NO_INTS, Ints
from sapwood.engine.automaton.ragged_array import grow_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.engine.automaton.dataguide import GuideNode

FREE_SLOTS = 1_000
"""So many slots of a message are counted from lists as quickly as from classes."""

CLASSING_COST = 16
"""To class a slot costs as much as to read it from lists so many times."""

_AT_ONCE = 4_096
"""Slots that are classed with one message."""

_FEW_CLASSES = 16
"""Up to this many classes a node is always worth classing."""

_CELLS_PER_ENTRY = 3
"""of the cache: an entry has its share in the lists of a node and of a class, and in the class itself"""

_MAX_SHARE = 5
"""One in so many cells of the cache may be for classes."""


class QueryClasses:
    """The weights of slots, the classes of guide nodes, and the counting of slots by either."""

    def __init__(self, budget: int) -> None:
        """Make classes within a part of a cache of that many cells; without any, slots are always listed."""
        self._capacity = budget // (_MAX_SHARE * _CELLS_PER_ENTRY)
        self._slot_limit = 0  # one more than the highest slot
        self.slot_weights = array("i", [0] * 16)
        self._weights_by_slot = np.frombuffer(self.slot_weights, np.intc)  # the same memory
        self.generation = 0
        """changes when all guide nodes are dropped: nodes of an earlier generation have no classes"""
        self.clear()

    def clear(self) -> None:
        """Forget all guide nodes and their classes."""
        self.generation += 1
        self._classed: list[GuideNode] = []
        self._waiting: list[GuideNode] = []
        self._due: list[GuideNode] = []
        self._listed = 0  # slots that were read from lists while nodes wait, beyond those that are free
        self._price = 0  # how many of these the waiting nodes are worth, at least
        self._entries = 0
        self._class_of = array("i")  # by slot; made with the first class
        # by class, of which 0 stands for none:
        self._nodes: list[list[GuideNode]] = [[]]
        self._hashes: list[int] = [0]
        self._sizes: list[int] = [0]
        self._weights: NDArray[np.int64] = np.zeros(16, np.int64)
        self._free: list[int] = []
        self._by_hash: dict[int, int] = {}

    def __len__(self) -> int:
        """The number of classes."""
        return len(self._sizes) - 1 - len(self._free)

    @property
    def entries(self) -> int:
        """The number of pairs of a class and one of its nodes."""
        return self._entries

    @property
    def cells(self) -> int:
        """The size of all classes in cells of the cache."""
        return self._entries * _CELLS_PER_ENTRY

    # -- slots -----------------------------------------------------------------------------------------

    def reserve(self, slot: int) -> None:
        """Make room for a slot."""
        self._slot_limit = max(self._slot_limit, slot + 1)
        if slot >= len(self.slot_weights):
            self.slot_weights = _grow(self.slot_weights, 2 * slot)
            self._weights_by_slot = np.frombuffer(self.slot_weights, np.intc)

    def set_weight(self, slot: int, weight: int) -> None:
        """Set the weight of a slot."""
        if slot >= self._slot_limit:
            self.reserve(slot)
        if self._classed and slot < len(self._class_of):
            number = self._class_of[slot]
            if number:
                self._weights[number] += weight - self.slot_weights[slot]
        self.slot_weights[slot] = weight

    def count(self, slots: Ints) -> int:
        """Return the sum of the weights of some slots."""
        return int(self._weights_by_slot.take(slots).sum())

    def distinct(self, runs: list[Ints]) -> Ints:
        """Return all slots of the runs once, ascending."""
        slots = np.concatenate(runs) if runs else NO_INTS
        if len(slots) * 8 > self._slot_limit:
            mask = np.zeros(self._slot_limit, np.bool_)
            mask[slots] = True
            return np.flatnonzero(mask).astype(np.int32)
        return _distinct(slots)

    # -- counting --------------------------------------------------------------------------------------

    def add_node(self, node: GuideNode) -> None:
        """Have a new guide node wait, which is told of changes from now on."""
        if self._capacity:
            self._waiting.append(node)

    def serves(self, generation: int) -> bool:
        """Return whether guide nodes of a generation may have classes."""
        return bool(self._classed) and generation == self.generation

    def count_union(self, nodes: set[GuideNode], runs: list[Ints]) -> int:
        """Return the sum of the weights of the slots at any of the nodes or in any of the runs."""
        found: list[Ints] = []
        others: list[GuideNode] = []
        for node in nodes:  # for each node of each message: the hottest loop here
            classes = node.classes
            if classes is None:
                others.append(node)
            elif classes is not NO_INTS:
                found.append(classes)
        listed = self._list_unclassed(others, found) if others else []
        runs = runs + listed
        if not found:
            total = self.count(self.distinct(runs))
        else:
            numbers = _distinct(np.concatenate(found))
            total = int(self._weights.take(numbers).sum())
            if runs:
                total += self._count_others(numbers, runs)
        if listed and (self._waiting or self._due):
            self._class_nodes(FREE_SLOTS + sum(map(len, listed)))
        return total

    def note_listed(self, slots: Ints, runs: list[Ints]) -> None:
        """Note that a message was counted by a list of slots, of which classes would have saved some."""
        if len(slots) >= FREE_SLOTS:
            saved = len(slots) - FREE_SLOTS - sum(map(len, runs))
            if saved >= 0:
                self._class_nodes(saved)

    @staticmethod
    def _list_unclassed(nodes: list[GuideNode], found: list[Ints]) -> list[Ints]:
        """Return the slots of the nodes that have no classes; add the classes of the others to `found`."""
        listed: list[Ints] = []
        for node in nodes:
            if node.class_numbers is None:
                listed.append(node.read_slots())
            else:
                node.classes = np.array(node.class_numbers, np.int32) if node.class_numbers else NO_INTS
                found.append(node.classes)
        return listed

    def _count_others(self, numbers: Ints, runs: list[Ints]) -> int:
        """Return the sum of the weights of the slots that are in a run, but in none of these classes."""
        slots = np.concatenate(runs)
        self._make_room(self._slot_limit)
        others = np.ones(len(self._sizes), np.bool_)
        others[numbers] = False
        class_of = np.frombuffer(self._class_of, np.intc)
        return self.count(_distinct(slots[others.take(class_of.take(slots))]))

    # -- refinement ------------------------------------------------------------------------------------

    def _class_nodes(self, saved: int) -> None:
        """Class some nodes if they are due, since classes would have saved as much as it costs by now."""
        self._listed += saved
        if not self._due and self._listed >= self._price:
            self._price = CLASSING_COST * sum([len(node.read_slots()) for node in self._waiting])
            if self._listed >= self._price:
                self._due, self._waiting = self._waiting, []
                self._listed = self._price = 0
        room = _AT_ONCE
        while self._due and room > 0:
            node = self._due.pop()
            room -= 1 + len(node.read_slots())
            self._add_node(node)

    def _add_node(self, node: GuideNode) -> None:
        """Class the slots of a node, unless that is of no use."""
        slots: list[int] = node.read_slots().tolist()
        self._make_room(self._slot_limit)
        groups: defaultdict[int, list[int]] = defaultdict(list)  # by class
        for number, slot in zip(map(self._class_of.__getitem__, slots), slots, strict=True):
            groups[number].append(slot)
        many = len(groups) > _FEW_CLASSES and 2 * len(groups) > len(slots)
        if not many and self._entries + self._new_entries(groups) <= self._capacity:
            self._classed.append(node)
            node.class_numbers = self._refine(node, groups)

    def _new_entries(self, groups: Mapping[int, list[int]]) -> int:
        """Return how many entries it makes to class a node that has these slots of some classes."""
        split = [number for number, slots in groups.items() if len(slots) != self._sizes[number]]
        return len(groups) + sum([len(self._nodes[number]) for number in split])

    def _refine(self, node: GuideNode, groups: Mapping[int, list[int]]) -> array[int]:
        """Take a node into the classes that it has whole, and into new classes split from the others."""
        hash_of_node = _hash(node)
        numbers = array("i")
        for number, slots in groups.items():
            hash = self._hashes[number] ^ hash_of_node
            if number and len(slots) == self._sizes[number]:
                self._nodes[number].append(node)
                self._entries += 1
                self._rehash(number, hash)
                numbers.append(number)
            else:
                new = self._new_class([*self._nodes[number], node], hash)
                for other in self._nodes[number]:
                    self._link(other, new)
                self._move(slots, number, new)
                numbers.append(new)
        return numbers

    def _move(self, slots: list[int], number: int, new: int) -> None:
        """Move slots from a class, or from none, to a new one."""
        class_of = self._class_of
        for slot in slots:
            class_of[slot] = new
        weight = sum(map(self.slot_weights.__getitem__, slots))
        self._sizes[new] = len(slots)
        self._weights[new] = weight
        if number:
            self._sizes[number] -= len(slots)
            self._weights[number] -= weight

    def _new_class(self, nodes: list[GuideNode], hash: int) -> int:
        if self._free:
            number = self._free.pop()
            self._nodes[number] = nodes
        else:
            number = len(self._nodes)
            self._nodes.append(nodes)
            self._hashes.append(0)
            self._sizes.append(0)
            if number == len(self._weights):
                self._weights = grow_array(self._weights, 2 * number)
        self._entries += len(nodes)
        self._rehash(number, hash)
        return number

    def _rehash(self, number: int, hash: int) -> None:
        before = self._hashes[number]
        if self._by_hash.get(before) == number:
            del self._by_hash[before]
        self._hashes[number] = hash
        # if another class has the hash, this one is not found, and its queries make a new class
        self._by_hash.setdefault(hash, number)

    @staticmethod
    def _link(node: GuideNode, number: int) -> None:
        assert node.class_numbers is not None
        node.class_numbers.append(number)
        node.classes = None

    def _make_room(self, slots: int) -> None:
        if slots > len(self._class_of):
            self._class_of = _grow(self._class_of, 2 * slots)

    # -- queries that come and go ----------------------------------------------------------------------

    def add_slot(self, slot: int, nodes: list[GuideNode]) -> None:
        """Move a slot, which is now posted at these nodes as well, to the class of its nodes."""
        if not self._classed:
            return
        classed = {node for node in nodes if node.class_numbers is not None}
        if not classed:
            return
        self._make_room(slot + 1)
        number = self._class_of[slot]
        classed.update(self._nodes[number])
        if number:
            if len(classed) == len(self._nodes[number]):
                return
            self._leave(slot, number)
        number = self._class_with(classed)
        self._class_of[slot] = number
        self._sizes[number] += 1
        self._weights[number] += self.slot_weights[slot]
        if self._entries > 2 * self._capacity:
            self._dissolve()

    def remove_slot(self, slot: int) -> None:
        """Take a slot, which is about to be free, out of its class."""
        if self._classed and slot < len(self._class_of):
            number = self._class_of[slot]
            if number:
                self._leave(slot, number)
                self._class_of[slot] = 0

    def _class_with(self, nodes: set[GuideNode]) -> int:
        """Return the class of a set of nodes; a new one if there is none."""
        hash = 0
        for node in nodes:
            hash ^= _hash(node)
        number = self._by_hash.get(hash, 0)
        if number and len(nodes) == len(self._nodes[number]) and nodes.issuperset(self._nodes[number]):
            return number
        number = self._new_class(list(nodes), hash)
        for node in nodes:
            self._link(node, number)
        return number

    def _leave(self, slot: int, number: int) -> None:
        self._sizes[number] -= 1
        self._weights[number] -= self.slot_weights[slot]
        if self._sizes[number]:
            return
        nodes = self._nodes[number]
        for node in nodes:
            assert node.class_numbers is not None
            node.class_numbers.remove(number)
            node.classes = None
        self._entries -= len(nodes)
        self._nodes[number] = []
        if self._by_hash.get(self._hashes[number]) == number:
            del self._by_hash[self._hashes[number]]
        self._hashes[number] = 0
        self._free.append(number)

    def _dissolve(self) -> None:
        """Make all nodes lists again, because queries that came made too many classes."""
        generation, waiting = self.generation, self._waiting + self._due + self._classed
        for node in self._classed:
            node.class_numbers = node.classes = None
        self.clear()
        self.generation, self._waiting = generation, waiting


def read_slots(nodes: Iterable[GuideNode]) -> list[Ints]:
    """Return the slots of each of some nodes that has any."""
    # most are up to date, and half the time of reading them would be calls
    runs = [
        slots if (slots := node.slots) is not None and not node.changes else node.read_slots()
        for node in nodes
    ]
    return [slots for slots in runs if slots is not NO_INTS]


def _grow(numbers: array[int], size: int) -> array[int]:
    """Return a longer copy, since an array that NumPy looks at cannot grow."""
    return numbers + array("i", [0]) * (size + 16 - len(numbers))


def _distinct(numbers: Ints) -> Ints:
    """Sort an array, and return each of its numbers once."""
    numbers.sort()
    first = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
    return numbers[first]


def _hash(node: GuideNode) -> int:
    """Return a hash of a node that can be combined with others: addresses alone differ in a few bits only."""
    return hash((id(node),))
