"""The DuckDB backend: matches shredded batches on the driver; workers shred, and evaluate residual checks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sapwood.relational.executor import RESIDUAL_QUERIES, BatchTooLarge, match_rules
from sapwood.relational.relational_matcher import RelationalMatcher
from sapwood.relational.shredder import VALUE_SCHEMA, ShreddedBatch
from sapwood.spark.io.file_system import clear_folder, open_output, remove_folder
from sapwood.spark.relational.residual_stage import ResidualStage, evaluate_residuals
from sapwood.spark.relational.result_combiner import FAILED_PAIRS_SQL, MATCHED_PAIRS_SQL, BackendResult
from sapwood.spark.relational.row_schemas import FAILED_PAIR, MATCHED_PAIR, RESIDUAL_CANDIDATE, to_spark
from sapwood.spark.relational.shred_stage import BLOCK_BITS
from sapwood.spark.relational.shredded_batch import SparkShreddedBatch

_log = logging.getLogger(__name__)

VALUES_PER_PORTION = 1_000_000
"""values on the driver at a time, unless a block of messages has more"""
_INITIAL_MESSAGES = 4_000
"""messages matched at a time, to begin with"""
_ROWS_PER_FETCH = 100_000

_CERTAIN_OR_TRUE = f"""
    SELECT m.msg, m.query FROM matched m ANTI JOIN ({RESIDUAL_QUERIES}) o
    ON o.msg = m.msg AND o.query = m.query
    UNION ALL SELECT msg, query FROM residual_match"""


class DuckDBBackend:
    """Matches on the driver, in portions; the pairs go through Parquet files that all workers reach."""

    def __init__(self, matcher: RelationalMatcher, folder: str) -> None:
        self._matcher = matcher
        self._folder = folder
        self._max_messages = _INITIAL_MESSAGES
        clear_folder(folder)

    @contextmanager
    def match(self, batch: SparkShreddedBatch) -> Iterator[BackendResult]:
        """Match a batch."""
        folder = f"{self._folder}/{uuid4().hex}"
        clear_folder(folder)
        try:
            failures: list[pa.Table] = []
            with (
                open_output(f"{folder}/pairs.parquet") as file,
                pq.ParquetWriter(file, MATCHED_PAIR) as writer,
            ):
                for portion in _iter_portions(batch.blocks):
                    failures += self._match_portion(batch, portion, writer)
            spark = batch.rows.sparkSession
            failed = spark.createDataFrame(pa.concat_tables(failures)) if failures else None
            pairs = spark.read.schema(to_spark(MATCHED_PAIR)).parquet(folder)
            yield BackendResult(pairs, failures=failed)
        finally:
            remove_folder(folder)

    def adapt_to(self, error: Exception) -> bool:
        """After running out of memory, match fewer messages at a time; return whether that is possible."""
        if not isinstance(error, duckdb.OutOfMemoryException):
            return False
        self._max_messages //= 2
        _log.debug("out of memory: matching %d messages at once", self._max_messages)
        return self._max_messages > 0

    def _match_portion(
        self, batch: SparkShreddedBatch, portion: str, writer: pq.ParquetWriter
    ) -> list[pa.Table]:
        """Write the pairs of some messages; return FAILED_PAIR tables."""
        connection = batch.connection
        numbers = np.sort(batch.messages.filter(portion).toArrow().column(0).to_numpy())
        values = batch.values.filter(portion).toArrow()
        # DuckDB's batches have numbers from 0: positions in `numbers`
        msg = np.searchsorted(numbers, values.column("msg").to_numpy()).astype(np.int32)
        shredded = ShreddedBatch(
            [values.set_column(0, "msg", pa.array(msg)).cast(VALUE_SCHEMA)], list(range(len(numbers)))
        )
        locate = self._matcher.locate_branching_nodes
        failures: list[pa.Table] = []
        done = 0
        while done < len(numbers):
            some = range(done, min(done + self._max_messages, len(numbers)))
            try:
                match_rules(connection, shredded, batch.parameters, locate, some)
            except BatchTooLarge:
                self._max_messages = max(1, len(some) // 2)
                continue
            failures += self._check_residuals(batch, numbers)
            for rows in connection.stream(MATCHED_PAIRS_SQL, _ROWS_PER_FETCH):
                own = pa.array(numbers[rows.column(0).to_numpy()])
                writer.write_batch(pa.record_batch([own, rows.column(1)], schema=MATCHED_PAIR))
            done = some.stop
            self._max_messages += self._max_messages // 8 + 1  # later messages may need less memory
        return failures

    def _check_residuals(self, batch: SparkShreddedBatch, numbers: NDArray[np.int64]) -> list[pa.Table]:
        """Keep in `matched` what is certain or passes its residual check; return FAILED_PAIR tables."""
        if not batch.residual:
            return []
        connection = batch.connection
        candidates = connection.arrow(RESIDUAL_QUERIES)
        if not len(candidates):
            return []
        msg = pa.array(numbers[candidates.column(0).to_numpy()])
        candidates = candidates.set_column(0, "msg", msg).cast(RESIDUAL_CANDIDATE)
        stage = ResidualStage(batch.namespaces, self._matcher.limits)
        pairs = batch.rows.sparkSession.createDataFrame(candidates)
        results = evaluate_residuals(pairs, batch.bodies, stage).toArrow()
        passed = results.column("kind").is_null()
        true = results.filter(passed).select(["msg", "query"])
        true = true.set_column(0, "msg", pa.array(np.searchsorted(numbers, true.column(0).to_numpy())))
        with connection.register(residual_match=true):
            connection.create_temp_table("matched", _CERTAIN_OR_TRUE)
        failed = results.filter(pc.invert(passed))
        if not len(failed):
            return []
        with connection.register(failed=failed):
            return [connection.arrow(FAILED_PAIRS_SQL).cast(FAILED_PAIR)]


def _iter_portions(blocks: dict[int, int]) -> Iterator[str]:
    """Yield conditions for messages whose values are on the driver together."""
    first: int | None = None
    last = values = 0
    for block in sorted(blocks):
        if first is not None and values + blocks[block] > VALUES_PER_PORTION:
            yield _block_condition(first, last)
            first, values = None, 0
        first = block if first is None else first
        last, values = block, values + blocks[block]
    if first is not None:
        yield _block_condition(first, last)


def _block_condition(first: int, last: int) -> str:
    return f"msg BETWEEN {first << BLOCK_BITS} AND {(last + 1 << BLOCK_BITS) - 1}"
