"""Errors have a clear message, change nothing, and do no harm to later calls."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sapwood import Limits, Matcher, MessageError, QueryError
from sapwood.errors import TablesError
from sapwood.relational import RelationalMatcher
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.storage.table_schema import TABLES
from tests.support.oracles.table_structures import assert_consistent

pytestmark = pytest.mark.slow

MESSAGE = "<a x='1'><b/></a>"


@pytest.fixture(scope="module")
def opened() -> Iterator[RelationalMatcher]:
    with RelationalMatcher(namespaces={"p": "urn:p"}, threads=1) as matcher:
        matcher.add_many([("one", "/a[@x = 1]"), ("two", "//b/..")])
        yield matcher
        matcher.add("three", "/a[@x = 1]/b")
        assert list(matcher.match(MESSAGE)) == ["one", "two", "three"]
        assert_consistent(matcher)


@pytest.fixture
def matcher(opened: RelationalMatcher) -> Iterator[RelationalMatcher]:
    """A matcher with two subscriptions, which must be the only ones at the end, and match."""
    yield opened
    assert list(opened.match(MESSAGE)) == ["one", "two"]
    assert len(opened) == 2


# -- queries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        *("/a[", "", " ", "/a[@x = 'open]", "/a]", "/a[q:b = 1]", "//a[foo(.) = 1]", "/a[@x = 1 = ]"),
        *("/a[@x = \uff13]", "/a[@x = 1", "$x", "/a[b[c]", "'", '"', "/a[@x = 5 'x']", "/a[@x = 'a\0b']/.."),
    ],
)
def test_a_bad_query_is_refused_as_by_the_automaton(matcher: RelationalMatcher, query: str) -> None:
    with pytest.raises(QueryError) as expected:
        Matcher({"p": "urn:p"}).add("bad", query)
    for _ in range(3):  # the third time by its skeleton
        with pytest.raises(QueryError) as caught:
            matcher.add("bad", query)
        assert str(caught.value) == str(expected.value)
        assert caught.value.position == expected.value.position
    assert "bad" not in matcher


def test_half_a_surrogate_pair_is_refused(matcher: RelationalMatcher) -> None:
    with pytest.raises(QueryError, match="half of a surrogate pair") as caught:
        matcher.add("bad", "/a[@x = 'caf\ud800']")
    assert caught.value.position == 12


def test_a_chunk_with_a_bad_query_is_not_added(matcher: RelationalMatcher) -> None:
    pairs = [("c", "/c[@y = 5]"), ("d", "//d"), ("e", "/a["), ("f", "/f")]
    with pytest.raises(QueryError) as caught:
        matcher.add_many(pairs, chunk=2)
    assert caught.value.__notes__ == ["subscription 'e'"]
    assert [id for id, _ in pairs if id in matcher] == ["c", "d"]
    with pytest.raises(QueryError):
        matcher.add_many([("g", "/g[@z > 1]"), ("h", "]")])
    assert len(matcher) == 4
    assert list(matcher.match("<g z='2'/>")) == []
    matcher.remove("c", "d")


def test_with_on_error_the_good_queries_are_added(matcher: RelationalMatcher) -> None:
    told: list[tuple[object, str]] = []
    pairs: list[tuple[Any, str]] = [
        *[("c", "/c"), ("d", "/c["), ("c", "/d"), ("one", "/c"), (7, "/c"), (None, "/c"), ((1, "x"), "/c")],
        *[("\ud800", "/c"), ("e", "/c"), ("f", "/c/..[")],
    ]
    matcher.add_many(pairs, on_error=lambda id, error: told.append((id, type(error).__name__)), chunk=4)
    assert [id for id, _ in told] == ["d", "c", "one", 7, None, (1, "x"), "\ud800", "f"]
    assert [name for _, name in told].count("QueryError") == 2
    assert list(matcher.match("<c/>")) == ["c", "e"]
    assert matcher.query("one") == "/a[@x = 1]"
    matcher.remove("c", "e")


def test_an_error_in_on_error_changes_nothing(matcher: RelationalMatcher) -> None:
    def give_up(id: object, error: ValueError) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        matcher.add_many([("c", "/c"), ("d", "/c[")], on_error=give_up)
    assert "c" not in matcher


# -- ids -------------------------------------------------------------------------------------------------

ODD: list[Any] = [5, None, ("a", 1), b"one", "\ud800"]


@pytest.mark.parametrize("id", ODD, ids=ascii)
def test_an_id_is_a_string(matcher: RelationalMatcher, id: Any) -> None:
    with pytest.raises(ValueError, match="string") as caught:
        matcher.add(id, "/a")
    assert not isinstance(caught.value, QueryError)
    assert id not in matcher
    assert id not in matcher.match(MESSAGE)
    for ask in (matcher.remove, matcher.query, lambda id: matcher.replace(id, "/a")):
        with pytest.raises(KeyError):
            ask(id)


def test_any_string_is_an_id(matcher: RelationalMatcher) -> None:
    ids = ["", " ", "a\0b", "'", "\U0001f600", "x" * 10_000, "NULL", "one "]
    matcher.add_many((id, "/a") for id in ids)
    assert all(id in matcher for id in ids)
    found = matcher.match(MESSAGE)
    assert list(found) == ["one", "two", *ids]
    assert all(id in found for id in ids)
    matcher.remove(*ids)


def test_an_id_is_subscribed_once(matcher: RelationalMatcher) -> None:
    with pytest.raises(ValueError, match="'one' is subscribed already") as caught:
        matcher.add("one", "/c")
    assert not isinstance(caught.value, QueryError)
    with pytest.raises(ValueError, match="'c' is subscribed already"):
        matcher.add_many([("c", "/c"), ("c", "/d")])
    assert matcher.query("one") == "/a[@x = 1]"
    assert len(matcher) == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda matcher: matcher.remove("none"),
        lambda matcher: matcher.remove("one", "none", "two"),
        lambda matcher: matcher.replace("none", "/c"),
        lambda matcher: matcher.query("none"),
    ],
)
def test_an_unknown_id_is_a_key_error(
    matcher: RelationalMatcher, ask: Callable[[RelationalMatcher], object]
) -> None:
    with pytest.raises(KeyError, match="none"):
        ask(matcher)
    assert len(matcher) == 2


def test_a_refused_replacement_changes_nothing(matcher: RelationalMatcher) -> None:
    with pytest.raises(QueryError):
        matcher.replace("one", "/a[")
    assert matcher.query("one") == "/a[@x = 1]"


def test_empty_changes(matcher: RelationalMatcher) -> None:
    matcher.add_many([])
    matcher.remove()
    assert list(matcher.match_many([])) == []


@pytest.mark.parametrize("size", [0, -1])
def test_the_size_of_chunks_and_batches_is_positive(matcher: RelationalMatcher, size: int) -> None:
    """Otherwise nothing would be added, silently."""
    with pytest.raises(ValueError):
        matcher.add_many([("c", "/c")], chunk=size)
    with pytest.raises(ValueError):
        list(matcher.match_many([MESSAGE], batch=size))


@pytest.mark.parametrize("namespaces", [{"": "urn:x"}, {"x": ""}, {"p": "urn:other"}], ids=str)
def test_prefixes_are_declared_as_for_the_automaton(
    matcher: RelationalMatcher, namespaces: dict[str, str]
) -> None:
    with pytest.raises(ValueError) as expected:
        Matcher({"p": "urn:p"}).declare(namespaces)
    with pytest.raises(ValueError) as caught:
        matcher.declare(namespaces)
    assert str(caught.value) == str(expected.value)
    assert matcher.namespaces == {"p": "urn:p"}


# -- messages --------------------------------------------------------------------------------------------


def test_a_refused_message_ends_the_matches_there(matcher: RelationalMatcher) -> None:
    answers = matcher.match_many([MESSAGE, "<a>", MESSAGE], batch=2)
    assert list(next(answers)) == ["one", "two"]
    with pytest.raises(MessageError, match="no element found"):
        next(answers)
    found = list(matcher.match_each([MESSAGE, "<a>", b"\xff", "", MESSAGE]))
    assert [isinstance(answer, MessageError) for answer in found] == [False, True, True, True, False]
    with pytest.raises(TypeError):
        matcher.match(5)  # type: ignore[arg-type]


# -- files -----------------------------------------------------------------------------------------------


def not_duckdb(path: Path) -> None:
    path.write_text("this is no database\n" * 500)


def other_tables(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)").fetchall()


def another_meta(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE meta (key INTEGER)").fetchall()


def another_format(path: Path) -> None:
    RelationalMatcher(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE meta SET value = '0' WHERE name = 'format'").fetchall()


@pytest.mark.parametrize(
    ("make", "name", "reason"),
    [
        (not_duckdb, "tables", "not a valid DuckDB"),
        (not_duckdb, "locked", "not a valid DuckDB"),  # whatever it is called
        (other_tables, "tables", "other tables than Sapwood's"),
        (another_meta, "tables", "other tables than Sapwood's"),
        (another_format, "tables", "another version of Sapwood"),
        (Path.mkdir, "tables", "cannot be opened"),
        (lambda path: None, "none/tables", "cannot be opened"),
    ],
)
def test_a_file_of_another_kind_or_format(
    make: Callable[[Path], None], name: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(TablesError, match=reason) as caught:
        RelationalMatcher(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize("memory", ["lots", "", "0MB", "-5MB", "5 apples"])
def test_a_bad_memory_limit(memory: str, tmp_path: Path) -> None:
    with pytest.raises(TablesError, match=r"memory limit .* is not understood; write it like 512MB"):
        RelationalMatcher(tmp_path / "tables", memory=memory)
    RelationalMatcher(tmp_path / "tables").close()


@pytest.mark.parametrize("memory", ["1KB", "1MB", "15.9 MB", "15MiB", "0.00001TB"])
def test_a_memory_limit_that_is_too_small_for_duckdb(memory: str, tmp_path: Path) -> None:
    with pytest.raises(TablesError, match=f"memory limit '{memory}' is too small for DuckDB; .* least 16MB"):
        RelationalMatcher(tmp_path / "tables", memory=memory)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("memory", ["16MB", "0.5GB", "64MB", " 1 GiB ", "100000KB"])
def test_valid_memory_limits_are_accepted(memory: str, tmp_path: Path) -> None:
    with RelationalMatcher(tmp_path / "tables", memory=memory) as matcher:
        matcher.add_many((f"s{n}", f"/a/b{n}[c = {n}]") for n in range(1_000))
        assert list(matcher.match("<a><b7><c>7</c></b7></a>")) == ["s7"]


def test_a_wrong_plan_is_refused_before_a_file_is_created(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'recursive' is not a valid Plan"):
        RelationalMatcher(tmp_path / "tables", plan="recursive")
    assert list(tmp_path.iterdir()) == []
    with RelationalMatcher(plan="shared") as matcher, pytest.raises(ValueError):
        matcher.collect_garbage("recursive")


def test_a_file_with_another_namespace_for_a_prefix_is_closed_again(tmp_path: Path) -> None:
    RelationalMatcher(tmp_path / "tables", {"p": "urn:p"}).close()
    with pytest.raises(ValueError, match="bound to 'urn:p' already"):
        RelationalMatcher(tmp_path / "tables", {"p": "urn:q"})
    with RelationalMatcher(tmp_path / "tables", {"q": "urn:q"}) as matcher:
        assert matcher.namespaces == {"p": "urn:p", "q": "urn:q"}


def test_a_file_that_another_process_has_open(tmp_path: Path) -> None:
    path = tmp_path / "tables"
    program = (
        "import sys; from sapwood.relational import RelationalMatcher\n"
        "with RelationalMatcher(sys.argv[1]) as matcher:\n"
        "    matcher.add('s', '/a'); print('ready', flush=True); sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(TablesError, match="is open in another process; close it there first"):
            RelationalMatcher(path)
    with RelationalMatcher(path) as matcher:
        assert list(matcher.match("<a/>")) == ["s"]


def test_a_file_that_this_process_has_open(tmp_path: Path) -> None:
    """Two matchers on one file would allocate the same ids."""
    with RelationalMatcher(tmp_path / "tables") as matcher:
        matcher.add("s", "/a")
        for memory in ("512MB", "600MB"):
            with pytest.raises(TablesError, match="open"):
                RelationalMatcher(tmp_path / "tables", memory=memory)
        matcher.add("t", "/b")
        assert list(matcher.match("<b/>")) == ["t"]
    RelationalMatcher(tmp_path / "tables").close()


def test_a_file_is_released_with_its_matcher(tmp_path: Path) -> None:
    matcher = RelationalMatcher(tmp_path / "tables")
    matcher.add("s", "/a")
    del matcher
    gc.collect()
    with RelationalMatcher(tmp_path / "tables") as matcher:
        assert list(matcher.match("<a/>")) == ["s"]


# -- the database fails ----------------------------------------------------------------------------------


@contextmanager
def failing(statement: str) -> Iterator[None]:
    """Statements that begin so run out of memory."""
    run = Connection.run

    def run_or_fail(self: Connection, sql: str, parameters: object = None) -> None:
        if sql.strip().startswith(statement):
            raise duckdb.OutOfMemoryException("no more")
        run(self, sql, parameters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "run", run_or_fail)
        yield


def test_a_failed_transaction_changes_nothing() -> None:
    """Nor do its paths and tag paths stay in memory."""
    here = ["one", "two"]
    with RelationalMatcher(threads=1) as matcher:
        matcher.add_many([("one", "/a[@x = 1]"), ("two", "//b/..")])
        message = "<a x='1'><b/><c y='2'/></a>"
        put = [("c", "//c[@y = 2]"), ("d", "//c[@y > 1][@z != 'v' or @y]/@y")]
        for table in ("linear_path", "tag_path", "predicate", "subscription"):
            assert table in TABLES
            assert list(matcher.match(message)) == here
            with failing(f"INSERT INTO {table} "), pytest.raises(duckdb.OutOfMemoryException):
                matcher.add_many(put)
            if table != "tag_path":
                with failing(f"INSERT INTO {table} "), pytest.raises(duckdb.OutOfMemoryException):
                    matcher.replace("one", f"/{table}/a[@n{table} = 1]")
            assert_consistent(matcher)
        matcher.add_many(put)
        assert list(matcher.match(message)) == [*here, "c", "d"]
        with failing("DELETE FROM rule"), pytest.raises(duckdb.OutOfMemoryException):
            matcher.remove("c")
        with failing("COMMIT"), pytest.raises(duckdb.OutOfMemoryException):
            matcher.remove("one")
        assert list(matcher.match(message)) == [*here, "c", "d"]
        assert_consistent(matcher)


def test_ctrl_c_after_a_commit_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the transaction was committed is read from the tables."""
    run = Connection.run

    def run_and_interrupt(self: Connection, sql: str, parameters: object = None) -> None:
        run(self, sql, parameters)
        if sql == "COMMIT":
            raise KeyboardInterrupt

    with RelationalMatcher(threads=1) as matcher:
        matcher.add("one", "/a[@x = 1]")
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "run", run_and_interrupt)
            with pytest.raises(KeyboardInterrupt):
                matcher.add("two", "/a[@x = 2]")
        matcher.add_many([("three", "/a[@x = 3]"), ("four", "/a[b]")])
        for x, ids in {1: ["one"], 2: ["two"], 3: ["three"]}.items():
            assert list(matcher.match(f"<a x='{x}'/>")) == ids
        assert_consistent(matcher)


