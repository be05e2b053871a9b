"""Retries: which failures are retried, after which delay, and when to give up."""

from __future__ import annotations

import random
from dataclasses import dataclass

from sapwood.client.client_errors import ClientError, Overloaded, Unavailable
from sapwood.errors import SapwoodError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with jitter, within bounds."""

    retries: int = 5
    """how often a request is repeated"""
    first: float = 0.2
    """seconds before the first repetition; each later delay is twice the one before"""
    longest: float = 10.0
    """seconds of a delay, unless the broker asks for more"""
    total: float = 60.0
    """seconds of all delays of a request; a longer Retry-After is not waited for"""

    def delay(self, attempt: int, retry_after: float | None = None) -> float:
        """Return the seconds before a repetition, the first of which has number 0.

        The jitter keeps clients that failed at the same time from coming back at the same time; it never
        makes the delay shorter than what the broker asks for.
        """
        backoff = min(self.longest, self.first * 2.0 ** min(attempt, 30))
        if retry_after is None:
            return backoff * random.uniform(0.5, 1.0)
        return retry_after + backoff * random.uniform(0.0, 0.5)


class Attempts:
    """The repetitions of one request so far."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._count = 0
        self._waited = 0.0

    def delay_after(self, error: SapwoodError) -> float:
        """Return the seconds to wait before the request is repeated; raise the error if it must not be."""
        if not is_retriable(error) or self._count >= self._policy.retries:
            raise error
        delay = self._policy.delay(self._count, error.retry_after if isinstance(error, ClientError) else None)
        if self._waited + delay > self._policy.total:
            raise error
        self._count += 1
        self._waited += delay
        return delay


def is_retriable(error: SapwoodError) -> bool:
    """Return whether a failure may pass: the broker was not reached, is overloaded, or restarts."""
    return isinstance(error, Overloaded) or (isinstance(error, Unavailable) and error.may_repeat)
