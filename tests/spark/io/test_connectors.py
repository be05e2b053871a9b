"""A format whose connector Spark lacks is an error that names the package."""

from __future__ import annotations

from unittest import mock

import pytest
from pyspark.sql import SparkSession

from sapwood.spark.io.connectors import MissingConnector, check_connectors


def test_a_connector_that_is_missing(spark: SparkSession) -> None:
    packages = {"nosuch": "org.nowhere:nosuch_2.13:1.0", "json": "a:b:1"}
    with mock.patch("sapwood.spark.io.connectors._CONNECTORS", packages):
        check_connectors(spark, {"source.format": "json", "rejects.format": "parquet"})
        with pytest.raises(MissingConnector) as caught:
            check_connectors(spark, {"source.format": "json", "deliveries.format": "nosuch"})
    assert str(caught.value).startswith("deliveries.format: Spark lacks the connector of 'nosuch'")
    assert '[spark] packages = ["org.nowhere:nosuch_2.13:1.0"]' in str(caught.value)
