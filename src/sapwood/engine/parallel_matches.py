"""Matching in several threads, in order.

A thread matches a batch of messages at a time, most of it in C and without the interpreter's lock. Handing
over one message at a time would cost as much as matching it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, Self

from sapwood.engine.matches import Matches
from sapwood.engine.message.message_source import Source
from sapwood.errors import SapwoodError

MOST_MESSAGES = 64
"""that a thread takes at a time"""
MOST_CHARACTERS = 256 * 1024
"""of them together, where that is known"""

Batch = list[Matches | SapwoodError]


class BatchMatcher(Protocol):
    """A matcher that several threads may give batches to."""

    def match_batch(self, messages: Sequence[Source]) -> Batch: ...


class ParallelMatches:
    """Iterates over the matches of messages, in order.

    Why a message was refused is raised when its turn comes, and the next one follows. The threads end with
    the messages, or with this object.
    """

    def __init__(self, matcher: BatchMatcher, messages: Iterable[Source], threads: int) -> None:
        self._matcher = matcher
        self._messages = iter(messages)
        self._ahead = 2 * threads  # batches
        self._pool = ThreadPoolExecutor(threads, "sapwood-match")
        self._pending: deque[Future[Batch]] = deque()
        self._found: deque[Matches | SapwoodError] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Matches:
        while not self._found:
            self._submit()
            if not self._pending:
                self._pool.shutdown(wait=False)
                raise StopIteration
            self._found.extend(self._pending.popleft().result())
        found = self._found.popleft()
        if isinstance(found, SapwoodError):
            raise found
        return found

    def _submit(self) -> None:
        """Keep the threads busy with as many batches as may be read ahead."""
        while len(self._pending) <= self._ahead and (batch := _take_batch(self._messages)):
            self._pending.append(self._pool.submit(self._matcher.match_batch, batch))

    def __del__(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _take_batch(messages: Iterator[Source]) -> list[Source]:
    batch: list[Source] = []
    size = 0
    for message in messages:
        batch.append(message)
        size += len(message) if isinstance(message, bytes | bytearray | str) else 0
        if len(batch) == MOST_MESSAGES or size > MOST_CHARACTERS:
            break
    return batch
