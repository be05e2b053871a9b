"""`sapwood transform`."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood import Broker, Limits, MessageError
from sapwood.cli.common.console import finish, make_progress
from sapwood.cli.common.delivery_output import report_refused, write_delivery, write_failures
from sapwood.cli.common.options import (
    MESSAGES_HELP,
    MaxBytesOption,
    NamespacesOption,
    QueriesArgument,
    RawOption,
    parse_namespaces,
)
from sapwood.cli.common.query_loader import load_queries
from sapwood.input_files import read_messages


def transform(
    queries: QueriesArgument,
    messages: Annotated[list[str], typer.Argument(help=MESSAGES_HELP)],
    raw: RawOption = False,
    namespace: NamespacesOption = None,
    max_bytes: MaxBytesOption = Limits().bytes,
) -> None:
    """Transform messages by for-where-return queries; writes one JSON line per delivery.

    The queries may include filters, which deliver the message as it is. Invalid queries, refused messages and
    queries that fail on a message are reported and skipped; the exit status is then 1.
    """
    with Broker(parse_namespaces(namespace), Limits(bytes=max_bytes)) as broker:
        refused = load_queries(broker.subscribe_many, queries, parse_namespaces(namespace))
        seen = 0
        with make_progress(writing=True) as progress:
            task = progress.add_task("transforming", total=None)
            for message in read_messages(messages):
                seen += 1
                try:
                    deliveries = broker.publish(message.body, message.name)
                except MessageError as error:
                    refused += 1
                    report_refused(message.name, error, raw)
                    continue
                finally:
                    progress.advance(task)
                for delivery in deliveries:
                    write_delivery(delivery, delivery.subscription in broker.filters, raw)
                refused += write_failures(message.name, deliveries.failures, raw)
    finish(seen, refused)
