"""`sapwood subscriptions`: manage the subscriptions of a store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sapwood.cli.common.console import fail, note, write_line
from sapwood.cli.common.options import (
    DEFAULT_STORE,
    QUERIES_HELP,
    JsonLinesOption,
    NamespacesOption,
    StoreOption,
    TenantOption,
    parse_namespaces,
)
from sapwood.cli.common.stored_filters import open_store
from sapwood.cli.subscriptions_import import import_file

if TYPE_CHECKING:
    from sapwood.store import Subscription, SubscriptionStore

subscriptions = typer.Typer(
    help="Manage the subscriptions of a store, an SQLite file or PostgreSQL by URL, with their versions.",
    no_args_is_help=True,
)

_MOST_ROWS = 500
"""Rows of a table on a terminal."""

IdArgument = Annotated[str, typer.Argument(help="The id of the subscription.")]
QueryArgument = Annotated[
    str, typer.Argument(help="An XPath 1.0 filter, a for-where-return query, or a join in XSCL.")
]
SubscriberOption = Annotated[str | None, typer.Option(help="The subscriber.")]
StreamsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--stream",
        metavar="NAME",
        help="Restrict a filter or transformation to the messages of a stream; may be repeated.",
    ),
]

_open = partial(open_store, command="sapwood subscriptions")


# -- changes -----------------------------------------------------------------------------------------------


@subscriptions.command("add")
def add(
    id: IdArgument,
    query: QueryArgument,
    subscriber: SubscriberOption = None,
    stream: StreamsOption = None,
    namespace: NamespacesOption = None,
    store: StoreOption = DEFAULT_STORE,
    tenant: TenantOption = "",
) -> None:
    """Add a subscription; the store is created if it is absent."""
    with _open(store, create=True, tenant=tenant) as opened:
        _put(
            opened,
            id,
            query,
            namespace,
            lambda: opened.add(id, query, subscriber or "", streams=stream or ()),
        )


@subscriptions.command("replace")
def replace(
    id: IdArgument,
    query: QueryArgument,
    subscriber: SubscriberOption = None,
    stream: StreamsOption = None,
    all_streams: Annotated[
        bool, typer.Option("--all-streams", help="Lift the restriction to streams.")
    ] = False,
    namespace: NamespacesOption = None,
    store: StoreOption = DEFAULT_STORE,
    tenant: TenantOption = "",
) -> None:
    """Replace the query of a subscription; its position stays, and subscriber and streams unless given."""
    if stream and all_streams:
        fail("--stream and --all-streams exclude each other")
    streams = () if all_streams else stream or None
    with _open(store, tenant=tenant) as opened:
        _put(opened, id, query, namespace, lambda: opened.replace(id, query, subscriber, streams=streams))


@subscriptions.command("remove")
def remove(
    ids: Annotated[list[str], typer.Argument(help="One or more; if one does not exist, none is removed.")],
    store: StoreOption = DEFAULT_STORE,
    tenant: TenantOption = "",
) -> None:
    """Remove subscriptions."""
    with _open(store, tenant=tenant) as opened:
        _report_version(opened.remove(*ids))


@subscriptions.command("activate")
def activate(id: IdArgument, store: StoreOption = DEFAULT_STORE, tenant: TenantOption = "") -> None:
    """Activate a subscription, so that it is matched again."""
    with _open(store, tenant=tenant) as opened:
        _report_version(opened.activate(id))


@subscriptions.command("deactivate")
def deactivate(id: IdArgument, store: StoreOption = DEFAULT_STORE, tenant: TenantOption = "") -> None:
    """Deactivate a subscription: it stays in the store and is not matched."""
    with _open(store, tenant=tenant) as opened:
        _report_version(opened.deactivate(id))


@subscriptions.command("import")
def import_(
    file: Annotated[str, typer.Argument(help=f"{QUERIES_HELP} May end in .gz; - is stdin.")],
    upsert: Annotated[
        bool,
        typer.Option(
            "--upsert", "--replace", help="Replace existing subscriptions, add the others, and report both."
        ),
    ] = False,
    subscriber: Annotated[str | None, typer.Option(help="The subscriber of lines that name none.")] = None,
    namespace: NamespacesOption = None,
    store: StoreOption = DEFAULT_STORE,
    tenant: TenantOption = "",
) -> None:
    """Add all subscriptions of a file or folder; the store is made if it is absent.

    A line is a query, whose id is the line's number, or a JSON object with "id" and "query", and perhaps
    "subscriber", "active", "streams" (a list of names) and "language": xpath, for-where-return or xscl, else
    the one that the query looks like. In a folder, each *.xpath, *.xq and *.xscl is a query, and its id the
    file's name without that.
    Refused subscriptions are reported, the others added; the exit status is then 1. Ctrl-C keeps those
    already added.
    """
    with _open(store, create=True, tenant=tenant) as opened:
        declared = parse_namespaces(namespace)
        opened.declare(declared)
        import_file(opened, file, upsert, subscriber, declared)


@subscriptions.command("prune")
def prune(
    version: Annotated[
        int | None, typer.Argument(help="The oldest version to keep; by default the current one.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Delete the history before a version, that of all tenants."""
    with _open(store) as opened:
        dropped = opened.prune(opened.version if version is None else version)
        print(f"dropped {dropped:,} former states; the oldest version is {opened.oldest}")


