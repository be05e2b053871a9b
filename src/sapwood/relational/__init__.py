"""Subscriptions as tables: matching is a join, and the number of subscriptions is bounded by the disk.

    from sapwood.relational import RelationalMatcher

    with RelationalMatcher("subscriptions.duckdb", memory="512MB") as matcher:
        matcher.add("s1", "/stock[symbol = 'YHOO' and price > 50]")
        for matches in matcher.match_many(messages):
            print(list(matches))

`form` and `linear` know what a query is as rows, `schema` the tables, `plans` the statements that match a
batch; `population` and `tags` keep the tables in step with subscriptions and messages.
"""

from sapwood.relational.executor import MatchedIds
from sapwood.relational.relational_matcher import RelationalMatcher
from sapwood.relational.sql.cost_model import Choice, Statistics
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.vacuum import Garbage

__all__ = ["Choice", "Garbage", "MatchedIds", "Plan", "RelationalMatcher", "Statistics"]
