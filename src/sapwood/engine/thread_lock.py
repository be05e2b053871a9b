"""One lock for each matcher or broker, which makes it thread-safe.

Matching writes: guide nodes are made, probes cache values, costs are counted. So calls take turns, and an
edit takes effect between two messages. What a call returns lazily (`Matches`) takes the same lock when it is
read. Threads gain no speed, since one interpreter runs one of them at a time in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Lockable(Protocol):
    """An object with a reentrant lock."""

    @property
    def lock(self) -> AbstractContextManager[Any]: ...


L = TypeVar("L", bound=Lockable)


def synchronized(method: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R]:
    """Decorate a method to run under the lock of its object."""

    @wraps(method)
    def locked(self: L, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **kwargs)

    return locked
