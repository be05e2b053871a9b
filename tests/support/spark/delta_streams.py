"""Streams with Delta tables at both ends, which delta-rs writes and reads: it shares no code with Spark's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sapwood.bench.harness import maven_jars
from tests.support.spark.spark_joins import DeliveryRow, JoinedStreams, Message, read_row
from tests.support.spark.spark_stream import Delivery, Stream

EVERYTHING = "everything"
"""A subscription that matches every message, and so shows which batch each was in."""


def jar_paths() -> str:
    """Delta's jars, as `spark.jars` takes them."""
    return ",".join(map(str, maven_jars.DELTA.fetch()))


def append_rows(table: Path, rows: list[dict[str, Any]], configuration: dict[str, str] | None = None) -> None:
    """Append rows in one commit."""
    write_deltalake(str(table), pa.Table.from_pylist(rows), mode="append", configuration=configuration)


def read_rows(table: Path) -> list[dict[str, Any]]:
    """Read all rows of a table, if it exists."""
    if not (table / "_delta_log").is_dir():
        return []
    rows: list[dict[str, Any]] = pa.table(DeltaTable(str(table)).to_pyarrow_table()).to_pylist()
    return rows


_SPARK = """
[spark]
"spark.jars" = "{jars}"
"spark.sql.shuffle.partitions" = 2
"spark.default.parallelism" = 1
"""


def _add_jars(settings: Path) -> None:
    """Have Spark run a pipeline with Delta's jars."""
    with settings.open("a") as file:
        file.write(_SPARK.format(jars=jar_paths()))


class DeltaStream(Stream):
    """A stream from one Delta table to two others: each commit of the source is a batch."""

    SETTINGS: ClassVar[str] = """
name = "test"
[source]
format = "delta"
path = "inbox"
id = "id"
files_per_batch = {files_per_batch}
options.startingVersion = 0
[subscriptions]
store = "subscriptions.db"
[deliveries]
format = "delta"
path = "deliveries"
shape = "{shape}"
[rejects]
format = "delta"
path = "rejects"
[run]
checkpoint = "checkpoint"
trigger = "{trigger}"
partitions = 2
"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _add_jars(self.settings)

    def subscribe(self, count: int, seed: int = 1, transformations: int = 10) -> None:
        super().subscribe(count, seed, transformations)
        with self.store() as store:
            store.add(EVERYTHING, "/*")

    def publish_these(self, bodies: Iterable[bytes]) -> None:
        """Append the messages in one commit."""
        name = f"{self._published:04}"
        self._published += 1
        made = {f"{name}@{number}": body for number, body in enumerate(bodies)}
        append_rows(self.inbox, [{"id": id, "body": body} for id, body in made.items()])
        self.messages |= made

    def rows(self) -> list[dict[str, Any]]:
        """All deliveries."""
        return read_rows(self.folder / "deliveries")

    def batches(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for row in self.rows():
            if row["subscription"] == EVERYTHING:
                commit = row["message_id"].split("@")[0]
                assert found.setdefault(commit, row["batch"]) == row["batch"]
        return found

    def delivered(self, spark: SparkSession) -> Counter[Delivery]:
        columns = "message_id", "subscription", "body", "version", "batch"
        return Counter(tuple(row[name] for name in columns) for row in self.rows())

    def rejected(self, spark: SparkSession) -> Counter[tuple[str, str, bytes]]:
        rows = read_rows(self.folder / "rejects")
        return Counter((row["message_id"], row["reason"], row["body"]) for row in rows)


class DeltaJoinedStreams(JoinedStreams):
    """Two streams in Delta tables to join, with the deliveries in a third."""

    SETTINGS: ClassVar[str] = """
name = "joined"
[[source]]
format = "delta"
path = "S"
stream = "S"
id = "id"
body = "xml"
time = "/*/@t"
files_per_batch = 1
options.startingVersion = 0
[[source]]
format = "delta"
path = "T"
stream = "T"
id = "id"
body = "CAST(xml AS BINARY)"
published_at = "timestamp_millis(ms)"
files_per_batch = 1
options.startingVersion = 0
[subscriptions]
store = "subscriptions.db"
[deliveries]
format = "delta"
path = "deliveries"
[rejects]
format = "delta"
path = "rejects"
[run]
checkpoint = "checkpoint"
trigger = "available-now"
partitions = 1
[joins]
lateness = "{lateness} s"
buckets = 4
"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _add_jars(self.settings)

    def subscribe(self, queries: dict[str, str]) -> None:
        super().subscribe({EVERYTHING: "/*"} | queries)

    def _put(self, stream: str, name: str, text: str, messages: list[Message]) -> None:
        body = bytes if stream == "S" else str
        rows = [
            {"id": each.id, "xml": each.body.encode() if body is bytes else each.body, "ms": each.ms}
            for each in messages
        ]
        append_rows(self.folder / stream, rows)
        self.messages[stream, name] = messages

    def batches(self) -> dict[int, list[Message]]:
        known = {message.id: message for messages in self.messages.values() for message in messages}
        found: dict[int, list[Message]] = {batch: [] for batch in sorted(self.versions())}
        for row in read_rows(self.folder / "deliveries"):
            if row["subscription"] == EVERYTHING and row["message_id"] in known:
                found[row["batch"]].append(known.pop(row["message_id"]))
        assert not known, "these were not delivered"
        return {batch: sorted(messages) for batch, messages in found.items()}

    def delivered(self, spark: SparkSession) -> Counter[DeliveryRow]:
        return Counter(map(read_row, read_rows(self.folder / "deliveries")))

    def rejected(self) -> Any:
        return iter(read_rows(self.folder / "rejects"))
