"""Rows between the stages of a stream with joins: each message is parsed once, and nothing of it is lost."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sapwood import Broker
from sapwood.engine.kernel import KERNEL
from sapwood.spark.deliveries.delivery_rows import LATENESS
from sapwood.spark.distribution.index_snapshot import BrokerSnapshots, IndexSnapshot
from sapwood.spark.distribution.match_result import MatchResult, Rejection
from sapwood.spark.distribution.match_worker import MatchPartition, load_broker
from sapwood.spark.joins import feedback, schema, witness_extraction
from sapwood.spark.joins.feedback import FeedbackWriter
from sapwood.spark.joins.witness_extraction import BatchPlan, ExtractWitnesses
from tests.spark.distribution.test_index_snapshot import Context

QUERIES = {
    "pair": "S//a->x[.//b->p] JOIN{p = q, 5 s} T//*->z[.//b->q]",
    "single": "S//c->x",
    "filter": "//b",
    "value": "//b[. = '2']",
    "slow": "count(//b) > 1",
    "made": "for $b in //b return <got>{$b}</got>",
}
BODIES = [
    b"<a t='1'><b>1</b><b>2</b></a>",
    b"<a t='2'><c/></a>",
    b"<a><b>1</b></a>",  # without a time
    b"<a t='3'><b>1</a>",  # malformed
    b"<x t='4'/>",
    None,
    b"<a t='5'/>",  # with a problem
]
COLUMNS = [pa.string(), pa.decimal128(10, 2), pa.list_(pa.timestamp("us", "UTC"))]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Workers freeze what they have unpacked; here it is to be collected."""
    yield
    gc.unfreeze()


@pytest.fixture
def snapshot() -> IndexSnapshot:
    broker = Broker()
    broker.subscribe_many(QUERIES.items())
    return BrokerSnapshots(broker).issue(Context())


