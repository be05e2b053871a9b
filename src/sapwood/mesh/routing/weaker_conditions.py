"""Conditions that are one part weaker than another: what a route becomes when it has to be shorter.

    //order[@id = 7][item]/total > 5      //order[@id = 7][item]/total       without a test
                                          //order[@id][item]/total > 5
                                          //order[item]/total > 5            without a condition
                                          //order[@id = 7]/total > 5
                                          //order[@id = 7][item]             without the last step

Every message that meets a condition meets the weaker ones. That takes care in four places:

  - Inside `not()` what is weaker makes the whole stronger. So a negated condition is only made stronger, by
    leaving out alternatives: not(a or b) becomes not(a). What cannot be made stronger is left out with its
    negation.
  - A position counts what passes the conditions before it. If one of these becomes weaker, other nodes are
    counted, so the positions after it are left out.
  - The first node of a path (`string(path) = 'x'`) is another one if more nodes are on the path. The old one
    is still among them, so the weaker condition is that some node passes the test.
  - Axes and names stay. `//` says that something is somewhere inside, and a path is cut only at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from sapwood.lang.pattern import (
    And,
    Condition,
    Has,
    Not,
    Or,
    Path,
    Position,
    Step,
    all_of,
    any_of,
    canonical_predicates,
    negation,
)


class Omission(IntEnum):
    """What a weaker condition lacks; of those that cost the same, the lower is to be preferred."""

    TEST = 0
    CONDITION = 1
    STEP = 2
    EVERYTHING = 3


class Weakening(NamedTuple):
    """A condition that is one part weaker than another."""

    omission: Omission
    condition: Condition


def list_weakenings(condition: Condition) -> Iterator[Weakening]:
    """Yield the conditions that are one part weaker; not TRUE, which is weaker than any."""
    match condition:
        case And(items=items):
            for number, item in enumerate(items):
                others = items[:number] + items[number + 1 :]
                yield Weakening(Omission.CONDITION, all_of(others))
                for omission, weaker in list_weakenings(item):
                    yield Weakening(omission, all_of((*others, weaker)))
        case Or(items=items):
            for number, item in enumerate(items):
                others = items[:number] + items[number + 1 :]
                for omission, weaker in list_weakenings(item):
                    yield Weakening(omission, any_of((*others, weaker)))
        case Not(item=item):
            for stronger in list_strengthenings(item):
                yield Weakening(Omission.CONDITION, negation(stronger))
        case Has():
            yield from _weaken_path(condition)


def _weaken_path(condition: Has) -> Iterator[Weakening]:
    steps, test = condition.path.steps, condition.test
    if test is not None and steps:  # a test of the node itself is a condition of its step
        yield Weakening(Omission.TEST, Has(condition.path))
    if len(steps) > 1:
        yield Weakening(Omission.STEP, Has(Path(steps[:-1])))
    for number, step in enumerate(steps):
        for omission, weaker in _weaken_step(step):
            path = Path((*steps[:number], weaker, *steps[number + 1 :]))
            yield Weakening(omission, Has(path, test))  # of any node: the first one may be another


def _weaken_step(step: Step) -> Iterator[tuple[Omission, Step]]:
    for number, condition in enumerate(step.conditions):
        before = step.conditions[:number]
        after = [each for each in step.conditions[number + 1 :] if not each.positional]
        if condition.positional or not isinstance(condition, And):  # of which one part at a time is left out
            yield Omission.CONDITION, _with_conditions(step, (*before, *after))
        if not condition.positional:
            for omission, weaker in list_weakenings(condition):
                yield omission, _with_conditions(step, (*before, weaker, *after))


def list_strengthenings(condition: Condition) -> Iterator[Condition]:
    """Yield conditions that are one part stronger, for use inside a negation."""
    match condition:
        case Or(items=items):
            for number, item in enumerate(items):
                others = items[:number] + items[number + 1 :]
                yield any_of(others)
                for stronger in list_strengthenings(item):
                    yield any_of((*others, stronger))
        case And(items=items):
            for number, item in enumerate(items):
                others = items[:number] + items[number + 1 :]
                for stronger in list_strengthenings(item):
                    yield all_of((*others, stronger))
        case Not(item=item):
            for _, weaker in list_weakenings(item):
                yield negation(weaker)
        case Has(path=path, test=test, first=False):  # with fewer nodes, another one may be the first
            for number, step in enumerate(path.steps):
                for stronger_step in _strengthen_step(step):
                    yield Has(Path((*path.steps[:number], stronger_step, *path.steps[number + 1 :])), test)


def _strengthen_step(step: Step) -> Iterator[Step]:
    for number, condition in enumerate(step.conditions):
        before, after = step.conditions[:number], step.conditions[number + 1 :]
        if any(each.positional for each in step.conditions[number:]):
            continue
        for stronger in list_strengthenings(condition):
            yield _with_conditions(step, (*before, stronger, *after))


def _with_conditions(step: Step, conditions: tuple[Condition, ...]) -> Step:
    return Step(step.axis, step.test, canonical_predicates(conditions))


# -- shapes ----------------------------------------------------------------------------------------------


def shape_of(condition: Condition) -> str:
    """Return a text that conditions have in common if they are equal but for the constants of their tests."""
    match condition:
        case Has(path=path, test=test, first=first):
            steps = "".join(map(_shape_of_step, path.steps))
            return f"({steps}{' first' if first else ''}{f' {test.op}' if test is not None else ''})"
        case And(items=items):
            return f"and({' '.join(sorted(map(shape_of, items)))})"
        case Or(items=items):
            return f"or({' '.join(sorted(map(shape_of, items)))})"
        case Not(item=item):
            return f"not({shape_of(item)})"
        case Position(op=op, n=n, from_last=from_last, of_size=of_size):
            return f"position({op} {n!r} {from_last} {of_size})"
    return f"named({condition})"


def _shape_of_step(step: Step) -> str:
    conditions = "".join([f"[{shape_of(each)}]" for each in step.conditions])
    return f"{step.axis.value}{step.test!r}{conditions}"
