"""Rates of tenants: token buckets."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Allows a rate on average, and a second of it at once."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._most = max(rate, 1.0)
        self._tokens = self._most
        self._clock = clock
        self._then = clock()

    def take(self, count: int) -> float:
        """Take tokens; returns 0, or the seconds after which to try again.

        A request of more than a second's tokens is allowed when the bucket is full, and paid for afterwards.
        """
        now = self._clock()
        self._tokens = min(self._most, self._tokens + (now - self._then) * self._rate)
        self._then = now
        if self._tokens >= min(count, self._most):
            self._tokens -= count
            return 0.0
        return (min(count, self._most) - self._tokens) / self._rate


class PublishRates:
    """The publish rates of tenants that have a quota."""

    def __init__(self, rate_of: Callable[[str], float | None]) -> None:
        self._rate_of = rate_of
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, tenant: str, count: int) -> float:
        """Count messages of a tenant; returns 0, or the seconds after which to try again."""
        rate = self._rate_of(tenant)
        if rate is None:
            return 0.0
        bucket = self._buckets.get(tenant)
        if bucket is None:
            bucket = self._buckets[tenant] = TokenBucket(rate)
        return bucket.take(count)
