"""The index plan of a condition: the leaves and twigs by which the automaton finds candidate messages.

A *leaf* is a root-to-leaf path with at most one test at its end: `/nitf/body/@id = 5`, or just
`/nitf/body/p`. A conjunctive tree pattern is a set of leaves that must be found *together*: their paths run
through the same element at every step that they have in common.

    /nitf/body[@id=5]/p      leaves /nitf/body/@id = 5 and /nitf/body/p, together at /nitf/body

Such an element is an *anchor*, and a pattern that branches at it a `Twig`: the path to the anchor, and the
parts that must meet there, leaves or twigs that branch further down. Disjunctions become several parts, any
of which suffices. `lang.decomposition` finds the alternatives and the steps that their paths share; what it
cannot express is left out, and then the plan is not `exact`, only necessary: candidates are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import NamedTuple

from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.lang.decomposition import MOST_ALTERNATIVES, Alternative, PathTest, PatternStep, decompose
from sapwood.lang.pattern import TEXT, Axis, Condition, Has, Or, Path, Test, is_wildcard

MOST_LEVELS = 60
"""A path with branches at more of its steps than this has those of the others checked on candidates only."""

ELEMENT = ""
VALUE = "."


class Leaf(NamedTuple):
    """The symbols of a path, the target (ELEMENT, VALUE: its string-value, `text()` or `@name`), the test."""

    path: tuple[str, ...]
    target: str = ELEMENT
    test: Test | None = None


class Twig(NamedTuple):
    """Parts that must meet at an element reached by `path`; an empty path is the document."""

    path: tuple[str, ...]
    parts: tuple[Leaf | Twig, ...]

    @property
    def step(self) -> int:
        """The number of steps from the document down to the anchor."""
        return steps_in(self.path)

    @property
    def level(self) -> int:
        """The depth to which twigs are nested in this one."""
        return max(part.level + 1 if isinstance(part, Twig) else 0 for part in self.parts)

    def leaves(self) -> Iterator[Leaf]:
        for part in self.parts:
            yield from part.leaves() if isinstance(part, Twig) else (part,)


class IndexPlan(NamedTuple):
    """Any of the parts must be found; if the plan is `exact`, that is enough."""

    parts: tuple[Leaf | Twig, ...]
    exact: bool


def plan_index(condition: Condition) -> IndexPlan:
    """Plan how to find the messages that may meet a condition on their document node."""
    return _plan_directly(condition) or _Planner().plan(condition)


def plan_binding(path: Path) -> IndexPlan | None:
    """Plan how to find the elements that a path reaches: by twigs whose anchor they are.

    None if only an evaluator can find them: if conditions stand on other steps than the last, or count
    positions, or the path reaches other nodes than elements.
    """
    if not path.steps or any(step.axis is Axis.ATTRIBUTE or step.test == TEXT for step in path.steps):
        return None
    *before, last = path.steps
    if any(step.conditions for step in before) or any(c.positional for c in last.conditions):
        return None
    if not last.conditions:  # nearly all paths: there is nothing to decompose
        symbols = _symbols([(step.axis, step.test) for step in path.steps])
        return IndexPlan((Twig(symbols, (Leaf(symbols),)),), True)
    return _Planner().plan_anchored(path)


def _plan_directly(condition: Condition) -> IndexPlan | None:
    """Plan a path of elements with at most one branch, the frequent case, without decomposing it: the same
    plan in a fraction of the time. None for other conditions."""
    if not isinstance(condition, Has) or condition.test is not None:
        return None
    symbols: list[str] = []
    anchor: tuple[str, ...] = ()
    branching: Condition | None = None
    for step in condition.path.steps:
        if step.axis is Axis.ATTRIBUTE or step.test == TEXT:
            return None
        if step.axis is Axis.DESCENDANT:
            symbols.append(DESCENDANT)
        symbols.append(step.test)
        if step.conditions:
            if branching is not None or len(step.conditions) > 1:
                return None
            branching, anchor = step.conditions[0], tuple(symbols)
    trunk = Leaf(tuple(symbols))
    if branching is None:
        return IndexPlan((trunk,), True) if symbols else None
    branch = _branch_directly(branching, anchor)
    if branch is None:
        return None
    if len(anchor) == len(symbols) or branch == trunk:
        return IndexPlan((branch,), True)
    return IndexPlan((Twig(anchor, sort_parts({branch, trunk})),), True)


def _branch_directly(condition: Condition, anchor: tuple[str, ...]) -> Leaf | None:
    """Return the leaf of a condition on the element at the end of a path, if it has no branches itself."""
    if not isinstance(condition, Has) or condition.first:
        return None
    target = ELEMENT if condition.test is None else VALUE
    symbols: list[str] = [*anchor]
    for step in condition.path.steps:
        if target[:1] == "@" or target == TEXT or step.conditions:  # nothing lies below attributes and text
            return None
        if step.axis is Axis.ATTRIBUTE:
            target = f"@{step.test}"
        elif step.test != TEXT:
            if step.axis is Axis.DESCENDANT:
                symbols.append(DESCENDANT)
            symbols.append(step.test)
        elif step.axis is Axis.CHILD:
            target = TEXT
        else:  # text at the element or below it: two alternatives
            return None
    return Leaf(tuple(symbols), target, condition.test)


class _Branch(NamedTuple):
    """A leaf with the pattern's steps down to its element."""

    leaf: Leaf
    trail: tuple[PatternStep, ...]


