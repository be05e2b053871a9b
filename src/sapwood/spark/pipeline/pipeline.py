"""The pipeline: a streaming query whose micro-batches are matched with all subscriptions, exactly once.

Each micro-batch goes through these steps:

    1. plan: the current version of the subscriptions is written to the batch log, unless there is a plan
    2. the subscriptions are brought to that version by the changes since the last batch
    3. the batch is matched and written to the sinks (see `batch`), over whatever a crash has left there
    4. commit: its outcome is written to the batch log, and Spark continues with the next batch

A repeated batch has the same messages, because Spark writes its offsets to the checkpoint before it starts.

If subscriptions join messages, a plan that is made when the stream starts parses them (see `join_plan`), so
workers read the snapshot from the checkpoint, where it is written before the batch starts. The state of joins
is a log of messages in the checkpoint, to which a batch adds its own before it is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Lock
from typing import Any, ClassVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sapwood.broker import Broker
from sapwood.config_file import ConfigError
from sapwood.errors import ArgumentError
from sapwood.spark.distribution.checkpoint_transport import CheckpointTransport
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.io.file_ranges import ListedFile
from sapwood.spark.io.file_system import local_path, qualify_path
from sapwood.spark.io.unread_files import (
    find_skipped_files,
    find_unread,
    list_stream_files,
    list_table_files,
)
from sapwood.spark.joins.feedback import FeedbackFolder
from sapwood.spark.joins.join_plan import JoinStream, check_times
from sapwood.spark.joins.segment_catalog import SegmentCatalog
from sapwood.spark.kafka.kafka_failures import explain_source_failure
from sapwood.spark.kafka.kafka_options import KAFKA
from sapwood.spark.monitoring.delivery_counts import MatchedSubscriptions
from sapwood.spark.pipeline.batch import BatchProcessor, Outcome
from sapwood.spark.pipeline.batch_log import BatchLog
from sapwood.spark.pipeline.checkpoint_lock import lock_checkpoint
from sapwood.spark.pipeline.config import BATCH, PipelineConfig
from sapwood.spark.pipeline.endpoints import build_sinks, build_sources, build_topics, check_formats
from sapwood.spark.pipeline.factory import open_subscriptions, select_matcher
from sapwood.spark.pipeline.real_time_rules import REAL_TIME
from sapwood.spark.worker_stage import WorkerStage

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_LOGGED_EXCLUSIONS = 20
"""The excluded subscriptions that the outcome of a batch names."""
Listener = Callable[[Outcome], None]


class Stopped(Exception):
    """Raised in a micro-batch that begins after `stop`; Spark repeats it in the next run."""


class Pipeline:
    """A pipeline as it is configured; `run` returns when it is finished or stopped."""

    in_real_time: ClassVar[bool] = False
    """whether this class is for the trigger "real-time", which others cannot run"""

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
        if (config.run.trigger == REAL_TIME) != self.in_real_time:
            raise ArgumentError(f"a {type(self).__name__} cannot run the trigger {config.run.trigger!r}")
        with lock_checkpoint(config.run.checkpoint):
            """No other run is using it, so that temporary files of an earlier run may be removed."""
        check_formats(spark, config)
        self._spark = spark
        self._config = config
        self._on_batch = on_batch or (lambda outcome: None)
        self._on_ready = on_ready
        self._source = build_sources(config)
        self._topics = build_topics(spark, config)
        self._batch_log = BatchLog(spark, f"{config.run.checkpoint}/sapwood")
        own = qualify_path(spark, f"{config.run.checkpoint}/sapwood")
        self._subscriptions, joins = open_subscriptions(config, self._batch_log, compiled, f"{own}/index")
        try:
            check_times(config.sources, self._subscriptions.namespaces)
        except ConfigError:
            self._subscriptions.close()
            raise
        self._processor = BatchProcessor(
            *build_sinks(spark, config, self._batch_log),
            config.deliveries.shape,
            select_matcher(config, self._subscriptions, own),
            config.deliveries.body,
            matched=self._batch_log.matched(),
        )
        self._joining: JoinStream | None = None
        if joins is not None:
            self._post = CheckpointTransport(f"{own}/snapshots")
            self._joining = JoinStream(
                self._source,
                joins,
                self._post,
                SegmentCatalog(f"{own}/joins"),
                FeedbackFolder(f"{own}/feedback"),
                config.deliveries.body,
            )
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
            with lock_checkpoint(self._config.run.checkpoint), self._explain_failures():
                self._topics.check_start()
                if self._config.run.trigger == BATCH:
                    self._process(self._source.open(self._spark, streaming=False), 0)
                else:
                    self._stream(wait or (lambda: None))
        finally:
            self._subscriptions.close()
            self._topics.close()
            _log.info("pipeline %r stopped", self._config.name)

    @contextmanager
    def _explain_failures(self) -> Iterator[None]:
        """Raise a failure of Kafka as an error that says what to do."""
        try:
            yield
        except (PySparkException, Py4JError) as error:
            sources = {
                "source" if len(self._config.sources) == 1 else f"source #{number}": source.options
                for number, source in enumerate(self._config.sources, 1)
                if source.format == KAFKA
            }
            explained = explain_source_failure(error, sources)
            if explained is None:
                raise
            raise explained from error

    @property
    def matched(self) -> MatchedSubscriptions:
        """The subscriptions that have matched so far, including earlier runs."""
        return self._processor.matched

    @property
    def bucket_sizes(self) -> dict[int, tuple[int, int]]:
        """The numbers of messages and of values in each bucket of the join state; empty without joins."""
        return self._joining.bucket_sizes if self._joining is not None else {}

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
                self._poll(query)
            if query.isActive:
                query.stop()
            else:
                query.awaitTermination()  # which raises the error of a stream that has failed, even at once
        except StreamingQueryException:
            if self._failure is None and not self._stopping.is_set():
                raise
        failure, self._failure = self._failure, None  # Py4J holds this pipeline, which must not hold that
        if failure is not None:
            raise failure

    def _poll(self, query: StreamingQuery) -> None:
        """Do what is to be done several times a second while the stream runs."""
        self._notify_ready(query)

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
        query: StreamingQuery = writer.foreachBatch(self._process_guarded).start()
        return query

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
            return
        self.current_batch = number
        self._topics.check_batch()
        plan = {"version": self._subscriptions.newest()}
        if streaming:
            plan = self._batch_log.plan(number, plan)
        version = plan["version"]
        _log.debug("batch %s planned with version %s of the subscriptions", number, version)
        outcome = (
            self._process_with_joins(batch, number, version)
            if self._joining is not None
            else self._process_single(batch, number, version)
        )
        self._batch_log.commit_matched(number, self._processor.matched)
        self._commit(number, outcome)

    def _commit(self, number: int, outcome: Outcome) -> None:
        """Write the outcome of a batch to the batch log, and pass it on."""
        if self._subscriptions.left_out:
            some = dict(list(self._subscriptions.left_out.items())[:_LOGGED_EXCLUSIONS])
            outcome = replace(outcome, left_out=some)
        self._batch_log.commit(number, outcome.as_record())
        if self._joining is not None:
            self._joining.vacuum(self._subscriptions.equated_variables())
        self.current_batch = None
        _log_outcome(outcome)
        self._on_batch(outcome)

    def _process_single(self, batch: DataFrame, number: int, version: int) -> Outcome:
        """Match the messages of a batch, each on its own."""
        snapshot = self._subscriptions.snapshot(self._spark.sparkContext, version)
        messages = self._source.read(batch, self._list_files(batch))
        return self._process_messages(messages, snapshot, number)

    def _process_with_joins(self, batch: DataFrame, number: int, version: int) -> Outcome:
        """Match the messages of a batch, and join them with those in the state."""
        assert self._joining is not None
        snapshot = self._subscriptions.snapshot(self._post, version)
        with self._joining.join_batch(batch, snapshot, number) as (messages, joined):
            messages = self._source.add_unread(messages, find_unread(self._list_files(batch)))
            outcome = self._process_messages(WorkerStage.of(messages), snapshot, number, joined)
        return replace(outcome, kept=sum(values for _, values in self.bucket_sizes.values()))

    def _process_messages(
        self,
        messages: WorkerStage,
        snapshot: IndexSnapshot,
        number: int,
        joined: list[WorkerStage] | None = None,
    ) -> Outcome:
        subscriptions = self._subscriptions
        return self._processor.process(
            messages, snapshot, len(subscriptions), number, joined, subscriptions.subscribers
        )

    def _list_files(self, batch: DataFrame) -> list[list[ListedFile] | None]:
        """Return the files of a batch for each source, with those that Spark would skip."""
        if self._config.run.trigger == BATCH:
            listed = list_table_files(batch)
        else:
            listed = list_stream_files(self._spark, self._config.name)
        if unread := sum(map(len, find_unread(listed))):
            _log.info("%s files of the batch are empty or gone", unread)
        return listed


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
