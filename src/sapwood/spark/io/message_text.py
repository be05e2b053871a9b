"""The message itself as text: the body of filters' deliveries where it is configured."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from sapwood.engine.message.encoding import decode_message
from sapwood.errors import MessageError
from sapwood.spark.worker_stage import WorkerStage

TEXT = "_message"
"""The column with the message as text, the body of filters' deliveries."""
_DECLARATION = re.compile(r"\s*<\?xml\s[^>]*\?>")


def decode_text(body: bytes | str | None) -> str | None:
    """Decode a message, and remove its XML declaration, whose encoding no longer applies."""
    if body is None:
        return None
    try:
        text = body if isinstance(body, str) else decode_message(body)
    except MessageError:
        return None  # it becomes a reject
    text = text.removeprefix("\ufeff")
    declaration = _DECLARATION.match(text)
    return text[declaration.end() :].lstrip() if declaration else text


def _add_text_column(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Append the text of the messages, on a worker."""
    for batch in batches:
        for start in range(0, batch.num_rows, 32):  # a few messages at a time, since they can be large
            rows = batch.slice(start, 32)
            texts = pa.array(map(decode_text, rows.column("body").to_pylist()), pa.string())
            yield pa.RecordBatch.from_arrays([*rows.columns, texts], [*rows.schema.names, TEXT])


def add_text(messages: WorkerStage) -> WorkerStage:
    """Add the column TEXT to messages."""
    schema = StructType([*messages.schema.fields, StructField(TEXT, StringType())])
    return messages.then(_add_text_column, schema)
