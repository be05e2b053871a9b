"""Isolated measurements with a database: loading it, and matching messages with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from statistics import median
from time import perf_counter

from sapwood.bench.harness.memory_usage import peak_megabytes, resident_megabytes
from sapwood.bench.harness.timer import wall_seconds
from sapwood.bench.relational.subscription_workloads import SubscriptionWorkload
from sapwood.bench.relational.table_measurements import (
    LoadedFile,
    PlanRounds,
    ServingCost,
    digest_answers,
)
from sapwood.engine.message.message_reader import Message
from sapwood.relational import Plan, RelationalMatcher
from sapwood.relational.relational_matcher import CHUNK
from sapwood.workload.studies.observation_workload import ObservationWorkload

MEMORY = "512MB"
"""the memory limit of DuckDB, as much as the machine of the paper had"""
COMPARED, COMPARED_DOCUMENTS = 1_000, 100
"""messages whose notified subscriptions are compared; those of the others are only counted"""


def load_database(file: str, workload: SubscriptionWorkload) -> Iterator[str | LoadedFile]:
    """Fill a new database with the subscriptions of a workload."""
    with RelationalMatcher(file, plan=Plan.UNROLLED, memory=MEMORY) as matcher:
        seconds = 0.0
        for done, spent in _add_in_chunks(matcher, 0, workload.queries()):
            seconds += spent
            yield f"{done:,} of {workload.subscriptions:,} subscriptions loaded"
        seconds += wall_seconds(partial(matcher.connection.run, "CHECKPOINT"))
        predicates = _count_predicates(matcher)
        yield LoadedFile(
            file, workload.subscriptions, predicates, seconds, _megabytes(file), peak_megabytes()
        )


def _add_in_chunks(
    matcher: RelationalMatcher, first: int, queries: Iterator[str]
) -> Iterator[tuple[int, float]]:
    """Yield the subscriptions after each transaction, and its seconds without generating the queries."""
    while chunk := [(str(number), query) for number, query in enumerate(islice(queries, CHUNK), first)]:
        first += len(chunk)
        yield first, wall_seconds(partial(matcher.add_many, chunk))


def _count_predicates(matcher: RelationalMatcher) -> int:
    return int(matcher.connection.value("SELECT count(*) FROM predicate WHERE n > 0"))


def _megabytes(file: str) -> float:
    return Path(file).stat().st_size / 1e6


def match_by_plans(
    files: Sequence[str], plans: Sequence[tuple[str, int]], bodies: Sequence[bytes], rounds: int
) -> Iterator[str | PlanRounds]:
    """Match messages with several databases by each plan and batch size; a round visits all databases."""
    with ExitStack() as stack:
        matchers = {
            file: stack.enter_context(RelationalMatcher(file, memory=MEMORY)) for file in dict.fromkeys(files)
        }
        for plan, batch in plans:
            yield from _match_by_plan(matchers, Plan(plan), batch, bodies, COMPARED, rounds)


def _match_by_plan(
    matchers: dict[str, RelationalMatcher],
    plan: Plan,
    batch: int,
    bodies: Sequence[bytes],
    compared: int,
    rounds: int,
) -> Iterator[str | PlanRounds]:
    yield f"building access structures of the plan {plan.value}"
    for matcher in matchers.values():
        matcher.catalog.use_plan(plan)
    yield f"plan {plan.value}, batches of {batch:,}"
    digests = {
        file: digest_answers(matcher.match_many(bodies[:compared], batch))
        for file, matcher in matchers.items()
    }
    seconds: dict[str, list[float]] = {file: [] for file in matchers}
    counts: dict[str, int] = {}
    for _ in range(rounds):
        for file, matcher in matchers.items():
            start = perf_counter()
            counts[file] = sum(map(len, matcher.match_many(bodies, batch)))
            seconds[file].append(perf_counter() - start)
    for file, matcher in matchers.items():
        yield PlanRounds(
            file=file,
            plan=plan.value,
            batch=batch,
            seconds=seconds[file],
            reading=wall_seconds(partial(shred_messages, matcher, bodies, batch)),
            notifications=counts[file],
            digest=digests[file],
            peak=peak_megabytes(),
        )


def shred_messages(matcher: RelationalMatcher, bodies: Sequence[bytes], batch: int) -> int:
    """Parse and shred messages without matching them; return the number of rows."""
    rows = 0
    for start in range(0, len(bodies), batch):
        shredded = matcher._shredder.shred([Message(body) for body in bodies[start : start + batch]])
        rows += len(shredded.messages) + len(shredded.values)
    return rows


def serve_database(
    file: str, bodies: Sequence[bytes], singles: int, rounds: int
) -> Iterator[str | ServingCost]:
    """Match messages with an existing database: all in one batch, and some of them one at a time."""
    messages = len(bodies)
    start = perf_counter()
    with RelationalMatcher(file, plan=Plan.UNROLLED, memory=MEMORY) as matcher:
        opening = perf_counter() - start
        yield f"{messages:,} messages in a batch"
        digest = digest_answers(matcher.match_many(bodies, messages))
        seconds, count = [], 0
        for _ in range(rounds):
            start = perf_counter()
            count = sum(map(len, matcher.match_many(bodies, messages)))
            seconds.append(perf_counter() - start)
        yield f"{singles:,} messages one at a time"
        len(matcher.match(bodies[0]))
        alone = [wall_seconds(partial(_count_matches, matcher, body)) for body in bodies[:singles]]
        used = matcher.connection.value("SELECT sum(memory_usage_bytes) FROM duckdb_memory()")
        yield ServingCost(
            loading=opening,
            single=median(alone) * 1e6,
            batched=min(seconds) / messages * 1e6,
            notifications=count,
            digest=digest,
            resident=resident_megabytes(),
            peak=peak_megabytes(),
            duckdb=float(used) / 1e6,
        )


def _count_matches(matcher: RelationalMatcher, body: bytes) -> int:
    return len(matcher.match(body))


# -- observations --------------------------------------------------------------------------------------


def match_observations(
    file: str, documents: int, sizes: Sequence[int], most_shared: int, batch: int, rounds: int
) -> Iterator[str | dict[str, float] | PlanRounds]:
    """Match descriptions of observations with a database that grows from size to size.

    Yields what `_describe_database` returns for each size, and its rounds. Up to `most_shared` subscriptions,
    the plan shared is measured before the plan unrolled.
    """
    workload = ObservationWorkload(documents=documents)
    yield f"generating {documents:,} documents"
    bodies, queries = list(workload.messages()), workload.queries(max(sizes))
    queries = chain([next(queries)], queries)  # the first query builds what the others are drawn from
    before, loaded = resident_megabytes(), 0
    with RelationalMatcher(file, plan=Plan.UNROLLED, memory=MEMORY) as matcher:
        for size in sizes:
            seconds = 0.0
            for done, spent in _add_in_chunks(matcher, loaded, islice(queries, size - loaded)):
                seconds += spent
                yield f"{done:,} subscriptions loaded"
            loaded = size
            seconds += wall_seconds(partial(matcher.connection.run, "CHECKPOINT"))
            yield f"{size:,} subscriptions: path match"
            shred_messages(matcher, bodies, batch)  # so that the database knows all tag paths
            yield {
                **_describe_database(matcher),
                "path match s": _time_path_match(matcher),
                "added in s": seconds,
                "file MB": _megabytes(file),
                "MB before": before,
            }
            for plan in (Plan.SHARED, Plan.UNROLLED) if size <= most_shared else (Plan.UNROLLED,):
                for item in _match_by_plan({file: matcher}, plan, batch, bodies, COMPARED_DOCUMENTS, rounds):
                    yield f"{size:,} subscriptions: {item}" if isinstance(item, str) else item


def _describe_database(matcher: RelationalMatcher) -> dict[str, float]:
    """Return numbers of rows: distinct linear paths, tag paths that some of them match, and pairs of both."""
    tables = {"linear paths": "linear_path", "tag paths": "tag_path", "path matches": "path_match"}
    counts = {
        name: int(matcher.connection.value(f"SELECT count(*) FROM {table}")) for name, table in tables.items()
    }
    return {"predicates": _count_predicates(matcher), **counts}


def _time_path_match(matcher: RelationalMatcher) -> float:
    """Return the seconds to match all known tag paths with all linear paths from scratch."""
    tags, database = matcher.catalog.tag_paths, matcher.database
    with database.lock:
        seen = list(tags.numbers)
        with database.write_transaction():
            database.clear_message_cache()
        tags.reload()
        return wall_seconds(partial(tags.resolve_new, seen))
