"""The pipeline on Apache Spark: sources, matching, sinks, checkpoints."""

from sapwood.spark.matching import match

__all__ = ["match"]
