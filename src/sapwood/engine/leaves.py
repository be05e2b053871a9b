"""A condition on a message → the leaves by which an index finds the messages that may meet it.

A *leaf* is a root-to-leaf path with at most one test at its end: `/nitf/body/@id = 5`, or just
`/nitf/body/p`. A conjunctive tree pattern is a set of leaves that must be found *together*: their paths run
through the same element at every step they have in common.

    /nitf/body[@id=5]/p      leaves /nitf/body/@id = 5 and /nitf/body/p, together at step 2 (body)

That element is the *anchor*. Patterns become `Bundle`s: leaves, and the step of the topmost anchor. With one
leaf there is nothing to bring together; with one branching point the leaves meeting at the anchor are the
whole truth; otherwise (several branching points, negation, positions) the bundle is a necessary condition
and the evaluator has the last word.

Disjunctions become several bundles, any of which suffices.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from sapwood.engine.nfa import DEEP
from sapwood.lang.pattern import (
    FALSE,
    TEXT,
    And,
    Axis,
    Condition,
    Has,
    Named,
    Or,
    Path,
    Step,
    Test,
)

MOST_ALTERNATIVES = 32
"""A condition with more disjuncts than this is not multiplied out; its necessary part is indexed."""

ELEMENT = ""
VALUE = "."


@dataclass(frozen=True, slots=True)
class Leaf:
    """Symbols of the path; the target: ELEMENT, VALUE (its string-value), `text()` or `@name`; the test."""

    path: tuple[str, ...]
    target: str = ELEMENT
    test: Test | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """Leaves that must meet at an element of step `anchor` (0 is the document)."""

    leaves: tuple[Leaf, ...]
    anchor: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Any bundle must be found; if the plan is `exact`, that is enough."""

    bundles: tuple[Bundle, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class _Branch:
    """A leaf under construction; `trail` names the pattern's own step at each depth."""

    leaf: Leaf
    trail: tuple[int, ...]


_Branches = tuple[_Branch, ...]


class _Way(NamedTuple):
    """How far a path has been followed, and what was branched off on the way."""

    symbols: tuple[str, ...] = ()
    trail: tuple[int, ...] = ()
    branches: _Branches = ()

    def enter(self, symbols: tuple[str, ...], step: int) -> _Way:
        return _Way(self.symbols + symbols, (*self.trail, step), self.branches)


def plan(condition: Condition) -> Plan:
    """How to find the messages that may meet a condition on their document node."""
    return _Planner().plan(condition)


class _Planner:
    def __init__(self) -> None:
        self._exact = True
        self._steps = 0

    def plan(self, condition: Condition) -> Plan:
        alternatives = self._condition(condition, _Way())
        bundles = [self._bundle(branches) for branches in alternatives]
        return Plan(tuple(dict.fromkeys(bundles)), self._exact)

    # Each method below returns alternatives: sets of branches, any of which makes the condition true.

    def _condition(self, condition: Condition, at: _Way) -> list[_Branches]:
        match condition:
            case And(items=items):
                return self._product([self._condition(item, at) for item in items])
            case Or(items=items):
                return [branches for item in items for branches in self._condition(item, at)]
            case Has(path=path, test=test, first=first):
                if first and path.steps:
                    self._exact = False
                return self._path(path, test, _Way(at.symbols, at.trail))
        self._exact = False  # negation, position, or a name test that the step did not take in
        return [()]

    def _product(self, parts: list[list[_Branches]]) -> list[_Branches]:
        size = 1
        for part in parts:
            size *= len(part)
        if size <= MOST_ALTERNATIVES:
            return [tuple(b for branches in choice for b in branches) for choice in product(*parts)]
        self._exact = False
        single = [part for part in parts if len(part) == 1]
        return [tuple(b for branches in single for b in branches[0])]

    def _path(self, path: Path, test: Test | None, start: _Way) -> list[_Branches]:
        ways = [start]
        target = VALUE if test is not None else ELEMENT
        for step in path.steps:
            if step.axis is Axis.ATTRIBUTE or step.test == TEXT:
                target = self._leaf_target(step)
                if step.axis is Axis.DESCENDANT:
                    below = [way.enter((DEEP, "*"), self._new_step()) for way in ways]
                    ways = [way for way in ways if way.symbols] + below
                break
            ways = [further for way in ways for further in self._step(way, step)]
            if len(ways) > MOST_ALTERNATIVES:
                self._exact = False
                return [()]
        return [(*way.branches, self._end(way, target, test)) for way in ways]

    def _new_step(self) -> int:
        self._steps += 1
        return self._steps

    def _leaf_target(self, step: Step) -> str:
        if step.conditions:
            self._exact = False
        return TEXT if step.test == TEXT else f"@{step.test}"

    def _end(self, way: _Way, target: str, test: Test | None) -> _Branch:
        if not way.symbols and target != ELEMENT:  # the document itself: its string-value is not indexed
            self._exact = False
            return _Branch(Leaf(()), way.trail)
        return _Branch(Leaf(way.symbols, target, test), way.trail)

    def _step(self, start: _Way, step: Step) -> list[_Way]:
        """The step taken once for every combination of alternatives in its conditions."""
        if not step.conditions:
            symbols = (DEEP, step.test) if step.axis is Axis.DESCENDANT else (step.test,)
            return [start.enter(symbols, self._new_step())]
        ways: list[_Way] = []
        for test, conditions in self._names_resolved(step):
            symbols = (DEEP, test) if step.axis is Axis.DESCENDANT else (test,)
            way = start.enter(symbols, self._new_step())
            choices = self._product([self._condition(condition, way) for condition in conditions])
            ways += [_Way(way.symbols, way.trail, way.branches + choice) for choice in choices]
        return ways

    def _names_resolved(self, step: Step) -> list[tuple[str, list[Condition]]]:
        """The step's name tests, with `self::name` conditions that stand alone or in an `or` taken in."""
        if any(condition.positional for condition in step.conditions):
            return [(step.test, list(step.conditions))]
        tests, rest = [step.test], []
        for condition in step.conditions:
            for item in condition.items if isinstance(condition, And) else (condition,):
                names = item.items if isinstance(item, Or) and item is not FALSE else (item,)
                if all(isinstance(name, Named) for name in names):
                    wanted = [name.test for name in names if isinstance(name, Named)]
                    tests = [t for test in tests for name in wanted if (t := common(test, name)) is not None]
                else:
                    rest.append(item)
        return [(test, rest) for test in dict.fromkeys(tests)]

    def _bundle(self, branches: _Branches) -> Bundle:
        """The leaves without those that others imply, and the step at which all of them part."""
        kept = [b for b in dict.fromkeys(branches) if not self._implied(b, branches)]
        if not kept:
            return Bundle((Leaf(()),), 0)
        if len(kept) == 1:
            return Bundle((kept[0].leaf,), 0)
        anchor = min(_shared(kept[0].trail, other.trail) for other in kept[1:])
        for i, one in enumerate(kept):
            for other in kept[i + 1 :]:
                if _shared(one.trail, other.trail) != anchor:
                    self._exact = False
        leaves = tuple(sorted({b.leaf for b in kept}, key=repr))
        if len(leaves) == 1:
            return Bundle(leaves, 0)
        return Bundle(leaves, anchor)

    @staticmethod
    def _implied(branch: _Branch, branches: _Branches) -> bool:
        """Mere existence of an element is implied by whatever is required further down the same trail."""
        if branch.leaf.target != ELEMENT:
            return False
        n = len(branch.trail)
        return any(
            other is not branch
            and other.trail[:n] == branch.trail
            and (len(other.trail) > n or other.leaf.target != ELEMENT)
            for other in branches
        )


def _shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    n = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        n += 1
    return n


def common(one: str, other: str) -> str | None:
    """The name test that passes what both pass; None if nothing does."""
    if one == other or other == "*":
        return one
    if one == "*":
        return other
    uri, _, local = one.rpartition("}")
    other_uri, _, other_local = other.rpartition("}")
    wild_uri, other_wild_uri = uri == "*", other_uri == "*"
    if not (wild_uri or other_wild_uri or uri == other_uri):
        return None
    if not (local == "*" or other_local == "*" or local == other_local):
        return None
    shared_uri = other_uri if wild_uri else uri
    shared_local = other_local if local == "*" else local
    return f"{shared_uri}}}{shared_local}" if shared_uri else shared_local
