"""Five sufficient conditions under which a path-tuple stream needs no duplicate elimination or no hashing.

Each looks at the steps of the stream's path; with the element graph of a DTD, it also knows which elements
may stand inside themselves. Fields are numbered from 1, as in the YFilter thesis (6.5.1); `split` is the
field of the bound node.

    1  at most one //                                          unique on the last field
    2  the elements of all // steps but the last never nest    unique on the last field
    3  1 or 2 above the split and 1 or 2 below                 unique on (split, last)
    4  no // down to the split                                 ordered on the split
    5  no // element and the split's on one loop               ordered on the split

Where the thesis is silent or too generous:

- A loop is a strongly connected component: a walk may pass an element twice where no simple cycle does.
- A wildcard names no element, so it is on whatever loop there is. It fails 2 on a // step that counts, and 5
  at the split or between it and the last //; unless the split's element never nests, since then no two of its
  elements contain one another, whatever stands between. Conditions 1 and 4 only count levels: wildcards are
  harmless.
- In 5 only the last // down to the split matters. If an earlier one were on the split's loop, so would be
  every element between.
- 2 and 5 hold of messages that conform to the graph and of no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sapwood.engine.message.document import Document
from sapwood.lang.pattern import Axis, Step, format_name, is_wildcard


class ElementGraph(Protocol):
    """The element graph of a DTD: which elements may contain which."""

    @property
    def root(self) -> str: ...

    @property
    def children(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def cycles(self) -> tuple[frozenset[str], ...]:
        """The strongly connected components that hold a cycle."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A finding whether a stream has a property, by which condition, and why or why not."""

    holds: bool
    condition: int | None
    why: str


def unique_on_last(steps: Sequence[Step], graph: ElementGraph | None = None) -> Verdict:
    """Decide whether no two tuples agree on the last field (conditions 1 and 2)."""
    deep = [step for step in steps if step.axis is Axis.DESCENDANT]
    if len(deep) <= 1:
        return Verdict(True, 1, "at most one //: no element is reached twice (1)")
    if graph is None:
        return Verdict(False, None, f"{len(deep)} times //: an element may be reached in several ways")
    for step in deep[:-1]:
        if is_wildcard(step.test):
            why = f"{step.axis.value}{format_name(step.test)} may be several elements on the way to one"
            return Verdict(False, None, why)
        if _loop(step.test, graph):
            return Verdict(
                False, None, f"{step.test} may stand inside itself: elements are reached in several ways"
            )
    names = " and ".join(dict.fromkeys(step.test for step in deep[:-1]))
    return Verdict(True, 2, f"{names} cannot stand inside itself: no element is reached twice (2)")


def unique_on_pair(steps: Sequence[Step], split: int, graph: ElementGraph | None = None) -> Verdict:
    """Decide whether no two tuples agree on both the split and the last field (condition 3)."""
    above = unique_on_last(steps[:split], graph)
    if split == len(steps) or not above.holds:
        return above
    below = unique_on_last(steps[split:], graph)
    if not below.holds:
        return below
    why = "down to the binding and below it, no element is reached twice"
    return Verdict(True, 3, f"{why} (3, by {above.condition} and {below.condition})")


def ordered_on(steps: Sequence[Step], split: int, graph: ElementGraph | None = None) -> Verdict:
    """Decide whether the split's field never decreases in the stream (conditions 4 and 5)."""
    if split == len(steps):
        return Verdict(True, None, "every stream is ordered on its last field")
    deep = [number for number in range(split) if steps[number].axis is Axis.DESCENDANT]
    if not deep:
        return Verdict(True, 4, "no // down to the binding: ordered on it (4)")
    if graph is None:
        return Verdict(False, None, "// down to the binding: bound elements may nest")
    name = steps[split - 1].test
    if is_wildcard(name):
        return Verdict(False, None, f"{format_name(name)} may be any element: bound elements may nest")
    loop = _loop(name, graph)
    if not loop:
        return Verdict(True, 5, f"{name} cannot stand inside itself: ordered on it (5)")
    from_deep = steps[deep[-1] : split]
    for step in from_deep:
        if is_wildcard(step.test):
            return Verdict(False, None, f"{format_name(step.test)} on the way to {name} may be on its loop")
    if from_deep[0].test in loop:
        return Verdict(False, None, f"{from_deep[0].test} may stand inside {name}: bound elements may nest")
    return Verdict(True, 5, f"{from_deep[0].test} and {name} are on no common loop: ordered on {name} (5)")


def conforms(document: Document, graph: ElementGraph) -> bool:
    """Return whether a message has the graph's root and only its edges: all that conditions 2 and 5 need."""
    names = document.names
    parents = map(names.__getitem__, document.parents[2:])
    edges = set(zip(parents, names[2:], strict=True))
    return names[1] == graph.root and all(child in graph.children.get(parent, ()) for parent, child in edges)


def _loop(name: str, graph: ElementGraph) -> frozenset[str]:
    """Return the elements on a loop with this one; none if it is on no loop."""
    return next((cycle for cycle in graph.cycles if name in cycle), frozenset())
