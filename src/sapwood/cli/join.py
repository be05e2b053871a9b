"""`sapwood join`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import chain, repeat
from math import inf
from typing import Annotated

import typer

from sapwood import Broker, Deliveries, LateMessage, Limits, MessageError
from sapwood.cli.common.console import finish, make_progress
from sapwood.cli.common.delivery_output import report_refused, write_delivery, write_failures
from sapwood.cli.common.options import (
    MaxBytesOption,
    NamespacesOption,
    QueriesArgument,
    RawOption,
    parse_namespaces,
)
from sapwood.cli.common.query_loader import load_queries
from sapwood.input_files import NamedMessage, read_messages
from sapwood.lang.literals.durations import parse_duration

_NAMED = re.compile(r"([^\W\d][\w.\-]*)=")


def join(
    queries: QueriesArgument,
    messages: Annotated[
        list[str],
        typer.Argument(
            metavar="[STREAM=]MESSAGES...",
            help="Files, folders, *.xmll (one per line), - (stdin), in order of time, with their stream.",
        ),
    ],
    time: Annotated[
        list[str] | None,
        typer.Option(metavar="[STREAM=]PATH", help="The path of the event time in the messages of a stream."),
    ] = None,
    lateness: Annotated[str, typer.Option(help="The allowed lateness, such as 10 min or 2 h.")] = "0 s",
    raw: RawOption = False,
    namespace: NamespacesOption = None,
    max_bytes: MaxBytesOption = Limits().bytes,
) -> None:
    """Join messages with earlier ones by XSCL queries; writes one JSON line per delivery.

    The queries may include filters and transformations. Several streams are merged by event time if their
    messages carry one; otherwise they are read one after the other. Invalid queries, refused messages and
    late messages are reported and skipped; the exit status is then 1.
    """
    with Broker(
        parse_namespaces(namespace), Limits(bytes=max_bytes), lateness=parse_duration(lateness)
    ) as broker:
        timed = dict(_named(given) for given in time or ())
        for stream, path in timed.items():
            broker.time_from(stream, path)
        refused = load_queries(broker.subscribe_many, queries, parse_namespaces(namespace))
        seen = 0
        with make_progress(writing=True) as progress:
            task = progress.add_task("joining", total=None)
            for stream, message in _in_turn(broker, [_named(given) for given in messages], timed):
                seen += 1
                try:
                    deliveries = broker.publish(message.body, message.name, stream=stream)
                except MessageError as error:
                    refused += 1
                    deliveries = Deliveries()
                    if isinstance(error, LateMessage):
                        deliveries = Deliveries(error.deliveries, error.failures)
                    report_refused(message.name, error, raw)
                for delivery in deliveries:
                    write_delivery(delivery, delivery.subscription in broker.filters, raw)
                refused += write_failures(message.name, deliveries.failures, raw)
                progress.advance(task)
    finish(seen, refused)


def _named(given: str) -> tuple[str, str]:
    """Split `STREAM=VALUE` into the stream's name, if any, and the value."""
    named = _NAMED.match(given)
    return (named[1], given[named.end() :]) if named else ("", given)


def _in_turn(
    broker: Broker, sources: list[tuple[str, str]], timed: Mapping[str, str]
) -> Iterator[tuple[str, NamedMessage]]:
    """Iterate over the messages of all sources: by event time if all have one, else source after source."""
    streams = [zip(repeat(stream), read_messages([path])) for stream, path in sources]
    if len(sources) == 1 or not all(stream in timed for stream, _ in sources):
        return chain.from_iterable(streams)
    return merge(*streams, key=lambda found: _time(broker, *found))


def _time(broker: Broker, stream: str, message: NamedMessage) -> float:
    try:
        return broker.time_of(message.body, stream)
    except MessageError:  # reported when it is published
        return -inf
