"""The shred stage: Spark workers turn messages into value rows for the relational engine.

The values that predicates read depend on the tag paths of messages, whose ids the driver allocates. So it
broadcasts its tag paths to the workers. If these find new ones, the driver resolves them, and the batch is
shredded once more; with data like earlier data, that does not happen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.core.broadcast import Broadcast

from sapwood.engine import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.relational.paths.linear_path import TagPath
from sapwood.relational.paths.tag_tree import FrozenTagTree
from sapwood.relational.shredder import Shredder
from sapwood.spark.distribution.match_worker import iter_values
from sapwood.spark.distribution.worker_cache import WORKER_CACHE
from sapwood.spark.relational.row_schemas import SHREDDED_ROW, carried_name

_MESSAGES_PER_CHUNK = 1_024
_BYTES_PER_CHUNK = 8 * 1024 * 1024
"""the maximal number of messages, and of their bytes, for which rows are built at a time"""
BLOCK_BITS = 14
"""the number of low bits in which the numbers of a partition's messages in one block differ"""


@dataclass(frozen=True, slots=True)
class ShredderSnapshot:
    """The driver's tag paths, their uses and the limits: what a worker's shredder is built from."""

    id: str
    numbers: dict[TagPath, int]
    uses: dict[int, int]
    limits: Limits


class _WorkerShredder:
    """A shredder in a worker process, and its copy of the tag tree."""

    def __init__(self, snapshot: ShredderSnapshot) -> None:
        self.tags = FrozenTagTree(snapshot.numbers, snapshot.uses)
        self.shredder = Shredder(self.tags, snapshot.limits)


@dataclass(frozen=True, slots=True)
class _Rejection:
    """The reason for which a message is rejected, and where in it."""

    reason: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class ShredStage:
    """A function for `mapInArrow`: `msg`, `body` and `problem` of messages in, SHREDDED_ROW out.

    Further columns are carried to the rows of messages.
    """

    snapshot: Broadcast[ShredderSnapshot]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = self.snapshot.value
        worker = WORKER_CACHE.get_or_create(_WorkerShredder, snapshot.id, lambda: _WorkerShredder(snapshot))
        batch: pa.RecordBatch | None = None
        for batch in batches:
            for start, end in _iter_chunks(batch.column(1)):
                yield from _shred_chunk(worker.shredder, batch.slice(start, end - start))
        if batch is None:
            return
        missing = worker.tags.missing  # also those of an earlier task, which may have to be repeated
        if missing:
            rows = {"missing": [list(path) for path in missing]}
            yield _build_batch(_output_schema(batch), len(missing), rows)


def _iter_chunks(bodies: pa.Array) -> Iterator[tuple[int, int]]:
    sizes = pc.fill_null(pc.binary_length(bodies), 0).to_pylist()
    start = size = 0
    for row, bytes in enumerate(sizes):
        size += bytes
        if size >= _BYTES_PER_CHUNK or row + 1 - start == _MESSAGES_PER_CHUNK or row + 1 == len(sizes):
            yield start, row + 1
            start, size = row + 1, 0


def _shred_chunk(shredder: Shredder, chunk: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    numbers, bodies, problems, *carried = chunk.columns
    schema = _output_schema(chunk)
    messages: list[Message] = []
    rows: list[int] = []
    rejected: dict[int, _Rejection] = {}
    for row, (body, problem) in enumerate(zip(iter_values(bodies), iter_values(problems), strict=True)):
        if problem is not None or body is None:
            rejected[row] = _Rejection(problem or "the message is null")
        else:
            rows.append(row)
            messages.append(Message(body))
    batch = shredder.shred(messages)
    for index, error in batch.rejected.items():
        rejected[rows[index]] = _Rejection(error.reason, error.line, error.column)
    msg = numbers.to_numpy()
    values = batch.values
    blocks, block = np.unique(msg >> BLOCK_BITS, return_inverse=True)
    value_count = np.zeros(len(blocks), np.intp)
    if len(values):
        columns = {name: values.column(name).combine_chunks() for name in values.column_names}
        row = np.array(rows)[columns["msg"].to_numpy()]
        value_count = np.bincount(block[row], minlength=len(blocks))
        yield _build_batch(schema, len(values), columns | {"msg": msg[row]})
    rejected_count = np.bincount(block[list(rejected)], minlength=len(blocks))
    counts = {"value_count": value_count, "rejected_count": rejected_count}
    yield _build_batch(schema, len(blocks), {"msg": blocks << BLOCK_BITS, **counts})
    columns = {carried_name(number): column for number, column in enumerate(carried)} | {"msg": numbers}
    if rejected:
        found = [rejected.get(row) for row in range(len(msg))]
        refused = pa.array([rejection is not None for rejection in found])
        columns |= {
            "reason": [rejection and rejection.reason for rejection in found],
            "line": [rejection and rejection.line for rejection in found],
            "column": [rejection and rejection.column for rejection in found],
            "body": pc.if_else(refused, bodies.cast(pa.binary()), None),
        }
    yield _build_batch(schema, len(msg), columns)


def _output_schema(messages: pa.RecordBatch) -> pa.Schema:
    """Return SHREDDED_ROW with the carried columns of messages."""
    types = messages.schema.types[3:]
    carried = [pa.field(carried_name(number), kind) for number, kind in enumerate(types)]
    return pa.schema([*SHREDDED_ROW, *carried])


def _build_batch(schema: pa.Schema, count: int, columns: dict[str, Any]) -> pa.RecordBatch:
    """Return rows with the columns given, and null in the others."""
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
