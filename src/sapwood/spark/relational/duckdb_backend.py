"""What a batch says, matched in DuckDB on the driver; workers read messages, and decide what is left open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from sapwood.relational.executor import RESIDUAL_QUERIES, BatchTooLarge, match_rules
from sapwood.relational.relational_matcher import RelationalMatcher
from sapwood.relational.shredder import VALUE, ShreddedBatch
from sapwood.spark.io.storage import clear_folder, open_output, remove_folder
from sapwood.spark.relational.residual_stage import Decide, decided
from sapwood.spark.relational.result_combiner import CombinedMatches
from sapwood.spark.relational.shredded_batch import BLOCK, Heard

VALUES = 1_000_000
"""values on the driver at a time, unless a block of messages has more"""
_AT_ONCE = 4_000
"""messages matched at a time, to begin with"""
_FETCHED = 100_000
_PAIRS = pa.schema([("msg", pa.int64()), ("subscription", pa.string())])

_SURE = f"""
    SELECT m.msg, m.query FROM matched m ANTI JOIN ({RESIDUAL_QUERIES}) o
    ON o.msg = m.msg AND o.query = m.query
    UNION ALL SELECT msg, query FROM decided"""
_UNKNOWN = """
    SELECT u.msg, s.id AS subscription, u.kind, u.reason
    FROM subscription s JOIN unknown u ON u.query = s.query"""
_ANSWER = "SELECT m.msg, s.id FROM subscription s JOIN matched m ON m.query = s.query"


class OnDuckDB:
    """Matches on the driver. What comes of a batch goes through a folder that all workers reach."""

    def __init__(self, matcher: RelationalMatcher, folder: str) -> None:
        self._matcher = matcher
        self._folder = folder
        self._at_once = _AT_ONCE
        clear_folder(folder)

    @contextmanager
    def found(self, heard: Heard, messages: DataFrame) -> Iterator[CombinedMatches]:
        """What a batch matches; `messages` has the bodies, by `msg`."""
        batch = f"{self._folder}/{uuid4().hex}"
        clear_folder(batch)
        try:
            undecided: list[pa.Table] = []
            with open_output(f"{batch}/pairs.parquet") as file, pq.ParquetWriter(file, _PAIRS) as writer:
                for portion in _portions(heard.blocks):
                    undecided += self._match(heard, messages, portion, writer)
            spark = messages.sparkSession
            failures = spark.createDataFrame(pa.concat_tables(undecided)) if undecided else None
            pairs = spark.read.schema(from_arrow_schema(_PAIRS)).parquet(batch)
            yield CombinedMatches(pairs, undecided=failures)
        finally:
            remove_folder(batch)

    def smaller(self) -> bool:
        """Takes fewer messages at a time from now on, if that is possible."""
        self._at_once //= 2
        return self._at_once > 0

    def _match(
        self, heard: Heard, messages: DataFrame, portion: str, writer: pq.ParquetWriter
    ) -> list[pa.Table]:
        """Writes the pairs of some messages; which subscriptions have no answer on them."""
        connection = heard.connection
        numbers = np.sort(heard.messages.filter(portion).toArrow().column(0).to_numpy())
        values = heard.values.filter(portion).toArrow()
        own = np.searchsorted(numbers, values.column("msg").to_numpy()).astype(np.int32)
        said = ShreddedBatch(
            [values.set_column(0, "msg", pa.array(own)).cast(VALUE)], list(range(len(numbers)))
        )
        undecided: list[pa.Table] = []
        done = 0
        while done < len(numbers):
            some = range(done, min(done + self._at_once, len(numbers)))
            try:
                match_rules(connection, said, heard.extents, self._matcher.place_points, some)
            except BatchTooLarge:
                self._at_once = max(1, len(some) // 2)
                continue
            undecided += self._decide(heard, messages, numbers)
            for rows in connection.stream(_ANSWER, _FETCHED):
                own = pa.array(numbers[rows.column(0).to_numpy()])
                writer.write_batch(pa.record_batch([own, rows.column(1)], schema=_PAIRS))
            done = some.stop
            self._at_once += self._at_once // 8 + 1  # the next ones may be smaller
        return undecided

    def _decide(self, heard: Heard, messages: DataFrame, numbers: NDArray[np.int64]) -> list[pa.Table]:
        """Leaves in `matched` what is certain, or turns out to be true; who has no answer."""
        connection = heard.connection
        asked = connection.arrow(RESIDUAL_QUERIES)
        if not len(asked):
            return []
        asked = asked.set_column(0, "msg", pa.array(numbers[asked.column(0).to_numpy()]))
        pairs = messages.sparkSession.createDataFrame(asked)
        decide = Decide(heard.namespaces, self._matcher.limits)
        answer = decided(pairs, messages, decide).toArrow()
        known = answer.column("kind").is_null()
        true = answer.filter(known).select(["msg", "query"])
        true = true.set_column(0, "msg", pa.array(np.searchsorted(numbers, true.column(0).to_numpy())))
        with connection.given(decided=true):
            connection.keep("matched", _SURE)
        unknown = answer.filter(pc.invert(known))
        if not len(unknown):
            return []
        with connection.given(unknown=unknown):
            return [connection.arrow(_UNKNOWN)]


def _portions(blocks: dict[int, int]) -> Iterator[str]:
    """Conditions for messages that are on the driver together."""
    first: int | None = None
    last = values = 0
    for block in sorted(blocks):
        if first is not None and values + blocks[block] > VALUES:
            yield f"msg BETWEEN {first << BLOCK} AND {(last + 1 << BLOCK) - 1}"
            first, values = None, 0
        first = block if first is None else first
        last, values = block, values + blocks[block]
    if first is not None:
        yield f"msg BETWEEN {first << BLOCK} AND {(last + 1 << BLOCK) - 1}"
