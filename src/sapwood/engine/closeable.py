"""The base class of context managers that hold processes or files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closeable(ABC):
    """A context manager that calls `close` at the end."""

    @abstractmethod
    def close(self) -> None:
        """Release processes and files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
