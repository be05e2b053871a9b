"""Many queries at once, or all of them: what is worth doing besides adding one after another."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager

_MANY = 1_000
"""From so many new queries at once, making all places anew is cheaper than spreading each query to them."""

OnError = Callable[[Hashable, ValueError], None]


@contextmanager
def pause_garbage_collection(worthwhile: Callable[[], bool]) -> Iterator[None]:
    """No garbage is made while queries are loaded, and looking for it all the time takes a third of it.

    Instead, where it is worthwhile, all that was made is looked through once, so that the collector takes it
    for old and leaves it alone.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()
            if worthwhile():
                gc.collect()


def add_all(
    pairs: Iterable[tuple[Hashable, str]],
    add: Callable[[Hashable, str], None],
    on_error: OnError | None,
    forget: Callable[[], None],
) -> None:
    """Adds queries in order; `forget` drops what was worked out for queries before.

    What cannot be added is told to `on_error`, and the rest go in; without it, the error is raised with a
    note that names the subscription, and those before it stay.
    """
    done = 0
    with pause_garbage_collection(lambda: done > _MANY):
        for id, query in pairs:
            done += 1
            if done == _MANY:
                forget()
            try:
                add(id, query)
            except ValueError as error:
                if on_error is None:
                    error.add_note(f"in the query of subscription {id!r}")
                    raise
                on_error(id, error)
