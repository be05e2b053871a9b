"""The subscriptions of the demo, in all three languages, and who has them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

from sapwood.client import NewSubscription
from sapwood.serve.demo.demo_messages import AREAS, COUNTRIES, CUSTOMERS, SYMBOLS, TOPICS

TRADERS = tuple(f"trader-{number}" for number in range(1, 7))
LISTENERS = ("billing", "newsroom", "risk", *TRADERS)
"""subscribers that listen all the time"""
BEHIND = "audit"
"""the subscriber that reads now and then, and never all"""
FOR_YOU = "desk"
"""the subscriber that is left to whoever tries the demo"""
MERGED = ("desk-express", "desk-large")
"""subscriptions of one subscriber that often want the same message, which it gets once"""


def make_subscriptions(seed: int = 1) -> Iterator[NewSubscription]:
    """Yield some two thousand subscriptions."""
    yield from _make_named()
    yield from _make_filters(random.Random(seed))


def _make_named() -> Iterator[NewSubscription]:
    """Yield the few that show what the languages can do."""
    express, large = MERGED
    yield _new(express, "/order[@express = 'yes']", FOR_YOU, "orders")
    yield _new(large, "/order[total > 200]", FOR_YOU, "orders")
    yield _new("desk-urgent", "/news[@urgency = 1]/head/title", FOR_YOU, "news")
    yield _new(
        "billing-due",
        "for $i in /invoice where $i/days < 30 return <due>{$i/@order}{$i/customer}{$i/amount}</due>",
        "billing",
        "invoices",
    )
    # A join names its streams itself.
    yield NewSubscription(
        "billing-orders",
        "SELECT <billed>{$o/customer}{$v/amount}</billed>"
        " FROM orders/order[@id->i] AS o FOLLOWED BY{i = j, 1 day} invoices/invoice[@order->j] AS v",
        "billing",
    )
    yield NewSubscription(
        "risk-chain",
        "orders/order[customer->c] FOLLOWED BY{c = d, 10 min} orders/order[customer->d]",
        "risk",
    )
    yield _new("risk-swings", "/quote[change > 3 or change < -3]", "risk", "quotes")
    yield _new(
        "risk-volume",
        'for $q in /quote where $q/volume > 40000 return <large symbol="{$q/@symbol}">{$q/volume}</large>',
        "risk",
        "quotes",
    )
    yield _new("audit-orders", "/order", BEHIND, "orders")
    yield _new("audit-invoices", "/invoice[string-length(customer) > 3]", BEHIND, "invoices")


def _make_filters(choice: random.Random) -> Iterator[NewSubscription]:
    """Yield the many that give the index something to do."""
    for number, (symbol, price) in enumerate(product(SYMBOLS, range(10, 200, 10)), 1):
        query = f"/quote[@symbol = '{symbol}' and price > {price} and volume > {choice.randint(200, 490)}00]"
        yield _new(f"price-{number}", query, choice.choice(TRADERS), "quotes")
    for number, (topic, area) in enumerate(product(TOPICS, AREAS), 1):
        yield _new(
            f"story-{number}", f"/news/head[topic = '{topic}' and area = '{area}']", "newsroom", "news"
        )
        made = (
            f"for $n in /news where $n/head/topic = '{topic}' and $n/head/area = '{area}'"
            " return <line>{$n//title}</line>"
        )
        yield _new(f"line-{number}", made, "newsroom", "news")
    for number, (customer, total) in enumerate(product(CUSTOMERS, (50, 100, 250, 500, 1000)), 1):
        query = f"/order[customer = '{customer}' and total > {total}]"
        yield _new(f"customer-{number}", query, "risk", "orders")
    for number, (country, amount) in enumerate(product(COUNTRIES, range(100, 1_500, 100)), 1):
        query = f"//customer[@country = '{country}' and ../amount > {amount}]"
        yield _new(f"country-{number}", query, "billing", "invoices")


def _new(id: str, query: str, subscriber: str, stream: str) -> NewSubscription:
    return NewSubscription(id, query, subscriber, (stream,))
