"""Equality of numbers between messages: however they are written, and wherever the variables stand."""

from __future__ import annotations

import pytest

from sapwood import Broker, Tuning

TUNINGS = [Tuning(), Tuning(share_joins=False), Tuning(share_values=False), Tuning(join_bundles=False)]


@pytest.mark.parametrize("tuning", TUNINGS)
@pytest.mark.parametrize(
    "query",
    [
        "s//a[@p->x] FOLLOWED BY{number(x) = number(y), 1 day} s//b[q->y]",
        "s//a[@p->x] FOLLOWED BY{number(y) = x, 1 day} s//b[q->y]",
        "s//a->x FOLLOWED BY{number(x/@p) = y/q, 1 day} s//b->y",
        "s//a[@p->x][@p->z] FOLLOWED BY{number(x) = number(y) AND z != y, 1 day} s//b[q->y]",
    ],
)
@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("3203", "3203.00", True),
        ("3203", " 3203\n", True),
        ("1e3", "01000.0", True),
        ("-0", "0.0", True),
        ("3203", "3203.01", False),
        ("x", "x1", False),
        ("", " ", False),
    ],
)
def test_numbers_are_equal_however_they_are_written(
    tuning: Tuning, query: str, one: str, other: str, equal: bool
) -> None:
    with Broker(tuning=tuning) as broker:
        broker.subscribe("n", query)
        broker.subscribe("s", "s//a[@p->x] FOLLOWED BY{x = y, 1 day} s//b[q->y]")
        assert not broker.publish(f"<a p='{one}'/>", stream="s", time=0)
        got = broker.publish(f"<b><q>{other}</q><q>none</q></b>", stream="s", time=1)
        assert [delivery.subscription for delivery in got] == (["n"] if equal else [])


def test_nan_equals_nothing() -> None:
    with Broker() as broker:
        broker.subscribe("n", "s//a[@p->x] JOIN{number(x) = number(y), INF} s//a[@p->y]")
        for time in (0, 1):
            assert not broker.publish("<a p='NaN'/>", stream="s", time=time)


def test_explained_as_written() -> None:
    with Broker() as broker:
        broker.subscribe("n", "s//a[@p->x] JOIN{number(x) = number(y), INF} s//a[@p->y]")
        text = str(broker.explain("n"))
        assert "number(x) = number(y)" in text and "number(s//a/@p)" in text


def test_equal_queries_are_one_and_others_are_not() -> None:
    with Broker() as broker:
        broker.subscribe(1, "s//a[@p->x] JOIN{number(x) = number(y), INF} s//a[@p->y]")
        broker.subscribe(2, "s//a[@p->u] JOIN{number(u) = v, INF} s//a[@p->v]")
        broker.subscribe(3, "s//a[@p->u] JOIN{u = v, INF} s//a[@p->v]")
        broker.publish("<a p='1'/>", stream="s", time=0)
        assert {d.subscription for d in broker.publish("<a p='1.0'/>", stream="s", time=1)} == {1, 2}
        assert broker.unsubscribe(1) is None
        assert {d.subscription for d in broker.publish("<a p='01'/>", stream="s", time=2)} == {2}
