"""What Delta needs of a session and of a pipeline file, without Delta."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from sapwood.config_file import ConfigError
from sapwood.spark.deliveries.delivery_id import DELIVERY_ID, add_delivery_id
from sapwood.spark.io import delta_table
from sapwood.spark.io.delta_table import DeltaError, check_delta, delta_settings
from sapwood.spark.pipeline.config import PipelineConfig, parse_config
from sapwood.spark.pipeline.pipeline import Pipeline

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


def _parse(source: dict[str, Any] | None = None, folder: Path | None = None, **more: Any) -> PipelineConfig:
    given = {
        "source": {"format": "delta", "path": "inbox", "id": "id"} | (source or {}),
        "subscriptions": {"file": "queries.txt"},
        "deliveries": {"format": "delta", "path": "deliveries"},
        "rejects": {"format": "delta", "path": "rejects"},
        "run": {"checkpoint": "checkpoint"},
    }
    return parse_config(given | more, folder=folder)


def test_settings_that_are_configured_stay() -> None:
    assert delta_settings({}, "yarn") == {
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    configured = {
        "spark.sql.extensions": "a.Other",
        "spark.sql.catalog.spark_catalog": "a.Catalog",
        "spark.databricks.delta.snapshotPartitions": 7,
    }
    assert delta_settings(configured, "local[2]") == {
        "spark.sql.extensions": f"a.Other,{_EXTENSION}",
        "spark.sql.catalog.spark_catalog": "a.Catalog",
        "spark.databricks.delta.snapshotPartitions": "7",
    }


def test_a_session_without_delta(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "queries.txt").write_text("//a\n")
    with pytest.raises(DeltaError, match=r"needs Delta Lake.*io\.delta:delta-spark_4\.2_2\.13") as caught:
        Pipeline(spark, _parse(folder=tmp_path))
    assert ("pyspark==4.2" in str(caught.value)) == (not spark.version.startswith("4.2."))


def test_a_delta_of_another_spark(spark: SparkSession) -> None:
    jar = "file:/jars/delta-spark_3.9_2.13-3.9.1.jar"
    with (
        mock.patch.object(delta_table, "_find_jar", lambda spark: jar),
        pytest.raises(DeltaError, match=r"Delta Lake 3\.9\.1 is made for Spark 3\.9, and this is Spark 4\."),
    ):
        check_delta(spark)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"source": {"path": None}}, "'path' or 'table' is missing: the table to read"),
        ({"source": {"table": "a.b"}}, "'path' and 'table' exclude each other"),
        ({"source": {"changes": ["delete"]}}, "'changes' is for the change feed"),
        (
            {"source": {"changes": ["gone"], "options": {"readChangeFeed": True}}},
            "'insert', 'update_preimage'",
        ),
        ({"rejects": {"format": "delta"}}, "'path' or 'table' is missing: the table to write to"),
        ({"rejects": {"format": "json", "table": "a.b"}}, "'table' is for format = \"delta\""),
        ({"deliveries": {"path": "out", "mode": "merge"}}, "'mode': merge is for format = \"delta\""),
        (
            {
                "deliveries": {"format": "delta", "table": "a.b"},
                "rejects": {"format": "delta", "table": "A.b"},
            },
            "rejects.table is also deliveries.table",
        ),
        (
            {"source": {"path": None, "table": "a.b"}, "deliveries": {"format": "delta", "table": "a.b"}},
            "source.table is also deliveries.table",
        ),
    ],
)
def test_what_a_pipeline_file_cannot_have(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _parse(**given)
    assert problem in str(caught.value)


def test_truth_values_of_options_are_in_lower_case() -> None:
    config = _parse({"options": {"readChangeFeed": True, "startingVersion": 3}})
    assert config.source.option_texts() == {"readChangeFeed": "true", "startingVersion": "3"}


def test_ids_of_deliveries(spark: SparkSession) -> None:
    schema = "message_id STRING, stream STRING, subscription STRING, messages ARRAY<STRING>, batch INT"
    rows = [
        ("1", "S", "a", None, 0),
        ("1", "S", "a", None, 5),  # the same delivery, later
        ("1", "T", "a", None, 0),
        ("1", "S", "b", None, 0),
        ("1", "S", "a", ["1", "2"], 0),
        ("1", "S", "a", ["2", "1"], 0),
    ]
    ids = [row[DELIVERY_ID] for row in add_delivery_id(spark.createDataFrame(rows, schema)).collect()]
    assert ids[0] == ids[1] and len(set(ids)) == 5
    # a column that is null everywhere, and so may be missing, makes no difference
    fewer = spark.createDataFrame([("1", "S", "a")], "message_id STRING, stream STRING, subscription STRING")
    assert [row[DELIVERY_ID] for row in add_delivery_id(fewer).collect()] == ids[:1]
