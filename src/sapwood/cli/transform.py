"""`sapwood transform`."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood import Broker, Limits, MessageError
from sapwood.cli.common.console import QUERIES_HELP, NamespacesOption, finish, make_progress, parse_namespaces
from sapwood.cli.common.delivery_output import report_refused, write_delivery, write_failures
from sapwood.cli.common.query_loader import load_queries
from sapwood.input_files import read_messages


def transform(
    queries: Annotated[str, typer.Argument(help=QUERIES_HELP)],
    messages: Annotated[list[str], typer.Argument(help="Files, folders, *.xmll (one per line), - (stdin).")],
    raw: Annotated[bool, typer.Option("--raw", help="Write the bodies alone, each on a line.")] = False,
    namespace: NamespacesOption = None,
    max_bytes: Annotated[int, typer.Option(help="Refuse messages larger than this.")] = Limits().bytes,
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
