"""Token buckets allow a rate on average."""

from __future__ import annotations

import pytest

from sapwood.serve.auth.rate_limit import PublishRates, TokenBucket


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_second_of_the_rate_is_allowed_at_once() -> None:
    clock = Clock()
    bucket = TokenBucket(10, clock)
    assert [bucket.take(1) for _ in range(10)] == [0.0] * 10
    assert bucket.take(1) == pytest.approx(0.1)
    clock.now += 0.11
    assert bucket.take(1) == 0.0


def test_a_large_request_is_paid_for_afterwards() -> None:
    clock = Clock()
    bucket = TokenBucket(10, clock)
    assert bucket.take(50) == 0.0
    assert bucket.take(1) == pytest.approx(4.1)
    clock.now += 4.2
    assert bucket.take(1) == 0.0


def test_a_rate_below_one_a_second_allows_one() -> None:
    clock = Clock()
    bucket = TokenBucket(0.5, clock)
    assert bucket.take(1) == 0.0
    assert bucket.take(1) == pytest.approx(2.0)


def test_tenants_have_rates_of_their_own() -> None:
    rates = PublishRates({"a": 1.0, "b": 1.0}.get)
    assert rates.take("a", 1) == 0.0
    assert rates.take("a", 1) > 0
    assert rates.take("b", 1) == 0.0
    assert all(rates.take("unbounded", 1_000) == 0.0 for _ in range(10))
