"""Snapshots of the tables for other engines: a base, and the delta since then.

When subscriptions change, a snapshot need not be written again as a whole. Ids of rules, chains, facts and
queries are ascending, so new rows have higher ids than those of the *base*. Deleted rows may stay in it: no
subscription refers to them any more. So of all tables, only `subscription` has to be exact. A replaced
subscription keeps its number; hence the *delta* of subscriptions is found by comparison, in ranges of
numbers, of which only those with another digest are compared.

A large base is partitioned by the columns that its rows are looked up by, so that a lookup reads few
partitions. Small tables have no snapshot, but are passed as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa

from sapwood.relational.rules.comparisons import EQUAL_NUMBER, EQUAL_TEXT
from sapwood.relational.sql.match_plan import TRUE_FACT, Plan
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.storage.table_schema import TABLES

SMALL_TABLES = ("path_match", "path_class", "class_tag", "shape_part")
"""tables that are passed as a whole"""
RANGE_BITS = 20
"""the number of low bits in which the numbers of subscriptions of one range differ"""
_MIN_CHANGES_FOR_BASE = 5_000
"""the maximal number of rules that may be new or deleted without a new base"""
_RULES_PER_PARTITION = 50_000
"""rules that are worth a further partition of each table"""
_MAX_PARTITIONS = 16
_LAYOUT = 2
"""the version of the columns of the tables here"""
_COUNTERS = ("rule", "chain", "fact", "query")
_TYPES = {
    "BIGINT": pa.int64(),
    "INTEGER": pa.int32(),
    "TINYINT": pa.int8(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
}
Counters = dict[str, int]


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table of a snapshot.

    new       the condition for new rows, with the counters of the base
    where     the condition for rows that statements read
    by        the expression that rows are looked up by, and partitioned by
    order     the sort order, if sorting is worth its cost
    without   columns that no statement reads
    rule      columns of its rule, which each row has besides
    """

    name: str
    new: str
    where: str = "true"
    by: str = ""
    order: str = ""
    without: tuple[str, ...] = ()
    rule: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        own = [column.split() for column in TABLES[self.name].split(", ")]
        rule = [column.split() for column in TABLES["rule"].split(", ")]
        columns = [(name, kind) for name, kind in own if name not in self.without]
        columns += [(name, kind) for name, kind in rule if name in self.rule]
        return pa.schema([(name, _TYPES[kind]) for name, kind in columns])

    def partition_conditions(self, count: int) -> list[str]:
        """Return the conditions of the partitions; rows without a lookup value have one of their own."""
        if not self.by or count == 1:
            return ["true"]
        return [f"{partition_expression(self.by, count)} = {partition}" for partition in range(count)] + [
            f"{self.by} IS NULL"
        ]

    def partitions_for(self, count: int, values: Iterable[int]) -> list[int]:
        """Return the partitions with the rows for some values of `partition_expression`."""
        return sorted({*values, count} if self.by and count > 1 else {0})

    def sql(self, partition: str = "true") -> str:
        """Return the query for a partition."""
        order = f"ORDER BY {self.order}" if self.order else ""
        return f"{self._select} AND {partition} {order}"

    def new_sql(self, since: Counters) -> str:
        """Return the query for the rows that are new since the base."""
        return f"{self._select} AND ({self.new.format(**since)})"

    @property
    def _select(self) -> str:
        columns = ", ".join(("id AS rule", *self.rule))
        joined = f"JOIN (SELECT {columns} FROM rule) r USING (rule)" if self.rule else ""
        return f"SELECT {', '.join(self.schema.names)} FROM {self.name} {joined} WHERE ({self.where})"


def partition_expression(column: str, count: int) -> str:
    """Return the partition of a column's value as SQL of any engine; the count is a power of two."""
    return f"({column} & {count - 1})"


SUBSCRIPTION = SnapshotTable("subscription", "false")
_EQUALITY_KEY = f"(CASE WHEN op IN ({EQUAL_TEXT}, {EQUAL_NUMBER}) THEN key END)"
_NEW_CHAIN_ROWS = "id >= CASE WHEN final THEN {rule} ELSE {chain} END"
_COMMON_TABLES = (
    SnapshotTable("fact", "id >= {fact}", by=_EQUALITY_KEY),
    SnapshotTable("rule", "id >= {rule}", by="id"),
    # only branching points need the values of predicates again
    SnapshotTable("predicate", "rule >= {rule}", "branching IS NOT NULL", by="rule", without=("fact",)),
    # those that may need a residual check
    SnapshotTable(
        "query",
        "id >= {query}",
        "NOT exact OR id IN (SELECT query FROM rule WHERE shape IS NOT NULL)",
        without=("digest1", "digest2"),
    ),
    SnapshotTable("fact_chain", _NEW_CHAIN_ROWS, by="fact", order="level, pre"),
    SnapshotTable("bound_chain", _NEW_CHAIN_ROWS, order="level, pre"),
)
_UNROLLED = SnapshotTable("unrolled", "rule >= {rule}", by="fact1", order="fact1", rule=("query", "shape"))
LOOKUP_STEPS = {
    "probe": ("key", ("fact",)),
    TRUE_FACT: ("fact", ("unrolled", "fact_chain")),
    "found": ("rule", ("rule",)),
    "candidate": ("rule", ("predicate",)),
}
"""Steps of plans, with the column by which later steps look up rows, and the tables with these rows."""


