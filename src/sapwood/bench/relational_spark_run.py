"""The same tables on Spark: its workers read messages, and Spark SQL or DuckDB on the driver matches them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from sapwood.bench.memory import peak, resident
from sapwood.bench.relational_findings import Matched, digest
from sapwood.bench.relational_work import COMPARED, MEMORY
from sapwood.relational import Plan, RelationalMatcher
from sapwood.spark import session
from sapwood.spark.relational.table_match import Backend, match_relational
from sapwood.workload.studies.stock_workload import StockWorkload

_FILES = 8
PLACES: dict[str, Backend] = {"spark": "spark", "duckdb": "duckdb"}


def match_on_spark(
    folder: str, file: str, places: list[str], symbols: int, messages: int, rounds: int
) -> Iterator[str | Matched]:
    """Stock messages with a file of tables at local[2]; of each place, a first pass does not count, but says
    as `filing` how long it took."""
    yield "starting Spark"
    spark = session("local[2]", log=f"{folder}/spark.log")
    table = spark.read.parquet(_written(folder, symbols, messages))
    with RelationalMatcher(file, plan=Plan.UNROLLED, memory=MEMORY) as matcher:
        for name in places:
            place, copies = PLACES[name], f"{folder}/{name}"
            Path(copies).mkdir()
            seconds = []
            for number in range(rounds + 1):
                yield f"{name} on Spark, {'a pass to warm up' if not number else f'pass {number}'}"
                start = perf_counter()
                matched = match_relational(table, matcher, on=place, folder=copies)
                seconds.append(perf_counter() - start)
            yield Matched(
                file=file,
                plan=name,
                batch=messages,
                filing=seconds[0],
                seconds=seconds[1:],
                reading=0.0,
                notifications=matched.count(),
                digest=_digest(matched, min(COMPARED, messages)),
                resident=resident(),
                peak=peak(),
            )


def _written(folder: str, symbols: int, messages: int) -> str:
    """A table of messages in as many files as keep two cores busy."""
    rows = list(enumerate(StockWorkload(symbols).messages(messages)))
    target = Path(folder) / "messages"
    target.mkdir()
    for part in range(_FILES):
        mine = rows[part::_FILES]
        table = pa.table(
            {
                "message_id": pa.array([number for number, _ in mine], pa.int64()),
                "body": pa.array([body for _, body in mine], pa.binary()),
            }
        )
        pq.write_table(table, target / f"{part}.parquet")
    return str(target)


def _digest(matched: DataFrame, messages: int) -> int:
    answers: list[list[str]] = [[] for _ in range(messages)]
    for row in matched.filter(f"message_id < {messages}").select("message_id", "subscription").collect():
        answers[row["message_id"]].append(row["subscription"])
    return digest(answers)
