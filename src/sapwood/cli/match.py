"""`sapwood match` and `sapwood explain`."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapwood import Failure, Limits, Matcher, MessageError
from sapwood.cli.common.console import (
    QUERIES_HELP,
    NamespacesOption,
    counting,
    fail,
    finish,
    namespaces_of,
    report,
    write_line,
)
from sapwood.cli.common.delivery_output import tell_failures, undecided
from sapwood.cli.common.query_warnings import Suspicions
from sapwood.cli.common.relational_options import (
    BATCH,
    Engine,
    EngineOption,
    MemoryOption,
    PlanOption,
    TablesOption,
    duckdb_needed,
)
from sapwood.cli.common.stored_filters import load_store, opened_store, tell_left_out
from sapwood.input_files import NamedMessage, read_messages, read_queries

if TYPE_CHECKING:
    from sapwood import Broker, Explanation, JoinExplanation, PlanExplanation, Why

_THIS = object()

Answered = tuple[str, dict[str, Any] | MessageError, Sequence[Failure]]
"""a message's name, its answer, and the subscriptions that have none"""
Answers = Callable[[Iterable[NamedMessage]], Iterator[Answered]]
Pairs = Iterator[tuple[Hashable, str]]
SubscribeMany = Callable[[Pairs, Callable[[Hashable, ValueError], None]], None]


def match(
    queries: Annotated[
        str | None,
        typer.Argument(
            help=f"{QUERIES_HELP} Left out with --store.",
            show_default=False,
        ),
    ] = None,
    messages: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders, *.xmll (one a line), - (stdin).", show_default=False),
    ] = None,
    select: Annotated[bool, typer.Option("--select", help="Tell the nodes selected, too.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Tell only how many subscriptions match.")] = False,
    namespace: NamespacesOption = None,
    max_bytes: Annotated[int, typer.Option(help="Refuse messages larger than this.")] = Limits().bytes,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Match with the filters of a store: a file, or postgresql://…."),
    ] = None,
    engine: EngineOption = Engine.AUTOMATON,
    tables: TablesOption = None,
    plan: PlanOption = None,
    memory: MemoryOption = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help=f"Messages that tables answer at once; by default {BATCH:,}.")
    ] = None,
) -> None:
    """Match messages against all queries; one JSON line a message.

    Bad queries and messages are reported and left out, and so are queries that cannot be decided on a
    message; the others go on; the exit status is then 1.

    --tables, --plan, --memory and --batch go with --engine relational.
    """
    queries, messages = _sources(queries, messages or [], store)
    if store is not None and namespace:
        fail("--namespace goes with QUERIES; a store has its own: 'sapwood subscriptions namespaces'")
    declared, limits = namespaces_of(namespace), Limits(bytes=max_bytes)
    if engine is Engine.RELATIONAL:
        if select:
            fail("--select tells nodes, which tables do not hold: leave out --engine relational")
        from sapwood.cli.relational_match import Setting, relational_answers

        setting = Setting(tables, plan, memory, batch)
        answering = relational_answers(queries, store, declared, limits, count, setting)
    else:
        given = {"--tables": tables, "--plan": plan, "--memory": memory, "--batch": batch}
        for name, value in given.items():
            if value is not None:
                fail(f"{name} goes with --engine relational")
        answering = _automaton_answers(queries, store, Matcher(declared, limits), select, count)
    with answering as (refused, answers), counting() as progress:
        task = progress.add_task("matching", total=None)
        seen = 0
        for name, answer, failures in answers(read_messages(messages)):
            seen += 1
            if isinstance(answer, MessageError):
                refused += 1
                answer = {"error": {"reason": answer.reason, "line": answer.line, "column": answer.column}}
            write_line({"message": name, **answer, **undecided(failures)})
            refused += tell_failures(name, failures)
            progress.advance(task)
    finish(seen, refused)


def _sources(first: str | None, rest: list[str], store: str | None) -> tuple[str | None, list[str]]:
    """The file of queries, unless they are in a store, and the messages."""
    queries, messages = (first, rest) if store is None else (None, [first, *rest] if first else [])
    if not messages:
        fail("MESSAGES are missing: give QUERIES and MESSAGES, or --store URL and MESSAGES")
    return queries, messages