def snapshot_tables(plan: Plan) -> tuple[SnapshotTable, ...]:
    """Return the tables that statements of a plan read, but for subscriptions and small ones."""
    return (*_COMMON_TABLES, _UNROLLED) if plan is Plan.UNROLLED else _COMMON_TABLES


def read_small_tables(connection: Connection) -> dict[str, pa.Table]:
    """Read the small tables."""
    return {name: connection.arrow(f"SELECT * FROM {name}") for name in SMALL_TABLES}


# -- versions ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableVersions:
    """The state of the tables at a snapshot, by which later changes are found.

    counters  the next ids
    rules     the number of rules
    chained   whether any rule has a chain
    ranges    digests of the numbers and queries of subscriptions, by range
    """

    plan: Plan
    counters: Counters
    rules: int
    chained: bool
    ranges: dict[int, str]

    @property
    def partitions(self) -> int:
        """The number of partitions of the base: a power of two."""
        return min(_MAX_PARTITIONS, 1 << (self.rules // _RULES_PER_PARTITION).bit_length())

    def to_json(self) -> str:
        """Return the state as JSON; the ranges are called `stretches` there."""
        fields = asdict(self)
        return json.dumps(fields | {"stretches": fields.pop("ranges"), "layout": _LAYOUT})

    @classmethod
    def from_json(cls, text: str) -> TableVersions | None:
        """Return the state that `to_json` has written; None if that was for files with other columns."""
        fields = json.loads(text)
        if fields.pop("layout", 1) != _LAYOUT:
            return None
        ranges = {int(number): digest for number, digest in fields.pop("stretches").items()}
        return cls(**fields | {"plan": Plan(fields["plan"]), "ranges": ranges})


def read_table_versions(connection: Connection, plan: Plan) -> TableVersions:
    """Read the state of the tables as the connection sees them, by a scan of narrow columns."""
    ranges = connection.rows(
        f"""
        SELECT number >> {RANGE_BITS}, CAST(sum(hash(number, query)) AS VARCHAR)
        FROM subscription GROUP BY 1"""
    )
    counters = dict(connection.rows("SELECT name, next FROM counter"))
    return TableVersions(
        plan,
        {name: counters[name] for name in _COUNTERS},
        connection.value("SELECT count(*) FROM rule"),
        _lowest_chain_id(connection) is not None,
        dict(ranges),
    )


def is_outdated(connection: Connection, base: TableVersions, now: TableVersions) -> bool:
    """Return whether access structures were rebuilt since the base, or too much has changed for a delta."""
    if base.plan is not now.plan:
        return True
    lowest = _lowest_chain_id(connection)
    # Rebuilt chains have higher ids. (Or all rules with chains are deleted.)
    if base.chained and (lowest is None or lowest >= base.counters["chain"]):
        return True
    new = connection.value(f"SELECT count(*) FROM rule WHERE id >= {base.counters['rule']}")
    deleted = base.rules - (now.rules - new)
    return bool(max(new, deleted) > max(_MIN_CHANGES_FOR_BASE, base.rules // 10))


def _lowest_chain_id(connection: Connection) -> int | None:
    found: int | None = connection.value(
        """
        SELECT min(id) FROM (SELECT min(id) AS id FROM fact_chain WHERE NOT final
                             UNION ALL SELECT min(id) FROM bound_chain WHERE NOT final
                             UNION ALL SELECT min(next) FROM unrolled) c"""
    )
    return found


# -- subscriptions -------------------------------------------------------------------------------------


def subscription_range_sql(number: int) -> str:
    """Return the query for the subscriptions of a range."""
    first = number << RANGE_BITS
    return f"SELECT * FROM subscription WHERE number BETWEEN {first} AND {first + (1 << RANGE_BITS) - 1}"


def changed_ranges(base: TableVersions, now: TableVersions) -> list[int]:
    """Return the ranges whose subscriptions have changed."""
    numbers = sorted(base.ranges.keys() | now.ranges.keys())
    return [number for number in numbers if base.ranges.get(number) != now.ranges.get(number)]


def subscription_delta(
    connection: Connection, base_ranges: Iterable[tuple[int, pa.Table]]
) -> tuple[pa.Table, pa.Table]:
    """Return the subscriptions that a base lacks, and number and query of those that only it has.

    `base_ranges` has number and query of the base's subscriptions in each range that has changed.
    """
    added = [SUBSCRIPTION.schema.empty_table()]
    deleted = [added[0].select(["number", "query"])]
    for number, base in base_ranges:
        current = f"({subscription_range_sql(number)})"
        with connection.register(base=base):
            added.append(
                connection.arrow(
                    f"""
                    SELECT s.* FROM {current} s
                    ANTI JOIN base b ON b.number = s.number AND b.query = s.query"""
                )
            )
            deleted.append(
                connection.arrow(
                    f"""
                    SELECT b.number, b.query FROM base b
                    ANTI JOIN {current} s ON s.number = b.number AND s.query = b.query"""
                )
            )
    return pa.concat_tables(added), pa.concat_tables(deleted)
