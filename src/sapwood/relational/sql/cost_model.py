"""Which plan: a simple model of what a batch costs with each, from a few counts.

Costs are in rows that are looked at. A batch looks through the tables once for each statement, and then at
the rules that come up for its messages. Chains are narrower, and shorter where rules begin alike; but each
level is a statement of its own, and what it finds is written down for the next. A row that holds the whole
rule is looked at once, and what does not fit is dropped on the spot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sapwood.relational.rules.rule_compiler import CompiledQuery
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.duckdb_database import Connection

_BATCH = 1_000
"""messages, for the comparison"""
_WIDE = 0.25
"""what a further column of a row costs, compared with a row"""
_WRITTEN = 6.0
"""what writing a row down for the next statement costs, compared with looking at it"""
_ROUND = 20_000
"""what a statement costs by itself"""
_HALVED = 0.6
"""share of rules that a bucket leaves"""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of a population."""

    rules: int
    facts: float
    bounds: float
    """of a rule, on average"""
    starts: int
    """distinct facts that rules begin with"""
    rarest: float
    """rules that share a rule's rarest fact, on average"""
    chained: float
    """rows of chains, where equal beginnings are one, as a share of all predicates"""
    levels: int
    """predicates of the longest rule"""


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan, what each would cost, and why; `str()` of it is for people."""

    plan: Plan
    costs: dict[Plan, float]
    statistics: Statistics
    in_use: Plan | None = None

    @property
    def best(self) -> Plan:
        return min(self.costs, key=lambda plan: self.costs[plan])

    def __str__(self) -> str:
        known = self.statistics
        lines = [
            f"plan        {self.plan.value}" + ("" if self.in_use is None else ", in use"),
            f"rules       {known.rules:,}, with {known.facts:.1f} facts and {known.bounds:.1f} bounds each",
            f"sharing     {1 - known.chained:.0%} of their predicates are in a beginning that others have",
            f"selectivity {known.rarest:,.1f} rules share a rule's rarest fact",
        ]
        for plan, cost in sorted(self.costs.items(), key=lambda item: item[1]):
            lines.append(f"{plan.value:11} {cost:,.0f} rows looked at by a message, {_WHY[plan]}")
        if self.in_use is not None and self.best is not self.in_use:
            lines.append(
                f"advice      {self.best.value} seems better by now: sapwood relational gc changes to it"
            )
        return "\n".join(lines)


_WHY = {
    Plan.SHARED: "level by level, equal beginnings once",
    Plan.BUCKETS: "level by level, ranges by the bucket first",
    Plan.UNROLLED: "a rule in one row",
}


def choose(known: Statistics, in_use: Plan | None = None) -> Choice:
    """The plan in use, or else the cheapest one, with the costs of all."""
    size = known.facts + known.bounds
    starting = known.rules / max(1, known.starts)
    rows = known.rules * size * known.chained
    rounds = known.levels * (rows + _ROUND) / _BATCH
    chained = rounds + _WRITTEN * max(1.0, starting) * size * known.chained
    costs = {
        Plan.UNROLLED: (known.rules * (1 + _WIDE * size) + _ROUND) / _BATCH
        + known.rarest * (1 + _WIDE * size),
        Plan.SHARED: chained,
        Plan.BUCKETS: (
            rounds
            + rounds / max(1, known.levels)
            + (chained - rounds) * (_HALVED if known.bounds >= 1 else 1.2)
        ),
    }
    best = min(costs, key=lambda plan: costs[plan])
    return Choice(in_use or best, costs, known, in_use)


def measured_in(queries: Iterable[CompiledQuery]) -> Statistics:
    """What is known of queries that are not in the tables yet."""
    rules = [rule for query in queries for rule in query.rules]
    uses: dict[object, int] = {}
    beginnings: set[object] = set()
    starts: set[object] = set()
    facts = bounds = levels = 0
    for rule in rules:
        path: tuple[object, ...] = ()
        for predicate in rule.predicates:
            path = (*path, predicate.path, predicate.comparison)
            beginnings.add(path)
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
        chained=len(beginnings) / max(1, facts + bounds),
        levels=levels,
    )


def measured(connection: Connection) -> Statistics:
    """What is known of the queries in the tables, the sharing by a sample."""
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
        SELECT coalesce(count(DISTINCT beginning) / nullif(count(*), 0), 1)
        FROM (SELECT hash(list((path, op, number, text)) OVER (PARTITION BY rule ORDER BY n)) AS beginning
              FROM predicate WHERE n > 0 AND rule IN (SELECT id FROM rule ORDER BY hash(id) LIMIT 50000)) b"""
    )
    return Statistics(rules, facts, bounds, starts, float(rarest), float(chained), levels)
