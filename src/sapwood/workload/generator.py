"""The iteration that all generators share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Generic, Self, TypeVar

T = TypeVar("T", bytes, str)


class Generator(ABC, Iterator[T], Generic[T]):
    """An endless iterator of random messages or queries."""

    @abstractmethod
    def __next__(self) -> T: ...

    def __iter__(self) -> Self:
        return self

    def take(self, count: int) -> list[T]:
        """Return the next `count` items."""
        return list(islice(self, count))