def messages() -> pa.RecordBatch:
    count = len(BODIES)
    stamps = [[datetime(2026, 1, 1 + i, tzinfo=UTC), None] for i in range(count)]
    columns = [
        pa.array([f"m{i}" for i in range(count)]),
        pa.array([Decimal(i) / 4 if i else None for i in range(count)], COLUMNS[1]),
        pa.array(stamps, pa.list_(pa.timestamp("us", "Europe/Madrid"))),
        pa.array(BODIES, pa.binary()),
        pa.array([None] * (count - 1) + ["its file is damaged"], pa.string()),
        pa.nulls(count, pa.timestamp("us", "UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, [f"_{i}" for i in range(len(columns))])


def count_calls(monkeypatch: pytest.MonkeyPatch, *names: str) -> Counter[str]:
    calls: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return function(*arguments, **options)

        return call

    for name in names:
        module, _, attribute = name.rpartition(".")
        function = getattr(__import__(module, fromlist=[attribute]), attribute)
        monkeypatch.setattr(name, counted(name, function))
    return calls


def extract(
    snapshot: IndexSnapshot,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    time: str = "/*/@t",
    watermark: int | None = None,
) -> tuple[pa.RecordBatch, schema.ExtractionSummary, list[dict[str, Any]]]:
    """The rows of the batch, the summary, and the rows in the message log."""
    plan = BatchPlan(snapshot, watermark)
    monkeypatch.setattr(witness_extraction, "load_batch_plan", lambda folder: plan)
    extraction = ExtractWitnesses("", str(folder), 0, "S", time, COLUMNS, text=False)
    *rows, last = extraction(iter([messages()]))
    assert [row.num_rows for row in rows] == [len(BODIES)]
    summary = schema.ExtractionSummary.from_bytes(last.column(schema.SUMMARY)[0].as_py())
    assert last.column(schema.SUMMARY).null_count == 0 and last.num_rows == 1
    if summary.file is None:
        return rows[0], summary, []
    assert [path.name for path in folder.iterdir()] == [summary.file]
    logged = pa.ipc.open_file(pa.memory_map(str(folder / summary.file))).read_all()
    assert logged.num_rows == summary.rows
    return rows[0], summary, logged.to_pylist()


def match(snapshot: IndexSnapshot, restored: pa.RecordBatch, matches: str | None) -> list[dict[str, Any]]:
    numbered = restored.rename_columns([f"_{number}" for number in range(len(restored.columns))])
    (matched,) = MatchPartition(snapshot, "_3", "_4", False, matches)(iter([numbered]))
    found = matched.select(["_0", "_1", "_2", "subscriptions", "bodies", "error", "undecided"]).to_pylist()
    return [row | {"subscriptions": sorted(row["subscriptions"])} for row in found]


PARSERS = [
    "sapwood.engine.automaton.automaton.read_document",
    "sapwood.engine.automaton.automaton.read_structure",
]
if KERNEL is not None:
    PARSERS += [f"sapwood.engine.kernel.kernel_automaton.{name}" for name in ("read_nodes", "read_structure")]
"""Where the nodes of a message are read after matching, or the reason why it is refused."""


@pytest.mark.parametrize("query", ["//b", "//b/@x", "//a[@x = '1' and b]"])
def test_a_message_is_parsed_once_if_only_its_time_needs_text(
    query: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker = Broker()
    broker.subscribe("filter", query)
    snapshot = BrokerSnapshots(broker).issue(Context())
    parsed = count_calls(monkeypatch, *PARSERS)
    _, summary, logged = extract(snapshot, monkeypatch, tmp_path, "/*/b[1]")
    assert parsed.total() == sum(body is not None for body in BODIES) - 1  # the last one is rejected unread
    assert summary.latest == 1 and summary.source == 0
    assert not logged and not list(tmp_path.iterdir())  # since no join reads any


def test_a_message_is_parsed_and_matched_once(
    snapshot: IndexSnapshot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parsed = count_calls(monkeypatch, *PARSERS)
    rows, _, _ = extract(snapshot, monkeypatch, tmp_path)
    matched = match(snapshot, rows, "_6")
    readable = sum(body is not None for body in BODIES) - 1  # the last one is rejected unread
    assert parsed.total() == readable
    again = match(snapshot, rows, None)
    assert parsed.total() > readable
    assert matched == again
    assert matched[0]["subscriptions"] == ["filter", "made", "slow", "value"]
    assert [row["error"] and row["error"]["reason"] for row in matched[4:]] == [
        None,
        "the message is null",
        "its file is damaged",
    ]
    assert matched[2]["error"]["reason"].endswith("there is no /*/@t")
    assert matched[3]["error"]["line"] == 1 and matched[3]["error"]["body"] == BODIES[3]


def test_the_columns_of_a_message_pass_unchanged(
    snapshot: IndexSnapshot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows, _, logged = extract(snapshot, monkeypatch, tmp_path)
    given = messages()
    assert rows.schema.types[:3] == COLUMNS
    assert rows.columns[0].to_pylist() == given.columns[0].to_pylist()
    assert rows.columns[1].to_pylist() == given.columns[1].to_pylist()
    assert rows.columns[2] == given.columns[2].cast(COLUMNS[2])
    assert rows.columns[3].to_pylist() == BODIES
    of_batch = {
        row["_0"]: row for row in rows.select([0, 1, 2]).rename_columns(["_0", "_1", "_2"]).to_pylist()
    }
    assert len(logged) == 2
    for row in logged:
        assert {name: row[name] for name in ("_0", "_1", "_2")} == of_batch[row["_0"]]


def test_the_log_has_all_that_joins_read(
    snapshot: IndexSnapshot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows, summary, logged = extract(snapshot, monkeypatch, tmp_path)
    assert [row["name"] for row in logged] == [b"S\0m0", b"S\0m1"]
    assert [bool(schema.deserialize_numbers(row["single_blocks"])) for row in logged] == [False, True]
    first = logged[0]
    assert (first["body"], first["time"], first["stream"], first["floor"]) == (BODIES[0], 1.0, "S", 0)
    (way,) = schema.deserialize_ways(first["ways"])
    assert sorted(value for _, value, _ in way) == ["1", "2"]
    assert summary.latest == 4
    ((variable, latest),) = summary.variables
    assert variable == way[0][0] and latest == 1_000
    assert rows.column(LATENESS).null_count == len(BODIES)


def test_a_late_message_has_no_values(
    snapshot: IndexSnapshot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows, summary, logged = extract(snapshot, monkeypatch, tmp_path, watermark=3_500)
    late = [lateness is not None for lateness in rows.column(LATENESS).to_pylist()]
    assert late == [True, True, False, False, False, False, False]
    assert rows.column(LATENESS)[0].as_py().startswith("too late for joins: it happened before 1970-01-01T00")
    (single,) = logged  # which needs no other
    assert (single["name"], single["ways"]) == (b"S\0m1", b"")
    assert not summary.variables and summary.late == 2


def test_feedback_survives_its_file_and_copies_are_numbered_over_all_files(tmp_path: Path) -> None:
    folder = str(tmp_path / "7")
    chain = schema.FeedbackRow(None, None, -1, 0, 5, 1.5, 3, None, None, b"c" * 8, b"w", [4, 9], 9)
    rows = [
        schema.FeedbackRow("P", id, query, piece, 0, 1.0, 0, b"<p/>", None)
        for id, query, piece in (("a", 2, 1), ("a", 1, 2), ("b", 1, 1), ("a", 1, 1))
    ]
    for name, some in (("0", [chain, *rows[:2]]), ("1", rows[2:]), ("2", [])):
        writer = FeedbackWriter(folder, name)
        for row in some:
            writer.add(row)
        writer.close()
    assert sorted(path.name for path in (tmp_path / "7").iterdir()) == ["0.arrow", "1.arrow"]
    found = list(feedback._read_rows(f"{folder}/0.arrow"))
    assert [row.records for row in found] == [[4, 9], [], []]
    assert found[0] == chain
    assert feedback._number_copies(f"{folder}/0.arrow") == [1, 3, 2]
    assert feedback._number_copies(f"{folder}/1.arrow") == [1, 1]


def test_a_match_result_survives_as_bytes(snapshot: IndexSnapshot) -> None:
    live = load_broker(snapshot)
    for body in BODIES:
        result = live.match(body or b"")
        copy = MatchResult.from_bytes(result.to_bytes())
        assert copy.filters.tolist() == result.filters.tolist()
        assert copy.transformations.tolist() == result.transformations.tolist()
        assert (copy.bodies, copy.failures, copy.rejection) == (
            result.bodies,
            result.failures,
            result.rejection,
        )
    costly = MatchResult(failures=[{"subscription": "a"}], rejection=Rejection("why", 1), costs={"a": 0.5})
    assert MatchResult.from_bytes(costly.to_bytes()).costs == {"a": 0.5}
