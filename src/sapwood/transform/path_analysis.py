"""The analysis of a query's paths: which parts path streams evaluate, and which need a tree search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.lang import pattern
from sapwood.lang.fwr.model import BoundVariable

FieldTest = tuple[int, pattern.Condition]
"""a field of tuples, counted from 0, and a condition on the element there"""


class Navigation(NamedTuple):
    """Child and descendant steps without conditions, and optionally a step to attributes or text."""

    steps: tuple[pattern.Step, ...]
    leaf: pattern.Step | None


class BindingPath(NamedTuple):
    """The paths of a variable, separated from the conditions on the bound node itself."""

    bare: pattern.Path | None
    """the steps without conditions, which have a stream; None if there is no such stream"""
    search: tuple[pattern.Path, ...]
    """if not empty, the bound nodes are found by a tree search with these, for the reason `why`"""
    tests: tuple[FieldTest, ...]
    """conditions on the stream's elements"""
    conjuncts: tuple[pattern.Condition, ...]
    """conditions below each bound node"""
    why: str = ""


def to_navigation(path: pattern.Path) -> Navigation | None:
    """Return a path as plain navigation, or None if it is more than that."""
    steps, leaf = path.steps, None
    if steps and _reaches_leaves(steps[-1]):
        steps, leaf = steps[:-1], steps[-1]
    if any(step.conditions or _reaches_leaves(step) for step in path.steps[: len(steps)]):
        return None
    return None if leaf is not None and leaf.conditions else Navigation(steps, leaf)


def to_symbols(steps: tuple[pattern.Step, ...]) -> tuple[str, ...]:
    """Return child and descendant steps as symbols of the path trie."""
    spelt: list[str] = []
    for step in steps:
        if step.axis is pattern.Axis.DESCENDANT:
            spelt.append(DESCENDANT)
        spelt.append(step.test)
    return tuple(spelt)


def predicate(
    condition: pattern.Condition,
) -> tuple[tuple[pattern.Step, ...], pattern.Condition | None] | None:
    """Return a condition as steps to an element below and a condition on it, or None if it is another."""
    if not isinstance(condition, pattern.Has) or (
        condition.first and not pattern.selects_at_most_one(condition.path)
    ):
        return None
    found = to_navigation(condition.path)
    if found is None or not found.steps:
        return None
    target = pattern.Path((found.leaf,) if found.leaf is not None else ())
    tested = found.leaf is not None or condition.test is not None
    return found.steps, pattern.Has(target, condition.test) if tested else None


def binding(variable: BoundVariable) -> BindingPath:
    """Analyse the paths of a variable."""
    if len(variable.paths) != 1:
        return BindingPath(None, variable.paths, (), (), f"{len(variable.paths)} paths are united")
    steps = variable.paths[0].steps
    if not steps:
        return BindingPath(None, variable.paths, (), (), "the document node is in no stream")
    if any(_reaches_leaves(step) for step in steps):
        return BindingPath(None, variable.paths, (), (), "attributes and text are in no stream")
    *earlier, last = steps
    bare = pattern.Path(tuple(pattern.plain_step(step.axis, step.test) for step in steps))
    ordinal, conjuncts = _split(last.conditions)
    if ordinal or any(condition.positional for step in earlier for condition in step.conditions):
        path = pattern.Path((*earlier, pattern.Step(last.axis, last.test, ordinal)))
        return BindingPath(bare, (path,), (), tuple(_flat(conjuncts)), "positions count siblings")
    tests = [(field, c) for field, step in enumerate(earlier) for c in _flat(step.conditions)]
    tests += [(len(earlier), c) for c in _flat(conjuncts) if is_own(c)]
    return BindingPath(bare, (), tuple(tests), tuple(c for c in _flat(conjuncts) if not is_own(c)))


def is_own(condition: pattern.Condition) -> bool:
    """Return whether a condition depends only on a node's own name, attributes, text nodes and value."""
    match condition:
        case pattern.And(items=items) | pattern.Or(items=items):
            return all(map(is_own, items))
        case pattern.Not(item=item):
            return is_own(item)
        case pattern.Has(path=path):
            found = to_navigation(path)
            if found is None or found.steps:
                return False
            return found.leaf is None or found.leaf.axis is not pattern.Axis.DESCENDANT
    return isinstance(condition, pattern.Named)


def _reaches_leaves(step: pattern.Step) -> bool:
    return step.axis is pattern.Axis.ATTRIBUTE or step.test == pattern.TEXT


def _split(
    conditions: tuple[pattern.Condition, ...],
) -> tuple[tuple[pattern.Condition, ...], tuple[pattern.Condition, ...]]:
    """Split conditions into those up to the last positional one, and the rest."""
    counted = max((n for n, condition in enumerate(conditions, 1) if condition.positional), default=0)
    return conditions[:counted], conditions[counted:]


def _flat(conditions: Iterable[pattern.Condition]) -> list[pattern.Condition]:
    return [i for c in conditions for i in (c.items if isinstance(c, pattern.And) else (c,))]
