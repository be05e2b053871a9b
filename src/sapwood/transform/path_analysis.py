"""A query's paths taken apart: what streams can answer, and what has to be searched for in the tree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.lang.fwr.model import BoundVariable
from sapwood.lang.pattern import (
    TEXT,
    And,
    Axis,
    Condition,
    Has,
    Named,
    Not,
    Or,
    Path,
    Step,
    plain_step,
    selects_at_most_one,
)

FieldTest = tuple[int, Condition]
"""a tuple's field, counted from 0, and what must hold of the element there"""


class Navigation(NamedTuple):
    """Child and descendant steps without conditions, then perhaps a step to attributes or text."""

    steps: tuple[Step, ...]
    leaf: Step | None


class BindingPath(NamedTuple):
    """A variable's paths, with the conditions on the bound node itself set apart."""

    bare: Path | None
    """the steps alone, whose stream can be had; None if there is no such stream"""
    search: tuple[Path, ...]
    """if not empty, the bound nodes must be searched for with these, and `why`"""
    tests: tuple[FieldTest, ...]
    """conditions on the stream's elements"""
    conjuncts: tuple[Condition, ...]
    """what must hold below each bound node"""
    why: str = ""


def to_navigation(path: Path) -> Navigation | None:
    """The path as plain navigation, if it is that."""
    steps, leaf = path.steps, None
    if steps and _reaches_leaves(steps[-1]):
        steps, leaf = steps[:-1], steps[-1]
    if any(step.conditions or _reaches_leaves(step) for step in path.steps[: len(steps)]):
        return None
    return None if leaf is not None and leaf.conditions else Navigation(steps, leaf)


def to_symbols(steps: tuple[Step, ...]) -> tuple[str, ...]:
    """Child and descendant steps as the automaton spells them."""
    spelt: list[str] = []
    for step in steps:
        if step.axis is Axis.DESCENDANT:
            spelt.append(DESCENDANT)
        spelt.append(step.test)
    return tuple(spelt)


def predicate(condition: Condition) -> tuple[tuple[Step, ...], Condition | None] | None:
    """The condition as steps to an element below and what must hold of it, if it is that."""
    if not isinstance(condition, Has) or (condition.first and not selects_at_most_one(condition.path)):
        return None
    found = to_navigation(condition.path)
    if found is None or not found.steps:
        return None
    target = Path((found.leaf,) if found.leaf is not None else ())
    tested = found.leaf is not None or condition.test is not None
    return found.steps, Has(target, condition.test) if tested else None


def binding(variable: BoundVariable) -> BindingPath:
    """The variable's paths, taken apart as far as they allow."""
    if len(variable.paths) != 1:
        return BindingPath(None, variable.paths, (), (), f"{len(variable.paths)} paths are united")
    steps = variable.paths[0].steps
    if not steps:
        return BindingPath(None, variable.paths, (), (), "the document node is in no stream")
    if any(_reaches_leaves(step) for step in steps):
        return BindingPath(None, variable.paths, (), (), "attributes and text are in no stream")
    *earlier, last = steps
    bare = Path(tuple(plain_step(step.axis, step.test) for step in steps))
    ordinal, conjuncts = _split(last.conditions)
    if ordinal or any(condition.positional for step in earlier for condition in step.conditions):
        path = Path((*earlier, Step(last.axis, last.test, ordinal)))
        return BindingPath(bare, (path,), (), tuple(_flat(conjuncts)), "positions count siblings")
    tests = [(field, c) for field, step in enumerate(earlier) for c in _flat(step.conditions)]
    tests += [(len(earlier), c) for c in _flat(conjuncts) if is_own(c)]
    return BindingPath(bare, (), tuple(tests), tuple(c for c in _flat(conjuncts) if not is_own(c)))


def is_own(condition: Condition) -> bool:
    """Whether only a node's own name, attributes, text nodes and value decide, and no element below it."""
    match condition:
        case And(items=items) | Or(items=items):
            return all(map(is_own, items))
        case Not(item=item):
            return is_own(item)
        case Has(path=path):
            found = to_navigation(path)
            if found is None or found.steps:
                return False
            return found.leaf is None or found.leaf.axis is not Axis.DESCENDANT
    return isinstance(condition, Named)


def _reaches_leaves(step: Step) -> bool:
    return step.axis is Axis.ATTRIBUTE or step.test == TEXT


def _split(conditions: tuple[Condition, ...]) -> tuple[tuple[Condition, ...], tuple[Condition, ...]]:
    """Those up to the last that counts positions, and the rest, which may be tested one node at a time."""
    counted = max((n for n, condition in enumerate(conditions, 1) if condition.positional), default=0)
    return conditions[:counted], conditions[counted:]


def _flat(conditions: Iterable[Condition]) -> list[Condition]:
    return [i for c in conditions for i in (c.items if isinstance(c, And) else (c,))]
