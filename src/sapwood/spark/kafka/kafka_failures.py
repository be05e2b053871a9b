"""Failures of Kafka in the words of a pipeline file: what happened, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

from sapwood.errors import SapwoodError
from sapwood.spark.kafka.kafka_options import SERVERS, Options, find_option, max_request_bytes

ANEW = (
    "begin anew with another run.checkpoint, and other folders or topics for deliveries and rejects; "
    "startingOffsets says from where"
)
"""How to go on after a topic is not the one that the checkpoint knows."""
_LOST = re.compile(r"may have been lost|may have been missed|KAFKA_DATA_LOSS", re.IGNORECASE)
_REASON = re.compile(r"Reason: (.+)")
_NO_ANSWER = re.compile(
    r"TimeoutException|Timed out waiting for a node|No resolvable bootstrap urls|"
    r"Failed to (?:create new|construct)[^\n]*(?:admin|consumer|producer)",
    re.IGNORECASE,
)
_NOT_SENT = re.compile(r"TimeoutException: Expiring \d+ record|Failed to construct kafka producer")
_ABSENT = re.compile(r"Topic (\S+) not present in metadata")


_PRODUCER = re.compile(
    rf"{_NOT_SENT.pattern}|{_ABSENT.pattern}|InvalidTopicException|RecordTooLargeException|"
    r"clients\.producer|Kafka(?:Row|Data|StreamData|Batch)\w*Writer"
)
"""In the failures of a producer, or in their stack traces."""


class KafkaError(SapwoodError):
    """Raised when Kafka does not have what a pipeline needs, or does not take what it writes."""


def is_of_producer(error: BaseException) -> bool:
    """Return whether a failure of a query that reads from Kafka and writes to it is one of writing."""
    return _PRODUCER.search(str(error)) is not None


def explain_source_failure(error: BaseException, sources: Mapping[str, Options]) -> KafkaError | None:
    """Return an error of the user that explains a failure to read from Kafka; None for any other failure.
    `sources` are the options of the sources that are Kafka, by key of the pipeline file."""
    text = str(error)  # with the stack trace of Java
    if not sources or "RecordTooLargeException" in text:
        return None
    key = next((key for key, options in sources.items() if _is_named(options, text)), min(sources))
    options = sources[key]
    if _LOST.search(text):
        found = _REASON.search(text)
        reason = f" ({found[1].strip().rstrip('.')})" if found else ""
        return KafkaError(
            f"{key}: Kafka no longer has records that this pipeline has not processed{reason}. Either they "
            "were removed by the topic's retention, or the topic was deleted and created again. The pipeline "
            "has skipped nothing, and stops. To continue without these records, set options.failOnDataLoss "
            f"= false; if the topic was created again, {ANEW}"
        )
    if "UnknownTopicOrPartitionException" in text:
        topics = find_option(options, "subscribe") or find_option(options, "assign") or "that it reads"
        return KafkaError(
            f"{key}: the topic {topics} does not exist, or was deleted: create it, and run again"
        )
    if "AuthorizationException" in text or "AuthenticationException" in text:
        return KafkaError(f"{key}: Kafka refuses access: {_last_cause(text)}")
    if "org.apache.kafka" in text and _NO_ANSWER.search(text):
        return _no_answer(key, options, text)
    return None


def _is_named(options: Options, text: str) -> bool:
    """Whether a text names one of the topics that a source subscribes to."""
    topics = (find_option(options, "subscribe") or "").split(",")
    return any(re.search(rf"\b{re.escape(topic.strip())}-\d", text) for topic in topics if topic.strip())


def explain_sink_failure(
    error: BaseException,
    key: Literal["deliveries", "rejects"],
    options: Options,
    describe_largest: Callable[[], str],
) -> KafkaError | None:
    """Return an error of the user that explains a failure to write to Kafka; None for any other failure."""
    text = str(error)  # with the stack trace of Java
    if "RecordTooLargeException" in text:
        return KafkaError(
            f"{key}: a topic takes only smaller records than options.'kafka.max.request.size' allows "
            f"({max_request_bytes(options):,} bytes). The largest is {describe_largest()}. Either set that "
            "option to the topic's max.message.bytes, and larger deliveries become rejects, or increase "
            "max.message.bytes. The next run repeats the batch"
        )
    if absent := _ABSENT.search(text):
        return KafkaError(
            f"{key}: the topic {absent[1]} does not exist, and the server does not create it, or does not "
            "answer: create the topic, and run again, which repeats the batch"
        )
    if "InvalidTopicException" in text:
        return KafkaError(f"{key}: Kafka refuses the name of the topic: {_last_cause(text)}")
    if "AuthorizationException" in text or "AuthenticationException" in text:
        return KafkaError(f"{key}: Kafka refuses access: {_last_cause(text)}")
    if _NOT_SENT.search(text):
        return _no_answer(key, options, text)
    return None


def _no_answer(key: str, options: Options, text: str) -> KafkaError:
    return KafkaError(
        f"{key}: Kafka at {find_option(options, SERVERS)} does not answer ({_last_cause(text)}); check "
        f'options."{SERVERS}" and the server, and run again'
    )


def _last_cause(text: str) -> str:
    """Return the message of the first exception of Kafka in a text."""
    found = re.search(r"org\.apache\.kafka\.common\.(?:errors\.(\w+)|KafkaException): ([^\n]*)", text)
    return found[2].strip() if found else text.splitlines()[0]
