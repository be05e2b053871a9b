"""The messages of the demo: news, orders, invoices and quotes, one malformed now and then."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

SYMBOLS = tuple(
    f"{name}{suffix}" for name in ("ACME", "BOLT", "CORK", "DUNE", "ELM", "FERN") for suffix in "ABC"
)
CUSTOMERS = tuple(f"customer-{number:03}" for number in range(1, 201))
COUNTRIES = ("AT", "BR", "CA", "CH", "DE", "ES", "FR", "GB", "IN", "IT", "JP", "NL", "PL", "SE", "US")
AREAS = ("Basel", "Bergen", "Cork", "Ghent", "Leeds", "Lyon", "Osaka", "Porto", "San Francisco", "Turin")
TOPICS = ("energy", "football", "harvest", "housing", "markets", "rail", "shipping", "weather")
GOODS = ("bolts", "cable", "gaskets", "hinges", "pipes", "pumps", "timber", "valves")
_VERBS = ("eases", "falls", "rallies", "rises", "slips", "stalls")
_MALFORMED = (
    "<order id='0'><total>12.50</order>",
    "<news><title>cut off in the middle of a se",
    "<quote symbol='ACMEA' symbol='BOLTA'/>",
    "<invoice>&undeclared;</invoice>",
)
_REFUSED_EVERY = 25
_OPEN_ORDERS = 50
"""orders whose invoices are still to come"""


@dataclass(frozen=True, slots=True)
class DemoMessage:
    """A message and the stream it belongs to."""

    stream: str
    body: str


class MessageSource:
    """An endless sequence of messages; the same seed gives the same ones."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._prices = {symbol: self._random.uniform(20, 180) for symbol in SYMBOLS}
        self._open: list[tuple[int, str, float]] = []
        self._orders = 0

    def __iter__(self) -> Iterator[DemoMessage]:
        makers = (self._order, self._quote, self._news, self._quote, self._invoice)
        number = 0
        while True:
            number += 1
            if number % _REFUSED_EVERY == 0:
                yield DemoMessage("orders", self._random.choice(_MALFORMED))
            else:
                yield makers[number % len(makers)]()

    def _order(self) -> DemoMessage:
        self._orders += 1
        customer = self._random.choice(CUSTOMERS)
        total = round(self._random.lognormvariate(5, 1), 2)
        self._open = [*self._open[-_OPEN_ORDERS:], (self._orders, customer, total)]
        goods = "".join(
            f'<line quantity="{self._random.randint(1, 90)}">{name}</line>'
            for name in self._random.sample(GOODS, self._random.randint(1, 3))
        )
        express = ' express="yes"' if self._random.random() < 0.2 else ""
        return DemoMessage(
            "orders",
            f'<order id="{self._orders}"{express}><customer>{customer}</customer>{goods}'
            f"<total>{total:.2f}</total></order>",
        )

    def _invoice(self) -> DemoMessage:
        if not self._open:
            return self._order()
        order, customer, total = self._open.pop(self._random.randrange(len(self._open)))
        country = self._random.choice(COUNTRIES)
        return DemoMessage(
            "invoices",
            f'<invoice order="{order}"><customer country="{country}">{customer}</customer>'
            f'<amount currency="EUR">{total:.2f}</amount><days>{self._random.choice((10, 30, 60))}</days>'
            "</invoice>",
        )

    def _quote(self) -> DemoMessage:
        symbol = self._random.choice(SYMBOLS)
        change = self._random.gauss(0, 0.02)
        price = self._prices[symbol] = max(1.0, self._prices[symbol] * (1 + change))
        return DemoMessage(
            "quotes",
            f'<quote symbol="{symbol}"><price>{price:.2f}</price><change>{change * 100:.2f}</change>'
            f"<volume>{self._random.randint(1, 500) * 100}</volume></quote>",
        )

    def _news(self) -> DemoMessage:
        topic, area = self._random.choice(TOPICS), self._random.choice(AREAS)
        title = f"{topic.capitalize()} {self._random.choice(_VERBS)} in {area}"
        return DemoMessage(
            "news",
            f'<news urgency="{self._random.randint(1, 5)}"><head><title>{title}</title><topic>{topic}</topic>'
            f"<area>{area}</area></head><story><para>{title}, say people who know.</para></story></news>",
        )
