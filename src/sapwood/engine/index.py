"""The index of all distinct queries, and the matching of a message against them.

Each distinct query has a *slot*, a small number that is the handle of its registration. An automaton finds
the slots of which a message has a part of the index plan (see `query_paths` and `automaton.protocol`); the
plan also says how these candidates are decided:

    BY_LEAVES     the leaves decide
    BY_PATTERN    they are necessary; the evaluator decides on the message's nodes (residual check)
    BY_XPATH      the pattern itself is only necessary; lxml decides (fallback)

Filters, transformations and joins share one index. Each slot has an owner, and owners say what the message
reader has to collect for them: see `registration`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.engine.automaton.automaton import Automaton, ListedSlots
from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.protocol import AutomatonMatches, MatchedAhead, MatchedSlots, QueryAutomaton
from sapwood.engine.automaton.query_paths import IndexPlan, Leaf, plan_binding, plan_index
from sapwood.engine.automaton.query_planner import QueryPlanner
from sapwood.engine.automaton.ragged_array import grow_array
from sapwood.engine.automaton.registered_parts import RegisteredParts, drop_queries
from sapwood.engine.automaton.relative_paths import ReachedElements
from sapwood.engine.failures import FailureKind, QueryProblem
from sapwood.engine.fallback.xpath_fallback import XPathFallback
from sapwood.engine.kernel import KERNEL
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.message.document import Document
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.engine.registration import Binding, Needs, Owner
from sapwood.lang.namespaces import match_in_any
from sapwood.lang.pattern import Path
from sapwood.lang.query import Query, compile_query

if TYPE_CHECKING:
    from numpy.typing import NDArray

BY_LEAVES, BY_PATTERN, BY_XPATH = 0, 1, 2

_ALWAYS = IndexPlan((Leaf(()),), False)
"""A plan that every message passes."""

QueryCompiler = Callable[[str, Mapping[str, str]], Query]
"""Compiles the text of an owner's query again, with the namespaces of the index."""


def make_automaton(limits: Limits, tuning: Tuning) -> QueryAutomaton:
    """Return an empty automaton: the compiled one where it is built, and tuning does not ask for another."""
    if KERNEL is None or not (tuning.kernel and tuning.index_values and tuning.join_bundles):
        return Automaton(limits, tuning)
    from sapwood.engine.kernel.kernel_automaton import KernelAutomaton  # which needs the compiled module

    return KernelAutomaton(limits, tuning)


class IndexMatches:
    """The slots that a message matches, and what else the automaton found in it.

    Of slots that bind elements, `bound_slots` and `bound_to` list the elements, in any order and perhaps with
    repetitions. If the message is too deep or too large for the twig join, `joined` is False, and only the
    evaluator finds bound elements.
    """

    __slots__ = ("_evaluator", "_found", "matched", "problems")

    def __init__(self, found: AutomatonMatches) -> None:
        self._found = found
        self._evaluator: PatternEvaluator | None = None
        self.matched: MatchedSlots = found.slots
        self.problems: dict[int, QueryProblem] = {}
        """slots that could not be decided, and why"""

    @property
    def slots(self) -> Ints:
        """The slots, ascending and each once."""
        return self.matched.read()

    @property
    def joined(self) -> bool:
        return self._found.joined

    @property
    def twig_candidates(self) -> Ints:
        return self._found.twig_candidates

    @property
    def bound_slots(self) -> Ints:
        return self._found.bound_slots

    @property
    def bound_to(self) -> Ints:
        return self._found.bound_to

    @property
    def bound_elements(self) -> list[tuple[int, tuple[int, ...]]]:
        """The slots that bind elements, ascending, each with its elements in document order."""
        return self._found.bound_elements

    @property
    def evaluator(self) -> PatternEvaluator:
        """The evaluator of patterns on the message, which is read for it if it was not yet."""
        if self._evaluator is None:
            self._evaluator = PatternEvaluator(self._found.document)
        return self._evaluator

    def reached(self, starts: list[int], inside: bool = False) -> ReachedElements | None:
        """Return what relative paths reach from elements given in document order and, with `inside`, from all
        their descendants; None if only the evaluator can tell."""
        return self._found.reached(starts, inside)


