"""The cost model that chooses a plan: estimates the rows that a batch reads with each.

A batch scans the tables once for each statement, and then reads the rules that its messages lead to. Chains
are narrower, and shorter where rules share prefixes; but each level is a statement of its own, and its result
is written for the next one. A row with the whole rule is read once, and filtered on the spot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sapwood.relational.rules.rule_compiler import CompiledQuery
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.duckdb_database import Connection

# in rows read, unless noted otherwise
_COLUMN_COST = 0.25  # of a further column of a row
_WRITE_COST = 6.0  # of a row that is written for the next statement
_STATEMENT_COST = 20_000  # of a statement by itself
_BUCKET_SELECTIVITY = 0.6  # the share of rules that pass a bucket
_BATCH = 1_000  # messages over which scans are spread


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of the subscriptions, as far as costs depend on them."""

    rules: int
    facts: float
    bounds: float
    """of a rule, on average"""
    starts: int
    """distinct first facts of rules"""
    rarest: float
    """rules that share a rule's rarest fact, on average"""
    chained: float
    """rows of chains, where equal prefixes are shared, as a share of all predicates"""
    levels: int
    """predicates of the longest rule"""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen plan, the estimated cost of each plan, and the statistics; `str()` formats them."""

    plan: Plan
    costs: dict[Plan, float]
    statistics: Statistics
    in_use: Plan | None = None

    @property
    def best(self) -> Plan:
        """The plan with the lowest cost, which need not be the one in use."""
        return min(self.costs, key=lambda plan: self.costs[plan])

    def __str__(self) -> str:
        statistics = self.statistics
        lines = [
            f"plan        {self.plan.value}" + ("" if self.in_use is None else ", in use"),
            f"rules       {statistics.rules:,}, with {statistics.facts:.1f} facts and "
            f"{statistics.bounds:.1f} bounds each",
            f"sharing     {1 - statistics.chained:.0%} of their predicates are in a shared prefix",
            f"selectivity {statistics.rarest:,.1f} rules share a rule's rarest fact",
        ]
        for plan, cost in sorted(self.costs.items(), key=lambda item: item[1]):
            lines.append(f"{plan.value:11} {cost:,.0f} rows read for a message, {_PLAN_SUMMARIES[plan]}")
        if self.in_use is not None and self.best is not self.in_use:
            lines.append(
                f"advice      {self.best.value} has the lowest cost now: sapwood relational gc changes to it"
            )
        return "\n".join(lines)


_PLAN_SUMMARIES = {
    Plan.SHARED: "level by level, equal prefixes once",
    Plan.BUCKETS: "level by level, ranges by bucket first",
    Plan.UNROLLED: "a rule in one row",
}


def choose_plan(statistics: Statistics, in_use: Plan | None = None) -> Choice:
    """Return the plan in use, or else the cheapest one, with the costs of all."""
    size = statistics.facts + statistics.bounds
    rules_per_start = statistics.rules / max(1, statistics.starts)
    rows = statistics.rules * size * statistics.chained
    scans = statistics.levels * (rows + _STATEMENT_COST) / _BATCH
    chained = scans + _WRITE_COST * max(1.0, rules_per_start) * size * statistics.chained
    costs = {
        Plan.UNROLLED: (statistics.rules * (1 + _COLUMN_COST * size) + _STATEMENT_COST) / _BATCH
        + statistics.rarest * (1 + _COLUMN_COST * size),
        Plan.SHARED: chained,
        Plan.BUCKETS: (
            scans
            + scans / max(1, statistics.levels)
            + (chained - scans) * (_BUCKET_SELECTIVITY if statistics.bounds >= 1 else 1.2)
        ),
    }
    best = min(costs, key=lambda plan: costs[plan])
    return Choice(in_use or best, costs, statistics, in_use)


def estimate_statistics(queries: Iterable[CompiledQuery]) -> Statistics:
    """Compute the statistics of queries that are not in the tables yet."""
    rules = [rule for query in queries for rule in query.rules]
    uses: dict[object, int] = {}
    prefixes: set[object] = set()
    starts: set[object] = set()
    facts = bounds = levels = 0
    for rule in rules:
        path: tuple[object, ...] = ()
        for predicate in rule.predicates:
            path = (*path, predicate.path, predicate.comparison)
            prefixes.add(path)
            facts += predicate.comparison.is_fact
            bounds += not predicate.comparison.is_fact
            if predicate.comparison.is_fact:
                uses[predicate[:2]] = uses.get(predicate[:2], 0) + 1
        if rule.predicates:
            starts.add(rule.predicates[0][:2])
        levels = max(levels, len(rule.predicates))
    rarest = [
        min((uses[p[:2]] for p in rule.predicates if p.comparison.is_fact), default=len(rules))
        for rule in rules
    ]
    count = max(1, len(rules))
    return Statistics(
        rules=len(rules),
        facts=facts / count,
        bounds=bounds / count,
        starts=len(starts),
        rarest=sum(rarest) / count,
        chained=len(prefixes) / max(1, facts + bounds),
        levels=levels,
    )


def read_statistics(connection: Connection) -> Statistics:
    """Read the statistics of the queries in the tables, the sharing from a sample."""
    rules, facts, bounds, levels = connection.rows(
        """
        SELECT count(*), coalesce(avg(facts), 0), coalesce(avg(size - facts), 0), coalesce(max(size), 0)
        FROM (SELECT rule, count(fact) AS facts, count(*) AS size
              FROM predicate WHERE n > 0 GROUP BY rule) r"""
    )[0]
    starts = connection.value("SELECT count(DISTINCT fact) FROM predicate WHERE n = 1 AND fact IS NOT NULL")
    rarest = connection.value(
        """
        SELECT coalesce(avg(uses), 0)
        FROM (SELECT p.rule, min(u.uses) AS uses
              FROM predicate p JOIN (SELECT fact, count(*) AS uses FROM predicate GROUP BY fact) u
                               ON u.fact = p.fact
              GROUP BY p.rule) r"""
    )
    chained = connection.value(
        """
        SELECT coalesce(count(DISTINCT prefix) / nullif(count(*), 0), 1)
        FROM (SELECT hash(list((path, op, number, text)) OVER (PARTITION BY rule ORDER BY n)) AS prefix
              FROM predicate WHERE n > 0 AND rule IN (SELECT id FROM rule ORDER BY hash(id) LIMIT 50000)) b"""
    )
    return Statistics(rules, facts, bounds, starts, float(rarest), float(chained), levels)
