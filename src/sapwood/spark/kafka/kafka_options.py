"""The options of Kafka in a pipeline file: what a source and a sink need, checked before Spark starts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

KAFKA = "kafka"
"""The name of the format."""
SERVERS = "kafka.bootstrap.servers"
_SUBSCRIPTIONS = "subscribe", "subscribePattern", "assign"
_REQUEST_BYTES = "kafka.max.request.size"
_DEFAULT_REQUEST_BYTES = 1_048_576
"""The producer's `max.request.size`, if it is not set."""

Options = Mapping[str, str | int | float | bool]


def find_option(options: Options, name: str) -> str | None:
    """Return the value of an option, whose name Spark reads in any case."""
    found = next((value for key, value in options.items() if key.lower() == name.lower()), None)
    return None if found is None else str(found)


def check_source(options: Options) -> None:
    """Raise ValueError if the options of a source lack the servers or the topics."""
    _check_servers(options)
    given = [name for name in _SUBSCRIPTIONS if find_option(options, name) is not None]
    if len(given) != 1:
        problem = f"{' and '.join(given)} exclude each other" if given else "the topics are missing"
        raise ValueError(
            f'\'options\': {problem}: give subscribe = "orders" (or "orders,returns"), '
            'subscribePattern = "orders-.*", or assign = \'{"orders": [0, 1]}\''
        )
    if (assigned := find_option(options, "assign")) is not None and not _is_assignment(assigned):
        raise ValueError(
            f"'options.assign': JSON such as {{\"orders\": [0, 1]}} is expected, not {assigned!r}"
        )


def _is_assignment(text: str) -> bool:
    """Return whether a text is JSON with lists of partitions by topic."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and all(
        isinstance(partitions, list) and all(type(partition) is int for partition in partitions)
        for partitions in found.values()
    )


def reads_topic(options: Options, topic: str) -> bool:
    """Return whether a source with these options reads a topic, as far as that is known before it starts."""
    if (listed := find_option(options, "subscribe")) is not None:
        return topic in [name.strip() for name in listed.split(",")]
    if (assigned := find_option(options, "assign")) is not None:
        return topic in json.loads(assigned)
    try:
        return re.fullmatch(find_option(options, "subscribePattern") or "", topic) is not None
    except re.error:  # Java has its own syntax, and checks it when the pipeline starts
        return False


def check_sink_options(options: Options) -> None:
    """Raise ValueError if the options of a sink lack the servers, name the topic, or have a size that is
    none."""
    _check_servers(options)
    size = find_option(options, _REQUEST_BYTES)
    if size is not None and not size.isdecimal():
        raise ValueError(f"'options.\"{_REQUEST_BYTES}\"': a number of bytes is expected, not {size!r}")
    if find_option(options, "topic") is not None:
        raise ValueError("'options.topic': the topic of records is the key 'topic', beside 'options'")


def _check_servers(options: Options) -> None:
    if not find_option(options, SERVERS):
        raise ValueError(f'\'options."{SERVERS}"\' is missing: the servers, such as "broker:9092"')


def fails_on_data_loss(options: Options) -> bool:
    """Whether a source fails if records are gone that it has not read, which is the default."""
    return (find_option(options, "failOnDataLoss") or "true").lower() != "false"


def max_request_bytes(options: Options) -> int:
    """The size of the largest record that the producer sends."""
    return int(find_option(options, _REQUEST_BYTES) or _DEFAULT_REQUEST_BYTES)


def client_properties(options: Options) -> dict[str, str]:
    """Return the properties of a Kafka client: the options that begin with `kafka.`, without that."""
    prefix = "kafka."
    return {
        key[len(prefix) :]: str(value) for key, value in options.items() if key.lower().startswith(prefix)
    }
