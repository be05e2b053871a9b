"""The relational engine: subscriptions as tables, matched by joins, so that the disk bounds their number.

    from sapwood.relational import RelationalMatcher

    with RelationalMatcher("subscriptions.duckdb", memory="512MB") as matcher:
        matcher.add("s1", "/stock[symbol = 'YHOO' and price > 50]")
        for matches in matcher.match_many(messages):
            print(list(matches))

    rules/      queries as rules, and the access structures that lead from values to rules
    paths/      linear paths of queries, tag paths of messages, and which match which
    sql/        the statements that match a batch, the SQL dialects, the cost model
    storage/    the DuckDB database: schema, loading, vacuum, snapshots, synchronisation with a store

`subscription_catalog` changes subscriptions, `shredder` turns messages into rows, `executor` runs the
statements, and `residual` evaluates the candidates that rules do not decide.
"""

from sapwood.relational.executor import MatchedIds
from sapwood.relational.relational_matcher import RelationalMatcher
from sapwood.relational.sql.cost_model import Choice, Statistics
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.vacuum import Garbage

__all__ = ["Choice", "Garbage", "MatchedIds", "Plan", "RelationalMatcher", "Statistics"]
