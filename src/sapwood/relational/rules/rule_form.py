"""A compiled query as rules: sets of branches that have to be found on the same nodes.

    /a//b[c = 1 or d]/x[@y = 2]//z        two rules:

    1. /a//b/c = 1    /a//b/x/@y = 2    /a//b/x//z
    2. /a//b/d        /a//b/x/@y = 2    /a//b/x//z        in both, b is branching point 1 and x is 2

A *branch* is a linear path with at most one test at its end. A *branching point* is a step of the pattern at
which branches of a rule part; only where they part need their nodes be compared, because a node settles all
those above it. The root element needs no comparison: there is one.

What rules cannot say (negation, positions, the first node of several, too many alternatives or branches) is
left out, and `weakened` tells so: then rules find all messages that match, and perhaps others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, product
from math import prod
from typing import NamedTuple

from sapwood.engine.automaton.query_paths import intersect_name_tests
from sapwood.lang.pattern import (
    ANY_NAMESPACE,
    EMPTY,
    TEXT,
    And,
    Axis,
    Condition,
    Has,
    Named,
    Not,
    Or,
    Step,
    Test,
    selects_at_most_one,
)
from sapwood.lang.query import Query
from sapwood.relational.paths.linear_path import LinearPath

MOST_RULES = 32
"""A query that comes to more than this is not multiplied out: disjunctions that are to blame are left out."""

MOST_BRANCHES = 24
"""A rule has no more; of one that would have, the rest is left out. Every batch asks for as many in turn
as the longest rule has."""

_TOO_MANY = 10 * MOST_BRANCHES
"""Branches of which some are left out on the way already."""

_LONGEST = 100
"""characters of a part that is quoted in full"""


@dataclass(frozen=True, slots=True)
class Branch:
    """A path that a message must have, ending in a value that passes the test, if there is one."""

    path: LinearPath
    test: Test | None
    points: tuple[tuple[int, int], ...]
    """branching points on the path by number, and which step each is, counted from 1; ascending"""


@dataclass(frozen=True, slots=True)
class Rule:
    """All branches must be found, each branching point at the same node in all branches that have it."""

    branches: tuple[Branch, ...]
    """equality tests first, otherwise in the order of the pattern"""


@dataclass(frozen=True, slots=True)
class RuleForm:
    """A message that matches meets one of the rules at least; if the form is `exact`, that is enough."""

    rules: tuple[Rule, ...]
    """none: no message can match"""
    weakened: tuple[str, ...]
    """the parts of the query that rules do not say in full, and why"""

    @property
    def exact(self) -> bool:
        return not self.weakened


def relational_form(query: Query) -> RuleForm:
    """The rules of a query."""
    former = _Former()
    rules = former.rules(query.condition)
    if not rules:  # then nothing is approximate: not even the weaker condition can be met
        return RuleForm((), ())
    reasons = [f"{_quoted(query.text[r.start : r.end])}: {r.why}" for r in query.reasons]
    return RuleForm(rules, tuple(dict.fromkeys((*reasons, *former.weakened))))


class _Leg(NamedTuple):
    """A branch from some node down; `trail` numbers the pattern's own steps, which alternatives share."""

    steps: tuple[tuple[Axis, str], ...] = ()
    trail: tuple[int, ...] = ()
    test: Test | None = None

    def under(self, steps: tuple[tuple[Axis, str], ...], trail: tuple[int, ...]) -> _Leg:
        return _Leg(steps + self.steps, trail + self.trail, self.test)


class _Way(NamedTuple):
    """One way to meet a condition: name tests that the node passes, and branches that it has."""

    names: tuple[str, ...] = ()
    legs: tuple[_Leg, ...] = ()


_ANYHOW = _Way()


