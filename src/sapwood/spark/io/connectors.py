"""Connectors: packages of Spark that a format needs, and that are no part of PySpark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sapwood.errors import SapwoodError

PACKAGES = "spark.jars.packages"
_CONNECTORS = {
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "delta": "io.delta:delta-spark_4.2_2.13:4.4.0",
}
"""The package of each format that PySpark lacks."""
_COORDINATES = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")


class MissingConnector(SapwoodError):
    """Raised when Spark lacks the connector of a format; says what to add to the pipeline file."""


def check_connectors(spark: SparkSession, formats: Mapping[str, str]) -> None:
    """Raise MissingConnector if Spark lacks the connector of a format; `formats` are by key of the file."""
    jvm: Any = spark._jvm
    source = jvm.org.apache.spark.sql.execution.datasources.DataSource
    for key, format in formats.items():
        if format not in _CONNECTORS:
            continue
        try:
            source.lookupDataSource(format, spark._jsparkSession.sessionState().conf())
        except (PySparkException, Py4JJavaError):  # it depends on the format
            raise MissingConnector(
                f"{key}: Spark lacks the connector of {format!r}, which is a package of its own. Add to the "
                f'pipeline file [spark] packages = ["{_CONNECTORS[format]}"], or its jars as "spark.jars"; '
                "docs/how-to/kafka.md says more"
            ) from None


def expand_packages(settings: Any) -> Any:
    """Replace the list `packages` in Spark's settings by Spark's own setting; raise ValueError if a package
    is not of the form group:artifact:version."""
    if not isinstance(settings, dict) or "packages" not in settings:
        return settings
    packages = settings["packages"]
    if not isinstance(packages, list) or not packages:
        raise ValueError(f"'packages': a list of strings is expected, such as [\"{_CONNECTORS['kafka']}\"]")
    for package in packages:
        if not isinstance(package, str) or not _COORDINATES.fullmatch(package):
            raise ValueError(
                f"'packages': {package!r} is not group:artifact:version, such as {_CONNECTORS['kafka']!r}"
            )
    if PACKAGES in settings:
        raise ValueError(f"'packages' and '{PACKAGES}' exclude each other: keep one of them")
    others = {key: value for key, value in settings.items() if key != "packages"}
    return others | {PACKAGES: ",".join(packages)}


def find_unresolved(lines: Iterable[str]) -> str | None:
    """Return why Spark could not fetch packages, from its output; None if it says nothing about that."""
    found = None
    for line in lines:
        if match := re.search(r"RuntimeException: \[((?:unresolved dependency|download failed).*)\]", line):
            found = match[1]
    return found
