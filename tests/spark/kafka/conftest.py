"""One Kafka server for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sapwood.bench.harness.maven_jars import JarError
from sapwood.bench.spark.kafka_server import run_kafka
from tests.support.kafka import Kafka
from tests.support.requirements import missing
from tests.support.spark.connector_jars import require_connectors


@pytest.fixture(scope="session")
def kafka(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    require_connectors()
    try:
        with run_kafka(tmp_path_factory.mktemp("kafka")) as server:
            yield Kafka(server)
    except JarError as error:
        missing(str(error))