@contextmanager
def _automaton_answers(
    queries: str | None, store: str | None, matcher: Matcher, select: bool, count: bool
) -> Iterator[tuple[int, Answers]]:
    """How many queries of a file, or else of a store, were refused, and what answers messages."""
    if store is not None:
        with opened_store(store) as source:
            refused = load_store(matcher, source)
            tell_left_out(source)
    else:
        assert queries is not None
        refused = load(matcher.add_many, queries, dict(matcher.namespaces))

    def answers(messages: Iterable[NamedMessage]) -> Iterator[Answered]:
        for message in messages:
            try:
                answer, failures = _answer(matcher, message.body, select, count)
                yield message.name, answer, failures
            except MessageError as error:
                yield message.name, error, ()

    with matcher:
        yield refused, answers


def load(subscribe_many: SubscribeMany, path: str, declared: dict[str, str] | None = None) -> int:
    """Subscribes all queries of a file; how many were refused, each reported with its line."""
    refused = 0
    place = ""
    suspicions = Suspicions({}, declared or {})

    def refuse(id: Hashable, error: ValueError) -> None:
        nonlocal refused
        refused += 1
        report(place, str(error))

    def pairs() -> Pairs:
        nonlocal place
        for query in read_queries(path):
            place = query.place
            suspicions.look_at(place, query.text)
            yield query.id, query.text
            progress.advance(task)

    with counting() as progress:
        task = progress.add_task("loading queries", total=None)
        subscribe_many(pairs(), refuse)
        suspicions.finish()
    return refused


def _answer(
    matcher: Matcher, body: bytes, select: bool, count: bool
) -> tuple[dict[str, Any], Sequence[Failure]]:
    if select:
        nodes = matcher.select(body)
        told = [{"id": id, "nodes": [asdict(n) for n in found]} for id, found in nodes.items()]
        return {"matches": told}, nodes.undecided
    matches = matcher.match(body)
    return ({"count": len(matches)} if count else {"matches": list(matches)}), matches.undecided


def explain(
    query: Annotated[str, typer.Argument(help="XPath 1.0, a for-where-return query, or an XSCL join.")],
    message: Annotated[
        str | None, typer.Option(help="Also tell why this message matches a filter, or what is made of it.")
    ] = None,
    among: Annotated[
        str | None, typer.Option(metavar="QUERIES", help="Other queries, with which it may share its work.")
    ] = None,
    dtd: Annotated[
        str | None, typer.Option(help="A DTD that messages follow: a file, or the name of one of ours.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="The relational engine's view: a filter as rules.")
    ] = Engine.AUTOMATON,
    namespace: NamespacesOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show how a query is evaluated: pattern and paths or plan, what is shared, what is refined, and why."""
    if engine is Engine.RELATIONAL:
        if message or among or dtd:
            fail("--message, --among and --dtd go with the automaton: leave out --engine relational")
        _explain_form(query, namespaces_of(namespace), as_json)
        return
    from sapwood import Broker
    from sapwood.workload import load_dtd

    graph = load_dtd(dtd) if dtd else None
    made: list[bytes] = []
    with Broker(namespaces_of(namespace), dtd=graph) as broker:
        broker.subscribe(_THIS, query)
        if among:
            load(broker.subscribe_many, among)
        parts: list[Explanation | PlanExplanation | JoinExplanation | Why] = [broker.explain(_THIS)]
        for found in read_messages([message] if message else []):
            if _THIS in broker.filters:
                parts.append(_why(broker, found))
                continue
            deliveries = broker.publish(found.body, found.name)
            bodies = [d.body for d in deliveries if d.subscription == _THIS]
            tell_failures(found.name, [replace(f, subscription=query) for f in deliveries.failures])
            made += bodies
            if not bodies:
                parts.append(_why(broker, found))
        filters = _THIS in broker.filters
    suspicions = Suspicions({}, namespaces_of(namespace))
    suspicions.look_at("the query", query)
    suspicions.finish()
    for part in parts:
        print(json.dumps(asdict(part), ensure_ascii=False) if as_json else f"{part}\n")
    for body in made:
        print(json.dumps({"made": body.decode()}) if as_json else body.decode())
    if message and not made and not (parts[1:] and filters):
        print(json.dumps({"made": None}) if as_json else "nothing is made of the message")


def _why(broker: Broker, message: NamedMessage) -> Why:
    try:
        return broker.why(_THIS, message.body)
    except MessageError as error:
        fail(f"{message.name}: {error}")


def _explain_form(query: str, namespaces: dict[str, str], as_json: bool) -> None:
    from sapwood.cli.common import rule_output

    with duckdb_needed("sapwood explain --engine relational"):
        form = rule_output.form_of(query, namespaces)
        if as_json:
            write_line(rule_output.as_record(query, form))
        else:
            print(rule_output.as_text(query, form))
