"""The identity of a delivery, for sinks that replace what they have."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sapwood.spark.dataframe_match import column

DELIVERY_ID = "delivery_id"
"""The column that identifies a delivery."""


def add_delivery_id(deliveries: DataFrame) -> DataFrame:
    """Add the column DELIVERY_ID: the same for every delivery of the same message, or the same joined
    messages, to the same subscription, whatever version and batch it is of."""
    parts = ("subscription", "stream", "message_id", "messages")
    known = [column(name) for name in parts if name in deliveries.columns]
    identity = F.to_json(F.struct(*known))  # without the fields that are null
    return deliveries.withColumn(DELIVERY_ID, F.substring(F.sha2(identity, 256), 1, 32))
