"""Subscriptions of a pipeline in tables: synchronized, refused, snapshots for Spark. Needs no Java."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sapwood.config_file import ConfigError
from sapwood.errors import QueryError, TablesError
from sapwood.relational import Plan, RelationalMatcher
from sapwood.relational.storage import table_snapshot
from sapwood.relational.storage.table_snapshot import SUBSCRIPTION, snapshot_tables
from sapwood.spark.distribution.pipeline_subscriptions import (
    FileSubscriptions,
    StoreSubscriptions,
    SubscriptionProvider,
    is_not_filter,
)
from sapwood.spark.pipeline.config import PipelineConfig, parse_config
from sapwood.spark.relational.parquet_snapshot import ParquetSnapshot
from sapwood.spark.relational.table_subscriptions import TableSubscriptions, open_table_subscriptions
from sapwood.store import SubscriptionStore

BASIC: dict[str, Any] = {
    "engine": "relational",
    "source": {"path": "inbox"},
    "subscriptions": {"store": "subscriptions.db"},
    "deliveries": {"path": "deliveries"},
    "rejects": {"path": "rejects"},
    "run": {"checkpoint": "checkpoint"},
}


class Base:
    """Bytes that go nowhere."""

    value = b""

    def destroy(self) -> None: ...


class Carrier:
    def broadcast(self, value: bytes) -> Base:
        return Base()


@contextmanager
def population(given: PipelineConfig) -> Iterator[TableSubscriptions]:
    """The subscriptions of a pipeline, as it has them."""
    limits = given.matcher_limits()
    others: SubscriptionProvider
    if given.subscriptions.store is not None:
        others = StoreSubscriptions(given.subscriptions.store, limits, serves=is_not_filter)
    else:
        assert given.subscriptions.file is not None
        others = FileSubscriptions(given.subscriptions.file, {}, limits, is_not_filter)
    tabled = open_table_subscriptions(others, given)
    try:
        yield tabled
    finally:
        tabled.close()


def ids_in(given: PipelineConfig) -> set[str]:
    """The subscriptions whose filters are in the tables."""
    with RelationalMatcher(given.tables) as tables:
        return {id for (id,) in tables.connection.rows("SELECT id FROM subscription")}


# -- a store ---------------------------------------------------------------------------------------------


def test_filters_are_in_tables_and_others_are_not(tmp_path: Path) -> None:
    given = parse_config(BASIC, folder=tmp_path)
    with SubscriptionStore(str(tmp_path / "subscriptions.db")) as store:
        store.add("filter", "//a")
        store.add("made", "for $a in //a return <b/>")
        first = store.add("turns", "//b")
        store.replace("turns", "for $b in //b return <b/>")
        second = store.replace("made", "//c")
    with population(given) as subscribed:
        assert not subscribed.snapshot(Carrier(), first).empty
        assert len(subscribed) == 3
    assert ids_in(given) == {"filter", "turns"}
    with population(given) as subscribed:
        subscribed.snapshot(Carrier(), second)
        assert len(subscribed) == 3
        with SubscriptionStore(str(tmp_path / "subscriptions.db")) as store:
            last = store.remove("turns")
        assert subscribed.newest() == last
        assert subscribed.snapshot(Carrier(), last).empty
        assert len(subscribed) == 2
    assert ids_in(given) == {"filter", "made"}


def test_a_query_that_is_refused_is_left_out_as_long_as_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = parse_config(BASIC, folder=tmp_path)
    file = tmp_path / "subscriptions.db"
    with SubscriptionStore(str(file)) as store:
        store.add("good", "//a")
        version = store.add("bad", "//b")
    with sqlite3.connect(file) as database:  # the store itself would not take it
        database.execute("UPDATE sapwood_subscriptions SET query = '//b[' WHERE id = 'bad'")
    database.close()
    with population(given) as subscribed:
        subscribed.snapshot(Carrier(), version)
        assert list(subscribed.left_out) == ["bad"]
        assert len(subscribed) == 1
    assert "subscription bad is left out" in caplog.text
    with population(given) as subscribed:  # which does not look at it again
        subscribed.snapshot(Carrier(), version)
        assert list(subscribed.left_out) == ["bad"]
        with SubscriptionStore(str(file)) as store:
            version = store.replace("bad", "//c")
        subscribed.snapshot(Carrier(), version)
        assert not subscribed.left_out
        assert len(subscribed) == 2


# -- a file ----------------------------------------------------------------------------------------------


def test_a_file_of_queries_is_read_again_only_if_it_has_changed(tmp_path: Path) -> None:
    given = parse_config(BASIC | {"subscriptions": {"file": "queries.txt"}}, folder=tmp_path)
    file = tmp_path / "queries.txt"
    file.write_text("//a\n//b\nfor $a in //a return <b/>\n")
    with population(given) as subscribed:
        assert len(subscribed) == 3
        assert not subscribed.snapshot(Carrier(), 0).empty
    with RelationalMatcher(given.tables) as tables:
        tables.catalog.apply_changes(removed=["1"])
    with population(given) as subscribed:
        assert len(subscribed) == 2  # since it was not read
    file.write_text("//a\n//c\n//d\n")
    with population(given) as subscribed:
        assert len(subscribed) == 3
    file.write_text("//a\n//b[\n")
    with pytest.raises(QueryError), population(given):
        pass
    file.write_text("//a\n")
    with population(given) as subscribed:
        assert len(subscribed) == 1


def test_tables_that_are_somebody_elses_are_left_alone(tmp_path: Path) -> None:
    table = {"relational": {"tables": "own.duckdb", "memory": "64MB"}}
    with RelationalMatcher(tmp_path / "own.duckdb") as tables:
        tables.add("mine", "//a")
    (tmp_path / "queries.txt").write_text("//a\n")
    given = parse_config(BASIC | table | {"subscriptions": {"file": "queries.txt"}}, folder=tmp_path)
    with pytest.raises(TablesError, match="holds subscriptions that come from elsewhere"), population(given):
        pass
    SubscriptionStore(str(tmp_path / "subscriptions.db")).close()
    given = parse_config(BASIC | table, folder=tmp_path)
    with population(given) as subscribed, pytest.raises(TablesError, match="come from no store"):
        subscribed.snapshot(Carrier(), 0)
    assert ids_in(given) == {"mine"}


# -- snapshots -------------------------------------------------------------------------------------------


class Snapshotted:
    """A matcher and a snapshot of its tables, to be compared."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.matcher = RelationalMatcher(folder / "tables.duckdb", plan=plan)
        self.snapshot = ParquetSnapshot(self.matcher, str(folder / "snapshot"))

    def check(self) -> str:
        """Assert that the snapshot has all rows of the tables; return its id."""
        connection = self.matcher.connection
        plan = self.matcher.plan
        assert plan is not None
        name = self.snapshot.update(connection, plan)
        assert name.split() == sorted(path.name for path in (self.folder / "snapshot").iterdir())
        for table in snapshot_tables(plan):
            assert rows(connection.arrow(table.sql())) <= rows(self._read(name, table.name))
        found = rows(self._read(name.split()[0], SUBSCRIPTION.name))
        delta = self.snapshot._delta
        if delta is not None:
            deleted = rows(delta.deleted)
            assert deleted <= {(number, query) for number, _, query in found}
            found = {row for row in found if (row[0], row[2]) not in deleted}
            added = rows(self._read(delta.name, SUBSCRIPTION.name))
            assert not added & found
            found |= added
        assert found == rows(connection.arrow("SELECT * FROM subscription"))
        connection.close()
        return name

    def _read(self, name: str, table: str) -> pa.Table:
        return pa.concat_tables(
            [pq.read_table(self.folder / "snapshot" / folder / table) for folder in name.split()]
        )


