"""The main job: messages flow in, every subscription is served, nothing is lost or delivered twice.

For every batch, in this order:

    1. it is planned: the store's version now, written down, unless it was written down before a crash
    2. the subscriptions are brought to that version by what has changed since the last batch
    3. it is served: see `serving`; what was half written before a crash is overwritten
    4. its outcome is put on record, and Spark goes on to the next batch

A batch consists of the same messages each time, because Spark writes down what is in it before it starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from sapwood.spark.ledger import Ledger
from sapwood.spark.population import FixedPopulation, StoredPopulation, Subscribed
from sapwood.spark.serving import Outcome, Server
from sapwood.spark.settings import AVAILABLE_NOW, BATCH, Settings, SourceSettings
from sapwood.spark.sinks import Sink
from sapwood.spark.sources import columns_as_messages, list_files, messages_in, open_format

_log = logging.getLogger(__name__)
_PAUSE = 0.2
Listener = Callable[[Outcome], None]


class Stopped(Exception):
    """Raised within a batch that is not to be served any more; Spark keeps it for the next run."""


@dataclass(slots=True)
class _Source:
    """The stream or table that batches are cut from, and how a batch becomes messages."""

    settings: SourceSettings
    partitions: int | None
    limits: Any

    def open(self, spark: SparkSession, streaming: bool) -> DataFrame:
        given = self.settings
        if given.format != "files":
            options = {key: str(value) for key, value in given.options.items()}
            if streaming and given.path is not None:
                options.setdefault("maxFilesPerTrigger", str(given.files_per_batch))
            return open_format(spark, given.format, given.path, options, given.schema_, streaming)
        assert given.path is not None
        limits: dict[str, Any] = {}
        if streaming and given.bytes_per_batch is not None:
            limits["maxBytesPerTrigger"] = given.bytes_per_batch
        elif streaming:
            limits["maxFilesPerTrigger"] = given.files_per_batch
        return list_files(spark, given.path, record=given.record, streaming=streaming, options=limits)

    def messages(self, batch: DataFrame) -> DataFrame:
        given = self.settings
        if given.format == "files":
            assert given.path is not None
            messages = messages_in(
                batch, given.path, record=given.record, partitions=self.partitions, limits=self.limits
            )
        else:
            messages = columns_as_messages(
                batch,
                body=given.body,
                id=given.id,
                published_at=given.published_at,
                keep=given.keep,
                format=given.format,
            )
            if self.partitions is not None:
                messages = messages.repartition(self.partitions)
        return messages.withColumn("stream", F.lit(given.stream)) if given.stream is not None else messages


class Pipeline:
    """A pipeline as its settings describe it. `run` returns when it is done, or was stopped."""

    def __init__(self, spark: SparkSession, settings: Settings, on_batch: Listener | None = None) -> None:
        self._spark = spark
        self._settings = settings
        self._on_batch = on_batch or (lambda outcome: None)
        self._source = _Source(settings.source, settings.run.partitions, settings.matcher_limits())
        self._ledger = Ledger(spark, f"{settings.run.checkpoint}/sapwood")
        self._server = Server(
            _sink(settings, "deliveries"), _sink(settings, "rejects"), settings.deliveries.shape
        )
        self._population = _population(settings)
        self._serving = Lock()
        self._stopping = Event()
        self._failure: BaseException | None = None
        self.serving: int | None = None
        """the batch being served, if any"""

    # -- running ---------------------------------------------------------------------------------------

    def run(self, wait: Callable[[], None] | None = None) -> None:
        """Serves all batches there are or, with an interval as trigger, will be.

        Meanwhile `wait` is called again and again; it should take some tenths of a second.
        """
        try:
            if self._settings.run.trigger == BATCH:
                self._serve(self._source.open(self._spark, streaming=False), 0)
            else:
                self._stream(wait or (lambda: None))
        finally:
            self._population.close()

    def stop(self) -> None:
        """Ends the run after the current batch. May be called from a signal handler or another thread."""
        self._stopping.set()

    def outcomes(self) -> list[Outcome]:
        """What became of the batches so far, of earlier runs too."""
        return [Outcome.from_record(record) for record in self._ledger.outcomes()]

    def _stream(self, wait: Callable[[], None]) -> None:
        query = self._start()
        try:
            while query.isActive and not (self._stopping.is_set() and self._idle()):
                query.awaitTermination(_PAUSE)  # type: ignore[arg-type]  # it takes fractions
                wait()
            query.stop()
        except StreamingQueryException:
            if self._failure is None and not self._stopping.is_set():
                raise
        if self._failure is not None:
            raise self._failure

    def _idle(self) -> bool:
        """Whether no batch is being served. One that begins after `stop` ends at once, with Stopped."""
        if not self._serving.acquire(blocking=False):
            return False
        self._serving.release()
        return True

    def _start(self) -> StreamingQuery:
        stream = self._source.open(self._spark, streaming=True)
        writer: Any = stream.writeStream.queryName(self._settings.name)
        trigger = self._settings.run.trigger
        timing = {"availableNow": True} if trigger == AVAILABLE_NOW else {"processingTime": trigger}
        checkpoint = f"{self._settings.run.checkpoint}/spark"
        writer = writer.option("checkpointLocation", checkpoint).trigger(**timing)
        query: StreamingQuery = writer.foreachBatch(self._guarded).start()
        return query

    def _guarded(self, batch: DataFrame, number: int) -> None:
        """Keeps what went wrong: Spark would only pass on its text."""
        with self._serving:
            if self._stopping.is_set():
                raise Stopped(f"batch {number} is left for the next run")
            try:
                self._serve(batch, number)
            except BaseException as error:
                self._failure = error
                raise

    # -- a batch ---------------------------------------------------------------------------------------

    def _serve(self, batch: DataFrame, number: int) -> None:
        streaming = self._settings.run.trigger != BATCH
        if streaming and self._ledger.outcome(number) is not None:
            _log.info("batch %s was served before the last run ended", number)
            return
        self.serving = number
        plan = {"version": self._population.newest()}
        if streaming:
            plan = self._ledger.plan(number, plan)
        edition = self._population.edition(self._spark.sparkContext, plan["version"])
        messages = self._source.messages(batch)
        outcome = self._server.serve(messages, edition, len(self._population), number)
        self._ledger.done(number, outcome.as_record())
        self.serving = None
        self._on_batch(outcome)


def _sink(settings: Settings, name: str) -> Sink:
    given = getattr(settings, name)
    options = {key: str(value) for key, value in given.options.items()}
    return Sink(given.format, given.path, options, f"{settings.name}/{name}")


def _population(settings: Settings) -> Subscribed:
    limits = settings.matcher_limits()
    if settings.subscriptions.store is not None:
        return StoredPopulation(settings.subscriptions.store, limits)
    assert settings.subscriptions.file is not None
    return FixedPopulation(settings.subscriptions.file, settings.subscriptions.namespaces, limits)
