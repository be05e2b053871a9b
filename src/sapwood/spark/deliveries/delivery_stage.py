"""The last function of a worker stage: matched messages in, deliveries and rejects out.

Rows for a sink that workers can write to go into its files; those for any other sink go to Spark, as structs,
one column for each such sink:

    _delivery   a row of the deliveries     _reject   a row of the rejects     _summary   the counts of a task

In each row, one of them is not null. The summary is the last row of a task, so it counts tasks that succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sapwood.spark.deliveries.batch_summary import BatchSummary
from sapwood.spark.deliveries.delivery_rows import DeliveryRows, DeliverySchema, SubscriptionDictionary
from sapwood.spark.deliveries.output_files import OutputFile, OutputFolder
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.distribution.match_worker import load_broker
from sapwood.spark.io.sinks import OF_JOIN

DELIVERY, REJECT, SUMMARY = "_delivery", "_reject", "_summary"


@dataclass(frozen=True, slots=True)
class DeliveryTargets:
    """The schema of a batch's deliveries and rejects, and the folders that workers write them to."""

    schema: DeliverySchema
    snapshot: IndexSnapshot
    deliveries: OutputFolder | None = None
    """None if Spark writes them"""
    rejects: OutputFolder | None = None

    @property
    def output(self) -> pa.Schema:
        """The columns of the rows that go to Spark."""
        fields = []
        if self.deliveries is None:
            fields.append(pa.field(DELIVERY, pa.struct(list(self.schema.deliveries))))
        if self.rejects is None:
            fields.append(pa.field(REJECT, pa.struct(list(self.schema.rejects))))
        return pa.schema([*fields, pa.field(SUMMARY, pa.binary())])

    @property
    def spark_schema(self) -> StructType:
        """The same for Spark."""
        return from_arrow_schema(self.output)

    def reject_refused(self, refused: pa.Table, summary: BatchSummary) -> pa.Table:
        """Return a reject for each delivery that a sink refuses, and count it as a failure instead."""
        summary.deliveries -= len(refused)
        summary.joined -= sum(refused.column(OF_JOIN).to_pylist())
        summary.by_subscription.subtract(refused.column("subscription").to_pylist())
        summary.by_subscription = +summary.by_subscription  # without those that have none left
        rows = DeliveryRows(self.schema, self.snapshot.version, summary)
        rejects = []
        for batch in refused.to_batches():
            columns = [batch.column(name) for name in self.schema.message.names]
            rejects.append(rows.failures(columns, batch.column("subscription"), batch.column("reason")))
        return pa.Table.from_batches(rejects, self.schema.rejects)


class _TaskOutput:
    """The output of one task."""

    def __init__(self, targets: DeliveryTargets) -> None:
        self.summary = BatchSummary()
        self.rows = DeliveryRows(targets.schema, targets.snapshot.version, self.summary)
        self._output = targets.output
        self._files: dict[str, OutputFile] = {}
        if targets.deliveries is not None:
            self._files[DELIVERY] = targets.deliveries.open(targets.schema.deliveries)
        if targets.rejects is not None:
            self._files[REJECT] = targets.rejects.open(targets.schema.rejects)

    def emit(self, name: str, batches: Iterable[pa.RecordBatch | None]) -> Iterator[pa.RecordBatch]:
        """Write deliveries or rejects to their file, or yield them as rows for Spark."""
        file = self._files.get(name)
        for batch in batches:
            if batch is None or not batch.num_rows:
                continue
            if file is not None:
                file.write(batch)
            else:
                yield self._to_row(name, pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)))

    def finish(self) -> pa.RecordBatch:
        """Close the files, and return the row with the summary."""
        for name, file in self._files.items():
            closed = file.close()
            if file.rows:
                self.summary.files[f"{name}/{closed}"] += file.rows
        return self._to_row(SUMMARY, pa.array([self.summary.to_bytes()], pa.binary()))

    def abandon(self) -> None:
        """Close the files of a task that fails."""
        for file in self._files.values():
            file.abandon()

    def _to_row(self, name: str, values: pa.Array) -> pa.RecordBatch:
        arrays = [
            values if field.name == name else pa.nulls(len(values), field.type) for field in self._output
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._output)


@dataclass(frozen=True, slots=True)
class DeliverMatches:
    """A function of a worker stage: matched messages in, rows of `DeliveryTargets.output` out."""

    targets: DeliveryTargets
    numbered: bool
    """whether subscriptions are numbers of the broker; else they are ids"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = _TaskOutput(self.targets)
        live = load_broker(self.targets.snapshot)
        try:
            for matched in batches:
                known = SubscriptionDictionary(live.ids, live.names) if self.numbered else None
                deliveries = output.rows.deliveries(matched, known, live.subscribers)
                yield from output.emit(DELIVERY, deliveries)
                yield from output.emit(REJECT, output.rows.rejects(matched))
                yield from output.emit(REJECT, [output.rows.late(matched)])
        except BaseException:
            output.abandon()
            raise
        yield output.finish()


@dataclass(frozen=True, slots=True)
class DeliverJoins:
    """A function of a worker stage: rows that joins emit in, rows of `DeliveryTargets.output` out."""

    targets: DeliveryTargets

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = _TaskOutput(self.targets)
        names = load_broker(self.targets.snapshot).subscribers
        try:
            for joined in batches:
                yield from output.emit(DELIVERY, [output.rows.join_deliveries(joined, names)])
                yield from output.emit(REJECT, [output.rows.join_failures(joined)])
        except BaseException:
            output.abandon()
            raise
        yield output.finish()
