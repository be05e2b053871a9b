"""Bulk loading of queries."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)
_MANY = 1_000
"""From this many new queries on, teaching the automaton anew is cheaper than updating what it learnt."""

OnError = Callable[[Hashable, ValueError], None]


@contextmanager
def pause_garbage_collection(worthwhile: Callable[[], bool] | None = None) -> Iterator[None]:
    """Pause the garbage collector while queries are loaded, which makes no garbage; scans take a third of it.

    Afterwards, where it is worthwhile, one collection moves what was made to the oldest generation.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()
            if worthwhile is not None and worthwhile():
                gc.collect()


def add_all(
    pairs: Iterable[tuple[Hashable, str]],
    add: Callable[[Hashable, str], None],
    on_error: OnError | None,
    clear: Callable[[], None],
) -> None:
    """Add queries in order; `clear` drops what the automaton learnt from messages, once there are many.

    `on_error` is called with what cannot be added, and the rest are added; without it, the error is raised
    with a note that names the subscription, and those before it stay.
    """
    done = 0
    with pause_garbage_collection(lambda: done > _MANY):
        for id, query in pairs:
            done += 1
            if done == _MANY:
                clear()
            try:
                add(id, query)
            except ValueError as error:
                if on_error is None:
                    error.add_note(f"in the query of subscription {id!r}")
                    raise
                on_error(id, error)
    _log.debug("%d queries loaded", done)
