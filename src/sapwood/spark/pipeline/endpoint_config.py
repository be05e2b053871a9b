"""The configuration of sources and sinks, each a table of a pipeline file that is checked by itself."""

from __future__ import annotations

import re
from io import BytesIO
from typing import Annotated, Any, Literal, Self

from pydantic import ByteSize, Field, model_validator

from sapwood.config_file import ConfigTable
from sapwood.records import RecordScanner
from sapwood.spark.dataframe_match import Shape
from sapwood.spark.io.delta_table import DELTA, reads_changes
from sapwood.spark.io.sinks import FILE_FORMATS
from sapwood.spark.kafka.kafka_options import KAFKA, check_sink_options, check_source
from sapwood.spark.kafka.kafka_sink import TEMPLATE_COLUMNS, Value
from sapwood.spark.kafka.kafka_source import Tombstones
from sapwood.spark.kafka.topic_template import TopicTemplate

_ALIAS = re.compile(r"\sas\s+`?([^`\s]+)`?\s*$", re.IGNORECASE)
_RESERVED_COLUMNS = {
    "body": ": the message itself is delivered with deliveries.body = true, or as 'body AS message'",
    "message_id": "",
    "published_at": "",
    "stream": "",
    "subscription": ": give yours another name with AS",
    "subscriber": ": give yours another name with AS",
    "version": ": give yours another name with AS",
    "batch": ": give yours another name with AS",
    "messages": ": give yours another name with AS",
    "delivery_id": ": give yours another name with AS",
}
"""Columns of deliveries that `keep` must not name, and what to do instead."""
_REJECT_COLUMNS = frozenset({"reason", "line", "column"})
"""Columns that rejects have beside the messages' own."""
ChangeType = Literal["insert", "update_preimage", "update_postimage", "delete"]


Options = dict[str, str | int | float | bool]


class _FormatTable(ConfigTable):
    """A table with the options of a format of Spark."""

    format: str
    path: str | None = None
    table: str | None = None
    """for Delta: the name of a table in a catalog, instead of a path"""
    options: Options = Field({})

    def option_texts(self) -> dict[str, str]:
        """Return the options as Spark takes them."""
        return {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in self.options.items()
        }

    def _check_location(self, purpose: str) -> None:
        """Raise ValueError if the path, or else the name of the table, is missing, or not for the format."""
        if self.table is not None and self.format != DELTA:
            raise ValueError("'table' is for format = \"delta\"")
        if self.table is not None and self.path is not None:
            raise ValueError("'path' and 'table' exclude each other: remove one")
        if self.path is None and self.table is None and self.format == DELTA:
            raise ValueError(f"'path' or 'table' is missing: the table to {purpose}")
        if self.path is None and self.format in FILE_FORMATS:
            raise ValueError(f"'path' is missing: the {'file or ' * (purpose == 'read')}folder to {purpose}")


