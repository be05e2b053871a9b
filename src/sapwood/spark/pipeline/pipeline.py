"""The pipeline: a streaming query whose micro-batches are matched with all subscriptions, exactly once.

Each micro-batch goes through these steps:

    1. plan: the current version of the subscriptions is written to the batch log, unless there is a plan
    2. the subscriptions are brought to that version by the changes since the last batch
    3. the batch is matched and written to the sinks (see `batch`), over whatever a crash has left there
    4. commit: its outcome is written to the batch log, and Spark continues with the next batch

A repeated batch has the same messages, because Spark writes its offsets to the checkpoint before it starts.

If subscriptions join messages, the streaming query itself has state (see `join_plan`). Then workers read the
snapshot from the checkpoint, so it is written before the batch starts. And the plan of a batch runs even if
the batch was committed before a crash: Spark has not committed the state that it updates.
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
from sapwood.spark.io.file_system import local_path, qualify_path
from sapwood.spark.io.sinks import Sink
from sapwood.spark.io.source import Source, Sources
from sapwood.spark.io.unread_files import find_skipped_files, find_unread_in_stream, find_unread_in_table
from sapwood.spark.joins.feedback import FeedbackFolder
from sapwood.spark.joins.join_plan import JoinStream, check_times, count_state_rows, stateful_session
from sapwood.spark.monitoring.delivery_counts import MatchedSubscriptions
from sapwood.spark.pipeline.batch import BatchProcessor, Outcome
from sapwood.spark.pipeline.batch_log import BatchLog
from sapwood.spark.pipeline.checkpoint_lock import lock_checkpoint
from sapwood.spark.pipeline.config import BATCH, ConfigError, PipelineConfig
from sapwood.spark.pipeline.factory import open_subscriptions, select_matcher

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_LOGGED_EXCLUSIONS = 20
"""The excluded subscriptions that the outcome of a batch names."""
Listener = Callable[[Outcome], None]


class Stopped(Exception):
    """Raised in a micro-batch that begins after `stop`; Spark repeats it in the next run."""


class Pipeline:
    """A pipeline as it is configured; `run` returns when it is finished or stopped."""

    def __init__(
        self,
        spark: SparkSession,
        config: PipelineConfig,
        on_batch: Listener | None = None,
        compiled: Broker | None = None,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        """`on_batch` is called with the outcome of each batch, after its commit. `compiled` is a broker with
        the queries of `subscriptions.file`, if they were compiled before. `on_ready` is called once, when a
        stream has processed the available messages and waits for more."""
        with lock_checkpoint(config.run.checkpoint):
            """No other run is using it, so that temporary files of an earlier run may be removed."""
        self._spark = spark
        self._config = config
        self._on_batch = on_batch or (lambda outcome: None)
        self._on_ready = on_ready
        self._source = _build_sources(config)
        self._batch_log = BatchLog(spark, f"{config.run.checkpoint}/sapwood")
        self._subscriptions, joins = open_subscriptions(config, self._batch_log, compiled)
        try:
            check_times(config.sources, self._subscriptions.namespaces)
        except ConfigError:
            self._subscriptions.close()
            raise
        own = qualify_path(spark, f"{config.run.checkpoint}/sapwood")
        self._processor = BatchProcessor(
            _build_sink(config, "deliveries"),
            _build_sink(config, "rejects"),
            config.deliveries.shape,
            select_matcher(config, self._subscriptions, own),
            config.deliveries.body,
            matched=self._batch_log.matched(),
        )
        self._subscriber_version = -1
        """the version up to which the names of subscribers are known"""
        self._joining: JoinStream | None = None
        if joins is not None:
            self._post = CheckpointTransport(f"{own}/snapshots")
            self._joining = JoinStream(
                self._source,
                joins,
                self._post.folder,
                FeedbackFolder(f"{own}/feedback"),
                config.deliveries.body,
            )
        self._query: StreamingQuery | None = None
        self._processing = Lock()
        self._stopping = Event()
        self._failure: BaseException | None = None
        self.current_batch: int | None = None
        """the number of the micro-batch that is being processed, if any"""

    # -- running ---------------------------------------------------------------------------------------

    def run(self, wait: Callable[[], None] | None = None) -> None:
        """Process the available messages or, with an interval as trigger, all that arrive until `stop`.

        Meanwhile `wait` is called several times a second; it should return within some tenths of a second.
        """
        self._warn_of_skipped_files()
        run = self._config.run
        _log.info(
            "pipeline %r started: trigger %s, checkpoint %s", self._config.name, run.trigger, run.checkpoint
        )
        try:
            with lock_checkpoint(self._config.run.checkpoint):
                if self._config.run.trigger == BATCH:
                    self._process(self._source.open(self._spark, streaming=False), 0)
                else:
                    self._stream(wait or (lambda: None))
        finally:
            self._subscriptions.close()
            _log.info("pipeline %r stopped", self._config.name)

    @property
    def matched(self) -> MatchedSubscriptions:
        """The subscriptions that have matched so far, including earlier runs."""
        return self._processor.matched

    def _warn_of_skipped_files(self) -> None:
        """Log a warning for files in local folders that no batch will contain."""
        checkpoint = local_path(self._config.run.checkpoint)
        for number, source in enumerate(self._config.sources):
            folder = local_path(source.path) if source.path is not None and source.format == "files" else None
            if folder is not None and folder.is_dir():
                log = checkpoint / "spark/sources" / str(number) if checkpoint is not None else None
                for warning in find_skipped_files(folder, log):
                    _log.warning("%s", warning)

    def stop(self) -> None:
        """Stop after the current batch; may be called from a signal handler or another thread."""
        self._stopping.set()

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of all batches in the log, including earlier runs."""
        return [Outcome.from_record(record) for record in self._batch_log.outcomes()]

    def _stream(self, wait: Callable[[], None]) -> None:
        query = self._start()
        try:
            while query.isActive and not (self._stopping.is_set() and self._idle()):
                query.awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type]  # it takes fractions
                wait()
                self._notify_ready(query)
            query.stop()
        except StreamingQueryException:
            if self._failure is None and not self._stopping.is_set():
                raise
        failure, self._failure = self._failure, None  # Py4J holds this pipeline, which must not hold that
        if failure is not None:
            raise failure

    def _notify_ready(self, query: StreamingQuery) -> None:
        """Call `on_ready` once, when the stream waits for new messages."""
        if self._on_ready is None or self._config.run.interval is None or not query.isActive:
            return
        status = query.status
        if status["message"].startswith("Waiting for") and not status["isDataAvailable"] and self._idle():
            on_ready, self._on_ready = self._on_ready, None
            _log.info("all available messages are processed; waiting for more")
            on_ready()

    def _idle(self) -> bool:
        """Return whether no batch is being processed; one that begins after `stop` raises Stopped at once."""
        if not self._processing.acquire(blocking=False):
            return False
        self._processing.release()
        return True

    def _start(self) -> StreamingQuery:
        joining = self._joining
        stream = (
            joining.open(self._spark)
            if joining is not None
            else self._source.open(self._spark, streaming=True)
        )
        writer: Any = stream.writeStream.queryName(self._config.name)
        interval = self._config.run.interval
        timing = {"availableNow": True} if interval is None else {"processingTime": interval}
        checkpoint = f"{self._config.run.checkpoint}/spark"
        writer = writer.option("checkpointLocation", checkpoint).trigger(**timing)
        session: AbstractContextManager[None] = nullcontext()
        if joining is not None:
            session = stateful_session(self._spark, joining.settings, self._config.spark)
        with session:
            self._query = writer.foreachBatch(self._process_guarded).start()
        return self._query

    def _process_guarded(self, batch: DataFrame, number: int) -> None:
        """Process a micro-batch, and store an exception, of which Spark passes on the text only."""
        with self._processing:
            if self._stopping.is_set():
                raise Stopped(f"batch {number} is repeated by the next run")
            try:
                self._process(batch, number)
            except BaseException as error:
                self._failure = error
                raise

    # -- a batch ---------------------------------------------------------------------------------------

    def _process(self, batch: DataFrame, number: int) -> None:
        """Plan, match, write and commit a micro-batch, unless it was committed before."""
        streaming = self._config.run.trigger != BATCH
        if streaming and self._batch_log.outcome(number) is not None:
            _log.info("batch %s was committed by an earlier run, and is skipped", number)
            if self._joining is not None:
                self._update_join_state(batch, number)
            return
        self.current_batch = number
        plan = {"version": self._subscriptions.newest()}
        if streaming:
            plan = self._batch_log.plan(number, plan)
        version = plan["version"]
        if self._subscriber_version < version:
            self._processor.subscribers.update(
                self._subscriptions.subscribers(self._subscriber_version, version)
            )
            self._subscriber_version = version
        _log.debug("batch %s planned with version %s of the subscriptions", number, version)
        outcome = (
            self._process_with_joins(batch, number, version)
            if self._joining is not None
            else self._process_single(batch, number, version)
        )
        if self._subscriptions.left_out:
            some = dict(list(self._subscriptions.left_out.items())[:_LOGGED_EXCLUSIONS])
            outcome = replace(outcome, left_out=some)
        self._batch_log.commit_matched(number, self._processor.matched)
        self._batch_log.commit(number, outcome.as_record())
        self.current_batch = None
        _log_outcome(outcome)
        self._on_batch(outcome)

    def _process_single(self, batch: DataFrame, number: int, version: int) -> Outcome:
        """Match the messages of a batch, each on its own."""
        snapshot = self._subscriptions.snapshot(self._spark.sparkContext, version)
        messages = self._add_unread(self._source.messages(batch), batch)
        return self._processor.process(messages, snapshot, len(self._subscriptions), number)

    def _process_with_joins(self, batch: DataFrame, number: int, version: int) -> Outcome:
        """Match the messages of a batch, and join them with those in the state."""
        assert self._joining is not None
        snapshot = self._subscriptions.snapshot(self._post, version)
        self._post.put(number, snapshot)
        kept = count_state_rows(self._query)
        with self._joining.join_batch(batch, snapshot, number) as (messages, joined):
            messages = self._add_unread(messages, batch)
            outcome = self._processor.process(messages, snapshot, len(self._subscriptions), number, joined)
        return replace(outcome, kept=kept)

    def _add_unread(self, messages: DataFrame, batch: DataFrame) -> DataFrame:
        """Add a reject for each file of the batch that Spark skips."""
        streaming = self._config.run.trigger != BATCH
        found = (
            find_unread_in_stream(self._spark, self._config.name)
            if streaming
            else find_unread_in_table(batch)
        )
        if not any(found):
            return messages
        _log.info("%s files of the batch are empty or gone", sum(map(len, found)))
        return self._source.add_unread(messages, found)

    def _update_join_state(self, batch: DataFrame, number: int) -> None:
        """Run the plan of a batch that is committed, for the state that it updates."""
        version = self._batch_log.plan(number, {"version": self._subscriptions.newest()})["version"]
        self._post.put(number, self._subscriptions.snapshot(self._post, version))
        batch.write.format("noop").mode("overwrite").save()


def _log_outcome(outcome: Outcome) -> None:
    _log.info(
        "batch %s committed: %s messages, %s deliveries, %s rejects, %s failures in %.3f s, version %s",
        outcome.batch,
        outcome.messages,
        outcome.deliveries,
        outcome.rejects,
        outcome.failures,
        outcome.seconds,
        outcome.version,
    )


def _build_sources(config: PipelineConfig) -> Sources:
    limits = config.matcher_limits()
    return Sources(tuple(Source(each, config.run.partitions, limits) for each in config.sources))


def _build_sink(config: PipelineConfig, name: str) -> Sink:
    given = getattr(config, name)
    options = {key: str(value) for key, value in given.options.items()}
    return Sink(given.format, given.path, options, f"{config.name}/{name}")
