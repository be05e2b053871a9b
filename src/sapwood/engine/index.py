"""Distinct queries, indexed by their leaves, and the matching of a message against all of them.

Each distinct query has a *slot*, a small number. A slot is found by the leaves of its plan (see `leaves`),
and how it is decided depends on what the plan says:

    BY_LEAVES     the leaves are the whole truth
    BY_PATTERN    they are necessary; the evaluator decides on the message's nodes
    BY_XPATH      the pattern itself is only necessary; lxml decides
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.dataguide import Dataguide, GuideNode, Stop
from sapwood.engine.automaton.path_trie import DESCENDANT, PathTrie
from sapwood.engine.automaton.predicate_index import NO_INTS, Ints, TestByTest, ValueIndex
from sapwood.engine.automaton.query_paths import (
    ELEMENT,
    VALUE,
    IndexPlan,
    Leaf,
    Twig,
    plan_binding,
    plan_index,
)
from sapwood.engine.automaton.relative_paths import ReachedElements, RelativePaths
from sapwood.engine.automaton.twig_join import TwigJoin
from sapwood.engine.failures import FailureKind, QueryProblem
from sapwood.engine.fallback.xpath_fallback import XPathFallback
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.message.ancestry import Ancestry
from sapwood.engine.message.document import Document
from sapwood.engine.message.message_reader import Message, read_document, read_structure
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.lang.language_detection import is_transformation
from sapwood.lang.pattern import TEXT, Axis, Has, Path
from sapwood.lang.query import Query, compile_query

BY_LEAVES, BY_PATTERN, BY_XPATH = 0, 1, 2


@dataclass(slots=True)
class IndexMatches:
    """What a message was found to match: slots, or the places from which to read them.

    Of slots that are bound, `bound_slots` and `bound_to` tell the elements, in any order and maybe twice;
    unless the message is too deep or large to join, and only an evaluator can tell. Then `joined` is False.
    """

    places: set[GuideNode] | None
    slots: Ints
    evaluator: PatternEvaluator | None = None
    joined: bool = True
    bound_slots: Ints = field(default_factory=lambda: NO_INTS)
    bound_to: Ints = field(default_factory=lambda: NO_INTS)
    ancestry: Ancestry | None = None
    problems: dict[int, QueryProblem] = field(default_factory=dict)
    """slots of which it is not known whether they match, and why"""


class Index:
    """All distinct queries of a population."""

    def __init__(self, limits: Limits, tuning: Tuning, namespaces: Mapping[str, str]) -> None:
        self._limits = limits
        self._tuning = tuning
        self._namespaces = namespaces
        self.tree = PathTrie()
        self.machine = Dataguide(self.tree, tuning.cache)
        self._join = TwigJoin()
        self.groups = RelativePaths()
        self.costs: Counter[int] = Counter()  # slot → nanoseconds, of those decided one by one
        self.problems: dict[int, Counter[FailureKind]] = {}  # slot → how often it was not decided
        self._refiner = XPathFallback(self.costs, limits)
        self._queries: list[Query | str | None] = []  # as text, if packed, until somebody asks
        self._decided: NDArray[np.int8] = np.zeros(16, np.int8)
        self._bound: NDArray[np.bool_] = np.zeros(16, np.bool_)
        self._parts: list[int | list[Leaf | int]] = []  # a plain path's tree state, or leaves and bundles
        self._unused: list[int] = []
        self._targets = 0  # leaves that test text or a string-value
        self._probing = 0  # leaves that need more than the structure
        self._deciding = 0  # slots not decided by their leaves
        self.text_needed = 0  # how many need the text of messages for more than that
        self.source_needed = 0  # and the places of elements in them

    def __getstate__(self) -> dict[str, Any]:
        queries = [(query.text or query) if isinstance(query, Query) else query for query in self._queries]
        return self.__dict__ | {"_queries": queries, "costs": None, "problems": {}, "_refiner": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.costs = Counter()
        self._refiner = XPathFallback(self.costs, self._limits)

    @property
    def limits(self) -> Limits:
        return self._limits

    # -- the population --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._queries) - len(self._unused)

    def plan(self, query: Query) -> IndexPlan:
        """How messages for the query are found."""
        if not self._tuning.prefilter:
            return IndexPlan((Leaf(()),), False)
        return plan_index(query.condition)

    def add(self, query: Query) -> int:
        """Indexes a query that is not there yet: its slot."""
        if not query.exact:
            self._refiner.check(query)
        slot = self._new_slot(query)
        path = _plain_path(query) if self._tuning.prefilter else None
        if path is not None:
            self._decided[slot] = BY_LEAVES
            self._parts[slot] = self._mark(path, "slots", slot)
            return slot
        found_by = self.plan(query)
        how = BY_XPATH if not query.exact else BY_LEAVES if found_by.exact else BY_PATTERN
        self._decided[slot] = how
        self._deciding += how != BY_LEAVES
        self._parts[slot] = [self._add_part(part, slot) for part in found_by.parts]
        return slot

    def bind(self, query: Query, path: Path) -> tuple[int, bool] | None:
        """Indexes a path so that messages tell the elements it reaches: the slot, and whether that is exact.

        If not, what they tell are candidates. None, and nothing is indexed, if only an evaluator can tell.
        """
        found_by = plan_binding(path) if self._tuning.prefilter and self._tuning.join_bundles else None
        if found_by is None:
            return None
        slot = self._new_slot(query)
        self._decided[slot] = BY_LEAVES
        self._bound[slot] = True
        self._parts[slot] = [self._add_part(part, slot) for part in found_by.parts]
        return slot, found_by.exact

    def group(self, path: tuple[str, ...]) -> int:
        """Lets messages tell what a path, in symbols, reaches from any element: the group's number."""
        number, leaf = self.groups.add(path)
        if leaf is not None:
            self._add_leaf(leaf, "groups", number)
        return number

    def ungroup(self, number: int) -> None:
        leaf = self.groups.remove(number)
        if leaf is not None:
            self._remove_leaf(leaf, "groups", number)

    def remove(self, slot: int) -> None:
        """Takes a query out and frees all that only it used."""
        parts = self._parts[slot]
        if isinstance(parts, int):
            self._unmark(parts, "slots", slot)
        else:
            for part in parts:
                self._remove_part(part, slot)
        self._deciding -= int(self._decided[slot] != BY_LEAVES)
        self._refiner.forget(slot)
        self.costs.pop(slot, None)
        self.problems.pop(slot, None)
        self._queries[slot] = None
        self._bound[slot] = False
        self._parts[slot] = 0
        self._unused.append(slot)

    def _new_slot(self, query: Query) -> int:
        if self._unused:
            slot = self._unused.pop()
            self._queries[slot] = query
            return slot
        slot = len(self._queries)
        self._queries.append(query)
        self._parts.append(0)
        if slot == len(self._decided):
            self._decided = np.concatenate((self._decided, np.zeros_like(self._decided)))
            self._bound = np.concatenate((self._bound, np.zeros_like(self._bound)))
        return slot

    def _add_part(self, part: Leaf | Twig, slot: int) -> Leaf | int:
        if isinstance(part, Leaf):
            self._add_leaf(part, "slots", slot)
            return part
        number, new = self._join.add(part, slot)
        for anchoring in new:
            leaf = self._join.anchorings.part(anchoring)
            assert isinstance(leaf, Leaf)
            self._add_leaf(leaf, "anchors", anchoring)
            self._probing += 1
        return number

    def _remove_part(self, part: Leaf | int, slot: int) -> None:
        if isinstance(part, Leaf):
            self._remove_leaf(part, "slots", slot)
            return
        for anchoring, leaf in self._join.remove(part, slot):
            self._remove_leaf(leaf, "anchors", anchoring)
            self._probing -= 1

    def _add_leaf(self, leaf: Leaf, kind: str, number: int) -> None:
        """Files a mark under a leaf."""
        if leaf.target == ELEMENT:
            self._mark(leaf.path, kind, number)
            return
        state = self._enter(leaf.path)
        stop = self.machine.stops.setdefault(state, Stop())
        values = stop.targets.get(leaf.target)
        if values is None:
            values = stop.targets[leaf.target] = ValueIndex() if self._tuning.index_values else TestByTest()
        values.add(leaf.test, kind, number)
        self.machine.target_changed(state, leaf.target)
        self._probing += 1
        self._targets += leaf.target in (TEXT, VALUE)

    def _remove_leaf(self, leaf: Leaf, kind: str, number: int) -> None:
        state = self.tree.find(leaf.path)
        assert state is not None
        if leaf.target == ELEMENT:
            self._unmark(state, kind, number)
            return
        stop = self.machine.stops[state]
        values = stop.targets[leaf.target]
        values.remove(leaf.test, kind, number)
        if not len(values):
            del stop.targets[leaf.target]
        self.machine.target_changed(state, leaf.target)
        self._probing -= 1
        self._targets -= leaf.target in (TEXT, VALUE)
        self.machine.pruned(self.tree.release(state))

    def _enter(self, path: tuple[str, ...]) -> int:
        state, grown = self.tree.insert(path)
        if grown is not None:
            self.machine.grown(grown, self._edge_towards(grown, state))
        return state

    def _edge_towards(self, ancestor: int, state: int) -> str:
        """The first symbol on the way from a tree state down to another."""
        parent = self.tree.parent
        while parent[state] != ancestor:
            state = parent[state]
        return self.tree.symbol[state]

    def _mark(self, path: tuple[str, ...], kind: str, number: int) -> int:
        state = self._enter(path)
        self.machine.mark(state, kind, number)
        return state

    def _unmark(self, state: int, kind: str, number: int) -> None:
        self.machine.unmark(state, kind, number)
        self.machine.pruned(self.tree.release(state))

    # -- matching --------------------------------------------------------------------------------------

    def find(self, message: Message) -> IndexMatches:
        """What the message matches."""
        if not (self._probing or self._deciding or self.source_needed):
            return IndexMatches(set(read_structure(message, self._limits, self.machine.settle())), NO_INTS)
        document = self.read(message)
        evaluator = PatternEvaluator(document)
        found = IndexMatches(None, NO_INTS, evaluator)
        slots = self._candidates(document, found)
        found.slots = self._decide(message, found, slots) if self._deciding else slots
        return found

    def read(self, message: Message, all: bool = False) -> Document:
        """The message's nodes; text and source only if queries ask for them, or the caller does."""
        with_text = all or bool(self._targets or self._deciding or self.text_needed)
        with_source = all or bool(self.source_needed)
        return read_document(message, self._limits, self.machine.settle(), with_text, with_source)

    def slots_of(self, places: set[GuideNode]) -> Ints:
        """The slots of all the paths that end in any of the places, without repetition."""
        return self._distinct([place.read_slots() for place in places])

    def _candidates(self, document: Document, found: IndexMatches) -> Ints:
        places = [place.read_slots() for place in set(document.places)]
        runs = [slots for slots in places if slots is not NO_INTS]
        runs += [hit.slots for hit in document.hits if hit.slots is not NO_INTS]
        if self._probing:
            runs.append(self._joined(document, found))
        return self._distinct(runs)

    def _joined(self, document: Document, found: IndexMatches) -> Ints:
        """The slots of the bundles met; one by one where joining is switched off or does not pay."""
        if self._tuning.join_bundles and self._join.fits(document):
            found.ancestry = Ancestry(document)
            slots, elements = self._join.met(document, found.ancestry)
            return self._unbound(slots, elements, found)
        found.joined = False
        slots = self._join.candidates(document)
        assert found.evaluator is not None
        met = [slot for slot in set(slots.tolist()) if found.evaluator.holds(self.query(slot).condition)]
        return np.array(met, np.int32)

    def _unbound(self, slots: Ints, elements: Ints, found: IndexMatches) -> Ints:
        """The slots that are merely matched; those that are bound are noted with their elements."""
        bound = self._bound.take(slots)
        if not bound.any():
            return slots
        found.bound_slots, found.bound_to = slots[bound], elements[bound]
        return slots[~bound]

    def reached(self, found: IndexMatches, starts: list[int], inside: bool = False) -> ReachedElements:
        """What groups reach from some elements, which are given in document order; and, if wanted, from all
        those inside of them."""
        assert found.evaluator is not None and found.ancestry is not None
        return self.groups.reached(found.evaluator.document, found.ancestry, starts, inside)

    def _distinct(self, runs: list[Ints]) -> Ints:
        """All numbers of the runs once, ascending."""
        slots = np.concatenate(runs) if runs else NO_INTS
        if len(slots) * 8 > len(self._queries):
            mask = np.zeros(len(self._queries), np.bool_)
            mask[slots] = True
            return np.flatnonzero(mask).astype(np.int32)
        slots.sort()
        return slots[np.concatenate(([True], slots[1:] != slots[:-1]))] if len(slots) else slots

    def _decide(self, message: Message, found: IndexMatches, slots: Ints) -> Ints:
        """Drops the candidates that turn out not to match; those that cannot be decided are noted."""
        evaluator = found.evaluator
        assert evaluator is not None
        how = self._decided[slots]
        undecided = slots[how != BY_LEAVES].tolist()
        right = [slot for slot in undecided if self._holds(slot, evaluator)]
        refined = {slot: self.query(slot) for slot in right if self._decided[slot] == BY_XPATH}
        wrong = set(undecided).difference(right)
        if refined:
            for slot, truth in self._refiner.holding(message, refined).items():
                if isinstance(truth, QueryProblem):
                    found.problems[slot] = truth
                    self.note_problem(slot, truth)
                if truth is not True:
                    wrong.add(slot)
        return slots[~np.isin(slots, list(wrong))] if wrong else slots

    def note_problem(self, slot: int, problem: QueryProblem) -> None:
        """Counts a message on which a query was not decided."""
        self.problems.setdefault(slot, Counter())[problem.kind] += 1

    def _holds(self, slot: int, evaluator: PatternEvaluator) -> bool:
        started = perf_counter_ns()
        holds = evaluator.holds(self.query(slot).condition)
        self.costs[slot] += perf_counter_ns() - started
        return holds

    def query(self, slot: int) -> Query:
        query = self._queries[slot]
        assert query is not None
        if isinstance(query, str):
            query = self._queries[slot] = self._compiled(query)
        return query

    def _compiled(self, text: str) -> Query:
        if not is_transformation(text):
            return compile_query(text, self._namespaces)
        from sapwood.lang.fwr.compiler import (
            compile_filter_of,  # here, because those who only filter need no constructors
        )

        return compile_filter_of(text, self._namespaces)

    def text(self, slot: int) -> str:
        """The query as it was written."""
        query = self._queries[slot]
        assert query is not None
        return query if isinstance(query, str) else query.text

    @property
    def refiner(self) -> XPathFallback:
        return self._refiner

    def close(self) -> None:
        self._refiner.close()


def _plain_path(query: Query) -> tuple[str, ...] | None:
    """The symbols of a query that is one path without conditions, the frequent case."""
    if not isinstance(query.condition, Has) or len(query.paths) != 1 or query.condition.test is not None:
        return None
    symbols: list[str] = []
    for step in query.condition.path.steps:
        if step.conditions or step.axis is Axis.ATTRIBUTE or step.test == TEXT:
            return None
        if step.axis is Axis.DESCENDANT:
            symbols.append(DESCENDANT)
        symbols.append(step.test)
    return tuple(symbols)


__all__ = ["BY_LEAVES", "BY_PATTERN", "BY_XPATH", "Index", "IndexMatches"]
