"""The throughput of the matcher in one process on the demo's workload, compared with parsing and lxml."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from xml.parsers import expat

from lxml import etree

from sapwood import Matcher, MessageError
from sapwood.spark.distribution.pipeline_subscriptions import is_not_filter
from sapwood.store import SubscriptionStore


@dataclass(frozen=True, slots=True)
class Speed:
    """Throughputs in messages a second, in one process."""

    messages: int
    """number of messages"""
    filters: int
    """number of filters"""
    matcher: float
    """the matcher, with all filters"""
    parsing: float
    """expat without handlers, the lower bound of any matcher's time"""
    lxml: float
    """lxml, query by query, on parsed messages"""
    matches: float
    """matches of a message, on average"""

    def __str__(self) -> str:
        return (
            f"{self.messages:,} messages × {self.filters:,} filters in one process: "
            f"{self.matcher:,.0f} messages a second with {self.matches:,.0f} matches each, "
            f"{self.parsing / self.matcher:,.0f} × the time of parsing alone; "
            f"lxml, query by query: {self.lxml:,.1f} a second"
        )


def measure_matcher(
    store: SubscriptionStore, version: int, inbox: Path, most: int = 1_000, lxml_messages: int = 4
) -> Speed:
    """Measure the filters of a version on messages of the inbox; lxml, which is slow, gets only a few."""
    queries = [(id, query) for id, query in store.at(version) if not is_not_filter(query)]
    matcher = Matcher(store.namespaces)
    matcher.add_many(queries)
    lines = (line for file in sorted(inbox.iterdir()) for line in file.read_bytes().splitlines())
    messages = [line for line in islice(lines, most) if _is_message(line)]
    for message in messages:  # to warm up the dataguide, as in a long run
        len(matcher.match(message))
    started = perf_counter()
    matches = sum(len(matcher.match(message)) for message in messages)
    matcher_seconds = perf_counter() - started
    return Speed(
        len(messages),
        len(queries),
        len(messages) / matcher_seconds,
        len(messages) / _time_parsing(messages),
        1 / _time_lxml((query for _, query in queries), messages[:lxml_messages]),
        matches / len(messages),
    )


def _is_message(line: bytes) -> bool:
    try:
        Matcher().match(line)
    except MessageError:
        return False
    return True


def _time_parsing(messages: list[bytes]) -> float:
    started = perf_counter()
    for message in messages:
        expat.ParserCreate().Parse(message, True)
    return perf_counter() - started


def _time_lxml(queries: Iterable[str], messages: list[bytes]) -> float:
    """Return the seconds of lxml for one message."""
    compiled = [etree.XPath(query) for query in queries]
    parsed = [etree.fromstring(message) for message in messages]
    started = perf_counter()
    for message in parsed:
        for query in compiled:
            query(message)
    return (perf_counter() - started) / len(parsed)
