"""The automaton: path trie, dataguide, predicate indexes and twig join as one, behind `QueryAutomaton`.

    part of a query's plan    is posted                                    and has the handle
    a path                    at its trie state                            the state, an int from 0 on
    a path with a test        in the predicate index at its trie state     the leaf itself
    a twig                    by its anchorings, which the join meets      ~ the twig's number, an int below 0

Nearly all queries are one path, so the handle of a path is no object of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sapwood.engine.automaton.dataguide import Dataguide, GuideNode, StatePostings
from sapwood.engine.automaton.path_trie import PathTrie
from sapwood.engine.automaton.predicate_index import (
    NO_INTS,
    Ints,
    PostingKind,
    PredicateIndex,
    SequentialPredicates,
)
from sapwood.engine.automaton.protocol import AutomatonMatches, MatchedAhead, MatchedSlots, QueryAutomaton
from sapwood.engine.automaton.query_classes import QueryClasses, read_slots
from sapwood.engine.automaton.query_paths import ELEMENT, VALUE, Leaf, Twig
from sapwood.engine.automaton.ragged_array import grow_array
from sapwood.engine.automaton.registered_parts import (
    BINDS,
    SHARED,
    QueryWriter,
    RegisteredParts,
    RegisteredQuery,
    read_queries,
)
from sapwood.engine.automaton.relative_paths import ReachedElements, RelativePaths
from sapwood.engine.automaton.twig_join import TwigJoin
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.message.ancestry import Ancestry
from sapwood.engine.message.document import Document
from sapwood.engine.message.message_reader import Message, read_document, read_structure
from sapwood.lang.pattern import TEXT

if TYPE_CHECKING:
    from numpy.typing import NDArray


_Handle: TypeAlias = int | Leaf
_NO_PARTS: list[_Handle] = []


class Automaton:
    """The parts of all queries, and the structures in Python that find them: see `QueryAutomaton`."""

    def __init__(self, limits: Limits, tuning: Tuning) -> None:
        self._limits = limits
        self._tuning = tuning
        self.path_trie = PathTrie()
        self.classes = QueryClasses(tuning.cache if tuning.query_classes else 0)
        self.dataguide = Dataguide(self.path_trie, tuning.cache, self.classes)
        self.twig_join = TwigJoin()
        self.relative_paths = RelativePaths()
        self._parts: list[_Handle | list[_Handle]] = []  # by slot; nearly always one
        self._shared_slots: dict[int, int] = {}  # trie state → slot: see `register_path`
        self._binds: NDArray[np.bool_] = np.zeros(16, np.bool_)  # by slot
        self._text_leaves = 0  # leaves that test text or a string-value
        self._probed_leaves = 0  # leaves that need more than guide nodes

    @property
    def reads_text(self) -> bool:
        return self._text_leaves > 0

    # -- registration ----------------------------------------------------------------------------------

    def register(self, slot: int, parts: tuple[Leaf | Twig, ...], binds: bool = False) -> None:
        if slot >= len(self._parts):
            self._reserve(slot)
        self._binds[slot] = binds
        if len(parts) > 1:
            self.dataguide.has_unions = True
        handles = [self._add(part, slot) for part in parts]
        self._parts[slot] = handles[0] if len(handles) == 1 else handles

    def register_path(self, slot: int, path: tuple[str, ...]) -> int:
        known = self.path_trie.find(path)
        if known in self._shared_slots:
            return self._shared_slots[known]
        if slot >= len(self._parts):
            self._reserve(slot)
        state = self._insert_path(path)
        self.dataguide.post(state, PostingKind.SLOT, slot)
        self._parts[slot] = state
        self._shared_slots[state] = slot
        return slot

    def register_text(self, slot: int, text: str) -> int | None:
        return None  # the planner reads all texts

    def unregister(self, slot: int) -> None:
        parts = self._parts[slot]
        if isinstance(parts, int) and self._shared_slots.get(parts) == slot:
            del self._shared_slots[parts]
        for part in parts if isinstance(parts, list) else (parts,):
            self._remove(part, slot)
        self._parts[slot] = _NO_PARTS
        self.set_weight(slot, 0)

    def _add(self, part: Leaf | Twig, slot: int) -> _Handle:
        if isinstance(part, Twig):
            return ~self._add_twig(part, slot)
        if part.target == ELEMENT:
            return self._post(part.path, PostingKind.SLOT, slot)
        self._add_test(part, PostingKind.SLOT, slot)
        return part

    def _remove(self, handle: _Handle, slot: int) -> None:
        if isinstance(handle, Leaf):
            self._remove_test(handle, PostingKind.SLOT, slot)
        elif handle >= 0:
            self._unpost(handle, PostingKind.SLOT, slot)
        else:
            for anchoring, leaf in self.twig_join.remove(~handle, slot):
                self._remove_leaf(leaf, PostingKind.ANCHORING, anchoring)
                self._probed_leaves -= 1

    def set_weight(self, slot: int, weight: int) -> None:
        if slot >= len(self._parts):  # of a query without parts, which nothing matches
            self._reserve(slot)
        self.classes.set_weight(slot, weight)

    def _reserve(self, slot: int) -> None:
        self._parts += [_NO_PARTS] * (slot + 1 - len(self._parts))
        self.classes.reserve(slot)
        if slot >= len(self._binds):
            self._binds = grow_array(self._binds, 2 * slot)

    def count(self, slots: Ints) -> int:
        return self.classes.count(slots)

    def add_relative_path(self, path: tuple[str, ...]) -> int:
        number, leaf = self.relative_paths.add(path)
        if leaf is not None:
            self._add_leaf(leaf, PostingKind.RELATIVE_PATH, number)
        return number

    def remove_relative_path(self, number: int) -> None:
        leaf = self.relative_paths.remove(number)
        if leaf is not None:
            self._remove_leaf(leaf, PostingKind.RELATIVE_PATH, number)

    def relative_path_uses(self, number: int) -> int:
        return self.relative_paths.uses(number)

    def clear_cache(self) -> None:
        self.dataguide.clear()

    # -- serialization ---------------------------------------------------------------------------------

    def dump(self) -> RegisteredParts:
        weights, binds = self.classes.slot_weights, self._binds.tolist()
        writer = QueryWriter()
        for slot, handles in enumerate(self._parts):
            weight = int(weights[slot])
            if isinstance(handles, int) and handles >= 0:  # nearly all queries
                flags = SHARED if self._shared_slots.get(handles) == slot else 0
                writer.add_path(slot, flags, weight, self.path_trie.path(handles))
                continue
            listed = handles if isinstance(handles, list) else [handles]
            parts = tuple([self._part(handle) for handle in listed])
            if handles is not _NO_PARTS or weight:
                writer.add(RegisteredQuery(slot, BINDS if binds[slot] else 0, weight, parts))
        return RegisteredParts(writer.queries(), self.relative_paths)

    def load(self, registered: RegisteredParts) -> None:
        for slot, flags, weight, parts in read_queries(registered.queries):
            if flags & SHARED:
                self.register_path(slot, parts[0].path)
            else:
                self.register(slot, parts, bool(flags & BINDS))
            self.set_weight(slot, weight)
        self.relative_paths = registered.relative_paths
        for number, leaf in self.relative_paths.leaves():
            self._add_leaf(leaf, PostingKind.RELATIVE_PATH, number)

    def _part(self, handle: _Handle) -> Leaf | Twig:
        if isinstance(handle, Leaf):
            return handle
        return Leaf(self.path_trie.path(handle)) if handle >= 0 else self.twig_join.twig(~handle)

    # -- postings --------------------------------------------------------------------------------------

    def _add_twig(self, twig: Twig, slot: int) -> int:
        number, new = self.twig_join.add(twig, slot)
        for anchoring in new:
            leaf = self.twig_join.anchorings.part(anchoring)
            assert isinstance(leaf, Leaf)
            self._add_leaf(leaf, PostingKind.ANCHORING, anchoring)
            self._probed_leaves += 1
        return number

    def _add_leaf(self, leaf: Leaf, kind: PostingKind, number: int) -> None:
        """Post a number under a leaf."""
        if leaf.target == ELEMENT:
            self._post(leaf.path, kind, number)
        else:
            self._add_test(leaf, kind, number)

    def _remove_leaf(self, leaf: Leaf, kind: PostingKind, number: int) -> None:
        if leaf.target == ELEMENT:
            state = self.path_trie.find(leaf.path)
            assert state is not None
            self._unpost(state, kind, number)
        else:
            self._remove_test(leaf, kind, number)

    def _add_test(self, leaf: Leaf, kind: PostingKind, number: int) -> None:
        state = self._insert_path(leaf.path)
        at_state = self.dataguide.postings.setdefault(state, StatePostings())
        predicates = at_state.predicates.get(leaf.target)
        if predicates is None:
            predicates = PredicateIndex() if self._tuning.index_values else SequentialPredicates()
            at_state.predicates[leaf.target] = predicates
        predicates.add(leaf.test, kind, number)
        self.dataguide.update_predicates(state, leaf.target)
        self._probed_leaves += 1
        self._text_leaves += leaf.target in (TEXT, VALUE)

    def _remove_test(self, leaf: Leaf, kind: PostingKind, number: int) -> None:
        state = self.path_trie.find(leaf.path)
        assert state is not None
        at_state = self.dataguide.postings[state]
        predicates = at_state.predicates[leaf.target]
        predicates.remove(leaf.test, kind, number)
        if not len(predicates):
            del at_state.predicates[leaf.target]
        self.dataguide.update_predicates(state, leaf.target)
        self._probed_leaves -= 1
        self._text_leaves -= leaf.target in (TEXT, VALUE)
        self.dataguide.remove_states(self.path_trie.release(state))

    def _insert_path(self, path: tuple[str, ...]) -> int:
        state, grown = self.path_trie.insert(path)
        if grown is not None:
            self.dataguide.add_edge(grown, self._edge_towards(grown, state))
        return state

    def _edge_towards(self, ancestor: int, state: int) -> str:
        """Return the first symbol on the path from a trie state down to another."""
        parent = self.path_trie.parent
        while parent[state] != ancestor:
            state = parent[state]
        return self.path_trie.symbol[state]

    def _post(self, path: tuple[str, ...], kind: PostingKind, number: int) -> int:
        state = self._insert_path(path)
        self.dataguide.post(state, kind, number)
        return state

    def _unpost(self, state: int, kind: PostingKind, number: int) -> None:
        self.dataguide.unpost(state, kind, number)
        self.dataguide.remove_states(self.path_trie.release(state))

    # -- matching --------------------------------------------------------------------------------------

    def match_ahead(self, messages: Sequence[Message]) -> Sequence[MatchedAhead | None]:
        return [None] * len(messages)  # one interpreter runs one thread at a time

    def match_at_once(self, messages: Sequence[Message]) -> Sequence[MatchedSlots] | None:
        return None

    def is_current(self, ahead: MatchedAhead | None) -> bool:
        return True

    def find(
        self,
        message: Message,
        with_text: bool = False,
        with_source: bool = False,
        ahead: MatchedAhead | None = None,
    ) -> AutomatonMatches:
        if not (with_text or with_source or self._probed_leaves):
            nodes = set(read_structure(message, self._limits, self.dataguide.start()))
            return StructureMatches(self, message, UnitedSlots(self.classes, nodes, []))
        document = self.read(message, with_text, with_source)
        found = DocumentMatches(self.relative_paths, document)
        runs = [hit.slots for hit in document.hits if hit.slots is not NO_INTS]
        if self._probed_leaves:
            twig_slots = self._match_twigs(found)
            if len(twig_slots):
                runs.append(twig_slots)
        found.slots = UnitedSlots(self.classes, set(document.guide_nodes), runs)
        return found

    def read(self, message: Message, with_text: bool, with_source: bool) -> Document:
        with_text = with_text or self._text_leaves > 0
        return read_document(message, self._limits, self.dataguide.start(), with_text, with_source)

    def _match_twigs(self, found: DocumentMatches) -> Ints:
        """Return the slots of the twigs that match and bind nothing; the others are left in `found`."""
        document = found.document
        if not (self._tuning.join_bundles and self.twig_join.fits(document)):
            found.joined = False
            found.twig_candidates = self.twig_join.candidates(document)
            return NO_INTS
        found.ancestry = Ancestry(document)
        slots, elements = self.twig_join.match(document, found.ancestry)
        binds = self._binds.take(slots)
        if not binds.any():
            return slots
        found.bound_slots, found.bound_to = slots[binds], elements[binds]
        return slots[~binds]


class ListedSlots:
    """Slots that are listed already."""

    __slots__ = ("_automaton", "_slots")

    def __init__(self, automaton: QueryAutomaton, slots: Ints) -> None:
        self._automaton = automaton
        self._slots = slots

    def read(self) -> Ints:
        return self._slots

    def count(self) -> int:
        return self._automaton.count(self._slots)


class UnitedSlots:
    """The slots of all the paths that end at any of some guide nodes, and some more."""

    __slots__ = ("_classes", "_generation", "_nodes", "_runs", "_slots")

    def __init__(self, classes: QueryClasses, nodes: set[GuideNode], runs: list[Ints]) -> None:
        self._classes = classes
        self._generation = classes.generation
        self._nodes = nodes
        self._runs = runs
        self._slots: Ints | None = None

    def read(self) -> Ints:
        if self._slots is None:
            self._slots = self._classes.distinct(read_slots(self._nodes) + self._runs)
            self._nodes, self._runs = set(), []
        return self._slots

    def count(self) -> int:
        if self._slots is not None:
            return self._classes.count(self._slots)
        if self._classes.serves(self._generation):
            return self._classes.count_union(self._nodes, self._runs)
        runs = self._runs
        slots = self.read()
        self._classes.note_listed(slots, runs)
        return self._classes.count(slots)


class StructureMatches:
    """The matches of a message of which only the tags were looked at: nothing else is tested."""

    __slots__ = ("_automaton", "_document", "_message", "slots")

    joined = True
    twig_candidates = bound_slots = bound_to = NO_INTS
    bound_elements: list[tuple[int, tuple[int, ...]]] = []  # noqa: RUF012  # never changed

    def __init__(self, automaton: Automaton, message: Message, slots: MatchedSlots) -> None:
        self._automaton = automaton
        self._message = message
        self._document: Document | None = None
        self.slots = slots

    @property
    def document(self) -> Document:
        if self._document is None:
            self._document = self._automaton.read(self._message, with_text=False, with_source=False)
        return self._document

    def reached(self, starts: list[int], inside: bool = False) -> ReachedElements | None:
        return None


class DocumentMatches:
    """The matches of a message that was read into a document."""

    __slots__ = (
        "_relative_paths",
        "ancestry",
        "bound_slots",
        "bound_to",
        "document",
        "joined",
        "slots",
        "twig_candidates",
    )

    slots: MatchedSlots

    def __init__(self, relative_paths: RelativePaths, document: Document) -> None:
        self._relative_paths = relative_paths
        self.document = document
        self.joined = True
        self.twig_candidates = NO_INTS
        self.bound_slots = NO_INTS
        self.bound_to = NO_INTS
        self.ancestry: Ancestry | None = None  # if twigs were joined

    @property
    def bound_elements(self) -> list[tuple[int, tuple[int, ...]]]:
        if not len(self.bound_slots):
            return []
        elements = len(self.document)
        keys = np.unique(self.bound_slots.astype(np.int64) * elements + self.bound_to)
        slots = keys // elements
        bound = (keys - slots * elements).tolist()
        starts = np.flatnonzero(np.concatenate(([True], slots[1:] != slots[:-1])))
        bounds = pairwise([*starts.tolist(), len(bound)])
        return [
            (slot, tuple(bound[i:j])) for slot, (i, j) in zip(slots[starts].tolist(), bounds, strict=True)
        ]

    def reached(self, starts: list[int], inside: bool = False) -> ReachedElements | None:
        if self.ancestry is None:
            return None
        return self._relative_paths.reached(self.document, self.ancestry, starts, inside)