def test_on_error_must_not_change_subscriptions() -> None:
    told: list[str] = []

    with RelationalMatcher(threads=1) as matcher:

        def instead(id: object, error: ValueError) -> None:
            with pytest.raises(TablesError, match="the tables are in a transaction"):
                matcher.add("instead", "/a")
            told.append(str(id))

        matcher.add_many([("one", "/a[@x = 1]"), ("bad", "/a["), ("two", "/a[@y = 2]")], instead)
        assert told == ["bad"]
        assert list(matcher.match("<a x='1' y='2'/>")) == ["one", "two"]
        assert_consistent(matcher)


@pytest.mark.parametrize("table", ["tag_path", "path_match", "class_tag", "tag_branching"])
def test_a_failed_batch_does_not_harm_the_next(table: str) -> None:
    """It has begun to resolve new tag paths; the next one must not take them for resolved."""
    with RelationalMatcher(threads=1) as matcher:
        matcher.add_many([("one", "/a[@x > 0]"), ("two", "//b[@y = 1][c]/d"), ("three", "//d")])
        message = "<a x='1'><b y='1'><c/><d/></b></a>"
        with failing(f"INSERT INTO {table} "), pytest.raises(duckdb.OutOfMemoryException):
            matcher.match(message)
        assert list(matcher.match(message)) == ["one", "two", "three"]
        assert_consistent(matcher)


