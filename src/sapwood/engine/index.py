"""The index of all distinct queries, and the matching of a message against them.

Each distinct query has a *slot*, a small number that is the handle of its registration. The slot is posted
under the leaves of the query's index plan (see `query_paths`), which also says how candidates are decided:

    BY_LEAVES     the leaves decide
    BY_PATTERN    they are necessary; the evaluator decides on the message's nodes (residual check)
    BY_XPATH      the pattern itself is only necessary; lxml decides (fallback)

Filters, transformations and joins share one index. Each slot has an owner, and owners say what the message
reader has to collect for them: see `registration`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.engine.automaton.dataguide import Dataguide, GuideNode, StatePostings
from sapwood.engine.automaton.path_trie import DESCENDANT, PathTrie
from sapwood.engine.automaton.predicate_index import (
    NO_INTS,
    Ints,
    PostingKind,
    PredicateIndex,
    SequentialPredicates,
)
from sapwood.engine.automaton.query_paths import (
    ELEMENT,
    VALUE,
    IndexPlan,
    Leaf,
    Twig,
    plan_binding,
    plan_index,
)
from sapwood.engine.automaton.ragged_array import grow_array
from sapwood.engine.automaton.relative_paths import ReachedElements, RelativePaths
from sapwood.engine.automaton.twig_join import TwigJoin
from sapwood.engine.failures import FailureKind, QueryProblem
from sapwood.engine.fallback.xpath_fallback import XPathFallback
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.message.ancestry import Ancestry
from sapwood.engine.message.document import Document
from sapwood.engine.message.message_reader import Message, read_document, read_structure
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.engine.registration import Binding, Needs, Owner
from sapwood.lang.pattern import TEXT, Axis, Has, Path
from sapwood.lang.query import Query, compile_query

if TYPE_CHECKING:
    from numpy.typing import NDArray

BY_LEAVES, BY_PATTERN, BY_XPATH = 0, 1, 2

QueryCompiler = Callable[[str, Mapping[str, str]], Query]
"""Compiles the text of an owner's query again, with the namespaces of the index."""


@dataclass(slots=True)
class IndexMatches:
    """The slots that a message matches, or the guide nodes from which to read them.

    Of slots that bind elements, `bound_slots` and `bound_to` list the elements, in any order and perhaps with
    repetitions. If the message is too deep or too large for the twig join, `joined` is False, and only the
    evaluator finds bound elements.
    """

    guide_nodes: set[GuideNode] | None
    slots: Ints
    evaluator: PatternEvaluator | None = None
    joined: bool = True
    bound_slots: Ints = field(default_factory=lambda: NO_INTS)
    bound_to: Ints = field(default_factory=lambda: NO_INTS)
    ancestry: Ancestry | None = None
    problems: dict[int, QueryProblem] = field(default_factory=dict)
    """slots that could not be decided, and why"""


