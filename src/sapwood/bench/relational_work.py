"""What is done with tables: they are filled, and messages are matched with them, with a clock beside it.

The clock is that on the wall: DuckDB uses all cores, of which processor time would tell the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from statistics import median
from time import perf_counter

from sapwood.bench.memory import peak, resident
from sapwood.bench.relational_findings import Grown, Loaded, Matched, Served, digest
from sapwood.bench.relational_news import news_messages, news_queries
from sapwood.engine.message.message_reader import Message
from sapwood.relational import Plan, RelationalMatcher
from sapwood.relational.relational_matcher import CHUNK
from sapwood.workload.studies.observation_workload import ObservationWorkload
from sapwood.workload.studies.stock_workload import StockWorkload

MEMORY = "512MB"
"""what DuckDB may use, as much as the whole machine of the paper had"""
COMPARED, COMPARED_DOCUMENTS = 1_000, 100
"""messages of which it is checked who is notified; of the others, the notifications are only counted"""


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    start = perf_counter()
    work()
    return perf_counter() - start


# -- stock quotes --------------------------------------------------------------------------------------


def load_stocks(
    file: str, symbols: int, subscriptions: int, messages: int, notifications: int
) -> Iterator[str | Loaded]:
    """A new file of subscriptions, of which so many messages cause so many notifications."""
    queries = StockWorkload(symbols).queries(subscriptions, messages, notifications)
    return _load(file, queries, subscriptions)


def load_news(file: str, subscriptions: int) -> Iterator[str | Loaded]:
    """A new file of paths through news."""
    return _load(file, iter(news_queries(subscriptions)), subscriptions)


def _load(file: str, queries: Iterator[str], subscriptions: int) -> Iterator[str | Loaded]:
    with RelationalMatcher(file, plan=Plan.UNROLLED, memory=MEMORY) as matcher:
        seconds = 0.0
        for done, spent in _added(matcher, 0, queries):
            seconds += spent
            yield f"{done:,} of {subscriptions:,} subscriptions loaded"
        seconds += timed(partial(matcher.connection.run, "CHECKPOINT"))
        yield Loaded(file, subscriptions, _predicates(matcher), seconds, _megabytes(file), peak())


def _added(matcher: RelationalMatcher, first: int, queries: Iterator[str]) -> Iterator[tuple[int, float]]:
    """How many there are after each transaction, and its seconds; making the queries is left out."""
    while some := [(str(number), query) for number, query in enumerate(islice(queries, CHUNK), first)]:
        first += len(some)
        yield first, timed(partial(matcher.add_many, some))


def _predicates(matcher: RelationalMatcher) -> int:
    return int(matcher.connection.value("SELECT count(*) FROM predicate WHERE n > 0"))


def _megabytes(file: str) -> float:
    return Path(file).stat().st_size / 1e6


def match_by_plans(
    files: list[str], ways: list[tuple[str, int]], symbols: int, messages: int, rounds: int
) -> Iterator[str | Matched]:
    """Stock messages with several files, by plans in batches; each round matches them with one file after
    the other."""
    bodies = list(StockWorkload(symbols).messages(messages))
    with ExitStack() as stack:
        matchers = {
            file: stack.enter_context(RelationalMatcher(file, memory=MEMORY)) for file in dict.fromkeys(files)
        }
        for plan, batch in ways:
            yield from _by_plan(matchers, Plan(plan), batch, bodies, COMPARED, rounds)


def _by_plan(
    matchers: dict[str, RelationalMatcher],
    plan: Plan,
    batch: int,
    bodies: Sequence[bytes],
    compared: int,
    rounds: int,
) -> Iterator[str | Matched]:
    yield f"filing by the plan {plan.value}"
    filing = {file: timed(partial(matcher.catalog.use_plan, plan)) for file, matcher in matchers.items()}
    yield f"plan {plan.value}, batches of {batch:,}"
    digests = {
        file: digest(matcher.match_many(bodies[:compared], batch)) for file, matcher in matchers.items()
    }
    seconds: dict[str, list[float]] = {file: [] for file in matchers}
    counts: dict[str, int] = {}
    for _ in range(rounds):
        for file, matcher in matchers.items():
            start = perf_counter()
            counts[file] = sum(map(len, matcher.match_many(bodies, batch)))
            seconds[file].append(perf_counter() - start)
    for file, matcher in matchers.items():
        yield Matched(
            file=file,
            plan=plan.value,
            batch=batch,
            filing=filing[file],
            seconds=seconds[file],
            reading=timed(partial(read, matcher, bodies, batch)),
            notifications=counts[file],
            digest=digests[file],
            resident=resident(),
            peak=peak(),
        )


def read(matcher: RelationalMatcher, bodies: Sequence[bytes], batch: int) -> int:
    """Makes rows of messages, and matches them with nothing; how many rows."""
    rows = 0
    for start in range(0, len(bodies), batch):
        said = matcher._shredder.shred([Message(body) for body in bodies[start : start + batch]])
        rows += len(said.messages) + len(said.values)
    return rows


def serve_stocks(file: str, symbols: int, messages: int, singles: int, rounds: int) -> Iterator[str | Served]:
    """Stock messages with a file that is there: in one batch, and some of them one at a time."""
    return _serve(file, list(StockWorkload(symbols).messages(messages)), singles, rounds)


def serve_news(file: str, messages: int, singles: int, rounds: int) -> Iterator[str | Served]:
    """News likewise."""
    return _serve(file, news_messages(messages), singles, rounds)


def _serve(file: str, bodies: Sequence[bytes], singles: int, rounds: int) -> Iterator[str | Served]:
    messages = len(bodies)
    start = perf_counter()
    with RelationalMatcher(file, plan=Plan.UNROLLED, memory=MEMORY) as matcher:
        opening = perf_counter() - start
        yield f"{messages:,} messages in a batch"
        found = digest(matcher.match_many(bodies, messages))
        seconds, count = [], 0
        for _ in range(rounds):
            start = perf_counter()
            count = sum(map(len, matcher.match_many(bodies, messages)))
            seconds.append(perf_counter() - start)
        yield f"{singles:,} messages one at a time"
        len(matcher.match(bodies[0]))
        alone = [timed(partial(_count, matcher, body)) for body in bodies[:singles]]
        used = matcher.connection.value("SELECT sum(memory_usage_bytes) FROM duckdb_memory()")
        yield Served(
            loading=opening,
            single=median(alone) * 1e6,
            batched=min(seconds) / messages * 1e6,
            notifications=count,
            digest=found,
            resident=resident(),
            peak=peak(),
            duckdb=float(used) / 1e6,
        )


def _count(matcher: RelationalMatcher, body: bytes) -> int:
    return len(matcher.match(body))


# -- observations --------------------------------------------------------------------------------------


def observe(
    file: str, documents: int, sizes: list[int], most_shared: int, batch: int, rounds: int
) -> Iterator[str | Grown | Matched]:
    """Descriptions of observations with a file that grows from size to size: first by the plan shared, if
    there are not too many subscriptions to file them for it, then by the plan unrolled."""
    workload = ObservationWorkload(documents=documents)
    yield f"writing {documents:,} documents"
    bodies, queries = list(workload.messages()), workload.queries(max(sizes))
    queries = chain([next(queries)], queries)  # the workload now has made what it cuts queries from
    before, loaded = resident(), 0
    with RelationalMatcher(file, plan=Plan.UNROLLED, memory=MEMORY) as matcher:
        for size in sizes:
            seconds = 0.0
            for done, spent in _added(matcher, loaded, islice(queries, size - loaded)):
                seconds += spent
                yield f"{done:,} subscriptions loaded"
            loaded = size
            seconds += timed(partial(matcher.connection.run, "CHECKPOINT"))
            yield f"{size:,} subscriptions: path match"
            yield _grown(file, matcher, bodies, batch, size, seconds, before)
            for plan in (Plan.SHARED, Plan.UNROLLED) if size <= most_shared else (Plan.UNROLLED,):
                for said in _by_plan({file: matcher}, plan, batch, bodies, COMPARED_DOCUMENTS, rounds):
                    yield f"{size:,} subscriptions: {said}" if isinstance(said, str) else said


def _grown(
    file: str,
    matcher: RelationalMatcher,
    bodies: Sequence[bytes],
    batch: int,
    size: int,
    loading: float,
    before: float,
) -> Grown:
    read(matcher, bodies, batch)  # so that all tag paths have come up
    path_match = _path_match_seconds(matcher)
    count = {
        name: matcher.connection.value(f"SELECT count(*) FROM {name}")
        for name in ("linear_path", "tag_path", "path_match")
    }
    return Grown(
        subscriptions=size,
        predicates=_predicates(matcher),
        paths=count["linear_path"],
        tags=count["tag_path"],
        matches=count["path_match"],
        loading=loading,
        path_match=path_match,
        megabytes=_megabytes(file),
        before=before,
    )


def _path_match_seconds(matcher: RelationalMatcher) -> float:
    """Seconds to match all tag paths that have come up with all linear paths, none being known."""
    tags, database = matcher.catalog.tag_paths, matcher.database
    with database.lock:
        seen = list(tags.numbers)
        with database.write_transaction():
            database.clear_message_cache()
        tags.reload()
        return timed(partial(tags.resolve_new, seen))
