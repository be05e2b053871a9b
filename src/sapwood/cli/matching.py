"""`sapwood match` and `sapwood explain`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from sapwood import Broker, Explanation, JoinExplanation, Limits, Matcher, MessageError, PlanExplanation, Why
from sapwood.cli.console import NamespacesOption, counting, errors, namespaces_of, report, write_line
from sapwood.files import read_messages, read_queries
from sapwood.workload import load_dtd

_THIS = object()


Pairs = Iterator[tuple[Hashable, str]]
SubscribeMany = Callable[[Pairs, Callable[[Hashable, ValueError], None]], None]


def match(
    queries: Annotated[
        str, typer.Argument(help="One query a line (the line's number is its id), or JSON lines.")
    ],
    messages: Annotated[list[str], typer.Argument(help="Files, folders, *.xmll (one a line), - (stdin).")],
    select: Annotated[bool, typer.Option("--select", help="Tell the nodes selected, too.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Tell only how many subscriptions match.")] = False,
    namespace: NamespacesOption = None,
    max_bytes: Annotated[int, typer.Option(help="Refuse messages larger than this.")] = Limits().bytes,
) -> None:
    """Match messages against all queries; one JSON line a message.

    Bad queries and messages are reported and left out, the others go on; the exit status is then 1.
    """
    matcher = Matcher(namespaces_of(namespace), Limits(bytes=max_bytes))
    refused = load(matcher.add_many, queries)
    with matcher, counting() as progress:
        task = progress.add_task("matching", total=None)
        for message in read_messages(messages):
            try:
                answer = _answer(matcher, message.body, select, count)
            except MessageError as error:
                refused += 1
                answer = {"error": {"reason": error.reason, "line": error.line, "column": error.column}}
            write_line({"message": message.name, **answer})
            progress.advance(task)
    sys.stdout.flush()
    if refused:
        errors.print(f"[yellow]{refused:,} queries or messages were refused[/]")
        raise typer.Exit(1)


def load(subscribe_many: SubscribeMany, path: str) -> int:
    """Subscribes all queries of a file; how many were refused, each reported with its line."""
    refused = 0
    line = 0

    def refuse(id: Hashable, error: ValueError) -> None:
        nonlocal refused
        refused += 1
        report(f"{path}:{line}", str(error))

    def pairs() -> Pairs:
        nonlocal line
        for query in read_queries(path):
            line = query.line
            yield query.id, query.text
            progress.advance(task)

    with counting() as progress:
        task = progress.add_task("loading queries", total=None)
        subscribe_many(pairs(), refuse)
    return refused


def _answer(matcher: Matcher, body: bytes, select: bool, count: bool) -> dict[str, Any]:
    if select:
        nodes = matcher.select(body)
        return {"matches": [{"id": id, "nodes": [asdict(n) for n in found]} for id, found in nodes.items()]}
    matches = matcher.match(body)
    return {"count": len(matches)} if count else {"matches": list(matches)}


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
    namespace: NamespacesOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show how a query is evaluated: pattern and paths or plan, what is shared, what is refined, and why."""
    graph = load_dtd(dtd) if dtd else None
    made: list[bytes] = []
    with Broker(namespaces_of(namespace), dtd=graph) as broker:
        broker.subscribe(_THIS, query)
        if among:
            load(broker.subscribe_many, among)
        parts: list[Explanation | PlanExplanation | JoinExplanation | Why] = [broker.explain(_THIS)]
        for found in read_messages([message] if message else []):
            if _THIS in broker.filters:
                parts.append(broker.filters.why(_THIS, found.body))
            else:
                made += [d.body for d in broker.publish(found.body) if d.subscription == _THIS]
    for part in parts:
        print(json.dumps(asdict(part), ensure_ascii=False) if as_json else f"{part}\n")
    for body in made:
        print(json.dumps({"made": body.decode()}) if as_json else body.decode())
    if message and not made and len(parts) == 1:
        print(json.dumps({"made": None}) if as_json else "nothing is made of the message")
