"""The tables for other engines: what their statements read, and what has changed since they last looked.

Whoever has a copy of the tables, a *base*, need not copy all of them again when subscriptions change. Numbers
of rules, chains, facts and queries only ever ascend, so what is new is above those that the base has. What is
gone need not be taken out of the copy: no subscription leads to it any more. So of all tables, only
`subscription` has to be exact. A subscription that is replaced keeps its number; hence rows that come and go
are found by comparison, in stretches of numbers, of which only those are looked at whose digest has changed.

A large base is cut into parts by the values that its rows are looked up by, so that whoever knows the values
reads few of them. Small tables are not copied, but handed over whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa

from sapwood.relational.rules.comparisons import EQUAL_NUMBER, EQUAL_TEXT
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.storage.table_schema import TABLES

SMALL = ("path_match", "path_class", "class_tag", "shape_part")
"""tables that statements read, and that are handed over whole"""
STRETCH = 20
"""subscriptions whose numbers differ only in so many bits are in one stretch"""
_FEW = 5_000
"""so many rules may always be new or gone"""
_PART = 50_000
"""rules that are worth a part of each table"""
_MOST_PARTS = 16
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
    """A table that is copied: which rows, and how to tell new ones."""

    name: str
    new: str
    """the condition, with the counters at the time of the base"""
    where: str = "true"
    by: str = ""
    """the column, or what is made of some, that rows are looked up by: a part has those with some values"""
    order: str = ""
    """what to have close together, if that is worth a sort"""
    without: tuple[str, ...] = ()
    """columns that nobody reads"""

    @property
    def schema(self) -> pa.Schema:
        columns = [column.split() for column in TABLES[self.name].split(", ")]
        return pa.schema([(name, _TYPES[kind]) for name, kind in columns if name not in self.without])

    def parts(self, count: int) -> list[str]:
        """The conditions of its parts; rows that are not looked up by a value are a part of their own."""
        if not self.by or count == 1:
            return ["true"]
        return [f"{partition_expression(self.by, count)} = {part}" for part in range(count)] + [
            f"{self.by} IS NULL"
        ]

    def needed(self, count: int, values: Iterable[int]) -> list[int]:
        """The parts that have the rows for values, given what `partition_expression` tells of these."""
        return sorted({*values, count} if self.by and count > 1 else {0})

    def sql(self, part: str = "true") -> str:
        """What reads a part of it."""
        order = f"ORDER BY {self.order}" if self.order else ""
        return f"{self._select} AND {part} {order}"

    def new_sql(self, since: Counters) -> str:
        """What reads the rows that are new since the base was made."""
        return f"{self._select} AND ({self.new.format(**since)})"

    @property
    def _select(self) -> str:
        return f"SELECT {', '.join(self.schema.names)} FROM {self.name} WHERE ({self.where})"


def partition_expression(column: str, count: int) -> str:
    """The part that the rows with a column's value are in, of a power of two; in any engine's words."""
    return f"({column} & {count - 1})"


SUBSCRIPTION = SnapshotTable("subscription", "false")
_EQUAL_TO = f"(CASE WHEN op IN ({EQUAL_TEXT}, {EQUAL_NUMBER}) THEN key END)"
_CHAINED = "id >= CASE WHEN final THEN {rule} ELSE {chain} END"
_ALWAYS = (
    SnapshotTable("fact", "id >= {fact}", by=_EQUAL_TO),
    SnapshotTable("rule", "id >= {rule}", by="id"),
    # where branches hang together, and only there, values are looked at once more
    SnapshotTable("predicate", "rule >= {rule}", "branching IS NOT NULL", by="rule", without=("fact",)),
    # those that rules alone may not decide
    SnapshotTable(
        "query",
        "id >= {query}",
        "NOT exact OR id IN (SELECT query FROM rule WHERE shape IS NOT NULL)",
        without=("digest1", "digest2"),
    ),
    SnapshotTable("fact_chain", _CHAINED, by="fact", order="level, pre"),
    SnapshotTable("bound_chain", _CHAINED, order="level, pre"),
)
_UNROLLED = SnapshotTable("unrolled", "rule >= {rule}", by="fact1", order="fact1")
LOOKED_UP = {
    "probe": ("key", ("fact",)),
    "holding": ("fact", ("unrolled", "fact_chain")),
    "found": ("rule", ("rule", "predicate")),
}
"""The steps of plans, and the column of each by which those that follow look rows of tables up"""


def snapshot_tables(plan: Plan) -> tuple[SnapshotTable, ...]:
    """The tables that statements of a plan read, but for subscriptions and small ones."""
    return (*_ALWAYS, _UNROLLED) if plan is Plan.UNROLLED else _ALWAYS


def read_small_tables(connection: Connection) -> dict[str, pa.Table]:
    """The small tables."""
    return {name: connection.arrow(f"SELECT * FROM {name}") for name in SMALL}


# -- what a base was made of ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableVersions:
    """What a base was made of, so that what has changed since can be found."""

    plan: Plan
    counters: Counters
    rules: int
    chained: bool
    """whether any rule has a chain"""
    stretches: dict[int, str]
    """of subscriptions, with a digest of who has which query"""

    @property
    def parts(self) -> int:
        """Into how many parts the base is cut: a power of two."""
        return min(_MOST_PARTS, 1 << (self.rules // _PART).bit_length())

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> TableVersions:
        """What `str` has written."""
        found = json.loads(text)
        stretches = {int(number): digest for number, digest in found["stretches"].items()}
        return cls(**found | {"plan": Plan(found["plan"]), "stretches": stretches})


def read_table_versions(connection: Connection, plan: Plan) -> TableVersions:
    """The marks of the tables as the connection sees them, by a scan of narrow columns."""
    stretches = connection.rows(
        f"""
        SELECT number >> {STRETCH}, CAST(sum(hash(number, query)) AS VARCHAR)
        FROM subscription GROUP BY 1"""
    )
    counters = dict(connection.rows("SELECT name, next FROM counter"))
    return TableVersions(
        plan,
        {name: counters[name] for name in _COUNTERS},
        connection.value("SELECT count(*) FROM rule"),
        _oldest_chain(connection) is not None,
        dict(stretches),
    )


def is_outdated(connection: Connection, base: TableVersions, now: TableVersions) -> bool:
    """Whether rules have been filed anew since the base, or so much has changed that it had better be made
    anew."""
    if base.plan is not now.plan:
        return True
    oldest = _oldest_chain(connection)
    # If all were filed anew in the same way, chains have other numbers. (Or all that had any are gone.)
    if base.chained and (oldest is None or oldest >= base.counters["chain"]):
        return True
    new = connection.value(f"SELECT count(*) FROM rule WHERE id >= {base.counters['rule']}")
    gone = base.rules - (now.rules - new)
    return bool(max(new, gone) > max(_FEW, base.rules // 10))


def _oldest_chain(connection: Connection) -> int | None:
    found: int | None = connection.value(
        """
        SELECT min(id) FROM (SELECT min(id) AS id FROM fact_chain WHERE NOT final
                             UNION ALL SELECT min(id) FROM bound_chain WHERE NOT final
                             UNION ALL SELECT min(next) FROM unrolled) c"""
    )
    return found


# -- subscriptions -------------------------------------------------------------------------------------


def subscriptions_sql(stretch: int) -> str:
    """What reads the subscriptions of a stretch."""
    first = stretch << STRETCH
    return f"SELECT * FROM subscription WHERE number BETWEEN {first} AND {first + (1 << STRETCH) - 1}"


def changed_stretches(base: TableVersions, now: TableVersions) -> list[int]:
    """The stretches of subscriptions that are not as they were."""
    numbers = sorted(base.stretches.keys() | now.stretches.keys())
    return [number for number in numbers if base.stretches.get(number) != now.stretches.get(number)]


def subscription_delta(
    connection: Connection, stretches: Iterable[tuple[int, pa.Table]]
) -> tuple[pa.Table, pa.Table]:
    """The subscriptions that a base lacks, and number and query of those that only it has; given these of
    all its subscriptions, in each stretch that has changed."""
    come = [SUBSCRIPTION.schema.empty_table()]
    gone = [come[0].select(["number", "query"])]
    for stretch, there in stretches:
        here = f"({subscriptions_sql(stretch)})"
        with connection.given(there=there):
            come.append(
                connection.arrow(
                    f"SELECT s.* FROM {here} s ANTI JOIN there t ON t.number = s.number AND t.query = s.query"
                )
            )
            gone.append(
                connection.arrow(
                    f"""
                    SELECT t.number, t.query FROM there t
                    ANTI JOIN {here} s ON s.number = t.number AND s.query = t.query"""
                )
            )
    return pa.concat_tables(come), pa.concat_tables(gone)
