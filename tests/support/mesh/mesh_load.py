"""Subscriptions and messages for the brokers of a mesh, whose deliveries do not depend on the order in which
messages of different sources arrive."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from sapwood.lang.languages import XSCL, detect_language
from tests.support.service.broker_oracle import Row
from tests.support.service.random_load import EPOCH, RandomLoad, RandomMessage
from tests.support.shared_data import DATA

_FIRST_ONES = 600
"""subscriptions, among which are joins: since nothing is late, their state grows with all messages"""
_TRANSFORMATIONS = (
    "for $o in /order where $o/@customer = 'VALUE' return <who>{$o/@id}</who>",
    "for $i in /order/item where $i/@sku = 'VALUE' return <item>{$i/quantity}</item>",
    "for $n in //news where $n/topic = 'VALUE' return <about>{$n/topic}</about>",
    "for $n in //news where not($n/topic = 'VALUE') return <other>{$n/topic}</other>",
)
"""of which none reads all of a message"""
LATENESS = 10_000_000.0
"""seconds: no message is too late for joins"""


@dataclass(frozen=True, slots=True)
class HostedRow:
    """A subscription, and the broker that it is made at."""

    host: str
    row: Row


@dataclass(frozen=True, slots=True)
class SourcedMessage:
    """A message, and the broker that it is published at."""

    source: str
    message: RandomMessage


class MeshLoad:
    """Draws subscriptions and messages for all brokers from one seed."""

    def __init__(
        self, seed: int, brokers: Sequence[str], spread: int = 60, transforming: Collection[str] = ()
    ) -> None:
        """Brokers that are `transforming` have no subscriptions but transformations of parts of messages."""
        self.brokers = list(brokers)
        self._transforming = frozenset(transforming)
        self._rng = Random(seed)
        self._load = RandomLoad(seed, ["nobody"], spread)
        self._made = 0
        self._time = EPOCH

    def close(self) -> None:
        """Release what checks queries."""
        self._load.close()

    # -- subscriptions -----------------------------------------------------------------------------------

    def subscription(self, host: str, odd: float = 0.1) -> HostedRow:
        """Draw a subscription of a host's own subscriber; of the first ones, each thirtieth publishes what it
        joins, and others are joins."""
        self._made += 1
        id = f"{host}-{self._made}"
        may_join = self._made <= _FIRST_ONES
        if host in self._transforming:
            query = self._rng.choice(_TRANSFORMATIONS).replace("VALUE", f"v{self._rng.randrange(2)}")
            return HostedRow(host, Row(id, query, host))
        if self._made % 30 == 0 and may_join:
            window = self._rng.choice([2, 5, 20])
            query = (
                f"orders/order[@id->i] JOIN{{i = j, {window} s}} payments/payment[@for->j]"
                f" PUBLISH made{self._made}"
            )
            return HostedRow(host, Row(id, query, host))
        while True:
            row = self._load.subscription(id, odd)
            is_join = detect_language(row.query) == XSCL
            if not is_join or (may_join and "PUBLISH" not in row.query.upper()):  # no streams of others
                return HostedRow(host, replace(row, subscriber=host, active=True))

    def subscriptions(self, count: int, odd: float = 0.1) -> list[HostedRow]:
        """Draw subscriptions, the same number for each host."""
        return [self.subscription(self.brokers[n % len(self.brokers)], odd) for n in range(count)]

    def file_queries(self) -> list[HostedRow]:
        """Return queries for the real files, spread over the hosts that may have them."""
        rows: list[HostedRow] = []
        hosts = [name for name in self.brokers if name not in self._transforming]
        for number, query in enumerate(FILE_QUERIES):
            host = hosts[number % len(hosts)]
            rows.append(HostedRow(host, Row(f"file-{number}", query, host)))
        return rows

    # -- messages ----------------------------------------------------------------------------------------

    def messages(self, count: int) -> list[SourcedMessage]:
        """Draw messages at random brokers."""
        return [self.message() for _ in range(count)]

    def message(self, source: str | None = None) -> SourcedMessage:
        """Draw a message; no other one has its time, so that joins see one order."""
        drawn = self._load.message()
        self._time += self._rng.choice([0.25, 0.5, 1.0])
        at = source or self._rng.choice(self.brokers)
        return SourcedMessage(at, replace(drawn, time=self._time))

    def files(self, most: int) -> list[SourcedMessage]:
        """Return real and hostile files of the shared data, as far as they are there."""
        found: list[SourcedMessage] = []
        for number, body in enumerate(_read_files(most)):
            self._time += 0.125
            message = RandomMessage(f"file-{number}", "files", self._time, body)
            found.append(SourcedMessage(self._rng.choice(self.brokers), message))
        return found


def _read_files(most: int) -> Iterator[bytes]:
    for folder in ("nitf/docs", "ubl", "hostile"):
        paths = [path for path in sorted((DATA / folder).glob("*.xml")) if path.stat().st_size < 200_000]
        for path in paths[:most]:
            yield path.read_bytes()


FILE_QUERIES = (
    "/nitf//body//p",
    "//hedline",
    "/nitf/head/docdata/*",
    "for $p in //p return <p>{$p//em}</p>",
    "//*[local-name() = 'InvoiceLine']",
    "for $l in //*[local-name() = 'InvoiceLine'] return <line>{$l/*[1]}</line>",
    "/*[not(*)]",
    "files//*[@id]",
)
"""queries for the real files; the last is a join's single block"""
