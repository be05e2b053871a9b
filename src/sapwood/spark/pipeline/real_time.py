"""The pipeline with Spark's real-time trigger: from Kafka to Kafka in milliseconds, message by message.

Spark runs one long batch at a time. All its tasks run at once, one for each partition of the topics, and rows
go through them as they arrive; at the end of the batch, Spark commits its offsets:

    topics ─► rows ─► messages ─► Python: match ─► records of deliveries and rejects ─► topics
                                    ▲
                    the feed of subscriptions (see `snapshot_feed`)

Spark's list of operators for this trigger does not have Python functions, and by default these wait. So:

    allowlistCheck = false               the list is not enforced; all other operators here are on it
    python.udf.pipelined.enabled         a thread of its own writes to Python, so that results do not wait
    python.unix.domain.socket.enabled    nor for TCP, which takes 40 ms to acknowledge a packet
    arrow.maxRecordsPerBatch = 1         a message does not wait until a batch is full
    pandas.udf.buffer.size = 4           and not until a buffer is
    a row that is none after each        Spark looks for the next row before it writes a batch
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic
from typing import Any, ClassVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from sapwood.config_file import ConfigError
from sapwood.errors import StoreError
from sapwood.spark.dataframe_match import PROBLEM, check_messages, column
from sapwood.spark.distribution.checkpoint_transport import CheckpointTransport
from sapwood.spark.distribution.real_time_worker import REJECT_COLUMN, RESULT, RealTimePartition
from sapwood.spark.distribution.snapshot_feed import SnapshotFeed
from sapwood.spark.io.file_system import qualify_path
from sapwood.spark.kafka.kafka_failures import explain_sink_failure, is_of_producer
from sapwood.spark.kafka.kafka_sink import KafkaSink
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.pipeline import Pipeline
from sapwood.spark.pipeline.real_time_rules import REAL_TIME, SESSION_SETTINGS

_log = logging.getLogger(__name__)
_LOCAL = re.compile(r"local(?!-cluster)")
_SETTINGS = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "4",
}
"""Settings of the streaming query, which the module explains."""
_IS_MESSAGE = "_sapwood_is_message"
_COUNTS = "sapwood"
OLDEST_SPARK = 4, 3
"""The first one that does not make results wait."""
_STORE_SECONDS = 0.2
"""The time from one look at the store to the next."""
_PROGRESS_SECONDS = 1.0
_DELIVERY, _RECORD = "_sapwood_delivery", "_sapwood_record"


class RealTimePipeline(Pipeline):
    """A pipeline with the trigger "real-time"; `run` returns when it is stopped.

    The outcome of a batch, which the batch log has, follows its end. Deliveries do not wait for it.
    """

    in_real_time: ClassVar[bool] = True
    _query: StreamingQuery | None = None

    def _stream(self, wait: Callable[[], None]) -> None:
        _check_session(self._spark)
        self._check_slots()
        with _changed_settings(self._spark, _SETTINGS):  # of which Spark reads one with every batch
            try:
                super()._stream(wait)
            finally:
                if self._query is not None and self._query.isActive:
                    self._query.stop()

    def _check_slots(self) -> None:
        """Raise ConfigError if there are fewer cores than partitions: some would wait for hours."""
        context = self._spark.sparkContext
        needed, cores = self._topics.count_partitions(), _count_slots(self._spark)
        if needed <= cores:
            return
        if _LOCAL.match(str(context.master)):
            raise ConfigError(
                f'run.trigger: "{REAL_TIME}" needs a core for each partition of the topics: there are '
                f"{needed} partitions, and {context.master} has {cores} cores. Set run.master = "
                f'"local[{needed}]", even if the machine has fewer'
            )
        _log.warning(
            "there are %d partitions of the topics, and %d cores now: some will wait for a core",
            needed,
            cores,
        )

    @contextmanager
    def _explain_failures(self) -> Iterator[None]:
        with super()._explain_failures():
            try:
                yield
            except PySparkException as error:
                if not is_of_producer(error):
                    raise
                options = self._processor.deliveries.options
                explained = explain_sink_failure(error, "deliveries", options, lambda: "not known")
                if explained is None:
                    raise
                raise explained from error

    def _start(self) -> StreamingQuery:
        folder = qualify_path(self._spark, f"{self._config.run.checkpoint}/sapwood/feed")
        self._feed = SnapshotFeed(CheckpointTransport(folder))
        self._fed_version: int | None = None
        self._last_batch = -1
        self._next_look = self._next_progress = 0.0
        self._topics.check_batch()
        self._feed_workers()
        # so that the next run knows that the pipeline has started, and without joins
        self._batch_log.plan(0, {"version": self._fed_version})
        records = self._build_records(folder)
        run = self._config.run
        writer: Any = records.writeStream.queryName(self._config.name).format("kafka")
        assert isinstance(self._processor.deliveries, KafkaSink)
        writer = writer.options(**self._processor.deliveries.writer_options).outputMode("update")
        # the batch log must not have a batch that Spark has not committed
        writer = writer.option("asyncProgressTrackingEnabled", "false")
        writer = writer.option("checkpointLocation", f"{run.checkpoint}/spark")
        query: StreamingQuery = writer.trigger(realTime=run.batch_duration).start()
        self._query = query
        return query

    def _build_records(self, folder: str) -> DataFrame:
        """Return the stream of records to write."""
        messages = self._source.messages(self._source.open(self._spark, streaming=True))
        if PROBLEM not in messages.columns:
            messages = messages.withColumn(PROBLEM, F.lit(None).cast("string"))
        check_messages(messages)
        passed = [field for field in messages.schema.fields if field.name not in ("body", PROBLEM)]
        order = [*(field.name for field in passed), "body", PROBLEM]
        twice = messages.select(
            *map(column, order), F.explode(F.array(F.lit(True), F.lit(False))).alias(_IS_MESSAGE)
        )
        filled = (F.when(F.col(_IS_MESSAGE), column(name)) for name in order)
        # mapInArrow takes a name with a dot for a path, so it gets numbers
        numbered = twice.select(*filled, F.col(_IS_MESSAGE)).toDF(*(f"_{i}" for i in range(len(order) + 1)))
        schema = StructType(passed + from_arrow_schema(RESULT).fields)
        matched = numbered.mapInArrow(RealTimePartition(folder, self._config.deliveries.body), schema)
        deliveries, rejects = self._processor.deliveries, self._processor.rejects
        assert isinstance(deliveries, KafkaSink) and isinstance(rejects, KafkaSink)
        return _to_records(matched, deliveries, rejects)

    # -- while it runs ---------------------------------------------------------------------------------

    def _idle(self) -> bool:
        """No batch ends soon, so that `stop` does not wait for it."""
        return True

    def _poll(self, query: StreamingQuery) -> None:
        now = monotonic()
        if now >= self._next_look:
            self._next_look = now + _STORE_SECONDS
            try:
                self._feed_workers()
            except StoreError as error:
                _log.warning("the subscriptions stay as they are until the store answers again: %s", error)
        if now >= self._next_progress:
            self._next_progress = now + _PROGRESS_SECONDS
            self._record_progress(query)
        if self._on_ready is not None and query.isActive and query.status["isTriggerActive"]:
            on_ready, self._on_ready = self._on_ready, None
            on_ready()

    def _feed_workers(self) -> None:
        """Publish the subscriptions, if they have changed."""
        version = self._subscriptions.newest()
        if version == self._fed_version:
            return
        self._feed.publish(self._subscriptions.snapshot(self._feed.transport, version))
        self._fed_version = version

    def _record_progress(self, query: StreamingQuery) -> None:
        """Write the outcome of a batch that has ended to the batch log."""
        progress = query.lastProgress
        if progress is None or progress["batchId"] <= self._last_batch:
            return
        self._last_batch = batch = progress["batchId"]
        self._topics.check_batch()
        counts = (progress.get("observedMetrics") or {}).get(_COUNTS)
        if not progress["numInputRows"]:
            return
        self._commit(
            batch,
            Outcome(
                batch=batch,
                version=self._fed_version or 0,
                subscriptions=len(self._subscriptions),
                messages=progress["numInputRows"],
                deliveries=counts["deliveries"] if counts else 0,
                rejects=counts["rejects"] if counts else 0,
                failures=counts["failures"] if counts else 0,
                seconds=progress["durationMs"]["triggerExecution"] / 1000,
                finished=datetime.now(UTC).isoformat(timespec="milliseconds"),
            ),
        )


def _to_records(matched: DataFrame, deliveries: KafkaSink, rejects: KafkaSink) -> DataFrame:
    """Turn rows of `RealTimePartition` into records of both sinks, which have equal columns."""
    without = matched.drop(REJECT_COLUMN)
    record = deliveries.build_record(without)
    built = matched.withColumn(_DELIVERY, record)
    refusal = deliveries.refuse_large(F.col(_DELIVERY))
    of_message = [name for name in matched.columns if name not in RESULT.names]
    names = [*of_message, "version"]
    is_delivery = F.col(REJECT_COLUMN).isNull()
    rejected = built.select(
        *map(column, names),
        F.when(is_delivery, refusal).otherwise(F.col(f"{REJECT_COLUMN}.reason")).alias("reason"),
        *(F.col(f"{REJECT_COLUMN}.{name}").alias(name) for name in ("line", "column", "body")),
        F.col("subscription"),
        F.col(_DELIVERY),
    )
    counted = rejected.observe(
        _COUNTS,
        F.count_if(F.col("reason").isNull()).alias("deliveries"),
        F.count_if(F.col("reason").isNotNull() & F.col("subscription").isNull()).alias("rejects"),
        F.count_if(F.col("reason").isNotNull() & F.col("subscription").isNotNull()).alias("failures"),
    )
    both = counted.withColumn(_RECORD, rejects.build_record(counted.drop(_DELIVERY)))
    reject = rejects.cut_large(F.col(_RECORD))
    chosen = F.when(F.col("reason").isNull(), F.col(_DELIVERY)).otherwise(reject)
    return both.select(chosen.alias(_RECORD)).select(f"{_RECORD}.*")


def _count_slots(spark: SparkSession) -> int:
    """Return the number of tasks that can run at once; `defaultParallelism` is a setting."""
    context: Any = spark.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def _check_session(spark: SparkSession) -> None:
    """Raise ConfigError if Spark is too old, or the session lacks a setting that cannot be changed while it
    runs."""
    version = tuple(int(part) for part in re.findall(r"\d+", spark.version)[:2])
    if version < OLDEST_SPARK:
        oldest = ".".join(map(str, OLDEST_SPARK))
        raise ConfigError(
            f'run.trigger: "{REAL_TIME}" needs Spark {oldest} or newer, and this is {spark.version}, in '
            f"which a result would wait for the next message. Install pyspark>={oldest}, or set an interval"
        )
    for key, value in SESSION_SETTINGS.items():
        if spark.sparkContext.getConf().get(key) != value:
            raise ConfigError(f'run.trigger: "{REAL_TIME}" needs a session with the setting {key} = {value}')


@contextmanager
def _changed_settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Change settings of a session for a while."""
    former = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in former.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
