"""What messages say, for the relational engine: read on Spark's workers, as rows.

Which values are wanted depends on the tag paths of messages, and these are numbered by the driver. So it lets
workers know all that it has seen. If they come upon others, it finds out about these, and the batch is read
once more; with data that looks like data before, that does not happen.

One frame has all that comes of a batch, told apart by what is null:

    msg  tag  text …                     a value
    msg                                  a message that could be read
    msg       reason line column body    one that could not
                                missing  a tag path that the driver has to find out about
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.core.broadcast import Broadcast

from sapwood.engine import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.relational.paths.linear_path import TagPath
from sapwood.relational.paths.tag_tree import TagSnapshot
from sapwood.relational.shredder import VALUE, Shredder
from sapwood.spark.distribution.match_worker import iter_values

_MESSAGES = 256
_BYTES = 8 * 1024 * 1024
"""Of so many messages, or so many bytes, rows are made at a time."""

_ROWS = pa.schema(
    [
        pa.field("msg", pa.int64()),  # Spark's numbers for rows are long
        *(field for field in VALUE if field.name != "msg"),
        pa.field("reason", pa.string()),
        pa.field("line", pa.int32()),
        pa.field("column", pa.int32()),
        pa.field("body", pa.binary()),
        pa.field("missing", pa.list_(pa.string())),
    ]
)
ROWS = (
    "msg BIGINT, tag INT, text STRING, number DOUBLE, text_key BIGINT, number_key BIGINT, nodes ARRAY<INT>,"
    " reason STRING, line INT, column INT, body BINARY, missing ARRAY<STRING>"
)
"""the same, as Spark says it"""


class Known(NamedTuple):
    """What the driver knows of tag paths, under a name that stands for just that."""

    name: str
    numbers: dict[TagPath, int]
    uses: dict[int, int]
    limits: Limits


_KEPT = 2
_readers: OrderedDict[str, tuple[TagSnapshot, Shredder]] = OrderedDict()


def _reader(known: Known) -> tuple[TagSnapshot, Shredder]:
    """This worker's reader for what is known."""
    found = _readers.pop(known.name, None)
    if found is None:
        while len(_readers) >= _KEPT:
            _readers.popitem(last=False)
        tags = TagSnapshot(known.numbers, known.uses)
        found = tags, Shredder(tags, known.limits)
    _readers[known.name] = found
    return found


@dataclass(frozen=True, slots=True)
class ReadValues:
    """A function for `mapInArrow`: number, body and problem of messages in; rows out."""

    known: Broadcast[Known]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tags, reader = _reader(self.known.value)
        for batch in batches:
            for start, end in _portions(batch.column(1)):
                yield from _read(reader, batch.slice(start, end - start))
        if tags.missing:  # also what an earlier task has found, which may have to be repeated
            yield _rows(len(tags.missing), {"missing": [list(path) for path in tags.missing]})


def _portions(bodies: pa.Array) -> Iterator[tuple[int, int]]:
    sizes = pc.fill_null(pc.binary_length(bodies), 0).to_pylist()
    start = size = 0
    for row, bytes in enumerate(sizes):
        size += bytes
        if size >= _BYTES or row + 1 - start == _MESSAGES or row + 1 == len(sizes):
            yield start, row + 1
            start, size = row + 1, 0


def _read(reader: Shredder, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    numbers, bodies, problems = batch.columns
    messages: list[Message] = []
    places: list[int] = []
    refused: dict[int, tuple[str, int | None, int | None]] = {}
    for place, (body, problem) in enumerate(zip(iter_values(bodies), iter_values(problems), strict=True)):
        if problem is not None or body is None:
            refused[place] = problem or "the message is null", None, None
        else:
            places.append(place)
            messages.append(Message(body))
    said = reader.read(messages)
    for number, error in said.refused.items():
        refused[places[number]] = error.reason, error.line, error.column
    own = numbers.to_numpy()[places]
    values = said.values
    if len(values):
        columns = {name: values.column(name).combine_chunks() for name in values.column_names}
        yield _rows(len(values), columns | {"msg": own[columns["msg"].to_numpy()]})
    if said.read:
        yield _rows(len(said.read), {"msg": own[said.read]})
    if refused:
        listed = sorted(refused)
        reasons, lines, places_in_line = zip(*(refused[place] for place in listed), strict=True)
        yield _rows(
            len(listed),
            {
                "msg": numbers.to_numpy()[listed],
                "reason": reasons,
                "line": lines,
                "column": places_in_line,
                "body": bodies.take(pa.array(listed)).cast(pa.binary()),
            },
        )


def _rows(count: int, given: dict[str, Any]) -> pa.RecordBatch:
    """Rows with the columns given, and null for the others."""
    columns = [
        pa.array(given[field.name], field.type) if field.name in given else pa.nulls(count, field.type)
        for field in _ROWS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ROWS)