class _Planner:
    def __init__(self) -> None:
        self._exact = True

    def plan(self, condition: Condition) -> IndexPlan:
        # The alternatives of a disjunction at the top are not multiplied with anything: each is decomposed
        # by itself, and the limit on alternatives holds for each, so that long unions stay exact.
        items = condition.items if isinstance(condition, Or) else (condition,)
        parts: dict[Leaf | Twig, None] = {}
        for item in items:
            for alternative in self._decompose(item):
                for branches in self._branch_sets(alternative):
                    parts[_assemble(branches)] = None
        return IndexPlan(tuple(parts), self._exact)

    def plan_anchored(self, path: Path) -> IndexPlan:
        depth = len(path.steps)
        twigs: dict[Leaf | Twig, None] = {}
        for alternative in self._decompose(Has(path)):
            anchor = _symbols(alternative.linear(alternative.paths[0].step.trail()[:depth]))
            for branches in self._branch_sets(alternative):
                twigs[Twig(anchor, _parts(branches, depth) if branches else (Leaf(anchor),))] = None
        return IndexPlan(tuple(twigs), self._exact)

    def _decompose(self, condition: Condition) -> tuple[Alternative, ...]:
        decomposition = decompose(condition)
        if decomposition.approximations:
            self._exact = False
        return decomposition.alternatives

    def _branch_sets(self, alternative: Alternative) -> list[list[_Branch]]:
        """The branches of an alternative; several sets where text may be that of an element or of one below.

        The automaton looks for text nodes at an element, so `.//text()` is `text() | .//*/text()` to it.
        """
        paths = alternative.paths
        texts = [step for step, _ in paths if step.axis is Axis.DESCENDANT and step.test == TEXT]
        if not texts:
            return [self._branches(alternative, paths, {})]
        choices = {step: _elements_with_text(step) for step in texts}
        if prod(map(len, choices.values())) > MOST_ALTERNATIVES:
            self._exact = False
            rest = tuple([path for path in paths if path.step not in choices])
            return [self._branches(alternative, rest, {})]
        return [
            self._branches(alternative, paths, dict(zip(choices, chosen, strict=True)))
            for chosen in product(*choices.values())
        ]

    def _branches(
        self,
        alternative: Alternative,
        paths: tuple[PathTest, ...],
        elements: dict[PatternStep, PatternStep],
    ) -> list[_Branch]:
        leaves: set[PatternStep] = set()
        found: list[tuple[PatternStep, str, Test | None]] = []
        for step, test in paths:
            if not step.is_leaf:
                found.append((step, ELEMENT if test is None else VALUE, test))
                continue
            if step in leaves and (step.test == TEXT or is_wildcard(step.test)):
                self._exact = False  # several tests of one node, which the automaton does not tell apart
            leaves.add(step)
            element = elements.get(step, step.parent)
            assert element is not None  # the document node has no attributes and no text
            found.append((element, TEXT if step.test == TEXT else f"@{step.test}", test))
        if len(found) > MOST_LEVELS:
            found = self._limit_levels(found)
        branches: list[_Branch] = []
        for element, target, test in found:
            trail = element.trail()
            branches.append(_Branch(Leaf(_symbols(alternative.linear(trail)), target, test), trail))
        return branches

    def _limit_levels(
        self, found: list[tuple[PatternStep, str, Test | None]]
    ) -> list[tuple[PatternStep, str, Test | None]]:
        """The branches that have to be found: of a long path with many, those of some of its steps."""
        depths = sorted({element.depth for element, _, _ in found})
        if len(depths) <= MOST_LEVELS:
            return found
        self._exact = False
        kept = {*depths[: MOST_LEVELS - 1], depths[-1]}
        return [branch for branch in found if branch[0].depth in kept]


