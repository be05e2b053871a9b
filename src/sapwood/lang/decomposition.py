"""The decomposition of a tree pattern into alternatives of linear paths, which both engines index.

    /a//b[c = 1 or d]/x[@y = 2]//z        two alternatives:

    1. /a//b/c = 1    /a//b/x/@y = 2    /a//b/x//z
    2. /a//b/d        /a//b/x/@y = 2    /a//b/x//z

A linear path has at most one test, at its end. The paths of one alternative must be found *together*: where
they run through the same step of the pattern, through the same node of the message. So a path is not a list
of names but the end of a chain of `PatternStep` objects, and two paths branch where their chains do:

    a ── b ─┬─ c   = 1          the end of a path holds its step, and a step its parent;
            └─ x ─┬─ @y  = 2    all alternatives share these objects, so nothing is copied
                  └─ z          on the way up, and a pattern of n steps takes O(n) of them

What linear paths cannot express (negation, positions, the first node of several, too many alternatives) is
left out and listed in `approximations`: then every message that meets the condition has an alternative, and
others may have one, too.

The automaton (`engine.automaton.query_paths`) makes twigs of the alternatives, and the tables
(`relational.rules.rule_form`) rules with numbered branching points. What they do not share stays there: the
automaton has no text nodes below an element without a step for that element, and limits the depth of its
twigs; the tables limit the number of paths of a rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, product
from math import prod
from typing import NamedTuple

from sapwood.lang import pattern
from sapwood.lang.pattern import Axis, Condition, Has, Step, Test

MOST_ALTERNATIVES = 32
"""A condition with more alternatives is not multiplied out: its largest disjunctions are left out."""


class PatternStep:
    """A step of the pattern and the step it starts from, None for the document node; equal by identity."""

    __slots__ = ("axis", "depth", "parent", "test")

    def __init__(self, parent: PatternStep | None, axis: Axis, test: str) -> None:
        self.parent = parent
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.axis = axis
        self.test = test

    @property
    def is_leaf(self) -> bool:
        """Whether the step selects attributes or text nodes, which have no children."""
        return self.axis is Axis.ATTRIBUTE or self.test == pattern.TEXT

    def trail(self) -> tuple[PatternStep, ...]:
        """The steps from the document down to this one."""
        steps = [self]
        step = self.parent
        while step is not None:
            steps.append(step)
            step = step.parent
        steps.reverse()
        return tuple(steps)


class PathTest(NamedTuple):
    """A linear path that a message must have, and the test that the value at its end must pass."""

    step: PatternStep
    test: Test | None


class Approximation(NamedTuple):
    """A part of the condition that the alternatives do not express in full, and the reason."""

    part: Condition
    reason: str


class Alternative(NamedTuple):
    """Linear paths that must be found together. Without any, every message meets the condition."""

    paths: tuple[PathTest, ...]
    names: Mapping[PatternStep, str]
    """the name tests of steps that `self::name` conditions narrow; other steps have their own"""

    def linear(self, trail: Sequence[PatternStep]) -> tuple[tuple[Axis, str], ...]:
        """Return the axis and the name test of each step of a trail."""
        if not self.names:
            return tuple([(step.axis, step.test) for step in trail])
        return tuple([(step.axis, self.names.get(step, step.test)) for step in trail])


class Decomposition(NamedTuple):
    """A message that meets the condition has at least one of the alternatives."""

    alternatives: tuple[Alternative, ...]
    """none: no message can meet the condition"""
    approximations: tuple[Approximation, ...]
    """none: every message that has an alternative meets the condition"""


def decompose(condition: Condition) -> Decomposition:
    """Decompose a condition on the document node."""
    return _Decomposer().decompose(condition)


class _Way(NamedTuple):
    """One way to meet a condition on a node."""

    names: tuple[str, ...] = ()
    """name tests that the node itself must pass"""
    narrowed: tuple[tuple[PatternStep, str], ...] = ()
    """steps below the node whose name tests have been narrowed"""
    paths: tuple[tuple[PatternStep | None, Test | None], ...] = ()
    """ends of paths with their tests; None is the document node"""


_ANYHOW = _Way()


class _Decomposer:
    """Turns the condition of one query into ways to meet it.

    Its methods return alternatives, of which there are never more than MOST_ALTERNATIVES. Where there would
    be, they are called again with `split` false, which leaves out each disjunction that would bring a second
    one.
    """

    def __init__(self) -> None:
        self._approximations: dict[Approximation, None] = {}

    def decompose(self, condition: Condition) -> Decomposition:
        alternatives = [
            Alternative(self._below_document(way), dict(way.narrowed))
            for way in self._condition(condition, None)
            if not way.names  # the document node is no element
        ]
        if not alternatives:  # exactly: not even the weaker condition can be met
            return Decomposition((), ())
        for alternative in alternatives:
            if not alternative.paths:
                alternatives = [alternative]
                break
        return Decomposition(tuple(alternatives), tuple(self._approximations))

    def _below_document(self, way: _Way) -> tuple[PathTest, ...]:
        """The paths without tests of the document node itself, whose string-value no engine indexes."""
        for step, test in way.paths:
            if step is None and test is not None:
                self._approximate(Has(pattern.EMPTY, test), "the text of the whole message")
        return tuple(dict.fromkeys([PathTest(step, test) for step, test in way.paths if step is not None]))

    def _approximate(self, part: Condition, reason: str) -> None:
        self._approximations[Approximation(part, reason)] = None

    def _condition(self, condition: Condition, at: PatternStep | None, split: bool = True) -> list[_Way]:
        match condition:
            case Has():
                return self._has(condition, at, split)
            case pattern.And(items=items):
                return self._all(items, at, [_ANYHOW], split)
            case pattern.Or():
                return self._any(condition, at, split)
            case pattern.Named(test=test):
                return [_Way((test,))] if _is_possible_name(test) else []
        self._approximate(condition, "a negation" if isinstance(condition, pattern.Not) else "a position")
        return [_ANYHOW]

    def _all(
        self, conditions: Sequence[Condition], at: PatternStep | None, rest: list[_Way], split: bool
    ) -> list[_Way]:
        """Combine the alternatives of all conditions, and then the rest of the path."""
        parts = [self._condition(condition, at, split) for condition in conditions]
        while prod(map(len, parts), start=len(rest)) > MOST_ALTERNATIVES:
            largest = max(range(len(parts)), key=lambda i: len(parts[i]))
            parts[largest] = self._condition(conditions[largest], at, split=False)
        return [_combine(choice) for choice in product(*parts, rest)]

    def _any(self, condition: pattern.Or, at: PatternStep | None, split: bool) -> list[_Way]:
        most = MOST_ALTERNATIVES if split else 1
        found = {item: ways for item in condition.items if (ways := self._condition(item, at, split))}
        for item in sorted(found, key=lambda item: len(found[item]), reverse=True):
            if len(found) > most or sum(map(len, found.values())) <= most:
                break
            found[item] = self._condition(item, at, split=False)
        ways = list(chain.from_iterable(found.values()))
        if _ANYHOW in ways:
            return [_ANYHOW]
        if len(ways) > most:
            self._approximate(condition, f"with it, the query has more than {MOST_ALTERNATIVES} alternatives")
            return [_ANYHOW]
        return ways

    def _has(self, condition: Has, at: PatternStep | None, split: bool) -> list[_Way]:
        path, test = condition.path, condition.test
        if condition.first and not pattern.selects_at_most_one(path):
            self._approximate(condition, "the first node of several")
        if not path.steps:
            return [_ANYHOW] if test is None else [_Way((), (), ((at, test),))]
        if at is None and _is_of_document(path.steps[0]):
            return []
        conditional: list[tuple[PatternStep, tuple[Condition, ...]]] = []
        last = at
        for step in path.steps:
            last = PatternStep(last, step.axis, step.test)
            if step.conditions:
                conditional.append((last, step.conditions))
        # A step must exist by itself only if nothing hangs on it: so the last one may be added below instead.
        implied = test is None and bool(path.steps[-1].conditions)
        ways = [_ANYHOW] if implied else [_Way((), (), ((last, test),))]
        for at_step, conditions in reversed(conditional):
            ways = [
                narrowed
                for way in self._all(_flatten(conditions), at_step, ways, split)
                if (narrowed := _narrow(at_step, way)) is not None
            ]
        return ways


def _combine(ways: tuple[_Way, ...]) -> _Way:
    some = [way for way in ways if way is not _ANYHOW]
    if len(some) < 2:
        return some[0] if some else _ANYHOW
    return _Way(
        tuple(chain.from_iterable([way.names for way in some])),
        tuple(chain.from_iterable([way.narrowed for way in some])),
        tuple(chain.from_iterable([way.paths for way in some])),
    )


def _flatten(conditions: tuple[Condition, ...]) -> list[Condition]:
    """The conditions with conjunctions taken apart, so that each disjunction can be left out by itself."""
    return [item for one in conditions for item in (one.items if isinstance(one, pattern.And) else (one,))]


def _narrow(step: PatternStep, way: _Way) -> _Way | None:
    """The way from the step's parent, with its name tests taken into the step; None if no node passes."""
    narrowed = way.narrowed
    if step.is_leaf:  # these have no children, and `self::a` selects elements only
        if way.names or any(end is not step for end, _ in way.paths):
            return None
    elif way.names:
        test = step.test
        for name in way.names:
            both = intersect_name_tests(test, name)
            if both is None:
                return None
            test = both
        if test != step.test:
            narrowed = (*narrowed, (step, test))
    return _Way((), narrowed, way.paths or ((step, None),))


