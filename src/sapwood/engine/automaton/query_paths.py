"""A condition on a message → the leaves by which an index finds the messages that meet it.

A *leaf* is a root-to-leaf path with at most one test at its end: `/nitf/body/@id = 5`, or just
`/nitf/body/p`. A conjunctive tree pattern is a set of leaves that must be found *together*: their paths run
through the same element at every step that they have in common.

    /nitf/body[@id=5]/p      leaves /nitf/body/@id = 5 and /nitf/body/p, together at /nitf/body

Such an element is an *anchor*, and a pattern that branches at it a `Twig`: the path to the anchor, and the
parts that must meet there, leaves or bundles that branch further down. Disjunctions become several bundles,
any of which suffices. What is not said by leaves (negation, positions, the first node of several) is left
out; then the plan is not `exact`, only necessary, and the evaluator has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.lang.pattern import (
    ANY_NAMESPACE,
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

MOST_LEVELS = 60
"""A path with branches at more of its steps than this has those of the others checked on candidates only."""

ELEMENT = ""
VALUE = "."


@dataclass(frozen=True, slots=True)
class Leaf:
    """Symbols of the path; the target: ELEMENT, VALUE (its string-value), `text()` or `@name`; the test."""

    path: tuple[str, ...]
    target: str = ELEMENT
    test: Test | None = None


@dataclass(frozen=True, slots=True)
class Twig:
    """Parts that must meet at an element reached by `path`; an empty path is the document."""

    path: tuple[str, ...]
    parts: tuple[Leaf | Twig, ...]

    @property
    def step(self) -> int:
        """How many steps down the anchor is."""
        return steps_in(self.path)

    @property
    def level(self) -> int:
        """How many bundles are nested in this one at most."""
        return max(part.level + 1 if isinstance(part, Twig) else 0 for part in self.parts)

    def leaves(self) -> Iterator[Leaf]:
        for part in self.parts:
            yield from part.leaves() if isinstance(part, Twig) else (part,)


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Any of the parts must be found; if the plan is `exact`, that is enough."""

    parts: tuple[Leaf | Twig, ...]
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


def plan_index(condition: Condition) -> IndexPlan:
    """How to find the messages that may meet a condition on their document node."""
    return _Planner().plan(condition)


def plan_binding(path: Path) -> IndexPlan | None:
    """How to find the elements that a path reaches: bundles that are met at them.

    None if only an evaluator can tell them: if conditions stand on other steps than the last, or count
    positions, or the path reaches other nodes than elements.
    """
    return _Planner().bindings(path)


class _Planner:
    def __init__(self) -> None:
        self._exact = True
        self._steps = 0

    def plan(self, condition: Condition) -> IndexPlan:
        alternatives = self._condition(condition, _Way())
        parts = dict.fromkeys(_assembled(self._needed(branches)) for branches in alternatives)
        return IndexPlan(tuple(parts), self._exact)

    def bindings(self, path: Path) -> IndexPlan | None:
        if not path.steps or any(step.axis is Axis.ATTRIBUTE or step.test == TEXT for step in path.steps):
            return None
        *before, last = path.steps
        if any(step.conditions for step in before) or any(c.positional for c in last.conditions):
            return None
        ways = [_Way()]
        for step in path.steps:
            ways = [further for way in ways for further in self._step(way, step)]
        bundles = dict.fromkeys(_bundled(way, self._needed(way.branches)) for way in ways)
        return IndexPlan(tuple(bundles), self._exact)

    def _needed(self, branches: _Branches) -> list[_Branch]:
        """The branches that have to be found: of a long path with many, only some of the steps' own."""
        needed = _needed(branches)
        depths = sorted({len(branch.trail) for branch in needed})
        if len(depths) <= MOST_LEVELS:
            return needed
        self._exact = False
        kept = {*depths[: MOST_LEVELS - 1], depths[-1]}
        return [branch for branch in needed if len(branch.trail) in kept]

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
                    below = [way.enter((DESCENDANT, "*"), self._new_step()) for way in ways]
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
            symbols = (DESCENDANT, step.test) if step.axis is Axis.DESCENDANT else (step.test,)
            return [start.enter(symbols, self._new_step())]
        ways: list[_Way] = []
        for test, conditions in self._names_resolved(step):
            symbols = (DESCENDANT, test) if step.axis is Axis.DESCENDANT else (test,)
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
                    tests = [
                        t
                        for test in tests
                        for name in wanted
                        if (t := intersect_name_tests(test, name)) is not None
                    ]
                else:
                    rest.append(item)
        return [(test, rest) for test in dict.fromkeys(tests)]


def _needed(branches: _Branches) -> list[_Branch]:
    """The branches without repetitions and without those that others imply.

    Mere existence of an element is implied by whatever is required further down the same trail. Steps are
    numbered, so a trail is told by its last step.
    """
    implied: set[int | None] = set()
    for branch in branches:
        implied.update(branch.trail[:-1])
        if branch.trail:
            implied.add(None)  # the trail without any step
        if branch.leaf.target != ELEMENT:
            implied.add(branch.trail[-1] if branch.trail else None)
    return [
        branch
        for branch in dict.fromkeys(branches)
        if branch.leaf.target != ELEMENT or (branch.trail[-1] if branch.trail else None) not in implied
    ]


def _assembled(branches: list[_Branch]) -> Leaf | Twig:
    """The branches put together: at the step where they part, groups that part further down."""
    if not branches:
        return Leaf(())
    if len(branches) == 1:
        return branches[0].leaf
    anchor = min(_shared(branches[0].trail, other.trail) for other in branches[1:])
    parts = _parts(branches, anchor)
    return parts[0] if len(parts) == 1 else Twig(_first_steps(branches[0].leaf.path, anchor), parts)


def _parts(branches: list[_Branch], anchor: int) -> tuple[Leaf | Twig, ...]:
    """What has to meet at the step at which the branches part."""
    groups: dict[object, list[_Branch]] = {}
    for i, branch in enumerate(branches):
        own = branch.trail[anchor] if len(branch.trail) > anchor else ("at the anchor", i)
        groups.setdefault(own, []).append(branch)
    return tuple(sorted({_assembled(group) for group in groups.values()}, key=repr))


def _bundled(way: _Way, branches: list[_Branch]) -> Twig:
    """A bundle that is met at the end of the way, whether or not anything branches there."""
    return Twig(way.symbols, _parts(branches, len(way.trail)) if branches else (Leaf(way.symbols),))


def steps_in(path: tuple[str, ...]) -> int:
    return len(path) - path.count(DESCENDANT)


def _first_steps(path: tuple[str, ...], steps: int) -> tuple[str, ...]:
    """The symbols of the first steps of a path."""
    end = 0
    while steps:
        steps -= path[end] != DESCENDANT
        end += 1
    return path[:end]


def _shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    n = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        n += 1
    return n


def intersect_name_tests(one: str, other: str) -> str | None:
    """The name test that passes what both pass; None if nothing does."""
    if one == other or other == "*":
        return one
    if one == "*":
        return other
    uri, _, local = one.rpartition("}")
    other_uri, _, other_local = other.rpartition("}")
    wild_uri, other_wild_uri = uri == ANY_NAMESPACE, other_uri == ANY_NAMESPACE
    if not (wild_uri or other_wild_uri or uri == other_uri):
        return None
    if not (local == "*" or other_local == "*" or local == other_local):
        return None
    shared_uri = other_uri if wild_uri else uri
    shared_local = other_local if local == "*" else local
    return f"{shared_uri}}}{shared_local}" if shared_uri else shared_local
