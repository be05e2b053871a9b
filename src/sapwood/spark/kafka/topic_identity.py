"""The identity of topics: whether a topic is the one whose offsets a checkpoint has.

A topic that is deleted and created again has the same name, and offsets that begin anew. As long as there are
fewer records than before, Spark notices that; when there are more, it would skip those below its offset. But
Kafka gives every topic an id, which is recorded in the checkpoint and compared before each batch:

    sapwood/kafka/topics    {"0": {"orders": "tfZ6jmjlQd-IE0SMAR5idA"}}, by the number of the source
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from sapwood.spark.io.file_system import TextFolder, open_text_folder
from sapwood.spark.kafka.kafka_failures import ANEW, KafkaError, explain_source_failure
from sapwood.spark.kafka.kafka_options import Options, client_properties, fails_on_data_loss, find_option
from sapwood.spark.pipeline.batch_log import parse_record

_log = logging.getLogger(__name__)
_FILE = "topics"
_START_MILLISECONDS, _BATCH_MILLISECONDS = 30_000, 10_000
"""How long the answer may take: at the start of a run, and before a batch."""
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of a topic on a server that has none."""


class TopicIdentities:
    """The ids of the topics of a pipeline's sources, and those in its checkpoint."""

    def __init__(self, spark: SparkSession, sources: Mapping[int, Options], checkpoint: str | None) -> None:
        """`sources` are the options of the sources that are Kafka, by their number from 0. Without a
        `checkpoint`, ids are not compared."""
        self._jvm: Any = spark._jvm
        self._sources = {number: _TopicList(spark, options) for number, options in sources.items()}
        self._folder: TextFolder | None = None
        self._known: dict[str, dict[str, str]] = {}
        if checkpoint is not None and sources:
            self._folder = open_text_folder(spark, f"{checkpoint}/sapwood/kafka")
            text = self._folder.read(_FILE)
            self._known = {} if text is None else parse_record(text, self._folder.path_of(_FILE))

    def check_start(self) -> None:
        """Raise KafkaError if a topic does not exist, is not the one in the checkpoint, or Kafka does not
        answer."""
        for number, topics in self._sources.items():
            key = self._key(number)
            try:
                found = topics.ids(_START_MILLISECONDS)
            except Py4JJavaError as error:
                explained = explain_source_failure(error, {key: topics.options})
                if explained is None:
                    raise
                raise explained from error
            self._compare(number, found, record=False)

    def check_batch(self) -> None:
        """Raise KafkaError if a topic is not the one in the checkpoint; record the ids of new ones."""
        for number, topics in self._sources.items():
            try:
                found = topics.ids(_BATCH_MILLISECONDS)
            except Py4JError as error:  # Spark itself has an answer if the topic is gone; or the next batch
                _log.warning(
                    "the ids of topics are not known, so that they are checked with the next batch: %s",
                    str(error).splitlines()[0],
                )
                continue
            self._compare(number, found, record=True)

    def count_partitions(self) -> int:
        """Return the number of partitions of all topics."""
        return sum(topics.count_partitions(_START_MILLISECONDS) for topics in self._sources.values())

    def close(self) -> None:
        """Close the connections."""
        for topics in self._sources.values():
            topics.close()

    def _key(self, number: int) -> str:
        return "source" if len(self._sources) == 1 else f"source #{number + 1}"

    def _compare(self, number: int, found: dict[str, str], record: bool) -> None:
        known = self._known.get(str(number), {})
        for topic, id in found.items():
            if self._folder is None or known.get(topic, id) == id:
                continue
            problem = (
                f"{self._key(number)}: the topic {topic} is not the one whose records this pipeline has "
                "processed, but was created again under the same name: its id has changed"
            )
            if fails_on_data_loss(self._sources[number].options):
                raise KafkaError(
                    f"{problem}. Its offsets began anew, so the pipeline cannot continue: {ANEW}"
                )
            _log.warning("%s. Since failOnDataLoss is false, the pipeline continues at its offsets", problem)
        if record and self._folder is not None and not found.items() <= known.items():
            self._known[str(number)] = known | found
            self._folder.write(_FILE, json.dumps(self._known))


class _TopicList:
    """The topics of a source, with their ids."""

    def __init__(self, spark: SparkSession, options: Options) -> None:
        self._jvm: Any = spark._jvm
        self.options = options
        self._client: Any = None

    def ids(self, milliseconds: int) -> dict[str, str]:
        """Return the ids of the topics by name."""
        described = self._describe(milliseconds)
        found = {name: str(described.get(name).topicId().toString()) for name in list(described.keySet())}
        return {str(name): id for name, id in found.items() if id != _NO_ID}

    def count_partitions(self, milliseconds: int) -> int:
        """Return the number of partitions that are read."""
        if (assigned := find_option(self.options, "assign")) is not None:
            return sum(len(partitions) for partitions in json.loads(assigned).values())
        return sum(each.partitions().size() for each in list(self._describe(milliseconds).values()))

    def _describe(self, milliseconds: int) -> Any:
        """Return Kafka's descriptions of the topics, a map by name."""
        names = self._jvm.java.util.ArrayList()
        for name in self._names(milliseconds):
            names.add(name)
        options = self._jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions().timeoutMs(milliseconds)
        return self._connect().describeTopics(names, options).allTopicNames().get()

    def _names(self, milliseconds: int) -> list[str]:
        if (listed := find_option(self.options, "subscribe")) is not None:
            return [name.strip() for name in listed.split(",") if name.strip()]
        if (assigned := find_option(self.options, "assign")) is not None:
            return list(json.loads(assigned))
        pattern = self._compile_pattern()
        options = self._jvm.org.apache.kafka.clients.admin.ListTopicsOptions().timeoutMs(milliseconds)
        all_names = list(self._connect().listTopics(options).names().get())
        return [name for name in all_names if pattern.matcher(name).matches()]

    def _compile_pattern(self) -> Any:
        """Compile `subscribePattern` as Spark does; KafkaError if it is not a regular expression of Java."""
        text = find_option(self.options, "subscribePattern") or ""
        try:
            return self._jvm.java.util.regex.Pattern.compile(text)
        except IllegalArgumentException as error:
            raise KafkaError(
                f"source.options.subscribePattern: {text!r} is not a regular expression of Java: "
                f"{str(error).splitlines()[0]}"
            ) from None

    def _connect(self) -> Any:
        if self._client is None:
            properties = self._jvm.java.util.Properties()
            for key, value in client_properties(self.options).items():
                properties.put(key, value)
            self._client = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        return self._client

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None
