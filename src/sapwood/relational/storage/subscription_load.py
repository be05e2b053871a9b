"""Inserts and deletes many subscriptions in one transaction.

Queries are compiled to rows in memory, and these are inserted by statements over all of them: the cost of a
change is that of a few scans, whatever the number of subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from sapwood.relational.paths.path_catalog import PathCatalog
from sapwood.relational.rules.access_structures import index_rules, unindex_rules
from sapwood.relational.rules.comparisons import (
    AT_LEAST,
    AT_MOST,
    EXISTENCE,
    EXISTS,
    FIRST_BOUND,
    LESS,
    MORE,
    RANGES,
)
from sapwood.relational.rules.rule_compiler import CompiledQuery, CompiledRule, Predicate
from sapwood.relational.sql.match_plan import Plan, StructureSize
from sapwood.relational.storage.duckdb_database import Connection, DuckDBDatabase
from sapwood.relational.storage.table_schema import NO_FACT, NO_PATH

BUCKETS = 20
"""buckets for the constants of each path and range operator"""
_MIN_RANGES_FOR_BUCKETS = 2 * BUCKETS
_RULES_PER_CHUNK = 100_000
"""rules indexed at a time when all are"""
_STAGED_COLUMNS = {
    "rule": pa.int64(),
    "n": pa.int32(),
    "is_fact": pa.bool_(),
    "path": pa.int32(),
    "op": pa.int8(),
    "key": pa.int64(),
    "number": pa.float64(),
    "text": pa.string(),
    "branching": pa.int32(),
}
PredicateRow = tuple[object, ...]


def insert_queries(
    database: DuckDBDatabase, connection: Connection, queries: Iterable[CompiledQuery]
) -> dict[tuple[int, int], int]:
    """Insert new queries, and return the ids of all by digest.

    Predicates of new rules are in the temporary table `staged`, the rules in `indexed_rule`.
    """
    distinct = {query.digest: query for query in queries}
    existing = _find_queries(connection, list(distinct))
    new = [query for digest, query in distinct.items() if digest not in existing]
    first = database.allocate_ids("query", len(new))
    numbers = range(first, first + len(new))
    connection.insert(
        "query",
        pa.table(
            {
                "id": pa.array(numbers, pa.int64()),
                "digest1": pa.array([query.digest[0] for query in new], pa.int64()),
                "digest2": pa.array([query.digest[1] for query in new], pa.int64()),
                "exact": pa.array([query.exact for query in new], pa.bool_()),
                "text": pa.array([query.text for query in new], pa.string()),
            }
        ),
    )
    rules = [(number, rule) for number, query in zip(numbers, new, strict=True) for rule in query.rules]
    _insert_rules(database, connection, rules)
    return existing | {query.digest: number for number, query in zip(numbers, new, strict=True)}


def _find_queries(connection: Connection, digests: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    requested = pa.table(
        {
            "digest1": pa.array([digest[0] for digest in digests], pa.int64()),
            "digest2": pa.array([digest[1] for digest in digests], pa.int64()),
        }
    )
    with connection.register(requested=requested):
        rows = connection.rows(
            """
            SELECT q.digest1, q.digest2, q.id
            FROM query q JOIN requested r ON r.digest1 = q.digest1 AND r.digest2 = q.digest2"""
        )
    return {(first, second): id for first, second, id in rows}


def _insert_rules(
    database: DuckDBDatabase, connection: Connection, rules: Sequence[tuple[int, CompiledRule]]
) -> None:
    first = database.allocate_ids("rule", len(rules))
    connection.insert(
        "rule",
        pa.table(
            {
                "id": pa.array(range(first, first + len(rules)), pa.int64()),
                "query": pa.array([query for query, _ in rules], pa.int64()),
                "shape": pa.array([rule.shape for _, rule in rules], pa.int32()),
            }
        ),
    )
    columns: dict[str, list[Any]] = {name: [] for name in _STAGED_COLUMNS}
    add = [columns[name].append for name in _STAGED_COLUMNS]
    for number, (_, rule) in enumerate(rules, first):
        for row in _iter_rows(number, rule.predicates):
            for append, value in zip(add, row, strict=True):
                append(value)
    staged = pa.table({name: pa.array(columns[name], kind) for name, kind in _STAGED_COLUMNS.items()})
    with connection.register(staged_rows=staged):
        connection.create_temp_table("staged", "SELECT * FROM staged_rows")
    connection.create_temp_table("indexed_rule", f"SELECT id AS rule FROM rule WHERE id >= {first}")


def _iter_rows(rule: int, predicates: tuple[Predicate, ...]) -> Iterable[PredicateRow]:
    """Yield the rows of a rule. One without facts gets one: that the path of its first bound exists."""
    has_fact = False
    for n, (path, (op, key, number, text), branching) in enumerate(predicates, 1):
        is_fact = op < FIRST_BOUND
        has_fact = has_fact or is_fact
        yield rule, n, is_fact, path, op, key, number, text, branching
    if not has_fact:
        path = predicates[0].path if predicates else NO_PATH
        yield rule, 0, True, path, EXISTS, EXISTENCE.key, None, None, None


def stage_predicates(database: DuckDBDatabase, connection: Connection, plan: Plan) -> None:
    """Insert the staged predicates, and their new facts."""
    if plan is Plan.BUCKETS:
        _add_buckets(connection)
    _insert_staged(database, connection)


def _insert_staged(database: DuckDBDatabase, connection: Connection) -> None:
    connection.create_temp_table(
        "staged_fact",
        f"""
        SELECT DISTINCT key, path, op, number, text FROM staged WHERE is_fact AND path <> {NO_PATH}""",
    )
    connection.create_temp_table(
        "known_fact",
        f"SELECT w.*, f.id FROM fact f JOIN staged_fact w ON {_SAME_FACT.format('f', 'w')}",
    )
    connection.create_temp_table(
        "new_fact", f"SELECT * FROM staged_fact w ANTI JOIN known_fact k ON {_SAME_FACT.format('k', 'w')}"
    )
    count = connection.value("SELECT count(*) FROM new_fact")
    before = database.allocate_ids("fact", count) - 1
    connection.create_temp_table(
        "numbered_fact", f"SELECT *, {before} + row_number() OVER () AS id FROM new_fact"
    )
    connection.run("INSERT INTO fact BY NAME SELECT * FROM numbered_fact")
    connection.run("INSERT INTO known_fact BY NAME SELECT * FROM numbered_fact")
    connection.run(
        f"""
        INSERT INTO predicate BY NAME
        SELECT s.rule, s.n, k.id AS fact, s.path, s.op, s.number, s.text, s.branching
        FROM staged s JOIN known_fact k ON {_SAME_FACT.format("s", "k")} WHERE s.is_fact
        UNION ALL
        SELECT rule, n, CASE WHEN is_fact THEN {NO_FACT} END, path, op, number, text, branching
        FROM staged WHERE NOT is_fact OR path = {NO_PATH}
        ORDER BY 1, 2"""
    )


_SAME_FACT = """{0}.key = {1}.key AND {0}.path = {1}.path AND {0}.op = {1}.op
    AND {0}.number IS NOT DISTINCT FROM {1}.number AND {0}.text IS NOT DISTINCT FROM {1}.text"""


def _add_buckets(connection: Connection) -> None:
    """Add to each rule with ranges the bucket of the first one, as a fact that many rules share."""
    quantiles = ", ".join(str(i / BUCKETS) for i in range(BUCKETS))
    connection.run(
        f"""
        INSERT INTO bucket
        SELECT DISTINCT path, op, unnest(quantile_disc(number, [{quantiles}, 1.0]))
        FROM staged ANTI JOIN bucket USING (path, op)
        WHERE op IN ({_RANGE_OPERATORS}) GROUP BY path, op HAVING count(*) >= {_MIN_RANGES_FOR_BUCKETS}"""
    )
    for ops, nearest, side in (((MORE, AT_LEAST), "max", "<="), ((LESS, AT_MOST), "min", ">=")):
        op_list = ", ".join(map(str, ops))
        connection.run(
            f"""
            INSERT INTO staged BY NAME
            SELECT s.rule, 0 AS n, true AS is_fact, s.path, s.op, 0 AS key, {nearest}(b.number) AS number
            FROM (SELECT rule, path, op, number FROM staged WHERE op IN ({_RANGE_OPERATORS})
                  QUALIFY row_number() OVER (PARTITION BY rule ORDER BY n) = 1) s
                 JOIN bucket b ON b.path = s.path AND b.op = s.op AND b.number {side} s.number
            WHERE s.op IN ({op_list}) GROUP BY s.rule, s.path, s.op, s.number"""
        )


_RANGE_OPERATORS = ", ".join(map(str, RANGES.values()))


def load_queries(
    database: DuckDBDatabase,
    connection: Connection,
    paths: PathCatalog,
    plan: Plan,
    queries: Sequence[CompiledQuery],
    on_paths: Callable[[Connection, set[int]], None],
) -> tuple[list[int], StructureSize]:
    """Insert queries and index their rules; return their ids and the size of the access structure.

    `on_paths` is called with the paths that are new, or have new uses.
    """
    changed = paths.write(connection)
    if changed:
        on_paths(connection, changed)
    numbers = insert_queries(database, connection, queries)
    stage_predicates(database, connection, plan)
    size = index_rules(database, connection, plan)
    return [numbers[query.digest] for query in queries], size


def rebuild_access_structures(database: DuckDBDatabase, connection: Connection, plan: Plan) -> StructureSize:
    """Rebuild the access structures for a plan; return their size."""
    for table in ("unrolled", "fact_chain", "bound_chain", "bucket"):
        connection.run(f"DELETE FROM {table}")
    # the facts of buckets
    connection.run(f"DELETE FROM predicate WHERE n = 0 AND op IN ({_RANGE_OPERATORS})")
    size = StructureSize()
    first, last = connection.rows("SELECT coalesce(min(id), 0), coalesce(max(id), -1) FROM rule")[0]
    for start in range(first, last + 1, _RULES_PER_CHUNK):
        chunk = f"BETWEEN {start} AND {start + _RULES_PER_CHUNK - 1}"
        if plan is Plan.BUCKETS:
            connection.create_temp_table(
                "staged",
                f"""
                SELECT rule, n, false AS is_fact, path, op, CAST(0 AS BIGINT) AS key, number, text, branching
                FROM predicate WHERE rule {chunk} AND fact IS NULL""",
            )
            _add_buckets(connection)
            connection.run("DELETE FROM staged WHERE NOT is_fact")
            _insert_staged(database, connection)
        connection.create_temp_table("indexed_rule", f"SELECT id AS rule FROM rule WHERE id {chunk}")
        size |= index_rules(database, connection, plan)
    return size


def delete_subscriptions(connection: Connection, subscriptions: pa.Table) -> None:
    """Delete subscriptions, given by `number`, and the queries without any subscription left."""
    with connection.register(deleted=subscriptions):
        connection.create_temp_table(
            "affected_query",
            "SELECT DISTINCT s.query FROM subscription s JOIN deleted d ON d.number = s.number",
        )
        connection.run("DELETE FROM subscription WHERE number IN (SELECT number FROM deleted)")
    connection.create_temp_table(
        "unused_query",
        "SELECT a.query FROM affected_query a ANTI JOIN subscription s ON s.query = a.query",
    )
    connection.create_temp_table(
        "unused_rule", "SELECT r.id AS rule FROM rule r JOIN unused_query g ON g.query = r.query"
    )
    if not connection.value("SELECT count(*) FROM unused_query"):
        return
    unindex_rules(connection, "unused_rule")
    connection.run("DELETE FROM predicate WHERE rule IN (SELECT rule FROM unused_rule)")
    connection.run("DELETE FROM rule WHERE id IN (SELECT rule FROM unused_rule)")
    connection.run("DELETE FROM query WHERE id IN (SELECT query FROM unused_query)")
