"""The relational engine on Spark."""

from sapwood.spark.relational.table_match import match_relational

__all__ = ["match_relational"]
