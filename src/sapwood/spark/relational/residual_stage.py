"""Queries whose rules do not tell the whole truth, evaluated on the workers, message by message."""

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

_ROWS = pa.schema(
    [("msg", pa.int64()), ("query", pa.int64()), ("kind", pa.string()), ("reason", pa.string())]
)
_TYPES = "msg BIGINT, query BIGINT, kind STRING, reason STRING"
_deciders: dict[Limits, ResidualEvaluator] = {}


@dataclass(frozen=True, slots=True)
class Decide:
    """A function for `mapInArrow`: messages in, each with its body and with queries and their texts. Out come
    the pairs of which the query is true; and with a kind and a reason, those of which it is not known."""

    namespaces: Mapping[str, str]
    limits: Limits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decider = self._decider()
        for batch in batches:
            for row in range(batch.num_rows):
                (message,) = batch.slice(row, 1).to_pylist()  # bodies can be large
                rows = _decided(decider, self.namespaces, **message)
                if rows:
                    yield pa.RecordBatch.from_pylist(rows, schema=_ROWS)

    def _decider(self) -> ResidualEvaluator:
        """This worker's, which keeps queries compiled."""
        if self.limits not in _deciders:
            _deciders[self.limits] = ResidualEvaluator(self.limits)
        return _deciders[self.limits]


def _decided(
    decider: ResidualEvaluator,
    namespaces: Mapping[str, str],
    msg: int,
    body: bytes | str,
    queries: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    message = Message(body)
    truths = decider.true_of(message, [query["text"] for query in queries], namespaces)
    rows: list[dict[str, Any]] = []
    for query, truth in zip(queries, truths, strict=True):
        if isinstance(truth, QueryProblem):
            rows.append({"msg": msg, "query": query["query"], **truth._asdict()})
        elif truth:
            rows.append({"msg": msg, "query": query["query"]})
    return rows


def decided(pairs: DataFrame, messages: DataFrame, decide: Decide) -> DataFrame:
    """Of pairs of `msg` and `query`, with its `text`, those that match; and those of which it is not known,
    with a `kind` of failure and a `reason`. `messages` has `msg` and `body`."""
    queries = pairs.groupBy("msg").agg(F.collect_list(F.struct("query", "text")).alias("queries"))
    asked = messages.select("msg", "body").join(queries, "msg")
    return asked.select("msg", "body", "queries").mapInArrow(decide, _TYPES)
