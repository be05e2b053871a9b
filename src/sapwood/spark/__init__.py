"""Sapwood on Apache Spark: DataFrames, SQL and the streaming pipeline."""

from sapwood.spark.dataframe_match import match
from sapwood.spark.io.formats import read_messages
from sapwood.spark.spark_session import session
from sapwood.spark.table_function import register

__all__ = ["match", "read_messages", "register", "session"]
