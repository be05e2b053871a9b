"""Registered queries in a form that any automaton can be made from: what packs hold.

A part is a plain tuple, since there are many: (path, target, operator, value), or (step, parts) for a twig.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sapwood.engine.automaton.query_paths import Leaf, Twig, first_steps
from sapwood.engine.automaton.relative_paths import RelativePaths
from sapwood.lang.pattern import Test

DumpedLeaf: TypeAlias = tuple[tuple[str, ...], str, str, str | float | None]
DumpedTwig: TypeAlias = tuple[int, tuple["DumpedPart", ...]]
DumpedPart: TypeAlias = DumpedLeaf | DumpedTwig
DumpedQuery: TypeAlias = tuple[int, tuple[DumpedPart, ...], bool, bool, int]
"""slot, parts, whether it binds elements, whether it is a path that queries share, weight"""


@dataclass(frozen=True, slots=True)
class RegisteredParts:
    """Everything that is registered in an automaton."""

    queries: list[DumpedQuery]
    relative_paths: RelativePaths


def dump_part(part: Leaf | Twig) -> DumpedPart:
    """Return a part as plain tuples."""
    if isinstance(part, Twig):
        return part.step, tuple(map(dump_part, part.parts))
    test = part.test
    return part.path, part.target, test.op if test else "", test.value if test else None


def restore_part(dumped: DumpedPart) -> Leaf | Twig:
    """Return a part as it was registered."""
    if len(dumped) == 2:
        step, inner = dumped
        parts = tuple(map(restore_part, inner))
        return Twig(first_steps(parts[0].path, step), parts)
    path, target, operator, value = dumped
    return Leaf(path, target, Test(operator, value) if value is not None else None)