class Index:
    """All distinct queries of a matcher or broker, and the structures that find them."""

    def __init__(self, limits: Limits, tuning: Tuning, namespaces: Mapping[str, str]) -> None:
        self._limits = limits
        self._tuning = tuning
        self._namespaces = namespaces
        self.path_trie = PathTrie()
        self.dataguide = Dataguide(self.path_trie, tuning.cache)
        self._twig_join = TwigJoin()
        self.relative_paths = RelativePaths()
        self.costs: Counter[int] = Counter()  # slot → nanoseconds, of those decided one by one
        self.problems: dict[int, Counter[FailureKind]] = {}  # slot → how often it was not decided
        self._fallback = XPathFallback(self.costs, limits)
        self._compilers: dict[Owner, QueryCompiler] = {Owner.FILTER: compile_query}
        self._queries: list[Query | str | None] = []  # after unpickling as text, compiled on first use
        self._owners: NDArray[np.int8] = np.zeros(16, np.int8)
        self._decided_by: NDArray[np.int8] = np.zeros(16, np.int8)
        self._binds: NDArray[np.bool_] = np.zeros(16, np.bool_)
        self._parts: list[int | list[Leaf | int]] = []  # a plain path's trie state, or leaves and twigs
        self._free_slots: list[int] = []
        self._needs_of: dict[int, Needs] = {}  # slot → what its owner needs, unless nothing
        self._text_leaves = 0  # leaves that test text or a string-value
        self._probed_leaves = 0  # leaves that need more than guide nodes
        self._residual_slots = 0  # slots not decided by their leaves
        self._text_required = 0
        self._source_required = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without caches; queries that their owner can compile again are stored as text."""
        recompiled = np.isin(self._owners, list(self._compilers)).tolist()
        queries = [
            query.text if isinstance(query, Query) and recompiled[slot] else query
            for slot, query in enumerate(self._queries)
        ]
        return self.__dict__ | {"_queries": queries, "costs": None, "problems": {}, "_fallback": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.costs = Counter()
        self._fallback = XPathFallback(self.costs, self._limits)

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def fallback(self) -> XPathFallback:
        """The evaluator of what only lxml can decide."""
        return self._fallback

    # -- registration ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._queries) - len(self._free_slots)

    def set_compiler(self, owner: Owner, compiler: QueryCompiler) -> None:
        """Set how queries of an owner are compiled again after unpickling; without it they are pickled whole.

        The compiler must be a function of a module, since it is pickled by name.
        """
        self._compilers[owner] = compiler

    def plan(self, query: Query) -> IndexPlan:
        """Return the leaves and twigs under which a query is posted."""
        if not self._tuning.prefilter:
            return IndexPlan((Leaf(()),), False)
        return plan_index(query.condition)

    def register(self, query: Query, owner: Owner = Owner.FILTER, needs: Needs = Needs.NOTHING) -> int:
        """Index a distinct query and return its slot, the handle for `unregister`."""
        if not query.exact:
            self._fallback.check(query)
        slot = self._new_slot(query, owner, needs)
        path = _plain_path(query) if self._tuning.prefilter else None
        if path is not None:
            self._decided_by[slot] = BY_LEAVES
            self._parts[slot] = self._post(path, PostingKind.SLOT, slot)
            return slot
        plan = self.plan(query)
        decided_by = BY_XPATH if not query.exact else BY_LEAVES if plan.exact else BY_PATTERN
        self._decided_by[slot] = decided_by
        self._residual_slots += decided_by != BY_LEAVES
        self._parts[slot] = [self._add_part(part, slot) for part in plan.parts]
        return slot

    def register_binding(
        self, query: Query, path: Path, owner: Owner, needs: Needs = Needs.NOTHING
    ) -> Binding | None:
        """Index a path so that matches report the elements it reaches.

        If the binding is not exact, they are candidates, and text is collected to check them. Return None,
        with nothing indexed, if only an evaluator can find the elements.
        """
        plan = plan_binding(path) if self._tuning.prefilter and self._tuning.join_bundles else None
        if plan is None:
            return None
        slot = self._new_slot(query, owner, needs if plan.exact else needs | Needs.TEXT)
        self._decided_by[slot] = BY_LEAVES
        self._binds[slot] = True
        self._parts[slot] = [self._add_part(part, slot) for part in plan.parts]
        return Binding(slot, plan.exact)

    def unregister(self, slot: int) -> None:
        """Remove a query and free all that only it used."""
        parts = self._parts[slot]
        if isinstance(parts, int):
            self._unpost(parts, PostingKind.SLOT, slot)
        else:
            for part in parts:
                self._remove_part(part, slot)
        self._residual_slots -= int(self._decided_by[slot] != BY_LEAVES)
        self._fallback.forget(slot)
        self.costs.pop(slot, None)
        self.problems.pop(slot, None)
        self._queries[slot] = None
        self._binds[slot] = False
        self._owners[slot] = Owner.FILTER
        self._parts[slot] = 0
        self._free_slots.append(slot)
        if slot in self._needs_of:
            self.release(self._needs_of.pop(slot))

    def register_relative_path(self, path: tuple[str, ...]) -> int:
        """Add one use of a relative path, given in symbols, and return its number: see `reached`."""
        number, leaf = self.relative_paths.add(path)
        if leaf is not None:
            self._add_leaf(leaf, PostingKind.RELATIVE_PATH, number)
        return number

    def unregister_relative_path(self, number: int) -> None:
        """Take back one use of a relative path."""
        leaf = self.relative_paths.remove(number)
        if leaf is not None:
            self._remove_leaf(leaf, PostingKind.RELATIVE_PATH, number)

    def require(self, needs: Needs) -> None:
        """Have the message reader collect something, whichever queries are registered, until `release`."""
        self._text_required += Needs.TEXT in needs
        self._source_required += Needs.SOURCE in needs

    def release(self, needs: Needs) -> None:
        """Take back one `require`."""
        self._text_required -= Needs.TEXT in needs
        self._source_required -= Needs.SOURCE in needs

    @property
    def needs(self) -> Needs:
        """Everything that the message reader has to collect at present."""
        text = Needs.TEXT if self._reads_text else Needs.NOTHING
        return text | Needs.SOURCE if self._source_required else text

    @property
    def _reads_text(self) -> bool:
        return bool(self._text_leaves or self._residual_slots or self._text_required)

    def owned_by(self, owner: Owner, slots: Ints) -> NDArray[np.bool_]:
        """Return a mask of the slots that belong to an owner."""
        owned: NDArray[np.bool_] = self._owners.take(slots) == owner
        return owned

    def _new_slot(self, query: Query, owner: Owner, needs: Needs) -> int:
        if self._free_slots:
            slot = self._free_slots.pop()
            self._queries[slot] = query
        else:
            slot = len(self._queries)
            self._queries.append(query)
            self._parts.append(0)
            if slot == len(self._decided_by):
                self._decided_by = grow_array(self._decided_by, 2 * slot)
                self._binds = grow_array(self._binds, 2 * slot)
                self._owners = grow_array(self._owners, 2 * slot)
        if owner is not Owner.FILTER:
            self._owners[slot] = owner
        if needs is not Needs.NOTHING:
            self._needs_of[slot] = needs
            self.require(needs)
        return slot

    # -- postings --------------------------------------------------------------------------------------

    def _add_part(self, part: Leaf | Twig, slot: int) -> Leaf | int:
        if isinstance(part, Leaf):
            self._add_leaf(part, PostingKind.SLOT, slot)
            return part
        twig, new = self._twig_join.add(part, slot)
        for anchoring in new:
            leaf = self._twig_join.anchorings.part(anchoring)
            assert isinstance(leaf, Leaf)
            self._add_leaf(leaf, PostingKind.ANCHORING, anchoring)
            self._probed_leaves += 1
        return twig

    def _remove_part(self, part: Leaf | int, slot: int) -> None:
        if isinstance(part, Leaf):
            self._remove_leaf(part, PostingKind.SLOT, slot)
            return
        for anchoring, leaf in self._twig_join.remove(part, slot):
            self._remove_leaf(leaf, PostingKind.ANCHORING, anchoring)
            self._probed_leaves -= 1

    def _add_leaf(self, leaf: Leaf, kind: PostingKind, number: int) -> None:
        """Post a number under a leaf."""
        if leaf.target == ELEMENT:
            self._post(leaf.path, kind, number)
            return
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

    def _remove_leaf(self, leaf: Leaf, kind: PostingKind, number: int) -> None:
        state = self.path_trie.find(leaf.path)
        assert state is not None
        if leaf.target == ELEMENT:
            self._unpost(state, kind, number)
            return
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

    def find(self, message: Message, with_text: bool = False) -> IndexMatches:
        """Match a message against all registered queries.

        `with_text` provides an evaluator that reads string-values even if no query needs them.
        """
        if not (with_text or self._probed_leaves or self._residual_slots or self._source_required):
            return IndexMatches(set(read_structure(message, self._limits, self.dataguide.start())), NO_INTS)
        document = self.read(message, with_text=with_text)
        evaluator = PatternEvaluator(document)
        found = IndexMatches(None, NO_INTS, evaluator)
        slots = self._candidates(document, found)
        found.slots = self._check_residual(message, found, slots) if self._residual_slots else slots
        return found

    def read(self, message: Message, all: bool = False, with_text: bool = False) -> Document:
        """Read the nodes of a message; text and source only if they are needed, or the caller wants `all`."""
        with_text = all or with_text or self._reads_text
        with_source = all or bool(self._source_required)
        return read_document(message, self._limits, self.dataguide.start(), with_text, with_source)

    def slots_of(self, guide_nodes: set[GuideNode]) -> Ints:
        """Return the slots of all the paths that end at any of the guide nodes, each once."""
        return self._distinct([node.read_slots() for node in guide_nodes])

    def _candidates(self, document: Document, found: IndexMatches) -> Ints:
        at_nodes = [node.read_slots() for node in set(document.guide_nodes)]
        runs = [slots for slots in at_nodes if slots is not NO_INTS]
        runs += [hit.slots for hit in document.hits if hit.slots is not NO_INTS]
        if self._probed_leaves:
            runs.append(self._match_twigs(document, found))
        return self._distinct(runs)

    def _match_twigs(self, document: Document, found: IndexMatches) -> Ints:
        """Return the slots of the twigs that match; evaluated one by one where the join does not apply."""
        if self._tuning.join_bundles and self._twig_join.fits(document):
            found.ancestry = Ancestry(document)
            slots, elements = self._twig_join.match(document, found.ancestry)
            return self._take_bound(slots, elements, found)
        found.joined = False
        slots = self._twig_join.candidates(document)
        assert found.evaluator is not None
        matched = [slot for slot in set(slots.tolist()) if found.evaluator.holds(self.query(slot).condition)]
        return np.array(matched, np.int32)

    def _take_bound(self, slots: Ints, elements: Ints, found: IndexMatches) -> Ints:
        """Move the slots that bind elements to `found`, with their elements; return the others."""
        binds = self._binds.take(slots)
        if not binds.any():
            return slots
        found.bound_slots, found.bound_to = slots[binds], elements[binds]
        return slots[~binds]

    def reached(self, found: IndexMatches, starts: list[int], inside: bool = False) -> ReachedElements:
        """Return what relative paths reach from elements given in document order and, with `inside`, from all
        their descendants."""
        assert found.evaluator is not None and found.ancestry is not None
        return self.relative_paths.reached(found.evaluator.document, found.ancestry, starts, inside)

    def _distinct(self, runs: list[Ints]) -> Ints:
        """Return all numbers of the runs once, ascending."""
        slots = np.concatenate(runs) if runs else NO_INTS
        if len(slots) * 8 > len(self._queries):
            mask = np.zeros(len(self._queries), np.bool_)
            mask[slots] = True
            return np.flatnonzero(mask).astype(np.int32)
        slots.sort()
        return slots[np.concatenate(([True], slots[1:] != slots[:-1]))] if len(slots) else slots

    def _check_residual(self, message: Message, found: IndexMatches, slots: Ints) -> Ints:
        """Drop the candidates that do not match; those that cannot be decided are added to `problems`."""
        evaluator = found.evaluator
        assert evaluator is not None
        decided_by = self._decided_by[slots]
        candidates = slots[decided_by != BY_LEAVES].tolist()
        holding = [slot for slot in candidates if self._holds(slot, evaluator)]
        by_xpath = {slot: self.query(slot) for slot in holding if self._decided_by[slot] == BY_XPATH}
        rejected = set(candidates).difference(holding)
        if by_xpath:
            for slot, truth in self._fallback.evaluate_conditions(message, by_xpath).items():
                if isinstance(truth, QueryProblem):
                    found.problems[slot] = truth
                    self.count_problem(slot, truth)
                if truth is not True:
                    rejected.add(slot)
        return slots[~np.isin(slots, list(rejected))] if rejected else slots

    def count_problem(self, slot: int, problem: QueryProblem) -> None:
        """Count a message on which a query was not decided."""
        self.problems.setdefault(slot, Counter())[problem.kind] += 1

    def _holds(self, slot: int, evaluator: PatternEvaluator) -> bool:
        started = perf_counter_ns()
        holds = evaluator.holds(self.query(slot).condition)
        self.costs[slot] += perf_counter_ns() - started
        return holds

    def query(self, slot: int) -> Query:
        """Return the query of a slot, compiled if it was unpickled as text."""
        query = self._queries[slot]
        assert query is not None
        if isinstance(query, str):
            compiler = self._compilers[Owner(self._owners[slot])]
            query = self._queries[slot] = compiler(query, self._namespaces)
        return query

    def text(self, slot: int) -> str:
        """Return a query as it was written."""
        query = self._queries[slot]
        assert query is not None
        return query if isinstance(query, str) else query.text

    def close(self) -> None:
        self._fallback.close()


def _plain_path(query: Query) -> tuple[str, ...] | None:
    """Return the symbols of a query that is one path without conditions, the frequent case."""
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
