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
from sapwood.cli.common.console import QUERIES_HELP, NamespacesOption, counting, finish, namespaces_of
from sapwood.cli.common.delivery_output import deliver, fail_line, refuse
from sapwood.cli.match import load
from sapwood.input_files import NamedMessage, read_messages
from sapwood.lang.literals.durations import parse_duration

_NAMED = re.compile(r"([^\W\d][\w.\-]*)=")


def join(
    queries: Annotated[str, typer.Argument(help=QUERIES_HELP)],
    messages: Annotated[
        list[str],
        typer.Argument(
            metavar="[STREAM=]MESSAGES...",
            help="Files, folders, *.xmll (one a line), - (stdin), in order of time; and their stream.",
        ),
    ],
    time: Annotated[
        list[str] | None,
        typer.Option(metavar="[STREAM=]PATH", help="Where messages of a stream say when they happened."),
    ] = None,
    lateness: Annotated[
        str, typer.Option(help="How much older than the newest a message may be: 10 min, 2 h.")
    ] = "0 s",
    raw: Annotated[bool, typer.Option("--raw", help="Write the bodies alone, each on a line.")] = False,
    namespace: NamespacesOption = None,
    max_bytes: Annotated[int, typer.Option(help="Refuse messages larger than this.")] = Limits().bytes,
) -> None:
    """Join messages with earlier ones, as XSCL queries say; one JSON line a delivery.

    Filters and transformations may stand among the queries. Several streams are merged by time if messages
    say when they happened; if not, they are read one after the other. Bad queries and messages, and those
    that come too late, are reported, the others go on; the exit status is then 1.
    """
    with Broker(
        namespaces_of(namespace), Limits(bytes=max_bytes), lateness=parse_duration(lateness)
    ) as broker:
        timed = dict(_named(given) for given in time or ())
        for stream, path in timed.items():
            broker.time_from(stream, path)
        refused = load(broker.subscribe_many, queries, namespaces_of(namespace))
        seen = 0
        with counting() as progress:
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
                    refuse(message.name, error, raw)
                for delivery in deliveries:
                    deliver(delivery, delivery.subscription in broker.filters, raw)
                refused += fail_line(message.name, deliveries.failures, raw)
                progress.advance(task)
    finish(seen, refused)


def _named(given: str) -> tuple[str, str]:
    """A stream's name, or none, and what is said of it."""
    named = _NAMED.match(given)
    return (named[1], given[named.end() :]) if named else ("", given)


def _in_turn(
    broker: Broker, sources: list[tuple[str, str]], timed: Mapping[str, str]
) -> Iterator[tuple[str, NamedMessage]]:
    """The messages of all sources: by their times if all have some, else one source after the other."""
    streams = [zip(repeat(stream), read_messages([path])) for stream, path in sources]
    if len(sources) == 1 or not all(stream in timed for stream, _ in sources):
        return chain.from_iterable(streams)
    return merge(*streams, key=lambda found: _time(broker, *found))


def _time(broker: Broker, stream: str, message: NamedMessage) -> float:
    try:
        return broker.time_of(message.body, stream)
    except MessageError:  # which is told when it is published
        return -inf
