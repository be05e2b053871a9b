"""`sapwood match`: match messages against queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from sapwood import Failure, Limits, Matcher, MessageError
from sapwood.cli.common.console import fail, finish, make_progress, write_line
from sapwood.cli.common.delivery_output import failures_field, report_failures
from sapwood.cli.common.options import (
    MESSAGES_HELP,
    QUERIES_HELP,
    MaxBytesOption,
    NamespacesOption,
    TenantOption,
    parse_namespaces,
)
from sapwood.cli.common.query_loader import load_queries
from sapwood.cli.common.relational_options import (
    BATCH,
    Engine,
    EngineOption,
    MemoryOption,
    PlanOption,
    TablesOption,
)
from sapwood.cli.common.stored_filters import load_store, open_store, report_skipped
from sapwood.input_files import NamedMessage, read_messages

Answered = tuple[str, dict[str, Any] | MessageError, Sequence[Failure]]
"""A message's name, its answer, and the subscriptions that failed on it."""
Answers = Callable[[Iterable[NamedMessage]], Iterator[Answered]]


def match(
    queries: Annotated[
        str | None,
        typer.Argument(
            help=f"{QUERIES_HELP} Omitted with --store.",
            show_default=False,
        ),
    ] = None,
    messages: Annotated[
        list[str] | None,
        typer.Argument(help=MESSAGES_HELP, show_default=False),
    ] = None,
    select: Annotated[bool, typer.Option("--select", help="Also write the selected nodes.")] = False,
    count: Annotated[
        bool, typer.Option("--count", help="Write only the number of matching subscriptions.")
    ] = False,
    namespace: NamespacesOption = None,
    max_bytes: MaxBytesOption = Limits().bytes,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Match with the filters of a store: a file, or postgresql://…."),
    ] = None,
    tenant: TenantOption = "",
    engine: EngineOption = Engine.AUTOMATON,
    tables: TablesOption = None,
    plan: PlanOption = None,
    memory: MemoryOption = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help=f"Messages per batch with tables; by default {BATCH:,}.")
    ] = None,
) -> None:
    """Match messages against all queries; writes one JSON line per message.

    Invalid queries, refused messages and queries that fail on a message are reported and skipped; the exit
    status is then 1.

    --tables, --plan, --memory and --batch require --engine relational.
    """
    queries, messages = _sources(queries, messages or [], store)
    if store is not None and namespace:
        fail("--namespace goes with QUERIES; a store has its own: 'sapwood subscriptions namespaces'")
    if store is None and tenant:
        fail("--tenant goes with --store")
    declared, limits = parse_namespaces(namespace), Limits(bytes=max_bytes)
    if engine is Engine.RELATIONAL:
        if select:
            fail("--select needs nodes, which tables do not hold: omit --engine relational")
        from sapwood.cli.tables.relational_match import RelationalOptions, load_relational

        setting = RelationalOptions(tables, plan, memory, batch)
        answering = load_relational(queries, store, tenant, declared, limits, count, setting)
    else:
        given = {"--tables": tables, "--plan": plan, "--memory": memory, "--batch": batch}
        for name, value in given.items():
            if value is not None:
                fail(f"{name} goes with --engine relational")
        answering = _load_automaton(queries, store, tenant, Matcher(declared, limits), select, count)
    with answering as (refused, answers), make_progress(writing=True) as progress:
        task = progress.add_task("matching", total=None)
        seen = 0
        for name, answer, failures in answers(read_messages(messages)):
            seen += 1
            if isinstance(answer, MessageError):
                refused += 1
                answer = {"error": {"reason": answer.reason, "line": answer.line, "column": answer.column}}
            write_line({"message": name, **answer, **failures_field(failures)})
            refused += report_failures(name, failures)
            progress.advance(task)
    finish(seen, refused)


def _sources(first: str | None, rest: list[str], store: str | None) -> tuple[str | None, list[str]]:
    """Return the file of queries (None with a store) and the messages."""
    queries, messages = (first, rest) if store is None else (None, [first, *rest] if first else [])
    if not messages:
        fail("MESSAGES are missing: give QUERIES and MESSAGES, or --store URL and MESSAGES")
    return queries, messages


@contextmanager
def _load_automaton(
    queries: str | None, store: str | None, tenant: str, matcher: Matcher, select: bool, count: bool
) -> Iterator[tuple[int, Answers]]:
    """Load the queries of a file or a store; yield how many were refused, and a function that matches
    messages.
    """
    if store is not None:
        with open_store(store, tenant=tenant) as source:
            refused = load_store(matcher, source)
            report_skipped(source)
    else:
        assert queries is not None
        refused = load_queries(matcher.add_many, queries, dict(matcher.namespaces))

    def answers(messages: Iterable[NamedMessage]) -> Iterator[Answered]:
        for message in messages:
            try:
                answer, failures = _answer(matcher, message.body, select, count)
                yield message.name, answer, failures
            except MessageError as error:
                yield message.name, error, ()

    with matcher:
        yield refused, answers


def _answer(
    matcher: Matcher, body: bytes, select: bool, count: bool
) -> tuple[dict[str, Any], Sequence[Failure]]:
    if select:
        nodes = matcher.select(body)
        selected = [{"id": id, "nodes": [asdict(n) for n in found]} for id, found in nodes.items()]
        return {"matches": selected}, nodes.undecided
    matches = matcher.match(body)
    return ({"count": len(matches)} if count else {"matches": list(matches)}), matches.undecided