def _elements_with_text(step: PatternStep) -> list[PatternStep]:
    """The elements at which to look for text anywhere below the step's parent."""
    below = PatternStep(step.parent, Axis.DESCENDANT, "*")
    return [below] if step.parent is None else [step.parent, below]


def _symbols(steps: Iterable[tuple[Axis, str]]) -> tuple[str, ...]:
    """The symbols of a path in the automaton."""
    symbols: list[str] = []
    for axis, test in steps:
        if axis is Axis.DESCENDANT:
            symbols.append(DESCENDANT)
        symbols.append(test)
    return tuple(symbols)


def _assemble(branches: list[_Branch]) -> Leaf | Twig:
    """Put branches together: at the step where they part, groups that part further down."""
    if not branches:
        return Leaf(())
    if len(branches) == 1:
        return branches[0].leaf
    anchor = min(_shared_steps(branches[0].trail, other.trail) for other in branches[1:])
    parts = _parts(branches, anchor)
    return parts[0] if len(parts) == 1 else Twig(first_steps(branches[0].leaf.path, anchor), parts)


def _parts(branches: list[_Branch], anchor: int) -> tuple[Leaf | Twig, ...]:
    """The parts that have to meet at the step at which the branches part."""
    groups: dict[object, list[_Branch]] = {}
    for i, branch in enumerate(branches):
        own = branch.trail[anchor] if len(branch.trail) > anchor else ("at the anchor", i)
        groups.setdefault(own, []).append(branch)
    return sort_parts({_assemble(group) for group in groups.values()})


def sort_parts(parts: set[Leaf | Twig]) -> tuple[Leaf | Twig, ...]:
    """Return the parts of a twig in their canonical order, by path first, so that equal twigs are equal."""
    if len(parts) == 2:
        one, other = parts
        if one.path != other.path:  # nearly always
            return (one, other) if one.path < other.path else (other, one)
    return tuple(sorted(parts, key=_canonical_order)) if len(parts) > 1 else tuple(parts)


def _canonical_order(part: Leaf | Twig) -> tuple[tuple[str, ...], bool, str]:
    return part.path, isinstance(part, Twig), repr(part)


def steps_in(path: tuple[str, ...]) -> int:
    """Return the number of steps of a path."""
    return len(path) - path.count(DESCENDANT)


def first_steps(path: tuple[str, ...], steps: int) -> tuple[str, ...]:
    """Return the symbols of the first steps of a path."""
    end = 0
    while steps:
        steps -= path[end] != DESCENDANT
        end += 1
    return path[:end]


def _shared_steps(one: tuple[PatternStep, ...], other: tuple[PatternStep, ...]) -> int:
    """The number of steps that two trails have in common."""
    n = 0
    for a, b in zip(one, other, strict=False):
        if a is not b:
            break
        n += 1
    return n
