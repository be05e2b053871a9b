"""A pipeline that the real-time trigger cannot run is refused before Spark starts, with the reason."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from sapwood.config_file import ConfigError
from sapwood.spark.pipeline.config import parse_config

_SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
_SINK = {"format": "kafka", "options": _SERVERS}
_ALLOWED: dict[str, Any] = {
    "source": {"format": "kafka", "options": {**_SERVERS, "subscribe": "in"}, "keep": ["key", "headers"]},
    "subscriptions": {"store": "subscriptions.db"},
    "deliveries": {**_SINK, "topic": "to-{subscriber}"},
    "rejects": {**_SINK, "topic": "rejects"},
    "run": {"checkpoint": "checkpoint", "trigger": "real-time"},
}


def _change(**tables: Any) -> dict[str, Any]:
    """The configuration that is allowed, with keys that are changed or added."""
    content = deepcopy(_ALLOWED)
    for name, given in tables.items():
        content[name] = {**content.get(name, {}), **given} if isinstance(given, dict) else given
    return content


def test_kafka_to_kafka_is_allowed(tmp_path: Path) -> None:
    run = parse_config(_ALLOWED, folder=tmp_path).run
    assert (run.interval, run.batch_duration) == (None, "300000 milliseconds")
    sources = [
        {"format": "kafka", "options": {**_SERVERS, "subscribe": name}, "stream": name} for name in "ab"
    ]
    several = _change(source=sources, run={"checkpoint_interval": "10 s"})
    assert parse_config(several, folder=tmp_path).run.batch_duration == "10000 milliseconds"


_REFUSED = {
    "a source of files": (_change(source={"path": "inbox", "format": "files"}), "reads from Kafka only"),
    "deliveries in files": (
        _change(deliveries={"path": "out", "format": "parquet"}),
        "writes to Kafka only, and 'deliveries.format' is \"parquet\"",
    ),
    "rejects in files": (_change(rejects={"path": "r", "format": "json"}), "'rejects.format' is \"json\""),
    "two producers": (
        _change(rejects={"options": {"kafka.bootstrap.servers": "other:9092"}}),
        "'rejects.options' differ from 'deliveries.options'",
    ),
    "joins": (_change(joins={"lateness": "1 min"}), "has no joins"),
    "tables": (_change(engine="relational"), 'needs engine = "automaton"'),
    "partitions": (_change(run={"partitions": 4}), "remove 'run.partitions'"),
    "a rate": (
        _change(source={"options": {**_SERVERS, "subscribe": "in", "maxoffsetspertrigger": 10}}),
        "'source.options.maxOffsetsPerTrigger' limits micro-batches",
    ),
    "too short": (_change(run={"checkpoint_interval": "4 s"}), "Spark allows 5 seconds and more"),
    "an event time": (_change(source={"time": "/m/@time"}), "'source.time' is for joins"),
    "the same topic twice": (
        _change(source=[{**_ALLOWED["source"], "stream": "a"}, {**_ALLOWED["source"], "stream": "b"}]),
        "'source #2': another source has the same options",
    ),
    "its interval with another trigger": (
        _change(run={"trigger": "5 s", "checkpoint_interval": "1 min"}),
        "'run.checkpoint_interval' is for trigger = \"real-time\"",
    ),
}


@pytest.mark.parametrize(("content", "reason"), _REFUSED.values(), ids=_REFUSED)
def test_what_it_does_not_support_is_refused(content: dict[str, Any], reason: str, tmp_path: Path) -> None:
    for table in ("source", "deliveries", "rejects"):
        given = content[table]
        if isinstance(given, dict) and given["format"] != "kafka":
            for key in ("options", "topic", "keep"):
                given.pop(key, None)
    with pytest.raises(ConfigError) as error:
        parse_config(content, folder=tmp_path)
    assert reason in str(error.value)


def test_all_reasons_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(_change(run={"partitions": 4}, joins={"lateness": "1 min"}), folder=tmp_path)
    assert "run.partitions" in str(error.value) and "has no joins" in str(error.value)
