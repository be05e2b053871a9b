"""`sapwood listen`: print the deliveries of a subscriber as they come."""

from __future__ import annotations

import base64
import hashlib
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapwood.cli.common.console import note, warn, write_line
from sapwood.cli.common.interruption import InterruptHandler
from sapwood.cli.common.service_options import DEFAULT_URL, KeyOption, UrlOption, connect
from sapwood.errors import SapwoodError

if TYPE_CHECKING:
    from sapwood.client import Client, Delivery, Gap


def listen(
    subscriber: Annotated[
        str, typer.Option(metavar="NAME", help="The subscriber whose deliveries to print.")
    ],
    query: Annotated[
        list[str] | None,
        typer.Option(
            "--query", "-q", metavar="QUERY", help="Subscribe to this query first; may be repeated."
        ),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Restrict the queries to messages of this stream; may be repeated."
        ),
    ] = None,
    unsubscribe: Annotated[
        bool, typer.Option("--unsubscribe", help="Delete the subscriptions of --query at the end.")
    ] = False,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many deliveries.")] = None,
    after: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="NUMBER", help="Begin after this delivery, not the last acknowledged one."
        ),
    ] = None,
    no_ack: Annotated[
        bool, typer.Option("--no-ack", help="Acknowledge nothing: all is printed again next time.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON lines with all fields, not the bodies alone.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Print the deliveries of a subscriber as they come, until Ctrl-C.

    A delivery is acknowledged once it is printed, so that the next run continues after it. Subscriptions of
    --query remain, and collect deliveries meanwhile, unless --unsubscribe is given. A broker that restarts is
    connected to again; deliveries that were lost are reported.
    """
    if stream and not query:
        raise typer.BadParameter("it restricts the queries of --query", param_hint="--stream")
    if unsubscribe and not query:
        raise typer.BadParameter("it deletes the subscriptions of --query", param_hint="--unsubscribe")

    def report_gap(gap: Gap) -> None:
        warn(f"{gap.count:,} deliveries after number {gap.after:,} are lost: {gap.reason}")
        if as_json:
            write_line({"gap": {"after": gap.after, "count": gap.count, "reason": gap.reason}})

    def report_loss(error: SapwoodError) -> None:
        note(f"the connection to {url} was lost; connecting again ({getattr(error, 'reason', error)})")

    # Python would print the warnings about gaps, which `report_gap` prints, a second time.
    logging.getLogger("sapwood.client.transport.delivery_feed").addHandler(logging.NullHandler())
    with (
        _ListenInterruption() as interruption,
        connect(url, key, "sapwood listen") as client,
        _subscribed(client, interruption, subscriber, query or [], stream, unsubscribe),
        client.deliveries(
            subscriber, "none" if no_ack else "manual", after, on_gap=report_gap, on_disconnect=report_loss
        ) as deliveries,
    ):
        printed = 0
        while count is None or printed < count:
            with interruption.allowed():
                delivery = next(deliveries)
            _write(delivery, as_json)
            if not no_ack:
                delivery.ack()
            printed += 1


@contextmanager
def _subscribed(
    client: Client,
    interruption: InterruptHandler,
    subscriber: str,
    queries: list[str],
    streams: list[str] | None,
    temporary: bool,
) -> Iterator[None]:
    """Create the subscriptions, or replace them by themselves; delete temporary ones at the end."""
    made: list[str] = []
    try:
        for query in queries:
            # The same query of the same subscriber is the same subscription in the next run.
            digest = hashlib.sha256(f"{subscriber}\0{query}".encode()).hexdigest()
            with interruption.allowed():
                found = client.subscribe(f"listen-{digest[:16]}", query, subscriber, streams, replace=True)
            made.append(found.id)
        yield
    finally:
        for id in made if temporary else ():
            client.unsubscribe(id)


def _write(delivery: Delivery, as_json: bool) -> None:
    """Write a delivery, and all of it before it is acknowledged."""
    if as_json:
        write_line(_fields(delivery))
    else:
        sys.stdout.buffer.write(delivery.body + b"\n")
    sys.stdout.flush()


def _fields(delivery: Delivery) -> dict[str, Any]:
    names = ("id", "number", "subscriptions", "message", "stream", "time", "published")
    fields = {name: getattr(delivery, name) for name in names}
    try:
        return {**fields, "body": delivery.body.decode()}
    except UnicodeDecodeError:
        return {**fields, "body_base64": base64.b64encode(delivery.body).decode()}


class _ListenInterruption(InterruptHandler):
    """Ends the command while it waits for a delivery, and otherwise after the current one."""

    signals = (signal.SIGINT, signal.SIGTERM)

    def on_first(self) -> None:
        """End without a word: printing one delivery takes no time."""
