"""Files that the Spark experiments share: messages in Parquet, and packed indexes of the queries."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sapwood import Matcher
from sapwood.bench.harness import Bench
from sapwood.bench.harness.engines import by_engine
from sapwood.bench.harness.timer import wall_seconds
from sapwood.spark.spark_session import check_java

_FILES = 8
"""parts of a table, enough to keep two cores busy"""
_DISTINCT_MESSAGES = 500


MESSAGES = (by_engine(100_000, 20_000), 1_000, 40)
"""so many that a job takes far longer than its start"""
QUERIES = (153_928, 5_000, 200)
ROUNDS = (4, 1, 1)


@dataclass(frozen=True, slots=True)
class SparkInputs:
    """A table of messages, and the queries with their indexes."""

    messages: str
    queries: list[str]
    index: str
    """ids are numbers"""
    named_index: str
    """ids are strings"""
    compile_seconds: float

    @property
    def paths(self) -> str:
        return f"{len(self.queries):,} paths"


def prepare_inputs(bench: Bench) -> Generator[str, None, SparkInputs]:
    """Write the files, unless an experiment before has written them; JavaError if Spark cannot run."""
    check_java()
    if "spark inputs" not in bench.cache:
        yield "writing messages and indexes"
        bench.cache["spark inputs"] = _write_inputs(bench)
    inputs: SparkInputs = bench.cache["spark inputs"]
    return inputs


def _write_inputs(bench: Bench) -> SparkInputs:
    queries = bench.dataset.queries("distinct", bench.select(QUERIES))
    bodies = islice(cycle(bench.dataset.messages(_DISTINCT_MESSAGES)), bench.select(MESSAGES))
    messages = write_messages(bench.folder / "messages", [(f"m{n}", body) for n, body in enumerate(bodies)])
    index, named_index = str(bench.folder / "index"), str(bench.folder / "named-index")
    matcher, named = Matcher(), Matcher()
    # The ids are the line numbers, as in a file of queries.
    seconds = wall_seconds(partial(matcher.add_many, enumerate(queries, 1)))
    matcher.save(index)
    named.add_many((f"subscription-{number}", query) for number, query in enumerate(queries, 1))
    named.save(named_index)
    return SparkInputs(messages, queries, index, named_index, seconds)


def write_messages(folder: Path, rows: Sequence[tuple[int | str, bytes]]) -> str:
    """Write a table of message ids and bodies in several Parquet files; return its path."""
    folder.mkdir()
    for part in range(_FILES):
        mine = rows[part::_FILES]
        ids = pa.array(
            [message_id for message_id, _ in mine], pa.string() if isinstance(rows[0][0], str) else pa.int64()
        )
        table = pa.table({"message_id": ids, "body": pa.array([body for _, body in mine], pa.binary())})
        pq.write_table(table, folder / f"{part}.parquet")
    return str(folder)