class Index:
    """All distinct queries of a matcher or broker, and the structures that find them."""

    def __init__(self, limits: Limits, tuning: Tuning, namespaces: Mapping[str, str]) -> None:
        self._limits = limits
        self._tuning = tuning
        self._namespaces = namespaces
        self.planner = QueryPlanner(namespaces)
        self._automaton: QueryAutomaton = make_automaton(limits, tuning)
        self.costs: Counter[int] = Counter()  # slot → nanoseconds, of those decided one by one
        self.problems: dict[int, Counter[FailureKind]] = {}  # slot → how often it was not decided
        self._fallback = XPathFallback(self.costs, limits)
        self._compilers: dict[Owner, QueryCompiler] = {Owner.FILTER: compile_query}
        self._queries: list[Query | str | None] = []  # most of them as text, compiled on first use
        self._owners: NDArray[np.int8] = np.zeros(16, np.int8)
        self._decided_by: NDArray[np.int8] = np.zeros(16, np.int8)
        self._slot_of: dict[str, int] = {}  # of filters that are no plain paths, by their keys
        self._key_of: dict[int, str] = {}
        self._free_slots: list[int] = []
        self._needs_of: dict[int, Needs] = {}  # slot → what its owner needs, unless nothing
        self._residual_slots = 0  # slots not decided by their leaves
        self._text_required = 0
        self._source_required = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without caches: the automaton as what is registered in it, and queries that their
        owner can compile again as text. Those of links are left out: other brokers state them anew."""
        recompiled = np.isin(self._owners, list(self._compilers)).tolist()
        queries = [
            query.text if isinstance(query, Query) and recompiled[slot] else query
            for slot, query in enumerate(self._queries)
        ]
        changed = {"_queries": queries, "_automaton": self._automaton.dump(), "costs": None, "problems": {}}
        return self._without_links(self.__dict__ | changed | {"_fallback": None})

    def _without_links(self, state: dict[str, Any]) -> dict[str, Any]:
        """Free the slots of links in a state, as `unregister` would do."""
        of_links = self._owners == Owner.LINK
        if not of_links.any():
            return state
        slots = np.flatnonzero(of_links).tolist()
        for slot in slots:
            state["_queries"][slot] = None
        registered: RegisteredParts = state["_automaton"]
        residual = int(np.count_nonzero(self._decided_by[of_links] != BY_LEAVES))
        return state | {
            "_automaton": replace(registered, queries=drop_queries(registered.queries, set(slots))),
            "_owners": np.where(of_links, np.int8(Owner.FILTER), self._owners),
            "_decided_by": np.where(of_links, np.int8(BY_LEAVES), self._decided_by),
            "_residual_slots": self._residual_slots - residual,
            "_free_slots": [*self._free_slots, *slots],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.costs = Counter()
        self._fallback = XPathFallback(self.costs, self._limits)
        registered: RegisteredParts = state["_automaton"]  # of either kind of automaton, and for either
        self._automaton = make_automaton(self._limits, self._tuning)
        self._automaton.load(registered)

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def automaton(self) -> QueryAutomaton:
        """The structures that find the parts of queries in messages."""
        return self._automaton

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
            return _ALWAYS
        return plan_index(query.condition)

    def register_filter(self, text: str) -> int:
        """Return the slot of a filter, which is indexed unless an equal one is; raise QueryError if the text
        is none. Its owner keeps count of the subscriptions, and unregisters it with the last."""
        slot = self._free_slots[-1] if self._free_slots else len(self._queries)
        shares_paths = self._tuning.prefilter
        if shares_paths and not match_in_any(self._namespaces):
            found = self._automaton.register_text(slot, text)
            if found is not None:
                return self._claim(slot, text) if found == slot else found
        planned = self.planner.plan(text)
        if shares_paths and planned.path is not None:
            found = self._automaton.register_path(slot, planned.path)
            return self._claim(slot, text) if found == slot else found
        known = self._slot_of.get(planned.key)
        if known is not None:
            return known
        if planned.query is not None and not planned.exact:
            self._fallback.check(planned.query)
        slot = self._new_slot(planned.query or text, Owner.FILTER, Needs.NOTHING)
        plan = planned.plan if self._tuning.prefilter else _ALWAYS
        self._register_plan(slot, plan, planned.exact)
        self._slot_of[planned.key] = slot
        self._key_of[slot] = planned.key
        return slot

    def register(self, query: Query, owner: Owner, needs: Needs = Needs.NOTHING) -> int:
        """Index a query of its owner's own, and return its slot, the handle for `unregister`."""
        if not query.exact:
            self._fallback.check(query)
        slot = self._new_slot(query, owner, needs)
        self._register_plan(slot, self.plan(query), query.exact)
        return slot

    def _register_plan(self, slot: int, plan: IndexPlan, exact: bool) -> None:
        decided_by = BY_XPATH if not exact else BY_LEAVES if plan.exact else BY_PATTERN
        self._decided_by[slot] = decided_by
        self._residual_slots += decided_by != BY_LEAVES
        self._automaton.register(slot, plan.parts)

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
        self._automaton.register(slot, plan.parts, binds=True)
        return Binding(slot, plan.exact)

    def unregister(self, slot: int) -> None:
        """Remove a query and free all that only it used."""
        self._automaton.unregister(slot)
        self._residual_slots -= int(self._decided_by[slot] != BY_LEAVES)
        self._decided_by[slot] = BY_LEAVES
        if slot in self._key_of:
            del self._slot_of[self._key_of.pop(slot)]
        self._fallback.forget(slot)
        self.costs.pop(slot, None)
        self.problems.pop(slot, None)
        self._queries[slot] = None
        self._owners[slot] = Owner.FILTER
        self._free_slots.append(slot)
        if slot in self._needs_of:
            self.release(self._needs_of.pop(slot))

    def register_relative_path(self, path: tuple[str, ...]) -> int:
        """Add one use of a relative path, given in symbols, and return its number: see `reached`."""
        return self._automaton.add_relative_path(path)

    def unregister_relative_path(self, number: int) -> None:
        """Take back one use of a relative path."""
        self._automaton.remove_relative_path(number)

    def relative_path_uses(self, number: int) -> int:
        """Return how often a relative path is used."""
        return self._automaton.relative_path_uses(number)

    def set_weight(self, slot: int, subscriptions: int) -> None:
        """Set how many subscriptions a slot has: see `MatchedSlots.count`."""
        self._automaton.set_weight(slot, subscriptions)

    def clear_cache(self) -> None:
        """Drop what was learnt from messages, which is cheaper than keeping it while many queries come."""
        self._automaton.clear_cache()

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
        reads_text = self._automaton.reads_text or self._residual_slots or self._text_required
        text = Needs.TEXT if reads_text else Needs.NOTHING
        return text | Needs.SOURCE if self._source_required else text

    def owned_by(self, owner: Owner, slots: Ints) -> NDArray[np.bool_]:
        """Return a mask of the slots that belong to an owner."""
        owned: NDArray[np.bool_] = self._owners.take(slots) == owner
        return owned

    def _new_slot(self, query: Query | str, owner: Owner, needs: Needs) -> int:
        slot = self._claim(self._free_slots[-1] if self._free_slots else len(self._queries), query)
        if owner is not Owner.FILTER:
            self._owners[slot] = owner
        if needs is not Needs.NOTHING:
            self._needs_of[slot] = needs
            self.require(needs)
        return slot

    def _claim(self, slot: int, query: Query | str) -> int:
        """Take the slot that is next, for a filter that its leaves decide unless more is said."""
        if self._free_slots:
            self._free_slots.pop()
            self._queries[slot] = query
        else:
            self._queries.append(query)
            if slot == len(self._decided_by):
                self._decided_by = grow_array(self._decided_by, 2 * slot)
                self._owners = grow_array(self._owners, 2 * slot)
        return slot

    # -- matching --------------------------------------------------------------------------------------

    def match_ahead(self, messages: Sequence[Message]) -> Sequence[MatchedAhead | None]:
        """Match messages as far as that goes without the lock of the owner; `find` completes it."""
        return self._automaton.match_ahead(messages)

    def match_at_once(self, messages: Sequence[Message]) -> Sequence[MatchedSlots] | None:
        """Match messages in one call of the automaton; None if one of them takes more than that."""
        return None if self._residual_slots else self._automaton.match_at_once(messages)

    def is_current(self, ahead: MatchedAhead | None) -> bool:
        """Return whether the queries have not been changed since a message was matched ahead."""
        return self._automaton.is_current(ahead)

    def find(
        self,
        message: Message,
        with_text: bool = False,
        ahead: MatchedAhead | None = None,
        owner: Owner | None = None,
    ) -> IndexMatches:
        """Match a message against all registered queries, or against those of one owner: others are then
        neither among the slots nor decided, which saves their residual checks.

        `with_text` provides an evaluator that reads string-values even if no query needs them.
        """
        with_text = with_text or bool(self._residual_slots or self._text_required)
        found = IndexMatches(self._automaton.find(message, with_text, self._source_required > 0, ahead))
        if owner is not None:
            slots = found.slots
            found.matched = self.listed(slots[self.owned_by(owner, slots)])
        if not found.joined:
            self._decide_twigs(found, owner)
        if self._residual_slots:
            self._check_residual(message, found)
        return found

    def read(self, message: Message, all: bool = False, with_text: bool = False) -> Document:
        """Read the nodes of a message; text and source only if they are needed, or the caller wants `all`."""
        with_text = all or with_text or bool(self._residual_slots or self._text_required)
        return self._automaton.read(message, with_text, with_source=all or self._source_required > 0)

    def listed(self, slots: Ints) -> MatchedSlots:
        """Return slots, ascending and each once, in the form in which matches hold them."""
        return ListedSlots(self._automaton, slots)

    def _decide_twigs(self, found: IndexMatches, owner: Owner | None) -> None:
        """Add the slots of the twigs that match, evaluated one by one where the join does not apply."""
        twigs = found.twig_candidates
        candidates = set((twigs if owner is None else twigs[self.owned_by(owner, twigs)]).tolist())
        matched = [slot for slot in candidates if found.evaluator.holds(self.query(slot).condition)]
        if matched:
            found.matched = self.listed(np.union1d(found.slots, np.array(matched, np.int32)))

    def _check_residual(self, message: Message, found: IndexMatches) -> None:
        """Drop the candidates that do not match; those that cannot be decided are added to `problems`."""
        slots = found.slots
        decided_by = self._decided_by[slots]
        candidates = slots[decided_by != BY_LEAVES].tolist()
        holding = [slot for slot in candidates if self._holds(slot, found.evaluator)]
        by_xpath = {slot: self.query(slot) for slot in holding if self._decided_by[slot] == BY_XPATH}
        rejected = set(candidates).difference(holding)
        if by_xpath:
            for slot, truth in self._fallback.evaluate_conditions(message, by_xpath).items():
                if isinstance(truth, QueryProblem):
                    found.problems[slot] = truth
                    self.count_problem(slot, truth)
                if truth is not True:
                    rejected.add(slot)
        if rejected:
            found.matched = self.listed(slots[~np.isin(slots, list(rejected))])

    def count_problem(self, slot: int, problem: QueryProblem) -> None:
        """Count a message on which a query was not decided."""
        self.problems.setdefault(slot, Counter())[problem.kind] += 1

    def _holds(self, slot: int, evaluator: PatternEvaluator) -> bool:
        started = perf_counter_ns()
        holds = evaluator.holds(self.query(slot).condition)
        self.costs[slot] += perf_counter_ns() - started
        return holds

    def query(self, slot: int) -> Query:
        """Return the query of a slot, compiled if there is only its text."""
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


__all__ = ["BY_LEAVES", "BY_PATTERN", "BY_XPATH", "Index", "IndexMatches"]
