"""The pipeline on Apache Spark: sources, matching, sinks, checkpoints."""

from sapwood.spark.matching import match
from sapwood.spark.session import session
from sapwood.spark.sources import read_messages
from sapwood.spark.table_function import register

__all__ = ["match", "read_messages", "register", "session"]
