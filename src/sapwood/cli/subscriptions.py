"""`sapwood subscriptions`: who subscribes to what, kept in a store."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sapwood.cli.common.console import QUERIES_HELP, NamespacesOption, fail, namespaces_of, write_line
from sapwood.cli.subscriptions_import import import_file

if TYPE_CHECKING:
    from sapwood.store import Subscription, SubscriptionStore

subscriptions = typer.Typer(
    help="Keep subscriptions in a store, SQLite by default or PostgreSQL by URL, with all versions of them.",
    no_args_is_help=True,
)

_SHOWN = 500
"""rows of a table on a terminal"""

StoreOption = Annotated[
    str, typer.Option("--store", metavar="URL", envvar="SAPWOOD_STORE", help="A file, or postgresql://….")
]
IdArgument = Annotated[str, typer.Argument(help="What the subscription is called.")]
QueryArgument = Annotated[
    str, typer.Argument(help="An XPath 1.0 filter, a for-where-return query, or a join in XSCL.")
]
SubscriberOption = Annotated[str | None, typer.Option(help="Whose subscription it is.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON lines, as in a pipe.")]
HERE = "subscriptions.db"


@contextmanager
def _opened(store: str, create: bool = False) -> Iterator[SubscriptionStore]:
    from sapwood.store import SubscriptionStore  # here, because other commands need no database

    with SubscriptionStore(store, create=create) as opened:
        yield opened


# -- changes -----------------------------------------------------------------------------------------------


@subscriptions.command("add")
def add(
    id: IdArgument,
    query: QueryArgument,
    subscriber: SubscriberOption = None,
    namespace: NamespacesOption = None,
    store: StoreOption = HERE,
) -> None:
    """Add a subscription; the store is made if it is absent."""
    with _opened(store, create=True) as opened:
        declared = namespaces_of(namespace)
        opened.declare(declared)
        _tell(opened.add(id, query, subscriber or ""))
        _warn(id, query, opened, declared)


@subscriptions.command("replace")
def replace(
    id: IdArgument,
    query: QueryArgument,
    subscriber: SubscriberOption = None,
    namespace: NamespacesOption = None,
    store: StoreOption = HERE,
) -> None:
    """Give a subscription another query; it keeps its place, and its subscriber unless told."""
    with _opened(store) as opened:
        declared = namespaces_of(namespace)
        opened.declare(declared)
        _tell(opened.replace(id, query, subscriber))
        _warn(id, query, opened, declared)


@subscriptions.command("remove")
def remove(
    ids: Annotated[list[str], typer.Argument(help="One or more; if one is not there, none is removed.")],
    store: StoreOption = HERE,
) -> None:
    """End subscriptions."""
    with _opened(store) as opened:
        _tell(opened.remove(*ids))


@subscriptions.command("activate")
def activate(id: IdArgument, store: StoreOption = HERE) -> None:
    """Let a subscription take part in matching again."""
    with _opened(store) as opened:
        _tell(opened.activate(id))


@subscriptions.command("deactivate")
def deactivate(id: IdArgument, store: StoreOption = HERE) -> None:
    """Keep a subscription, but let it take no part in matching."""
    with _opened(store) as opened:
        _tell(opened.deactivate(id))


@subscriptions.command("import")
def import_(
    file: Annotated[str, typer.Argument(help=f"{QUERIES_HELP} May end in .gz; - is stdin.")],
    upsert: Annotated[
        bool,
        typer.Option("--upsert", "--replace", help="Replace what is there already, add the rest, and tell."),
    ] = False,
    subscriber: Annotated[str | None, typer.Option(help="Where a line does not tell it.")] = None,
    namespace: NamespacesOption = None,
    store: StoreOption = HERE,
) -> None:
    """Add all subscriptions of a file or folder; the store is made if it is absent.

    A line is a query, whose id is the line's number, or a JSON object with "id" and "query", and perhaps
    "subscriber", "active" and "language": xpath, for-where-return or xscl, else the one that the query looks
    like. In a folder, each *.xpath, *.xq and *.xscl is a query, and its id the file's name without that.
    What is refused is reported, and the rest goes in; the exit status is then 1. Ctrl-C keeps what is in.
    """
    with _opened(store, create=True) as opened:
        declared = namespaces_of(namespace)
        opened.declare(declared)
        import_file(opened, file, upsert, subscriber, declared)


@subscriptions.command("prune")
def prune(
    version: Annotated[
        int | None, typer.Argument(help="The oldest version to keep; by default the current one.")
    ] = None,
    store: StoreOption = HERE,
) -> None:
    """Forget the history before a version."""
    with _opened(store) as opened:
        dropped = opened.prune(opened.version if version is None else version)
        print(f"dropped {dropped:,} former states; the oldest version is {opened.oldest}")


def _tell(version: int) -> None:
    print(f"version {version}")


def _warn(id: str, query: str, store: SubscriptionStore, declared: dict[str, str]) -> None:
    from sapwood.cli.common.query_warnings import Suspicions

    suspicions = Suspicions(store.namespaces, declared)
    suspicions.look_at(id, query)
    suspicions.finish()


# -- what there is -----------------------------------------------------------------------------------------


@subscriptions.command("list")
def list_(
    subscriber: Annotated[str | None, typer.Option(help="Only this subscriber's.")] = None,
    active: Annotated[
        bool | None, typer.Option("--active/--inactive", help="Only those that take part, or do not.")
    ] = None,
    at: Annotated[int | None, typer.Option(metavar="VERSION", help="What was active at a version.")] = None,
    as_json: JsonOption = False,
    store: StoreOption = HERE,
) -> None:
    """List the subscriptions in the order added: a table on a terminal, JSON lines in a pipe."""
    if at is not None and (subscriber is not None or active is not None):
        fail("--at goes with neither --subscriber nor --active/--inactive")
    with _opened(store) as opened:
        if at is not None:
            rows: Iterable[dict[str, Any]] = ({"id": id, "query": query} for id, query in opened.at(at))
            _show(rows, ("id", "query"), f"version {at}", as_json)
        else:
            rows = map(_record, opened.subscriptions(subscriber, active))
            _show(rows, _RECORD, f"version {opened.version}", as_json)


@subscriptions.command("namespaces")
def namespaces(
    namespace: NamespacesOption = None, as_json: JsonOption = False, store: StoreOption = HERE
) -> None:
    """List the prefixes that queries may use, after declaring those that are given."""
    declared = namespaces_of(namespace)
    with _opened(store, create=bool(declared)) as opened:
        opened.declare(declared)
        rows = [{"prefix": prefix, "uri": uri} for prefix, uri in opened.namespaces.items()]
        _show(rows, ("prefix", "uri"), f"version {opened.version}", as_json)


_RECORD = "id", "query", "subscriber", "language", "active", "since"


def _record(subscription: Subscription) -> dict[str, Any]:
    return {name: getattr(subscription, name) for name in _RECORD}


def _show(rows: Iterable[dict[str, Any]], columns: tuple[str, ...], title: str, as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        for row in rows:
            write_line(row)
        sys.stdout.flush()
        return
    table = Table(*columns, title=title, title_justify="left")
    rest = iter(rows)
    for row in islice(rest, _SHOWN):
        table.add_row(*(escape(_cell(row[column])) for column in columns))
    more = sum(1 for _ in rest)
    Console(highlight=False).print(table, *([f"and {more:,} more; --json lists all"] if more else []))


def _cell(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