class SourceConfig(_FormatTable):
    """A source of messages."""

    path: str | None = None
    """a file, or a folder of `*.xml` and `*.xmll`; for another format, what Spark loads"""
    record: str | None = None
    """the element that is a message, in files that hold many"""
    format: str = "files"
    """`files`, or any format that Spark reads"""
    schema_: str | None = Field(None, alias="schema")
    """the columns, where Spark cannot infer them"""
    body: str = "body"
    """the column or SQL expression that is the message"""
    id: str | None = None
    """the column or SQL expression that identifies it"""
    published_at: str | None = None
    """the column or SQL expression with the time at which it was published"""
    stream: str | None = None
    """the name of the stream, for deliveries and joins"""
    time: str | None = None
    """the XPath path to the event time in a message, for joins"""
    keep: tuple[str, ...] = ()
    """further columns of deliveries: columns or SQL expressions of the source"""
    changes: Annotated[tuple[ChangeType, ...], Field(min_length=1)] | None = None
    """for the change feed of a Delta table: the types of change that are messages"""
    tombstones: Tombstones = "reject"
    """for Kafka: whether records without a value are rejects, or skipped"""
    files_per_batch: Annotated[int, Field(gt=0)] = 1_000
    bytes_per_batch: Annotated[ByteSize, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for column in self.keep:
            alias = _ALIAS.search(column)
            name = alias[1] if alias else column.strip("` ")
            if name.lower() in _RESERVED_COLUMNS:
                raise ValueError(
                    f"'keep': deliveries have a column {name!r} already{_RESERVED_COLUMNS[name.lower()]}"
                )
            if name.lower() in _REJECT_COLUMNS:
                raise ValueError(
                    f"'keep': rejects have a column {name!r} already: give yours another name with AS"
                )
        if self.changes is not None and not (self.format == DELTA and reads_changes(self.options)):
            raise ValueError(
                "'changes' is for the change feed of a Delta table: options.readChangeFeed = true"
            )
        if self.format == "files":
            if self.table is not None:
                raise ValueError("'table' is for format = \"delta\"")
            if self.path is None:
                raise ValueError("'path' is missing: the file or folder to read")
            for key in ("id", "schema_", "published_at", "body", "options"):
                if key in self.model_fields_set or key.rstrip("_") in self.model_fields_set:
                    raise ValueError(f"'{key.rstrip('_')}' is for other formats than files")
            if self.record is not None:
                RecordScanner(self.record, BytesIO())  # which refuses a name that is not one
        else:
            if self.record is not None:
                raise ValueError("'record' is for format = \"files\"")
            if self.id is None and self.format != "kafka":
                raise ValueError("'id' is missing: a column or SQL expression that identifies a message")
            self._check_location("read")
            for key in ("files_per_batch", "bytes_per_batch"):
                if self.path is None and self.table is None and key in self.model_fields_set:
                    raise ValueError(f"'{key}' is for files; for {self.format}, use its options")
        if self.format == KAFKA:
            check_source(self.options)
        elif "tombstones" in self.model_fields_set:
            raise ValueError("'tombstones' is for format = \"kafka\"")
        return self


class SinkConfig(_FormatTable):
    """A sink of rows: a folder, or a target in the options of the format."""

    format: str = "parquet"
    topic: str | None = None
    """for Kafka: the topic, in which {subscriber} and other columns may be"""
    key: str | None = None
    """for Kafka: an SQL expression; by default the subscription, for rejects the message"""
    value: Value | None = None
    """for Kafka: the body, or the whole row as JSON"""

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        self._check_location("write to")
        if self.format == KAFKA:
            self._check_kafka("rejects")
        for key in ("topic", "key", "value") if self.format != KAFKA else ():
            if key in self.model_fields_set:
                raise ValueError(f"'{key}' is for format = \"kafka\"")
        return self

    def _check_kafka(self, name: Literal["deliveries", "rejects"]) -> None:
        check_sink_options(self.options)
        if self.topic is None:
            raise ValueError("'topic' is missing: the topic to write to")
        if self.path is not None:
            raise ValueError("'path' is for files; for Kafka, 'topic' is where records are written")
        TopicTemplate(self.topic, TEMPLATE_COLUMNS[name])


class DeliveryConfig(SinkConfig):
    """The sink of deliveries."""

    shape: Shape = "pairs"
    body: bool = False
    """whether deliveries of filters have a body, too: the message itself"""
    mode: Literal["append", "merge"] = "append"
    """for Delta: whether a delivery replaces an earlier one of the same message and subscription"""

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if self.mode == "merge" and self.format != DELTA:
            raise ValueError("'mode': merge is for format = \"delta\"; others only append")
        return self

    @model_validator(mode="before")
    @classmethod
    def _fill_values(cls, given: Any) -> Any:
        """A record of Kafka is the body, which filters therefore need."""
        if isinstance(given, dict) and given.get("format") == KAFKA and given.get("value", "body") == "body":
            return {"body": True} | given
        return given

    def _check_kafka(self, name: Literal["deliveries", "rejects"]) -> None:
        SinkConfig._check_kafka(self, "deliveries")
        if self.shape != "pairs":
            raise ValueError("'shape': Kafka needs 'pairs', a record for each delivery")
        if not self.body and self.value != "json":
            raise ValueError(
                "'body': records of filters would have no value, and so be tombstones; use value = \"json\""
            )
