"""The rules of the real-time trigger: what a pipeline must not have, and why, known before Spark starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sapwood.lang.literals.durations import parse_duration
from sapwood.spark.kafka.kafka_options import KAFKA, find_option

if TYPE_CHECKING:
    from sapwood.spark.pipeline.config import PipelineConfig

REAL_TIME = "real-time"
DEFAULT_CHECKPOINT_INTERVAL = "5 minutes"
SHORTEST_CHECKPOINT_INTERVAL = 5.0
"""What Spark allows, in seconds: spark.sql.streaming.realTimeMode.minBatchDuration."""
SESSION_SETTINGS = {
    "spark.python.udf.pipelined.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
}
"""What a session needs from its start. Without the first, Spark passes nothing back from Python to its own
process until the next message comes. Without the second, TCP delays many a message by the 40 ms after which
it acknowledges a packet."""
_RATE_OPTIONS = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
)
"""Options of a source that limit or split a micro-batch, all of which Spark refuses."""


def find_real_time_conflicts(config: PipelineConfig) -> Iterator[str]:
    """Yield the reasons why this configuration excludes the real-time trigger, each with its key."""
    run = config.run
    if run.trigger != REAL_TIME:
        if run.checkpoint_interval is not None:
            yield f"'run.checkpoint_interval' is for trigger = \"{REAL_TIME}\""
        return
    interval = run.checkpoint_interval or DEFAULT_CHECKPOINT_INTERVAL
    if parse_duration(interval) < SHORTEST_CHECKPOINT_INTERVAL:
        yield (
            f"'run.checkpoint_interval': {interval!r} is too short; Spark allows "
            f"{SHORTEST_CHECKPOINT_INTERVAL:.0f} seconds and more"
        )
    trigger = f"'run.trigger': \"{REAL_TIME}\""
    if run.partitions is not None:
        yield f"{trigger} has a task for each partition of the topics; remove 'run.partitions'"
    if config.joins is not None:
        yield f"{trigger} has no joins, because Spark has no state for Python in it: use an interval"
    if config.engine != "automaton":
        yield f'{trigger} needs engine = "automaton": the relational engine matches whole batches'
    yield from _check_sources(config, trigger)
    yield from _check_sinks(config, trigger)


def _check_sources(config: PipelineConfig, trigger: str) -> Iterator[str]:
    for number, source in enumerate(config.sources, 1):
        key = "source" if len(config.sources) == 1 else f"source #{number}"
        if source.format != KAFKA:
            given = f"'{key}.format' is \"{source.format}\""
            yield f"{trigger} reads from Kafka only, and {given}: use an interval"
        if source.time is not None:
            yield f"'{key}.time' is for joins, which {trigger} does not have"
        for option in _RATE_OPTIONS:
            if find_option(source.options, option) is not None:
                yield f"'{key}.options.{option}' limits micro-batches, and {trigger} has none: remove it"
        twins = [other for other in config.sources[: number - 1] if other.options == source.options]
        if twins and source.format == KAFKA:
            yield f"'{key}': another source has the same options, and Spark would read the topics once only"


def _check_sinks(config: PipelineConfig, trigger: str) -> Iterator[str]:
    sinks = {"deliveries": config.deliveries, "rejects": config.rejects}
    others = [name for name, sink in sinks.items() if sink.format != KAFKA]
    for name in others:
        yield (
            f"{trigger} writes to Kafka only, and '{name}.format' is \"{sinks[name].format}\": "
            "use Kafka for both, or an interval"
        )
    if not others and config.deliveries.options != config.rejects.options:
        yield (
            f"'rejects.options' differ from 'deliveries.options', and with {trigger} both are written by "
            "the same producer: give them the same options"
        )
