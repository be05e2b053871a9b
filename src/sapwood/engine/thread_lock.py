"""One lock for each matcher or broker, which makes it thread-safe.

Calls take turns, and an edit takes effect between two messages: matching in Python writes, since guide nodes
are made, probes cache values and costs are counted. What a call returns lazily (`Matches`) takes the same
lock when it is read.

The compiled kernel has a lock of its own, which many readers may hold. So a thread that finds this lock taken
matches its message *ahead*, in C and in parallel, and takes its turn only for the rest; if the queries have
been changed meanwhile, it matches again. See `Matcher.match` and `parallel_matches`.
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
