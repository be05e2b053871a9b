"""Output of which only the first lines are printed, and the number of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

_P = ParamSpec("_P")


class BoundedOutput(Generic[_P]):
    """Prints the first `most` items one by one, and at the end how many there were besides."""

    def __init__(self, most: int, write: Callable[_P, None], write_rest: Callable[[str], None]) -> None:
        self._most = most
        self._write = write
        self._write_rest = write_rest
        self.count = 0

    def add(self, *item: _P.args, **named: _P.kwargs) -> None:
        """Print an item, unless many came before it."""
        self.count += 1
        if self.count <= self._most:
            self._write(*item, **named)

    def finish(self) -> int:
        """Print the number of items that were not printed, if any; return the number of all."""
        if self.count > self._most:
            self._write_rest(f"and {self.count - self._most:,} more")
        return self.count