def _is_of_document(step: Step) -> bool:
    """Whether a step from the document node selects attributes or text of it, of which there are none."""
    return step.axis is Axis.ATTRIBUTE or (step.axis is Axis.CHILD and step.test == pattern.TEXT)


def _is_possible_name(test: str) -> bool:
    """Whether an element may have the name: local-name() can be compared with any string."""
    uri, _, local = test.rpartition("}")
    return (local == "*" and uri != pattern.ANY_NAMESPACE) or not any(
        character in local for character in "/{}@*()"
    )


def intersect_name_tests(one: str, other: str) -> str | None:
    """Return the name test that passes the names that both pass; None if there are none."""
    if one == other or other == "*":
        return one
    if one == "*":
        return other
    uri, _, local = one.rpartition("}")
    other_uri, _, other_local = other.rpartition("}")
    wild_uri, other_wild_uri = uri == pattern.ANY_NAMESPACE, other_uri == pattern.ANY_NAMESPACE
    if not (wild_uri or other_wild_uri or uri == other_uri):
        return None
    if not (local == "*" or other_local == "*" or local == other_local):
        return None
    shared_uri = other_uri if wild_uri else uri
    shared_local = other_local if local == "*" else local
    return f"{shared_uri}}}{shared_local}" if shared_uri else shared_local