def test_an_interrupted_vacuum_does_no_harm() -> None:
    with RelationalMatcher(threads=1) as matcher:
        matcher.add_many([("one", "/a"), ("two", "/a[@q = 1][@w = 2]")])
        list(matcher.match("<a q='1' w='2'/>"))
        matcher.remove("two")
        with failing("CHECKPOINT"), suppress(duckdb.OutOfMemoryException):
            matcher.collect_garbage()
        matcher.add("three", "/a[@q = 1][@w = 2]")
        assert list(matcher.match("<a q='1' w='2'/>")) == ["one", "three"]
        assert_consistent(matcher)


def test_values_of_deeply_nested_elements_are_bounded() -> None:
    """Each element around a text has a row with all of it, so a small message may have many large rows."""
    flat, deep, deeper = ("<a>" * depth + "y" * 2_000 + "</a>" * depth for depth in (1, 50, 51))
    with RelationalMatcher(limits=Limits(bytes=100_000), threads=1) as matcher:
        matcher.add("q", "//a[contains(., 'x')]")
        answers = list(
            matcher.match_each([flat, deep, deeper, "<a>x</a>", "<a>" + "<b>y</b>" * 10_000 + "</a>"])
        )
    assert [list(a) if not isinstance(a, MessageError) else a.reason for a in answers] == [
        [],
        [],
        "the values of nested elements have 102,000 characters together; the limit is 100,000",
        ["q"],
        [],
    ]
