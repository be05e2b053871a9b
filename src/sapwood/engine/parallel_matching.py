"""Matching in several threads, in order.

A thread matches a batch of messages at a time, most of it in C and without the interpreter's lock. Handing
over one message at a time would cost as much as matching it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Protocol

from sapwood.engine.matches import Matches
from sapwood.engine.message.message_source import Source
from sapwood.errors import SapwoodError

BATCH = 64
"""Messages that a thread takes at a time."""

Batch = list[Matches | SapwoodError]


class BatchMatcher(Protocol):
    """A matcher that several threads may give batches to."""

    def match_batch(self, messages: Sequence[Source]) -> Batch: ...


def match_in_threads(matcher: BatchMatcher, messages: Iterable[Source], threads: int) -> Iterator[Matches]:
    """Yield the matches of each message, in order; raise why one was refused when its turn comes."""
    pending: deque[Future[Batch]] = deque()
    remaining = iter(messages)
    with ThreadPoolExecutor(threads, "sapwood-match") as pool:
        try:
            while batch := list(islice(remaining, BATCH)):
                pending.append(pool.submit(matcher.match_batch, batch))
                if len(pending) > 2 * threads:
                    yield from _read_batch(pending.popleft())
            while pending:
                yield from _read_batch(pending.popleft())
        finally:
            for future in pending:
                future.cancel()


def _read_batch(future: Future[Batch]) -> Iterator[Matches]:
    for found in future.result():
        if isinstance(found, SapwoodError):
            raise found
        yield found
