"""Tells linear growth of time from quadratic growth."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

_ATTEMPTS = 3
_SMALL = 0.02
"""seconds, below which nothing is told apart"""


def cpu_seconds(work: Callable[[], object]) -> float:
    """The CPU time of some work, without that of the garbage collector, which depends on all tests before."""
    gc.disable()
    try:
        started = time.process_time()
        work()
        return time.process_time() - started
    finally:
        gc.enable()


def assert_linear(took: Callable[[int], float], sizes: Sequence[int]) -> None:
    """Asserts that of sizes, each ten times the one before, none takes a hundred times as long.

    A busy machine may make one attempt look worse than it is, but not all.
    """
    measured: list[list[float]] = []
    for _ in range(_ATTEMPTS):
        measured.append([took(size) for size in sizes])
        if all(larger < 50 * max(smaller, _SMALL) for smaller, larger in pairwise(measured[-1])):
            return
    raise AssertionError(f"seconds for the sizes {list(sizes)}: {measured}")
