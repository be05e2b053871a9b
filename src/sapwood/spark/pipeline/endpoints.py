"""Builds the sources and sinks of a pipeline from its configuration."""

from __future__ import annotations

from typing import Literal
from uuid import uuid4

from pyspark.sql import SparkSession

from sapwood.spark.io.connectors import check_connectors
from sapwood.spark.io.delta_table import check_delta
from sapwood.spark.io.file_system import qualify_path
from sapwood.spark.io.s3_settings import share_s3_settings
from sapwood.spark.io.sinks import Sink
from sapwood.spark.io.source import Source, Sources
from sapwood.spark.kafka.kafka_options import KAFKA
from sapwood.spark.kafka.kafka_sink import DEFAULT_KEYS, TEMPLATE_COLUMNS, KafkaSink
from sapwood.spark.kafka.topic_identity import TopicIdentities
from sapwood.spark.kafka.topic_template import TopicTemplate
from sapwood.spark.pipeline.batch_log import BatchLog
from sapwood.spark.pipeline.config import BATCH, PipelineConfig
from sapwood.spark.pipeline.endpoint_config import SinkConfig


def check_formats(spark: SparkSession, config: PipelineConfig) -> None:
    """Raise an error if Spark lacks the connector of a source or a sink; give workers access to S3."""
    formats = {"deliveries.format": config.deliveries.format, "rejects.format": config.rejects.format}
    for number, source in enumerate(config.sources, 1):
        key = "source.format" if len(config.sources) == 1 else f"source #{number}.format"
        formats[key] = source.format
    if config.uses_delta:
        check_delta(spark)
    check_connectors(spark, formats)
    share_s3_settings(spark, config.run.checkpoint)


def build_sources(config: PipelineConfig) -> Sources:
    """Return the sources."""
    limits = config.matcher_limits()
    return Sources(tuple(Source(each, config.run.partitions, limits) for each in config.sources))


def build_topics(spark: SparkSession, config: PipelineConfig) -> TopicIdentities:
    """Return the identities of the topics that are sources."""
    sources = {
        number: source.options for number, source in enumerate(config.sources) if source.format == KAFKA
    }
    return TopicIdentities(spark, sources, None if config.run.trigger == BATCH else config.run.checkpoint)


def build_sinks(spark: SparkSession, config: PipelineConfig, batch_log: BatchLog) -> tuple[Sink, Sink]:
    """Return the sinks of deliveries and rejects. To Delta, a stream is identified by its checkpoint, and a
    run with the trigger "batch", which processes everything again as batch 0, by itself."""
    identity = uuid4().hex if config.run.trigger == BATCH else batch_log.identity()
    return (
        _build_sink(spark, config, "deliveries", identity, config.deliveries.mode),
        _build_sink(spark, config, "rejects", identity),
    )


def _build_sink(
    spark: SparkSession,
    config: PipelineConfig,
    name: Literal["deliveries", "rejects"],
    identity: str,
    mode: Literal["append", "merge"] = "append",
) -> Sink:
    given: SinkConfig = getattr(config, name)
    application = f"sapwood/{identity}/{name}"
    if given.format == KAFKA:
        assert given.topic is not None
        return KafkaSink(
            given.format,
            None,
            given.option_texts(),
            application,
            pipeline=config.name,
            name=name,
            topic=TopicTemplate(given.topic, TEMPLATE_COLUMNS[name]),
            key=given.key or DEFAULT_KEYS[name],
            value=given.value or "body",
        )
    path = qualify_path(spark, given.path) if given.path is not None else None
    return Sink(given.format, path, given.option_texts(), application, given.table, mode)