def rows(table: pa.Table) -> set[tuple[Any, ...]]:
    return set(zip(*(column.to_pylist() for column in table.columns), strict=True))


QUERIES = [
    *(f"/a[b = {i} and c > {i} and d < {i}]" for i in range(12)),
    "/a[b[c = 1]/d]",
    "/a[not(b)]",
    "/a[b = 1 and c = 2 and d = 3 and e = 4 and f = 5 and g = 6]",
    "count(//b) > 2",
    "//b | //c",
]


@pytest.mark.parametrize("plan", [Plan.SHARED, Plan.UNROLLED])
def test_a_snapshot_follows_its_tables(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_snapshot, "RANGE_BITS", 3)
    monkeypatch.setattr(table_snapshot, "_MIN_CHANGES_FOR_BASE", 15)
    monkeypatch.setattr(table_snapshot, "_RULES_PER_PARTITION", 5)
    snapshotted = Snapshotted(tmp_path, plan)
    random = Random(plan.value)
    bases = set()
    queries = {f"s{i}": random.choice(QUERIES) for i in range(30)}
    snapshotted.matcher.add_many(queries.items())
    for round in range(6):
        first = snapshotted.check()
        assert snapshotted.check() == first  # nothing has changed
        bases.add(first.split()[0])
        if round == 3:  # another process
            snapshotted.matcher.close()
            snapshotted = Snapshotted(tmp_path, plan)
            assert snapshotted.check().split()[0] == first.split()[0]
        gone = random.sample(sorted(queries), 4)
        others = random.sample(sorted(queries.keys() - set(gone)), 4)
        put = {id: random.choice(QUERIES) for id in others}
        put |= {f"r{round}-{i}": f"/a[b = {random.random()} and c < {random.random()}]" for i in range(5)}
        snapshotted.matcher.catalog.apply_changes(gone, list(put.items()))
        queries = {id: query for id, query in (queries | put).items() if id not in gone}
        if round == 4:
            snapshotted.matcher.collect_garbage(plan)
    assert 1 < len(bases) < 6
    snapshotted.matcher.close()


