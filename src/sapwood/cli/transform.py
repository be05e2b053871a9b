"""`sapwood transform`."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood import Broker, Limits, MessageError
from sapwood.cli.common.console import QUERIES_HELP, NamespacesOption, counting, finish, namespaces_of
from sapwood.cli.common.delivery_output import deliver, fail_line, refuse
from sapwood.cli.match import load
from sapwood.input_files import read_messages


def transform(
    queries: Annotated[str, typer.Argument(help=QUERIES_HELP)],
    messages: Annotated[list[str], typer.Argument(help="Files, folders, *.xmll (one a line), - (stdin).")],
    raw: Annotated[bool, typer.Option("--raw", help="Write the bodies alone, each on a line.")] = False,
    namespace: NamespacesOption = None,
    max_bytes: Annotated[int, typer.Option(help="Refuse messages larger than this.")] = Limits().bytes,
) -> None:
    """Make of messages what for-where-return queries say; one JSON line a delivery.

    Filters may stand among the queries; what they match is delivered as it is. Bad queries and messages are
    reported and left out, and so are queries that fail on a message; the others go on; the exit status is
    then 1.
    """
    with Broker(namespaces_of(namespace), Limits(bytes=max_bytes)) as broker:
        refused = load(broker.subscribe_many, queries, namespaces_of(namespace))
        seen = 0
        with counting() as progress:
            task = progress.add_task("transforming", total=None)
            for message in read_messages(messages):
                seen += 1
                try:
                    deliveries = broker.publish(message.body, message.name)
                except MessageError as error:
                    refused += 1
                    refuse(message.name, error, raw)
                    continue
                finally:
                    progress.advance(task)
                for delivery in deliveries:
                    deliver(delivery, delivery.subscription in broker.filters, raw)
                refused += fail_line(message.name, deliveries.failures, raw)
    finish(seen, refused)
