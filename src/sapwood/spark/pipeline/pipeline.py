"""The main job: messages flow in, every subscription is served, nothing is lost or delivered twice.

For every batch, in this order:

    1. it is planned: the store's version now, written down, unless it was written down before a crash
    2. the subscriptions are brought to that version by what has changed since the last batch
    3. it is served: see `serving`; what was half written before a crash is overwritten
    4. its outcome is put on record, and Spark goes on to the next batch

A batch consists of the same messages each time, because Spark writes down what is in it before it starts.

If subscriptions join messages, the stream itself keeps them: see `stateful`. Then the edition has to be
posted before the batch is touched, and the plan of a batch runs in any case, also if it was served before a
crash: what it keeps is not in Spark's books until Spark has noted the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from threading import Event, Lock
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sapwood.broker import Broker
from sapwood.spark.distribution.checkpoint_transport import CheckpointTransport
from sapwood.spark.io.formats import qualified
from sapwood.spark.io.sinks import Sink
from sapwood.spark.io.source import Source, Sources
from sapwood.spark.io.unread_files import overlooked, unread_in_stream, unread_in_table
from sapwood.spark.joins.feedback import FeedbackFolder
from sapwood.spark.joins.join_plan import JoinStream, check_times, count_state_rows, stateful_session
from sapwood.spark.monitoring.delivery_counts import MatchedSubscriptions
from sapwood.spark.pipeline.batch import Outcome, Server
from sapwood.spark.pipeline.batch_log import BatchLog
from sapwood.spark.pipeline.checkpoint_lock import lock_checkpoint
from sapwood.spark.pipeline.config import BATCH, PipelineConfig, local_path
from sapwood.spark.pipeline.factory import chosen, matching_by

_log = logging.getLogger(__name__)
_PAUSE = 0.2
_MOST_LEFT_OUT = 20
Listener = Callable[[Outcome], None]


class Stopped(Exception):
    """Raised within a batch that is not to be served any more; Spark keeps it for the next run."""


class Pipeline:
    """A pipeline as its settings describe it. `run` returns when it is done, or was stopped."""

    def __init__(
        self,
        spark: SparkSession,
        settings: PipelineConfig,
        on_batch: Listener | None = None,
        compiled: Broker | None = None,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        """`compiled`: a broker that has the queries of `subscriptions.file` already. `on_ready` is called
        once, when a stream has served what was there, and waits for more."""
        with lock_checkpoint(settings.run.checkpoint):
            """Nobody else is using it, so what an earlier run has left there may be tidied up."""
        self._spark = spark
        self._settings = settings
        self._on_batch = on_batch or (lambda outcome: None)
        self._on_ready = on_ready
        self._source = _sources(settings)
        self._ledger = BatchLog(spark, f"{settings.run.checkpoint}/sapwood")
        self._population, joins = chosen(settings, self._ledger, compiled)
        own = qualified(spark, f"{settings.run.checkpoint}/sapwood")
        self._server = Server(
            _sink(settings, "deliveries"),
            _sink(settings, "rejects"),
            settings.deliveries.shape,
            matching_by(settings, self._population, own),
            settings.deliveries.body,
            matched=self._ledger.matched(),
        )
        self._named = -1
        """the version up to which subscribers are known"""
        self._joining: JoinStream | None = None
        if joins is not None:
            check_times(settings.sources, self._population.namespaces)
            self._post = CheckpointTransport(f"{own}/snapshots")
            self._joining = JoinStream(
                self._source,
                joins,
                self._post.folder,
                FeedbackFolder(f"{own}/feedback"),
                settings.deliveries.body,
            )
        self._query: StreamingQuery | None = None
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
        self._tell_overlooked()
        try:
            with lock_checkpoint(self._settings.run.checkpoint):
                if self._settings.run.trigger == BATCH:
                    self._serve(self._source.open(self._spark, streaming=False), 0)
                else:
                    self._stream(wait or (lambda: None))
        finally:
            self._population.close()

    @property
    def matched(self) -> MatchedSubscriptions:
        """The subscriptions that have matched so far, in earlier runs too."""
        return self._server.matched

    def _tell_overlooked(self) -> None:
        """Warns of files in this machine's folders that no batch will contain."""
        checkpoint = local_path(self._settings.run.checkpoint)
        for number, source in enumerate(self._settings.sources):
            folder = local_path(source.path) if source.path is not None and source.format == "files" else None
            if folder is not None and folder.is_dir():
                log = checkpoint / "spark/sources" / str(number) if checkpoint is not None else None
                for what in overlooked(folder, log):
                    _log.warning("%s", what)

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
                self._tell_ready(query)
            query.stop()
        except StreamingQueryException:
            if self._failure is None and not self._stopping.is_set():
                raise
        failure, self._failure = self._failure, None  # Py4J keeps this pipeline, and need not keep that
        if failure is not None:
            raise failure

    def _tell_ready(self, query: StreamingQuery) -> None:
        """Tells once that all is served that was there, and that what comes from now on will be."""
        if self._on_ready is None or self._settings.run.interval is None or not query.isActive:
            return
        status = query.status
        if status["message"].startswith("Waiting for") and not status["isDataAvailable"] and self._idle():
            told, self._on_ready = self._on_ready, None
            told()

    def _idle(self) -> bool:
        """Whether no batch is being served. One that begins after `stop` ends at once, with Stopped."""
        if not self._serving.acquire(blocking=False):
            return False
        self._serving.release()
        return True

    def _start(self) -> StreamingQuery:
        joining = self._joining
        stream = (
            joining.open(self._spark)
            if joining is not None
            else self._source.open(self._spark, streaming=True)
        )
        writer: Any = stream.writeStream.queryName(self._settings.name)
        interval = self._settings.run.interval
        timing = {"availableNow": True} if interval is None else {"processingTime": interval}
        checkpoint = f"{self._settings.run.checkpoint}/spark"
        writer = writer.option("checkpointLocation", checkpoint).trigger(**timing)
        session: AbstractContextManager[None] = nullcontext()
        if joining is not None:
            session = stateful_session(self._spark, joining.settings, self._settings.spark)
        with session:
            self._query = writer.foreachBatch(self._guarded).start()
        return self._query

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
            if self._joining is not None:
                self._keep_again(batch, number)
            return
        self.serving = number
        plan = {"version": self._population.newest()}
        if streaming:
            plan = self._ledger.plan(number, plan)
        version = plan["version"]
        if self._named < version:
            self._server.subscribers.update(self._population.subscribers(self._named, version))
            self._named = version
        outcome = (
            self._joined(batch, number, version)
            if self._joining is not None
            else self._matched(batch, number, version)
        )
        if self._population.left_out:
            some = dict(list(self._population.left_out.items())[:_MOST_LEFT_OUT])
            outcome = replace(outcome, left_out=some)
        self._ledger.add_matched(number, self._server.matched)
        self._ledger.done(number, outcome.as_record())
        self.serving = None
        self._on_batch(outcome)

    def _matched(self, batch: DataFrame, number: int, version: int) -> Outcome:
        edition = self._population.snapshot(self._spark.sparkContext, version)
        messages = self._with_unread(self._source.messages(batch), batch)
        return self._server.serve(messages, edition, len(self._population), number)

    def _joined(self, batch: DataFrame, number: int, version: int) -> Outcome:
        assert self._joining is not None
        edition = self._population.snapshot(self._post, version)
        self._post.put(number, edition)
        kept = count_state_rows(self._query)
        with self._joining.join_batch(batch, edition, number) as (messages, joined):
            messages = self._with_unread(messages, batch)
            outcome = self._server.serve(messages, edition, len(self._population), number, joined)
        return replace(outcome, kept=kept)

    def _with_unread(self, messages: DataFrame, batch: DataFrame) -> DataFrame:
        """The messages, and as rejects the files of the batch that Spark passes over."""
        streaming = self._settings.run.trigger != BATCH
        found = unread_in_stream(self._spark, self._settings.name) if streaming else unread_in_table(batch)
        return self._source.with_unread(messages, found) if any(found) else messages

    def _keep_again(self, batch: DataFrame, number: int) -> None:
        """Runs the plan of a batch that was delivered, for what it keeps."""
        version = self._ledger.plan(number, {"version": self._population.newest()})["version"]
        self._post.put(number, self._population.snapshot(self._post, version))
        batch.write.format("noop").mode("overwrite").save()


def _sources(settings: PipelineConfig) -> Sources:
    limits = settings.matcher_limits()
    return Sources(tuple(Source(each, settings.run.partitions, limits) for each in settings.sources))


def _sink(settings: PipelineConfig, name: str) -> Sink:
    given = getattr(settings, name)
    options = {key: str(value) for key, value in given.options.items()}
    return Sink(given.format, given.path, options, f"{settings.name}/{name}")
