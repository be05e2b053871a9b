"""Loading the queries of a file, for all commands that subscribe them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from sapwood.cli.common.console import make_progress, report
from sapwood.cli.common.query_warnings import QueryWarnings
from sapwood.input_files import read_queries

Pairs = Iterator[tuple[Hashable, str]]
SubscribeMany = Callable[[Pairs, Callable[[Hashable, ValueError], None]], None]


def load_queries(subscribe_many: SubscribeMany, path: str, declared: dict[str, str] | None = None) -> int:
    """Subscribe all queries of a file; return how many were refused, each reported with its line."""
    refused = 0
    place = ""
    query_warnings = QueryWarnings({}, declared or {})

    def refuse(id: Hashable, error: ValueError) -> None:
        nonlocal refused
        refused += 1
        report(place, str(error))

    def pairs() -> Pairs:
        nonlocal place
        for query in read_queries(path):
            place = query.place
            query_warnings.check(place, query.text)
            yield query.id, query.text
            progress.advance(task)

    with make_progress() as progress:
        task = progress.add_task("loading queries", total=None)
        subscribe_many(pairs(), refuse)
        query_warnings.finish()
    return refused
