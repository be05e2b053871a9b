"""The residual stage: Spark workers evaluate queries whose rules are weaker than the query, per message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sapwood.engine import Limits
from sapwood.engine.failures import QueryProblem
from sapwood.engine.message.message_reader import Message
from sapwood.relational.residual import ResidualEvaluator
from sapwood.spark.distribution.worker_cache import WORKER_CACHE
from sapwood.spark.relational.row_schemas import RESIDUAL_RESULT, to_spark


@dataclass(frozen=True, slots=True)
class ResidualStage:
    """A function for `mapInArrow`: `msg` and `body` of messages with their `queries`, a list of structs of
    `query` and `text`, in; RESIDUAL_RESULT out."""

    namespaces: Mapping[str, str]
    limits: Limits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # one evaluator for each worker and limits: it caches compiled queries
        evaluator = WORKER_CACHE.get_or_create(
            ResidualEvaluator, self.limits, lambda: ResidualEvaluator(self.limits)
        )
        for batch in batches:
            for row in range(batch.num_rows):
                (message,) = batch.slice(row, 1).to_pylist()  # one at a time: bodies can be large
                rows = _evaluate_message(evaluator, self.namespaces, **message)
                if rows:
                    yield pa.RecordBatch.from_pylist(rows, schema=RESIDUAL_RESULT)


def _evaluate_message(
    evaluator: ResidualEvaluator,
    namespaces: Mapping[str, str],
    msg: int,
    body: bytes | str,
    queries: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    results = evaluator.evaluate(Message(body), [query["text"] for query in queries], namespaces)
    rows: list[dict[str, Any]] = []
    for query, result in zip(queries, results, strict=True):
        if isinstance(result, QueryProblem):
            rows.append({"msg": msg, "query": query["query"], **result._asdict()})
        elif result:
            rows.append({"msg": msg, "query": query["query"]})
    return rows


def evaluate_residuals(candidates: DataFrame, messages: DataFrame, stage: ResidualStage) -> DataFrame:
    """Return RESIDUAL_RESULT for RESIDUAL_CANDIDATE rows; `messages` has `msg` and `body`."""
    queries = candidates.groupBy("msg").agg(F.collect_list(F.struct("query", "text")).alias("queries"))
    joined = messages.select("msg", "body").join(queries, "msg").select("msg", "body", "queries")
    return joined.mapInArrow(stage, to_spark(RESIDUAL_RESULT))
