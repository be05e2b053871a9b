"""Conditions that differ in one constant, merged into one with alternatives: shorter, and not weaker.

    /news[@topic = 'a']/p
    /news[@topic = 'b']/p       /news[@topic = 'a' or @topic = 'b' or @topic = 'c']/p
    /news[@topic = 'c']/p

"There is a node that passes this test or that one" and "there is one that passes this test, or one that
passes that test" are the same. This holds of constants that are neither inside a negation, nor before a
position, nor on a path of which only the first node counts; others are left as they are. Of `<` and `>` the
weakest is all alternatives in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isnan

from sapwood.lang.decomposition import MOST_ALTERNATIVES
from sapwood.lang.pattern import (
    And,
    Condition,
    Has,
    Or,
    Path,
    Step,
    Test,
    all_of,
    any_of,
    canonical_predicates,
)
from sapwood.mesh.routing.weaker_conditions import shape_of

MOST_VALUES = MOST_ALTERNATIVES
"""in one condition: the automaton multiplies out no more, and a change of one value tells all of them anew"""
_MOST_HOLES = 8
"""of a condition that are tried as the one constant in which others differ"""
_BLANK = "\0"

Replace = Callable[[Has], Condition]


def merge_values(conditions: Sequence[Condition]) -> Iterator[tuple[Condition, list[Condition]]]:
    """Yield conditions that together are met where the given ones are, each with those that it stands for.

    The given ones have one shape, and are different. The constant is chosen in which most of them differ.
    """
    holes = min(len(list(iter_holes(conditions[0]))), _MOST_HOLES) if len(conditions) > 1 else 0
    best: dict[Condition, list[Condition]] | None = None
    chosen = 0
    for hole in range(holes):
        groups: dict[Condition, list[Condition]] = {}
        for condition in conditions:
            groups.setdefault(_replace_hole(condition, hole, _blank), []).append(condition)
        if best is None or len(groups) < len(best):
            best, chosen = groups, hole
    if best is None or len(best) == len(conditions):
        yield from ((condition, [condition]) for condition in conditions)
        return
    for group in best.values():
        yield from _merge_group(group, chosen)


def _merge_group(group: list[Condition], hole: int) -> Iterator[tuple[Condition, list[Condition]]]:
    """Merge conditions that differ in one constant, so many at a time that the automaton can index them."""
    tests = [_test_of(list(iter_holes(condition))[hole]) for condition in group]
    order = sorted(range(len(group)), key=lambda place: _order_of(tests[place]))
    is_ordered = all(map(_is_ordered, tests))
    step = len(group) if is_ordered else MOST_VALUES
    for start in range(0, len(order), step):
        places = order[start : start + step]
        some, values = [group[place] for place in places], [tests[place] for place in places]
        if is_ordered:
            values = [_weakest(values)]
        yield _replace_hole(some[0], hole, partial(_any_value, tests=values)), some


def _test_of(has: Has) -> Test:
    assert has.test is not None
    return has.test


def _blank(has: Has) -> Condition:
    return Has(has.path, Test(_test_of(has).op, _BLANK), has.first)


def _any_value(has: Has, tests: Sequence[Test]) -> Condition:
    """Return that a node passes one of some tests; on a long path, which node is said only once."""
    apart = any_of([Has(has.path, test, has.first) for test in tests])
    steps = has.path.steps
    if len(tests) == 1 or has.first or len(steps) < 2:
        return apart
    last = steps[-1]
    either = any_of([Has(Path(()), test) for test in tests])
    step = Step(last.axis, last.test, canonical_predicates((*last.conditions, either)))
    return Has(Path((*steps[:-1], step)))


def _order_of(test: Test) -> tuple[bool, str]:
    return isinstance(test.value, str), str(test.value)


def _is_ordered(test: Test) -> bool:
    """Return whether one of several such tests is the weakest."""
    return test.op[0] in "<>" and isinstance(test.value, float) and not isnan(test.value)


def _weakest(tests: Sequence[Test]) -> Test:
    values = [test.value for test in tests if isinstance(test.value, float)]
    return Test(tests[0].op, max(values) if tests[0].op[0] == "<" else min(values))


# -- holes -----------------------------------------------------------------------------------------------


def iter_holes(condition: Condition) -> Iterator[Has]:
    """Yield the comparisons with constants that may be replaced by alternatives, in an order that conditions
    of one shape have in common."""
    match condition:
        case And() | Or():
            for item in _in_order(condition):
                yield from iter_holes(item)
        case Has(path=path, test=test, first=first):
            if not first:
                for step in path.steps:
                    for each in step.conditions[_distributive_from(step) :]:
                        yield from iter_holes(each)
            if test is not None:
                yield condition


def _replace_hole(condition: Condition, hole: int, replace: Replace) -> Condition:
    """Return a condition with one of the comparisons that `iter_holes` yields replaced."""
    replaced, _ = _rewrite(condition, hole, replace)
    return replaced


def _rewrite(condition: Condition, hole: int, replace: Replace) -> tuple[Condition, int]:
    """Return the condition, and how many comparisons have to be passed by after it; less than 0: none."""
    match condition:
        case And() | Or():
            items: list[Condition] = []
            for item in _in_order(condition):
                if hole >= 0:
                    item, hole = _rewrite(item, hole, replace)
                items.append(item)
            return (all_of if isinstance(condition, And) else any_of)(items), hole
        case Has(path=path, test=test, first=first):
            rewritten = condition
            if not first:
                steps: list[Step] = []
                for step in path.steps:
                    if hole >= 0 and step.conditions:
                        step, hole = _rewrite_step(step, hole, replace)
                    steps.append(step)
                rewritten = Has(Path(tuple(steps)), test)
            if test is not None and hole >= 0:
                return (replace(rewritten) if hole == 0 else rewritten), hole - 1
            return rewritten, hole
    return condition, hole


def _rewrite_step(step: Step, hole: int, replace: Replace) -> tuple[Step, int]:
    start = _distributive_from(step)
    conditions = list(step.conditions[:start])
    for each in step.conditions[start:]:
        if hole >= 0:
            each, hole = _rewrite(each, hole, replace)
        conditions.append(each)
    return Step(step.axis, step.test, canonical_predicates(conditions)), hole


def _distributive_from(step: Step) -> int:
    """Return the number of the first condition of a step after which none is positional."""
    positional = [number for number, each in enumerate(step.conditions) if each.positional]
    return positional[-1] + 1 if positional else 0


def _in_order(condition: And | Or) -> list[Condition]:
    return sorted(condition.items, key=lambda item: (shape_of(item), str(item)))
