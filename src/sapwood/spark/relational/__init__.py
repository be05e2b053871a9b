"""The relational engine on Spark."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sapwood.spark.relational.table_match import match_relational

__all__ = ["match_relational"]

if not TYPE_CHECKING:  # for which any name would exist

    def __getattr__(name: str) -> object:
        """Import `match_relational` on first use: workers need the stages of this package only."""
        if name == "match_relational":
            from sapwood.spark.relational.table_match import match_relational

            return match_relational
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