def test_rebuilt_access_structures_need_a_new_base(tmp_path: Path) -> None:
    snapshotted = Snapshotted(tmp_path, Plan.SHARED)
    snapshotted.matcher.add_many((f"s{i}", query) for i, query in enumerate(QUERIES))
    first = snapshotted.check()
    snapshotted.matcher.collect_garbage(Plan.UNROLLED)
    second = snapshotted.check()
    snapshotted.matcher.collect_garbage(Plan.SHARED)
    snapshotted.matcher.collect_garbage(Plan.UNROLLED)  # with other chains than before
    third = snapshotted.check()
    assert len({first, second, third}) == 3
    (tmp_path / "snapshot" / third / "marks").unlink()  # as if it had never been finished
    snapshotted.matcher.close()
    snapshotted = Snapshotted(tmp_path, Plan.UNROLLED)
    assert snapshotted.check() not in (first, second, third)
    snapshotted.matcher.close()


# -- settings --------------------------------------------------------------------------------------------


def test_where_tables_are(tmp_path: Path) -> None:
    assert parse_config(BASIC, folder=tmp_path).tables == tmp_path / "checkpoint" / "relational.duckdb"
    local = {"run": {"checkpoint": "file:///data/checkpoint"}}
    assert parse_config(BASIC | local).tables == Path("/data/checkpoint/relational.duckdb")
    given = {"run": {"checkpoint": "s3a://there/c"}, "relational": {"tables": "t.duckdb", "on": "spark"}}
    assert parse_config(BASIC | given, folder=tmp_path).tables == tmp_path / "t.duckdb"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"engine": "relation"}, "engine: Input should be 'automaton' or 'relational'"),
        ({"relational": {"on": "sparc"}}, "relational.on: Input should be 'duckdb' or 'spark'"),
        ({"relational": {"plan": "fast"}}, "relational.plan: Input should be 'shared', 'buckets' or"),
        ({"relational": {"memory": "much"}}, "relational.memory: a size such as '512MB' or '2GB' is"),
        ({"relational": {"memroy": "1GB"}}, "there is no such key; did you mean 'memory'?"),
        (
            {"engine": "automaton", "relational": {}},
            "'relational': this table is for engine = \"relational\"",
        ),
        ({"run": {"checkpoint": "hdfs:/c"}}, "'relational.tables' is missing: the tables need a local file"),
        ({"relational": {"tables": "s3a://b/t"}}, "'relational.tables': a local file is expected"),
    ],
)
def test_errors_name_the_key(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(BASIC | wrong)
    assert said in str(caught.value)


def test_without_duckdb_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.spark.pipeline.config.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs duckdb, which is missing: in a clone of Sapwood, pip"):
        parse_config(BASIC)
    parse_config({key: value for key, value in BASIC.items() if key != "engine"})
