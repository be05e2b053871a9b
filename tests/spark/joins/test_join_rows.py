"""Rows between the stages of a stream with joins: each message is parsed once, and nothing of it is lost."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, TimestampType

from sapwood import Broker
from sapwood.engine.kernel import KERNEL
from sapwood.spark.distribution.index_snapshot import BrokerSnapshots, IndexSnapshot
from sapwood.spark.distribution.match_result import MatchResult, Rejection
from sapwood.spark.distribution.match_worker import MatchPartition, load_broker
from sapwood.spark.joins import schema, witness_extraction
from sapwood.spark.joins.join_emitter import RestoreMessages
from sapwood.spark.joins.witness_extraction import ExtractWitnesses
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
    snapshot: IndexSnapshot, monkeypatch: pytest.MonkeyPatch, time: str = "/*/@t"
) -> list[schema.WitnessRow]:
    monkeypatch.setattr(witness_extraction, "load_batch_broker", lambda folder: load_broker(snapshot))
    rows = ExtractWitnesses("", "S", time, COLUMNS, 4)(iter([messages()]))
    return list(schema.from_arrow(rows, schema.WitnessRow))


def restore(rows: list[schema.WitnessRow]) -> pa.RecordBatch:
    """The messages as the batch has them, without what the state does in between."""
    passed = [
        schema.JoinRow(row.kind, row.name, b"", row.parsed)
        for row in rows
        if row.kind in ("plain", "joinable")
    ]
    (restored,) = RestoreMessages(COLUMNS, False)(iter([schema.to_arrow(passed, schema.JOIN_SCHEMA)]))
    return restored


def match(snapshot: IndexSnapshot, restored: pa.RecordBatch, matches: str | None) -> list[dict[str, Any]]:
    (matched,) = MatchPartition(snapshot, "_3", "_4", False, matches)(iter([restored]))
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
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    broker.subscribe("filter", query)
    snapshot = BrokerSnapshots(broker).issue(Context())
    parsed = count_calls(monkeypatch, *PARSERS)
    rows = extract(snapshot, monkeypatch, "/*/b[1]")
    assert parsed.total() == sum(body is not None for body in BODIES) - 1  # the last one is rejected unread
    (event,) = [row for row in rows if row.kind == "event-time"]
    assert event.event_time == datetime.fromtimestamp(1, UTC)


def test_a_message_is_parsed_and_matched_once(
    snapshot: IndexSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = count_calls(monkeypatch, *PARSERS)
    restored = restore(extract(snapshot, monkeypatch))
    matched = match(snapshot, restored, "_6")
    readable = sum(body is not None for body in BODIES) - 1  # the last one is rejected unread
    assert parsed.total() == readable
    again = match(snapshot, restored, None)
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
    snapshot: IndexSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored = restore(extract(snapshot, monkeypatch))
    given = messages()
    assert restored.schema.types[:3] == COLUMNS
    assert restored.columns[0].to_pylist() == given.columns[0].to_pylist()
    assert restored.columns[1].to_pylist() == given.columns[1].to_pylist()
    assert restored.columns[2] == given.columns[2].cast(COLUMNS[2])
    assert restored.columns[3].to_pylist() == BODIES


def test_rows_have_all_values_that_joins_read(
    snapshot: IndexSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = extract(snapshot, monkeypatch)
    kinds = Counter(row.kind for row in rows)
    assert kinds == {"joinable": 3, "plain": 4, "value": 2, "event-time": 1}
    single = [row.name for row in rows if schema.deserialize_numbers(row.parsed.single_blocks)]
    assert single == [b"S\0m1"]
    (event,) = [row for row in rows if row.kind == "event-time"]
    assert event.event_time == datetime.fromtimestamp(4, UTC)
    stored = schema.deserialize_message(rows[0].parsed.message)
    assert stored.records[0].data == BODIES[0] and stored.time == 1.0
    assert schema.deserialize_message(schema.serialize_message(stored)) == stored


@pytest.mark.parametrize(
    ("row", "arrow"),
    [
        (schema.WitnessRow, schema.WITNESS_SCHEMA),
        (schema.CandidateRow, schema.CANDIDATE_SCHEMA),
        (schema.JoinRow, schema.JOIN_SCHEMA),
        (schema.FeedbackRow, schema.FEEDBACK_SCHEMA),
    ],
)
def test_a_row_has_the_columns_of_its_schema(row: Any, arrow: pa.Schema) -> None:
    assert list(schema.column_names(row)) == arrow.names
    spark = schema.spark_schema(arrow)
    known = {
        "kind": StringType(),
        "name": BinaryType(),
        "bucket": IntegerType(),
        "event_time": TimestampType(),
    }
    for field in spark.fields:
        assert field.dataType == known.get(field.name, field.dataType)


def test_rows_survive_pandas() -> None:
    rows = [
        schema.CandidateRow(1, "plain", b"a", parsed=schema.ParsedMessage(b"x" * 9_000_000, problem="wrong")),
        schema.CandidateRow(2, "pair", b"b", b"c"),
        schema.CandidateRow(
            3, "joinable", b"d", until=5, parsed=schema.ParsedMessage(matches=b"y" * 9_000_000), watermark=7
        ),
    ]
    frames = list(schema.to_frames(iter(rows), schema.CandidateRow))
    assert [len(frame) for frame in frames] == [3]
    assert [len(frame) for frame in schema.to_frames(iter(rows * 2), schema.CandidateRow)] == [3, 3]
    assert list(schema.from_frames(frames, schema.CandidateRow)) == rows


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
