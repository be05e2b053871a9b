"""Random subscriptions of all three languages, random messages of several streams, and changes.

Half of both are of the generators that compare engines with oracles: few names and values, in odd documents.
The others are orders, payments and news with many values, so that each is for few of many subscriptions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from random import Random

from sapwood import Broker
from sapwood.errors import QueryError, SapwoodError
from tests.support.generators import join_strategies, transform_strategies
from tests.support.generators.join_queries import Query, written
from tests.support.generators.query_texts import QueryTexts
from tests.support.service.broker_oracle import Row

NAMESPACES = transform_strategies.NAMESPACES
STREAMS = ("S", "T", "orders", "payments", "news")
EPOCH = 1_800_000_000.0
_MALFORMED = (b"<a><b></a>", b"not XML", b"<a>&undeclared;</a>", b"<x:a/>", b"<a b='1' b='2'/>", b"<a/><b/>")


@dataclass(frozen=True, slots=True)
class RandomMessage:
    """A message to publish."""

    id: str
    stream: str
    time: float
    body: bytes


class RandomLoad:
    """Draws subscriptions, messages and changes from one seed."""

    def __init__(self, seed: int, subscribers: list[str], spread: int = 200) -> None:
        """`spread` is how many values orders, payments and news have in a field."""
        self._rng = Random(seed)
        self._subscribers = subscribers
        self._spread = spread
        self._texts = QueryTexts(self._rng, 0.02)
        self._time = EPOCH
        self._made = 0
        self._checker = Broker(NAMESPACES)

    def close(self) -> None:
        """Release what checks queries."""
        self._checker.close()

    # -- subscriptions -----------------------------------------------------------------------------------

    def subscription(self, id: str, odd: float = 0.1) -> Row:
        """Draw a subscription; `odd` is the share of odd queries."""
        rng = self._rng
        query = self._odd_query() if rng.random() < odd else self._plain_query()
        streams: tuple[str, ...] = ()
        if rng.random() < 0.2 and self._language(query) != "join":
            streams = tuple(sorted(rng.sample(STREAMS, rng.randint(1, 3))))
        subscriber = rng.choice(self._subscribers) if rng.random() < 0.97 else ""
        return Row(id, query, subscriber, rng.random() < 0.95, streams)

    def _language(self, query: str) -> str:
        self._checker.subscribe("checked", query)
        kind = "join" if self._checker.joins else "other"
        self._checker.unsubscribe("checked")
        return kind

    def _odd_query(self) -> str:
        """Draw a query of the generators that is valid."""
        rng = self._rng
        while True:
            kind = rng.random()
            if kind < 0.4:
                query = self._texts.query()
            elif kind < 0.75:
                query = transform_strategies.random_query(rng, beyond=rng.random() < 0.2).sapwood
            else:
                drawn: Query = join_strategies.random_query(rng, 1)
                if any(link.window == inf for link in drawn.links):
                    continue
                if any(not block.stream for block in drawn.blocks):
                    continue
                query = written(drawn, rng)
            try:
                self._language(query)
            except (QueryError, SapwoodError):
                continue
            return query

    def _plain_query(self) -> str:
        rng = self._rng
        key, other = self._value(), self._value()
        match rng.choices(range(7), [4, 3, 3, 2, 2, 1.5, 0.7])[0]:
            case 0:
                return f"/order[@customer='{key}']"
            case 1:
                return f"//item[@sku='{key}' and quantity > {rng.randint(1, 8)}]"
            case 2:
                return f"/news[topic='{key}' or topic='{other}']"
            case 3:
                return f"/payment[contains(note, '{key}')]/@for"
            case 4:
                return (
                    f"for $o in /order where $o/@customer = '{key}' "
                    'return <got n="{$o/@id}">{$o//item/@sku}{$o//quantity}</got>'
                )
            case 5:
                return f"for $n in //news where $n/topic = '{key}' return <x>{{$n/topic}}{{$n/title}}</x>"
            case _:
                window = rng.choice([2, 5, 20])
                op = rng.choice(["FOLLOWED BY", "JOIN"])
                return (
                    f"orders/order[@id->i][@customer->c] {op}{{i = j, {window} s}} payments/payment[@for->j]"
                    if rng.random() < 0.5
                    else f"news/news[topic->x] {op}{{x = y, {window} s}} orders/order[@customer->y]"
                )

    def _value(self) -> str:
        return f"v{min(int(self._rng.expovariate(3 / self._spread)), self._spread)}"

    # -- messages ----------------------------------------------------------------------------------------

    def message(self) -> RandomMessage:
        """Draw a message; some are malformed, and some too late for joins."""
        rng = self._rng
        self._made += 1
        self._time += rng.choice([0, 0.25, 0.5, 1])
        time = self._time - rng.choice([1.5, 4]) if rng.random() < 0.02 else self._time
        kind = rng.random()
        if kind < 0.02:
            stream, body = rng.choice(STREAMS), rng.choice(_MALFORMED)
        elif kind < 0.05:
            stream = "news"
            text = f"<?xml version='1.0' encoding='ISO-8859-1'?><news><topic>{self._value()}é</topic></news>"
            body = text.encode("latin-1")
        elif kind < 0.25:
            stream, body = rng.choice(["S", "T"]), join_strategies.random_message(rng).encode()
        elif kind < 0.4:
            stream, body = rng.choice(STREAMS), transform_strategies.random_document(rng).encode()
        else:
            stream = rng.choice(["orders", "payments", "news"])
            body = self._plain_message(stream).encode()
        return RandomMessage(f"m{self._made}", stream, time, body)

    def _plain_message(self, stream: str) -> str:
        rng = self._rng
        number = rng.randint(1, 40)
        if stream == "orders":
            items = "".join(
                f'<item sku="{self._value()}"><quantity>{rng.randint(1, 9)}</quantity></item>'
                for _ in range(rng.randint(1, 4))
            )
            return f'<order id="{number}" customer="{self._value()}">{items}</order>'
        if stream == "payments":
            return f'<payment for="{number}"><note>for {self._value()} &amp; {self._value()}</note></payment>'
        topics = "".join(f"<topic>{self._value()}</topic>" for _ in range(rng.randint(1, 3)))
        return f"<news>{topics}<title>Number {self._made}</title></news>"

    # -- changes -----------------------------------------------------------------------------------------

    def change(self, rows: dict[str, Row], odd: float = 0.1) -> tuple[str, Row | None]:
        """Draw a change of these subscriptions: the id, and the new state, or None if it is removed."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.2 or not rows:
            self._made += 1
            id = f"new {self._made}/é" if rng.random() < 0.1 else f"new-{self._made}"
            return id, self.subscription(id, odd)
        old = rows[rng.choice(list(rows))]
        if kind < 0.35:
            return old.id, None
        if kind < 0.6:
            return old.id, replace(old, active=not old.active)
        if kind < 0.7 and self._language(old.query) != "join":
            streams = tuple(sorted(rng.sample(STREAMS, rng.randint(0, 2))))
            return old.id, replace(old, streams=streams)
        return old.id, self.subscription(old.id, odd)