class _Former:
    """Turns the condition of one query into ways to meet it, from the leaves of the pattern up to its root.

    Its methods return alternatives, of which there are never more than MOST_RULES. Where there would be, they
    are called again with `split` false, which leaves out each disjunction that would bring a second one.
    """

    def __init__(self) -> None:
        self.weakened: dict[str, None] = {}
        self._numbers = count(1)

    def rules(self, condition: Condition) -> tuple[Rule, ...]:
        """The rules for a condition on the document node."""
        rules = dict.fromkeys(
            _rule(self._few(self._of_document(way.legs)))
            for way in self._condition(condition)
            if not way.names and not any(_nowhere(leg) for leg in way.legs)
        )
        unconditional = Rule(())
        return (unconditional,) if unconditional in rules else tuple(rules)

    def _of_document(self, legs: tuple[_Leg, ...]) -> list[_Leg]:
        """Without tests of the document node itself, of which nobody keeps the string-value."""
        for leg in legs:
            if not leg.steps and leg.test is not None:
                self._weaken(Has(EMPTY, leg.test), "the text of the whole message")
        return [leg for leg in legs if leg.steps]

    def _few(self, legs: list[_Leg]) -> list[_Leg]:
        """The branches that tell most, if there are too many."""
        if len(legs) <= MOST_BRANCHES:
            return legs
        self.weakened[f"{len(legs)} conditions at once: tables are asked for {MOST_BRANCHES}"] = None
        return sorted(legs, key=_is_no_equality)[:MOST_BRANCHES]

    def _weaken(self, part: Condition, why: str) -> None:
        self.weakened[f"{_quoted(str(part))}: {why}"] = None

    # -- conditions --------------------------------------------------------------------------------------

    def _condition(self, condition: Condition, split: bool = True) -> list[_Way]:
        match condition:
            case And(items=items):
                return self._all(items, [_ANYHOW], split)
            case Or():
                return self._any(condition, split)
            case Has():
                return self._has(condition, split)
            case Named(test=test):
                return [_Way((test,))] if _is_possible(test) else []
        self._weaken(condition, "a negation" if isinstance(condition, Not) else "a position")
        return [_ANYHOW]

    def _all(self, conditions: Sequence[Condition], rest: list[_Way], split: bool) -> list[_Way]:
        """The conditions, and then the rest."""
        parts = [self._condition(condition, split) for condition in conditions]
        while prod(map(len, parts), start=len(rest)) > MOST_RULES:
            largest = max(range(len(parts)), key=lambda i: len(parts[i]))
            parts[largest] = self._condition(conditions[largest], split=False)
        return [_together(choice) for choice in product(*parts, rest)]

    def _any(self, condition: Or, split: bool) -> list[_Way]:
        most = MOST_RULES if split else 1
        found = {item: ways for item in condition.items if (ways := self._condition(item, split))}
        for item in sorted(found, key=lambda item: len(found[item]), reverse=True):
            if len(found) > most or sum(map(len, found.values())) <= most:
                break
            found[item] = self._condition(item, split=False)
        ways = list(chain.from_iterable(found.values()))
        if _ANYHOW in ways:
            return [_ANYHOW]
        if len(ways) > most:
            self._weaken(condition, f"with it, the query has more than {MOST_RULES} alternatives")
            return [_ANYHOW]
        return ways

    def _has(self, condition: Has, split: bool) -> list[_Way]:
        path, test = condition.path, condition.test
        if condition.first and not selects_at_most_one(path):
            self._weaken(condition, "the first node of several")
        ways = [_ANYHOW] if test is None else [_Way((), (_Leg(test=test),))]
        for run in _runs(path.steps):
            ways = self._down(run, ways, split)
        return ways

    def _down(self, run: tuple[Step, ...], rest: list[_Way], split: bool) -> list[_Way]:
        """The steps of a run down, then the conditions of the last of them and the rest of the path."""
        *bare, last = run
        above = tuple([(step.axis, step.test) for step in bare])
        trail = tuple([next(self._numbers) for _ in run])
        ways: list[_Way] = []
        for way in self._all(_flat(last.conditions), rest, split):
            test = _narrowed(last, way)
            if test is not None:
                steps = (*above, (last.axis, test))
                legs = way.legs or (_Leg(),)  # a step on which nothing hangs must exist
                if len(legs) > _TOO_MANY:  # they are taken up step by step, and most are left out in the end
                    legs = tuple(self._few(list(legs)))
                ways.append(_Way((), tuple([leg.under(steps, trail) for leg in legs])))
        return ways


