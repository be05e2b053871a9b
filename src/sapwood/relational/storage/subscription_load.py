"""Subscriptions come and go, many at a time, each time in one transaction.

What is new is compiled to rows in memory, and these are put into the tables with statements about all of them
at once: the cost of a change is that of a few scans, whatever the number of subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from sapwood.relational.paths.path_catalog import Paths
from sapwood.relational.rules.access_structures import Reach, file_rules, unfile_rules
from sapwood.relational.rules.comparisons import (
    AT_LEAST,
    AT_MOST,
    EXISTS,
    FIRST_BOUND,
    JUST_THERE,
    LESS,
    MORE,
    RANGES,
)
from sapwood.relational.rules.rule_compiler import CompiledQuery, CompiledRule, Predicate
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.duckdb_database import Connection, Tables
from sapwood.relational.storage.table_schema import NO_FACT, NO_PATH

BUCKETS = 20
_ENOUGH_FOR_BUCKETS = 2 * BUCKETS
_REFILED = 100_000
"""rules filed at a time when all are"""
_STAGED = {
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
Row = tuple[object, ...]


def insert_queries(
    tables: Tables, connection: Connection, queries: Iterable[CompiledQuery]
) -> dict[tuple[int, int], int]:
    """The numbers of queries by digest; those that are new are put in, but not filed yet.

    The new rules are in the table `filed` then, to be filed by `file_rules`.
    """
    distinct = {query.digest: query for query in queries}
    known = _known(connection, list(distinct))
    new = [query for digest, query in distinct.items() if digest not in known]
    first = tables.take("query", len(new))
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
    _insert_rules(tables, connection, rules)
    return known | {query.digest: number for number, query in zip(numbers, new, strict=True)}


def _known(connection: Connection, digests: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    asked = pa.table(
        {
            "digest1": pa.array([digest[0] for digest in digests], pa.int64()),
            "digest2": pa.array([digest[1] for digest in digests], pa.int64()),
        }
    )
    with connection.given(asked=asked):
        rows = connection.rows(
            """
            SELECT q.digest1, q.digest2, q.id
            FROM query q JOIN asked a ON a.digest1 = q.digest1 AND a.digest2 = q.digest2"""
        )
    return {(first, second): id for first, second, id in rows}


def _insert_rules(tables: Tables, connection: Connection, rules: Sequence[tuple[int, CompiledRule]]) -> None:
    first = tables.take("rule", len(rules))
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
    columns: dict[str, list[Any]] = {name: [] for name in _STAGED}
    add = [columns[name].append for name in _STAGED]
    for number, (_, rule) in enumerate(rules, first):
        for row in _rows(number, rule.predicates):
            for append, value in zip(add, row, strict=True):
                append(value)
    staged = pa.table({name: pa.array(columns[name], kind) for name, kind in _STAGED.items()})
    with connection.given(given_rows=staged):
        connection.keep("staged", "SELECT * FROM given_rows")
    connection.keep("filed", f"SELECT id AS rule FROM rule WHERE id >= {first}")


def _rows(rule: int, predicates: tuple[Predicate, ...]) -> Iterable[Row]:
    """The rows of a rule. One without facts gets one: that there is anything to compare its bound with."""
    facts = False
    for n, (path, (op, key, number, text), branching) in enumerate(predicates, 1):
        is_fact = op < FIRST_BOUND
        facts = facts or is_fact
        yield rule, n, is_fact, path, op, key, number, text, branching
    if not facts:
        path = predicates[0].path if predicates else NO_PATH
        yield rule, 0, True, path, EXISTS, JUST_THERE.key, None, None, None


def stage_predicates(tables: Tables, connection: Connection, plan: Plan) -> None:
    """Puts the staged rows in, and numbers the facts that are new."""
    if plan is Plan.BUCKETS:
        _add_buckets(connection)
    _insert_staged(tables, connection)


def _insert_staged(tables: Tables, connection: Connection) -> None:
    connection.keep(
        "wanted",
        f"""
        SELECT DISTINCT key, path, op, number, text FROM staged WHERE is_fact AND path <> {NO_PATH}""",
    )
    connection.keep(
        "known",
        f"SELECT w.*, f.id FROM fact f JOIN wanted w ON {_SAME.format('f', 'w')}",
    )
    connection.keep("fresh", f"SELECT * FROM wanted w ANTI JOIN known k ON {_SAME.format('k', 'w')}")
    count = connection.value("SELECT count(*) FROM fresh")
    before = tables.take("fact", count) - 1
    connection.keep("numbered", f"SELECT *, {before} + row_number() OVER () AS id FROM fresh")
    connection.run("INSERT INTO fact BY NAME SELECT * FROM numbered")
    connection.run("INSERT INTO known BY NAME SELECT * FROM numbered")
    connection.run(
        f"""
        INSERT INTO predicate BY NAME
        SELECT s.rule, s.n, k.id AS fact, s.path, s.op, s.number, s.text, s.branching
        FROM staged s JOIN known k ON {_SAME.format("s", "k")} WHERE s.is_fact
        UNION ALL
        SELECT rule, n, CASE WHEN is_fact THEN {NO_FACT} END, path, op, number, text, branching
        FROM staged WHERE NOT is_fact OR path = {NO_PATH}
        ORDER BY 1, 2"""
    )


_SAME = """{0}.key = {1}.key AND {0}.path = {1}.path AND {0}.op = {1}.op
    AND {0}.number IS NOT DISTINCT FROM {1}.number AND {0}.text IS NOT DISTINCT FROM {1}.text"""


def _add_buckets(connection: Connection) -> None:
    """To each rule with ranges, that the first of them is in its bucket: a fact that many rules share."""
    quantiles = ", ".join(str(i / BUCKETS) for i in range(BUCKETS))
    connection.run(
        f"""
        INSERT INTO bucket
        SELECT DISTINCT path, op, unnest(quantile_disc(number, [{quantiles}, 1.0]))
        FROM staged ANTI JOIN bucket USING (path, op)
        WHERE op IN ({_LISTED_RANGES}) GROUP BY path, op HAVING count(*) >= {_ENOUGH_FOR_BUCKETS}"""
    )
    for ops, chosen, side in (((MORE, AT_LEAST), "max", "<="), ((LESS, AT_MOST), "min", ">=")):
        listed = ", ".join(map(str, ops))
        connection.run(
            f"""
            INSERT INTO staged BY NAME
            SELECT s.rule, 0 AS n, true AS is_fact, s.path, s.op, 0 AS key, {chosen}(b.number) AS number
            FROM (SELECT rule, path, op, number FROM staged WHERE op IN ({_LISTED_RANGES})
                  QUALIFY row_number() OVER (PARTITION BY rule ORDER BY n) = 1) s
                 JOIN bucket b ON b.path = s.path AND b.op = s.op AND b.number {side} s.number
            WHERE s.op IN ({listed}) GROUP BY s.rule, s.path, s.op, s.number"""
        )


_LISTED_RANGES = ", ".join(map(str, RANGES.values()))


def load(
    tables: Tables,
    connection: Connection,
    paths: Paths,
    plan: Plan,
    queries: Sequence[CompiledQuery],
    on_paths: Callable[[Connection, set[int]], None],
) -> tuple[list[int], Reach]:
    """Puts queries in and files them: their numbers, and how far they go. `on_paths` is told of the paths of
    which more is wanted than before."""
    changed = paths.write(connection)
    if changed:
        on_paths(connection, changed)
    numbers = insert_queries(tables, connection, queries)
    stage_predicates(tables, connection, plan)
    reach = file_rules(tables, connection, plan)
    return [numbers[query.digest] for query in queries], reach


def refile(tables: Tables, connection: Connection, plan: Plan) -> Reach:
    """Makes the access structure anew, for a plan."""
    for table in ("unrolled", "fact_chain", "bound_chain", "bucket"):
        connection.run(f"DELETE FROM {table}")
    # what only led to buckets
    connection.run(f"DELETE FROM predicate WHERE n = 0 AND op IN ({_LISTED_RANGES})")
    reach = Reach()
    first, last = connection.rows("SELECT coalesce(min(id), 0), coalesce(max(id), -1) FROM rule")[0]
    for start in range(first, last + 1, _REFILED):
        some = f"BETWEEN {start} AND {start + _REFILED - 1}"
        if plan is Plan.BUCKETS:
            connection.keep(
                "staged",
                f"""
                SELECT rule, n, false AS is_fact, path, op, CAST(0 AS BIGINT) AS key, number, text, branching
                FROM predicate WHERE rule {some} AND fact IS NULL""",
            )
            _add_buckets(connection)
            connection.run("DELETE FROM staged WHERE NOT is_fact")
            _insert_staged(tables, connection)
        connection.keep("filed", f"SELECT id AS rule FROM rule WHERE id {some}")
        reach |= file_rules(tables, connection, plan)
    return reach


def unload(connection: Connection, subscriptions: pa.Table) -> None:
    """Takes subscriptions out, given by `number`, and the queries to which nobody is subscribed any more."""
    with connection.given(leaving=subscriptions):
        connection.keep(
            "left_queries",
            "SELECT DISTINCT s.query FROM subscription s JOIN leaving l ON l.number = s.number",
        )
        connection.run("DELETE FROM subscription WHERE number IN (SELECT number FROM leaving)")
    connection.keep(
        "gone_query", "SELECT l.query FROM left_queries l ANTI JOIN subscription s ON s.query = l.query"
    )
    connection.keep("gone", "SELECT r.id AS rule FROM rule r JOIN gone_query g ON g.query = r.query")
    if not connection.value("SELECT count(*) FROM gone_query"):
        return
    unfile_rules(connection, "gone")
    connection.run("DELETE FROM predicate WHERE rule IN (SELECT rule FROM gone)")
    connection.run("DELETE FROM rule WHERE id IN (SELECT rule FROM gone)")
    connection.run("DELETE FROM query WHERE id IN (SELECT query FROM gone_query)")