def _report_version(version: int) -> None:
    print(f"version {version}")


def _put(
    store: SubscriptionStore, id: str, query: str, namespace: list[str] | None, change: Callable[[], int]
) -> None:
    """Declare the prefixes, store a query by `change`, report the version, and warn about the query."""
    from sapwood.cli.common.query_warnings import QueryWarnings

    declared = parse_namespaces(namespace)
    store.declare(declared)
    _report_version(change())
    query_warnings = QueryWarnings(store.namespaces, declared)
    query_warnings.check(id, query)
    query_warnings.finish()


# -- what there is -----------------------------------------------------------------------------------------


@subscriptions.command("list")
def list_(
    subscriber: Annotated[str | None, typer.Option(help="Only this subscriber's.")] = None,
    active: Annotated[
        bool | None, typer.Option("--active/--inactive", help="Only active or only inactive subscriptions.")
    ] = None,
    at: Annotated[int | None, typer.Option(metavar="VERSION", help="What was active at a version.")] = None,
    as_json: JsonLinesOption = False,
    store: StoreOption = DEFAULT_STORE,
    tenant: TenantOption = "",
) -> None:
    """List the subscriptions in the order they were added: a table on a terminal, JSON lines in a pipe."""
    if at is not None and (subscriber is not None or active is not None):
        fail("--at goes with neither --subscriber nor --active/--inactive")
    with _open(store, tenant=tenant) as opened:
        if at is not None:
            rows: Iterable[dict[str, Any]] = ({"id": id, "query": query} for id, query in opened.at(at))
            _show(rows, ("id", "query"), f"version {at}", as_json)
            if restricted := opened.restricted(at):
                note(f"{restricted:,} subscriptions that were restricted to streams are not listed")
        else:
            rows = map(_record, opened.subscriptions(subscriber, active))
            _show(rows, _RECORD, f"version {opened.version}", as_json)


@subscriptions.command("namespaces")
def namespaces(
    namespace: NamespacesOption = None,
    as_json: JsonLinesOption = False,
    store: StoreOption = DEFAULT_STORE,
    tenant: TenantOption = "",
) -> None:
    """Declare the given prefixes, then list all prefixes that queries may use."""
    declared = parse_namespaces(namespace)
    with _open(store, create=bool(declared), tenant=tenant) as opened:
        opened.declare(declared)
        rows = [{"prefix": prefix, "uri": uri} for prefix, uri in opened.namespaces.items()]
        _show(rows, ("prefix", "uri"), f"version {opened.version}", as_json)


_RECORD = "id", "query", "subscriber", "language", "active", "since", "streams"


def _record(subscription: Subscription) -> dict[str, Any]:
    return {name: getattr(subscription, name) for name in _RECORD}


def _show(rows: Iterable[dict[str, Any]], columns: tuple[str, ...], title: str, as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        for row in rows:
            write_line(row)
        sys.stdout.flush()
        return
    rest = iter(rows)
    shown = list(islice(rest, _MOST_ROWS))
    if not any(row.get("streams") for row in shown):
        columns = tuple(column for column in columns if column != "streams")
    table = Table(*columns, title=title, title_justify="left")
    for row in shown:
        table.add_row(*(escape(_cell(row[column])) for column in columns))
    more = sum(1 for _ in rest)
    Console(highlight=False).print(table, *([f"and {more:,} more; --json lists all"] if more else []))


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
