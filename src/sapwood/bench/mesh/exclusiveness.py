"""The share of partitions that a message concerns, by the placement of queries, as in ONYX's figure 9.

A query asks for a value of each of two patterns. A message has some values of every pattern, and matches the
queries both of whose values it has. Queries are in partitions:

    random      anywhere; a message concerns the partitions in which it matches a query
    PEP         where one of the query's two values belongs (partitioning by exclusiveness of patterns), and
                a message concerns the partitions in which it matches a query
    bucket      the same placement; a message concerns every partition to which one of its values belongs

The paper does not say how many values a pattern has, on which everything depends: so they are varied.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapwood.bench.harness import Bench, ChartAxis, Role, experiment, run_isolated, scale

PARTITIONS = 200
PATTERNS = 10
_SEED = 9
_LEAST_DRAWN = 0.01
"""percent: less would leave a logarithmic axis"""
Numbers = NDArray[np.int64]


class Shares(NamedTuple):
    """Percentage of partitions that a message concerns, on average."""

    random: float
    pep: float
    bucket: float
    bound: float
    """values of a message over partitions"""


@experiment("exclusiveness", "partitions that a message concerns, by placement of queries and their values")
def measure_exclusiveness(
    bench: Bench,
    queries: int = scale(1_000_000, 1_000_000, 1_000_000, 20_000),
    messages: int = scale(100, 100, 20, 40),
    values: tuple[int, ...] = scale(
        (200, 1_000, 10_000, 100_000), (200, 1_000, 10_000, 100_000), (200, 10_000), (20, 200)
    ),
    repeats: tuple[int, ...] = scale((1, 2, 5, 10), (1, 2, 5, 10), (1, 2, 5, 10), (1, 5)),
) -> Iterator[str]:
    """Measure all numbers of values and repetitions, with the same seed."""
    size = f"{queries:,} queries, {PARTITIONS} partitions, {PATTERNS} patterns"
    note = "ONYX, with unknown values: random almost all with small repetition, PEP far fewer"
    columns = tuple(Shares._fields)
    listing = bench.listing("exclusiveness", f"partitions that a message concerns, %: {size}", columns, note)
    for count in values:
        title = f"partitions that a message concerns, {count:,} values of a pattern"
        axis = ChartAxis("share of partitions", "%")
        chart = bench.chart(f"exclusiveness-{count}", title, "values in a message", axis, note=note)
        for repeat in repeats:
            yield f"{count:,} values, {repeat} in a message"
            shares = yield from run_isolated(run_exclusiveness, queries, messages, count, repeat)
            listing.add(f"{count:,} values, {repeat} in a message", *shares)
            roles = (Role.TWIN, Role.SAPWOOD, Role.OTHER, Role.BASELINE)
            for name, role, share in zip(columns, roles, shares, strict=True):
                chart.curve(name, role).add(repeat, max(share, _LEAST_DRAWN), percent=share)
            bench.figure(
                "partitions by PEP against the bound",
                f"{count:,} values, {repeat} in a message",
                shares.pep / shares.bound,
                "times",
                random=shares.random,
                bucket=shares.bucket,
                expected_random=expect_random(queries, count, repeat),
            )


def expect_random(queries: int, values: int, repeat: int) -> float:
    """Return the percentage that is expected of random placement: the matches of a message are spread."""
    return 100 * (1 - exp(-queries * (repeat / values) ** 2 / PARTITIONS))


def run_exclusiveness(queries: int, messages: int, values: int, repeat: int) -> Iterator[str | Shares]:
    """Place queries in partitions, and count for each message the partitions that it concerns."""
    yield "placing"
    draw = np.random.default_rng([_SEED, values, repeat])
    first = draw.integers(PATTERNS, size=queries)
    second = (first + draw.integers(1, PATTERNS, size=queries)) % PATTERNS
    # A key is a pattern and a value.
    keys = np.stack([first, second]) * values + draw.integers(values, size=(2, queries))
    belongs = draw.integers(PARTITIONS, size=PATTERNS * values)
    by_random = draw.integers(PARTITIONS, size=queries)
    by_pep = belongs[np.where(draw.random(queries) < 0.5, keys[0], keys[1])]
    yield "matching"
    counts = np.zeros(3)
    for _ in range(messages):
        has = np.zeros(PATTERNS * values, np.bool_)
        for pattern in range(PATTERNS):
            has[pattern * values + draw.choice(values, repeat, replace=False)] = True
        matched = np.flatnonzero(has[keys[0]] & has[keys[1]])
        counts += [_distinct(by_random[matched]), _distinct(by_pep[matched]), _distinct(belongs[has])]
    random, pep, bucket = (100 * counts / messages / PARTITIONS).tolist()
    yield Shares(random, pep, bucket, 100 * PATTERNS * repeat / PARTITIONS)


def _distinct(numbers: Numbers) -> int:
    return len(np.unique(numbers))
