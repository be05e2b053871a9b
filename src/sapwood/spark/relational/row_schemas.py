"""The Arrow schemas of the rows that travel between driver, workers and files, one for each hop.

    messages ──ShredStage──▶ SHREDDED_ROW ──backend──▶ MATCHED_PAIR, FAILED_PAIR
                                             │  ▲
                         RESIDUAL_CANDIDATE  ▼  │  RESIDUAL_RESULT
                                          ResidualStage

`msg` is the number that the driver gives to each message of a batch.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sapwood.relational.shredder import VALUE_SCHEMA

_MSG = pa.field("msg", pa.int64())  # Spark's row numbers are long

SHREDDED_ROW = pa.schema(
    [
        _MSG,
        *(field for field in VALUE_SCHEMA if field.name != "msg"),
        ("reason", pa.string()),
        ("line", pa.int32()),
        ("column", pa.int32()),
        ("body", pa.binary()),
        ("missing", pa.list_(pa.string())),
        ("value_count", pa.int32()),
        ("rejected_count", pa.int32()),
    ]
)
"""All results of shredding a batch in one frame; the columns that are not null tell the kind of a row:

    msg  tag  text …                     a value
    msg                                  a message that could be shredded
    msg       reason line column body    one that is rejected
    msg           …_count                numbers of values and of rejected messages in the block that begins
                                         with this number, or in a part of it
                                missing  a tag path that the driver has to resolve

Rows of messages have the messages' own columns besides, under other names: see `carried_name`.
"""
RESIDUAL_CANDIDATE = pa.schema([_MSG, ("query", pa.int64()), ("text", pa.string())])
"""A query, with its text, to be evaluated on a message."""
RESIDUAL_RESULT = pa.schema([_MSG, ("query", pa.int64()), ("kind", pa.string()), ("reason", pa.string())])
"""A query that the message matches; with kind and reason, one that could not be evaluated on it."""
MATCHED_PAIR = pa.schema([_MSG, ("subscription", pa.string())])
"""A subscription that a message matches."""
FAILED_PAIR = pa.schema([_MSG, ("subscription", pa.string()), ("kind", pa.string()), ("reason", pa.string())])
"""A subscription that could not be evaluated on a message, and why."""


def carried_name(number: int) -> str:
    """Return the name of a message's own column in shredded rows: its own may be one of theirs."""
    return f"_{number}"


def to_spark(schema: pa.Schema) -> StructType:
    """Return the Spark schema of an Arrow schema."""
    return from_arrow_schema(schema)
