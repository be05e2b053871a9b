"""The jars of Spark's connectors, in the one session of the tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sapwood.bench.harness.maven_jars import KAFKA_CONNECTOR, JarError
from tests.support.requirements import missing


@cache
def _fetch() -> list[Path] | str:
    """The jars, or the reason why there are none."""
    try:
        return KAFKA_CONNECTOR.fetch()
    except JarError as error:
        return str(error)


def connector_settings() -> dict[str, str]:
    """Settings of Spark with the jars; none if they cannot be fetched."""
    jars = _fetch()
    return {} if isinstance(jars, str) else {"spark.jars": ",".join(map(str, jars))}


def require_connectors() -> None:
    """Skips a test without the jars, or fails it where they are required."""
    jars = _fetch()
    if isinstance(jars, str):
        missing(jars)
