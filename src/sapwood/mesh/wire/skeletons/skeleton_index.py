"""Who wants a message, told from its skeleton alone where that can be told.

The conditions of routes are in an automaton of their own, each by its leaves: a path with at most one test at
its end (see `query_paths`). A message meets a leaf if one of its tag paths, with one of its values, does. So
each path and value of a skeleton is matched by itself, as a document that has nothing else, and only once:
the answers are kept until a route changes.

    /order/item            <order><item/></order>
    /order/item/@sku = A1  <order><item sku="A1"/></order>

What was found is *definite* where the leaves decide the condition, and *possible* where they are only
necessary: of a branching pattern, one leaf is looked for, and tests of text are not told from those of the
elements around it. If nothing is possible that is not definite, the message need not be read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.engine.automaton.query_paths import ELEMENT, Leaf, Twig, plan_index
from sapwood.engine.index import make_automaton
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.message.message_reader import Message
from sapwood.errors import MessageError
from sapwood.lang.pattern import Condition, is_wildcard
from sapwood.mesh.routing.route import Route
from sapwood.mesh.wire.bodies.wire_dictionary import NO_PARENT, TagPath, WireDictionary
from sapwood.mesh.wire.skeletons.skeleton import (
    ELEMENT_VALUE,
    Skeleton,
    SkeletonError,
    SkeletonParts,
    TestedNames,
    decode_skeleton,
)

_MOST_REMEMBERED = 50_000
"""paths and values of which the answers are kept"""
_MOST_STREAMS = 256
"""dictionaries and streams of which answers are kept"""
_POSSIBLE = 64
"""bits by which one mask is behind the other in a number that has both"""
_DEFINITE = (1 << _POSSIBLE) - 1
_XML = "http://www.w3.org/XML/1998/namespace"
_BLANKS = {"\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}


class Masks(NamedTuple):
    """Who wants a message, as bits."""

    definite: int
    possible: int
    """these, and those of whom it is not known"""


class _Entry:
    """A condition in the automaton, and who wants messages that meet it."""

    __slots__ = ("is_definite", "leaves", "slot", "tested", "users")

    def __init__(self, slot: int, condition: Condition) -> None:
        self.slot = slot
        plan = plan_index(condition)
        self.leaves: list[Leaf] | None = [_choose_leaf(part) for part in plan.parts]
        self.tested = [name for leaf in self.leaves if (name := _tested_name(leaf)) is not None]
        if any(is_wildcard(name) for _, name in self.tested):
            self.leaves, self.tested = None, []  # whose values are in no skeleton
        self.is_definite = (
            plan.exact
            and self.leaves is not None
            and all(isinstance(part, Leaf) and part.target[:1] in (ELEMENT, "@") for part in plan.parts)
        )
        self.users: Counter[tuple[str | None, int]] = Counter()
        """by stream and bit, the number of routes"""


def _choose_leaf(part: Leaf | Twig) -> Leaf:
    """Return the leaf of a part that fewest messages have: one with a test, or the longest."""
    if isinstance(part, Leaf):
        return part
    return max(
        part.leaves(), key=lambda leaf: (leaf.target[:1] == "@", leaf.target == ELEMENT, len(leaf.path))
    )


def _tested_name(leaf: Leaf) -> tuple[bool, str] | None:
    """Return whether a leaf tests an attribute, and the name of that or of the element; else None."""
    if leaf.target == ELEMENT:
        return None
    if leaf.target[:1] == "@":
        return True, leaf.target[1:]
    last = leaf.path[-1] if leaf.path else "*"
    return False, "*" if last == DESCENDANT else last


class SkeletonIndex:
    """The routes of one tenant, with a bit for each link that wants them."""

    def __init__(self, never_definite: int = 0) -> None:
        """The bits in `never_definite` are those of whom it is never enough to know that they want it."""
        self._never_definite = never_definite
        self._automaton = make_automaton(Limits(), Tuning())
        self._entries: dict[Condition, _Entry] = {}
        self._slots: list[_Entry | None] = []
        self._free: list[int] = []
        self._tested: dict[int, Counter[tuple[bool, str]]] = {}
        """by bit, how often each name is tested"""
        self._forget()

    def __len__(self) -> int:
        """The number of distinct conditions."""
        return len(self._entries)

    # -- changes ---------------------------------------------------------------------------------------

    def add(self, bit: int, route: Route) -> None:
        """Add one use of a route."""
        entry = self._entries.get(route.condition)
        if entry is None:
            slot = self._free.pop() if self._free else len(self._slots)
            entry = self._entries[route.condition] = _Entry(slot, route.condition)
            self._slots[slot : slot + 1] = [entry]
            if entry.leaves is not None:
                self._automaton.register(slot, tuple(dict.fromkeys(entry.leaves)))
        entry.users[route.stream, bit] += 1
        self._tested.setdefault(bit, Counter()).update(entry.tested)
        self._forget()

    def remove(self, bit: int, route: Route) -> None:
        """Take back one use of a route."""
        entry = self._entries.get(route.condition)
        if entry is None or not entry.users[route.stream, bit]:
            return
        entry.users[route.stream, bit] -= 1
        tested = self._tested[bit]
        for name in entry.tested:
            tested[name] -= 1
            if not tested[name]:
                del tested[name]
        if not entry.users[route.stream, bit]:
            del entry.users[route.stream, bit]
        if not entry.users:
            del self._entries[route.condition]
            if entry.leaves is not None:
                self._automaton.unregister(entry.slot)
            self._slots[entry.slot] = None
            self._free.append(entry.slot)
        self._forget()

    def _forget(self) -> None:
        """Forget all answers."""
        self._tested_by: dict[int | None, TestedNames] = {}
        self._always: dict[str, tuple[Masks, int]] = {}
        self._known: dict[tuple[bytes, str], list[int | None]] = {}
        """by dictionary and stream, the answers for its paths: see `_find_paths`"""
        self._items: dict[tuple[tuple[str, ...], str, str], Masks] = {}
        self._literals: dict[tuple[bytes, str, TagPath], int] = {}

    @property
    def tested(self) -> TestedNames:
        """The names whose attributes and values have to be in a skeleton."""
        return self._find_tested(None, self._tested.values())

    def tested_by(self, bit: int) -> TestedNames:
        """Return the names that the routes of one bit test."""
        return self._find_tested(bit, [self._tested.get(bit, Counter())])

    def _find_tested(self, bit: int | None, counts: Iterable[Counter[tuple[bool, str]]]) -> TestedNames:
        found = self._tested_by.get(bit)
        if found is None:
            names = {name for some in counts for name in some}
            found = self._tested_by[bit] = TestedNames(
                frozenset(name for is_attribute, name in names if is_attribute),
                frozenset(name for is_attribute, name in names if not is_attribute),
            )
        return found

    # -- messages --------------------------------------------------------------------------------------

    def decide(self, skeleton: Skeleton, dictionary: WireDictionary, stream: str) -> Masks | None:
        """Return who wants a message of a stream; None if its skeleton has not what is needed for that.

        Raises SkeletonError if the skeleton cannot be read.
        """
        if not skeleton.tested.covers(self.tested):
            return None
        parts = decode_skeleton(skeleton.data, len(dictionary.paths), skeleton.tested)
        always, tested = self._find_always(stream)
        definite, possible = always
        if not parts.is_complete:
            possible |= tested
        found = self._find_paths(parts, dictionary, stream)
        definite |= found & _DEFINITE
        possible |= found >> _POSSIBLE
        attributes = skeleton.tested.attribute_list
        for number, attribute, value in parts.values:
            names = _spell_path(number, dictionary.paths, parts.literals)
            name = "" if attribute == ELEMENT_VALUE else attributes[attribute]
            masks = self._match((stream, *names), name, value)
            definite |= masks.definite
            possible |= masks.possible
        return Masks(definite, possible)

    def _find_paths(self, parts: SkeletonParts, dictionary: WireDictionary, stream: str) -> int:
        """Return who wants messages with any of some paths: both masks in one number, so that all paths are
        looked up and put together without a step of Python for each."""
        known = self._known.get((dictionary.identity, stream))
        if known is None:
            if len(self._known) >= _MOST_STREAMS:
                self._known.clear()
            known = self._known[dictionary.identity, stream] = [None] * len(dictionary.paths)
        numbers: Sequence[int] = parts.paths
        literals: Sequence[int] = ()
        if parts.literals:  # whose numbers are the greatest
            first = bisect_left(numbers, len(known))
            numbers, literals = numbers[:first], numbers[first:]
        try:
            found = reduce(or_, map(known.__getitem__, numbers), 0)
        except TypeError:  # some are not known yet
            for number in numbers:
                if known[number] is None:
                    known[number] = self._match_path(number, parts, dictionary, stream)
            found = reduce(or_, map(known.__getitem__, numbers), 0)
        for number in literals:
            found |= self._match_literal(number, parts, dictionary, stream)
        return found

    def _match_literal(
        self, number: int, parts: SkeletonParts, dictionary: WireDictionary, stream: str
    ) -> int:
        """Return who wants messages with a path that the dictionary lacks, which many may have below one that
        it has."""
        literal = parts.literals[number - len(dictionary.paths)]
        if literal[0] >= len(dictionary.paths):
            return self._match_path(number, parts, dictionary, stream)
        item = dictionary.identity, stream, literal
        found = self._literals.get(item)
        if found is None:
            if len(self._literals) >= _MOST_REMEMBERED:
                self._literals.clear()
            found = self._literals[item] = self._match_path(number, parts, dictionary, stream)
        return found

    def _match_path(self, number: int, parts: SkeletonParts, dictionary: WireDictionary, stream: str) -> int:
        masks = self._match((stream, *_spell_path(number, dictionary.paths, parts.literals)))
        return masks.definite | masks.possible << _POSSIBLE

    def _find_always(self, stream: str) -> tuple[Masks, int]:
        """Return who may want any message of a stream, and who tests values in it."""
        found = self._always.get(stream)
        if found is None:
            if len(self._always) >= _MOST_STREAMS:
                self._always.clear()
            unindexed = tested = 0
            for entry in self._entries.values():
                bits = _bits(entry, stream)
                if entry.leaves is None:
                    unindexed |= bits
                if entry.tested:
                    tested |= bits
            found = self._always[stream] = Masks(0, unindexed), tested
        return found

    def _match(self, path: tuple[str, ...], attribute: str = "", value: str = "") -> Masks:
        """Return who wants messages of a stream with a path: the names behind that of the stream."""
        item = path, attribute, value
        masks = self._items.get(item)
        if masks is None:
            if len(self._items) >= _MOST_REMEMBERED:
                self._items.clear()
            masks = self._items[item] = self._match_document(
                _write_document(path[1:], attribute, value), path[0]
            )
        return masks

    def _match_document(self, document: bytes, stream: str) -> Masks:
        definite = possible = 0
        try:
            slots = self._automaton.find(Message(document), False, False).slots.read()
        except MessageError as error:  # of names and values that no message has, or of one that is too deep
            raise SkeletonError(f"a skeleton that is of no message here: {error}") from error
        for slot in slots.tolist():
            entry = self._slots[slot]
            assert entry is not None
            bits = _bits(entry, stream)
            possible |= bits
            if entry.is_definite:
                definite |= bits & ~self._never_definite
        return Masks(definite, possible)


def _bits(entry: _Entry, stream: str) -> int:
    bits = 0
    for wanted, bit in entry.users:
        if wanted is None or wanted == stream:
            bits |= 1 << bit
    return bits


def _spell_path(number: int, paths: tuple[TagPath, ...], literals: tuple[TagPath, ...]) -> list[str]:
    """Return the names on a path, from the root on."""
    names: list[str] = []
    while number != NO_PARENT:
        number, name = paths[number] if number < len(paths) else literals[number - len(paths)]
        names.append(name)
    return names[::-1]


def _write_document(names: Sequence[str], attribute: str, value: str) -> bytes:
    """Return a document that has one path, and a value at its end: of an attribute, or of the element."""
    tags = [_write_name(name, f"n{i}") for i, name in enumerate(names)]
    starts = [f"<{tag}{declaration}" for tag, declaration in tags]
    if attribute:
        tag, declaration = _write_name(attribute, "a")
        starts[-1] += f"{declaration} {tag}={quoteattr(value, _BLANKS)}"
        value = ""
    ends = [f"</{tag}>" for tag, _ in reversed(tags)]
    return "".join([*[start + ">" for start in starts], escape(value, _BLANKS), *ends]).encode()


def _write_name(name: str, prefix: str) -> tuple[str, str]:
    """Return a name as it is written with a prefix, and the declaration of the prefix."""
    uri, brace, local = name.rpartition("}")
    if not brace:
        return local, ""
    if uri == _XML:
        return f"xml:{local}", ""
    return f"{prefix}:{local}", f" xmlns:{prefix}={quoteattr(uri, _BLANKS)}"
