"""Queries that are one comparison with a number, which the kernel counts by sums and lists when asked to."""

from __future__ import annotations

import random

import pytest

from sapwood import Tuning
from tests.support.automata import is_empty
from tests.support.compiled_kernel import compiled_kernel
from tests.support.matcher_pair import MatcherPair

compiled_kernel()  # skips all of it where there is none

OPERATORS = ["<", "<=", ">", ">=", "!="]
BOUNDS = ["1", "2", "2.5", "3", "-1", "0 div 0", "1 div 0"]


def random_message(rng: random.Random) -> str:
    """A message with several values of the same target: their ranges overlap."""
    items = "".join(
        f"<a x='{rng.choice(['1', '2', '2.5', '3', 'x', '', '-1'])}'>{rng.choice(['', '2', '3', '<b/>'])}</a>"
        for _ in range(rng.randint(0, 3))
    )
    return f"<r>{items}</r>"


def random_range(rng: random.Random) -> str:
    one = f"{rng.choice(OPERATORS)} {rng.choice(BOUNDS)}"
    other = f"{rng.choice(OPERATORS)} {rng.choice(BOUNDS)}"
    shapes = [f"//a[@x {one}]", f"/r/a[@x {one}]", f"//a[. {one}]", f"//a[@x {one}] | //a[@x {other}]"]
    return rng.choice([*shapes, f"//a[@x {one}][b]", f"//a[@x {one}][. {other}]"])


@pytest.mark.parametrize("tuning", [Tuning(), Tuning(cache=0)], ids=["cache", "no cache"])
@pytest.mark.parametrize("seed", range(5))
def test_ranges_are_counted_once_under_edits(tuning: Tuning, seed: int) -> None:
    rng = random.Random(seed)
    pair = MatcherPair(tuning)
    for i in range(300):
        kind = rng.random()
        if kind < 0.5 or not pair.queries:
            pair.add(i, random_range(rng))
        elif kind < 0.65:  # another subscription to a query that there is: it weighs more
            pair.add(i, rng.choice(list(pair.queries.values())))
        else:
            pair.remove(rng.choice(list(pair.queries)))
        message = random_message(rng)
        if rng.random() < 0.5:
            pair.compare(message)
        else:
            pair.leave_unread(message)
        if rng.random() < 0.1:
            pair.read()
    pair.read()
    for id in list(pair.queries):
        pair.remove(id)
    assert is_empty(pair.compiled.index)


def test_a_value_counts_the_subscriptions_of_all_its_ranges() -> None:
    pair = MatcherPair()
    for number in range(200):
        pair.add(number, f"/stock[price > {number}]")
        pair.add((number, "below"), f"/stock[price <= {number}]")
    for number in range(0, 200, 7):
        pair.add((number, "again"), f"/stock[price > {number}]")
    for price in ["50", "199.5", "-1", "0", "7", "x", "1e1"]:
        message = f"<stock><price>{price}</price></stock>"
        pair.compare(message)
        pair.leave_unread(message)
    found = pair.compiled.match("<stock><price>50</price><price>20</price></stock>")
    assert len(found) == 50 + 8 + 180  # > 0 … > 49, eight of them twice, and <= 20 … <= 199
    for number in range(0, 200, 2):
        pair.remove(number)
    assert len(found) == 50 + 8 + 180
    assert set(found) >= {0, 48, (49, "again"), (199, "below")}
    pair.read()
    pair.compare("<stock><price>50</price></stock>")
