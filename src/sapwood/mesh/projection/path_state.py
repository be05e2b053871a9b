"""Read paths followed by the names of elements."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.engine.automaton.dataguide import name_tests_of
from sapwood.mesh.routing.read_paths import ReadPath

PathState = frozenset[tuple[int, int]]
"""positions in read paths that are reached at an element: the number of the path, and its next step"""


def step_paths(paths: Sequence[ReadPath], state: PathState, name: str) -> PathState:
    """Return the positions that are reached at the children with a name, of elements in a state."""
    tests = name_tests_of(name)
    reached: set[tuple[int, int]] = set()
    for path, at in state:
        steps = paths[path].steps
        if at < len(steps):
            is_deep, test = steps[at]
            if is_deep:
                reached.add((path, at))
            if test in tests:
                reached.add((path, at + 1))
    return frozenset(reached)