def _runs(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """The steps of a path, from its end, in runs of which only the last step has conditions."""
    end = len(steps)
    for start in range(end - 1, -1, -1):
        if not start or steps[start - 1].conditions:
            yield steps[start:end]
            end = start


def _together(ways: tuple[_Way, ...]) -> _Way:
    if len(ways) == 1:
        return ways[0]
    return _Way(
        tuple(chain.from_iterable(way.names for way in ways)),
        tuple(chain.from_iterable(way.legs for way in ways)),
    )


def _flat(conditions: tuple[Condition, ...]) -> list[Condition]:
    """The conditions with conjunctions taken apart, so that each disjunction can be left out by itself."""
    return [item for one in conditions for item in (one.items if isinstance(one, And) else (one,))]


def _narrowed(step: Step, way: _Way) -> str | None:
    """The step's name test with the way's taken in; None if no node passes, or can have what hangs on it."""
    if step.axis is Axis.ATTRIBUTE or step.test == TEXT:
        # these have no children, and `self::a` asks for an element
        return None if way.names or any(leg.steps for leg in way.legs) else step.test
    test: str | None = step.test
    for name in way.names:
        test = intersect_name_tests(test, name) if test is not None else None
    return test


def _nowhere(leg: _Leg) -> bool:
    """Whether the branch starts with an attribute or text of the document node, which has none."""
    if not leg.steps:
        return False
    axis, test = leg.steps[0]
    return axis is Axis.ATTRIBUTE or (axis is Axis.CHILD and test == TEXT)


def _is_possible(test: str) -> bool:
    """Whether there are elements that pass: local-name() can be compared with what is no name at all."""
    uri, _, local = test.rpartition("}")
    return (local == "*" and uri != ANY_NAMESPACE) or not any(character in local for character in "/{}@*()")


def _quoted(part: str) -> str:
    return part if len(part) <= _LONGEST else part[: _LONGEST - 1] + "…"


# -- branching points ------------------------------------------------------------------------------------


def _rule(legs: list[_Leg]) -> Rule:
    """The rule whose branches these are, each once.

    Branches with the same path, test and points part nowhere: what they do not share, no other branch shares
    either. One of them is enough, and without the others there may be fewer points.
    """
    while True:
        points = _points(legs)
        branches: dict[Branch, _Leg] = {}
        for leg in legs:
            at = [(points[node], step) for step, node in enumerate(leg.trail, 1) if node in points]
            branches.setdefault(Branch(LinearPath(leg.steps), leg.test, tuple(at)), leg)
        if len(branches) == len(legs):
            return Rule(tuple(sorted(branches, key=_is_no_equality)))
        legs = list(branches.values())


def _points(legs: list[_Leg]) -> dict[int, int]:
    """The steps of the pattern at which branches part, numbered as they are met. To end is to part, too."""
    onward: dict[int, set[tuple[str, int]]] = {}
    for number, leg in enumerate(legs):
        root = leg.steps[0][0] is Axis.CHILD
        for i, node in enumerate(leg.trail):
            if i or not root:
                last = i + 1 == len(leg.trail)
                onward.setdefault(node, set()).add(("end", number) if last else ("step", leg.trail[i + 1]))
    parting = [node for node, ways in onward.items() if len(ways) > 1]
    return {node: number for number, node in enumerate(parting, 1)}


def _is_no_equality(branch: Branch | _Leg) -> bool:
    return branch.test is None or branch.test.op != "="
