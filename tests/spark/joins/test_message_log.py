"""The message log: what is in its segments, how long they stay, and the state that workers build of them."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from math import inf
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from sapwood import Broker
from sapwood.engine.message.message_reader import Message
from sapwood.join.state.portable_state import PortableValue
from sapwood.spark.distribution.index_snapshot import BrokerSnapshots, IndexSnapshot
from sapwood.spark.distribution.match_worker import LiveBroker, load_broker
from sapwood.spark.joins import message_log, segment_catalog
from sapwood.spark.joins.feedback import FeedbackWriter, _read_rows
from sapwood.spark.joins.join_emitter import EmitJoins
from sapwood.spark.joins.join_state import BucketVersion, WorkerState, buckets_of
from sapwood.spark.joins.message_log import LoggedRecords, LogReader
from sapwood.spark.joins.schema import SUMMARY, ExtractionSummary, FeedbackRow, LogRow, serialize_ways
from sapwood.spark.joins.segment_catalog import SegmentCatalog
from sapwood.spark.joins.witness_extraction import MessageExtraction
from sapwood.spark.pipeline.batch_log import CheckpointError
from sapwood.spark.pipeline.config import JoinConfig
from tests.spark.distribution.test_index_snapshot import Context

QUERIES = {
    "short": "S/a->x JOIN{x = y, 5 s} S/b->y",
    "endless": "S/a->x JOIN{x = y, INF} S/c->y",
}
COLUMNS = pa.schema([("message_id", pa.string()), ("marked", pa.int64())])
SETTINGS = JoinConfig()


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Workers freeze what they have unpacked; here it is to be collected."""
    yield
    gc.unfreeze()


class Log:
    """A message log, to which batches are added as a pipeline does, and a broker with subscriptions."""

    def __init__(self, folder: Path, queries: dict[str, str]) -> None:
        self.folder = str(folder / "log")
        self.catalog = SegmentCatalog(self.folder)
        self.broker = Broker()
        self.broker.subscribe_many(queries.items())
        self.snapshots = BrokerSnapshots(self.broker)
        self.sent = 0

    @property
    def snapshot(self) -> IndexSnapshot:
        return self.snapshots.issue(Context())

    def add(self, batch: int, *messages: tuple[float, str], chains: tuple[LogRow, ...] = ()) -> None:
        """Extract messages in two tasks, and commit the batch."""
        watermark = self.catalog.begin(batch, SETTINGS)
        summaries = [self._extract(watermark, messages[task::2], chains[task::2]) for task in range(2)]
        self.catalog.commit(batch, watermark, 1, summaries)

    def _extract(
        self, watermark: int | None, messages: tuple[tuple[float, str], ...], chains: tuple[LogRow, ...]
    ) -> ExtractionSummary:
        live = load_broker(self.snapshot)
        with MessageExtraction(
            live, watermark, self.catalog.messages, COLUMNS.types, text=True
        ) as extraction:
            for row in chains:
                extraction.add_chain(row, [])
            ids = [f"m{self.sent + number}" for number in range(len(messages))]
            self.sent += len(messages)
            extraction.begin(
                [pa.array(ids), pa.array(range(len(ids)), pa.int64())],
                pa.array([body for _, body in messages]),
            )
            for id, (time, body) in zip(ids, messages, strict=True):
                extraction.add("S", id, Message(body), lambda found, time=time: time)  # type: ignore[misc]
            extraction.take()
            summary = extraction.finish(0).column(SUMMARY)[0].as_py()
        return ExtractionSummary.from_bytes(summary)

    def vacuum(self, watermark: float) -> None:
        self.catalog.vacuum(watermark * 1000, self.snapshots.equated_variables())

    @property
    def segments(self) -> list[tuple[int, int]]:
        return [(segment.first, segment.last) for segment in SegmentCatalog(self.folder)._segments]

    def join(
        self, batch: int, worker: str, buckets: int = 2, watermark: float = -inf
    ) -> Counter[tuple[str, ...]]:
        """The messages that a batch joins, in all buckets, by a worker with this name."""
        segments = self.catalog._segments
        (place,) = [n for n, segment in enumerate(segments) if segment.first == segment.last == batch]
        start = segments[place - 1].end if place else 0
        files = tuple(file for segment in segments[: place + 1] for file in segment.files)
        found: Counter[tuple[str, ...]] = Counter()
        for bucket in range(buckets):
            emit = EmitJoins(
                self.snapshot, worker, bucket, buckets, files, start, watermark, self.folder, COLUMNS
            )
            for rows in emit(iter(())):
                found.update(tuple(messages) for messages in rows.column("messages").to_pylist())
        return found


def items(count: int, seed: int, first: float) -> list[tuple[float, str]]:
    rng = Random(seed)
    return [
        (first + number / 10, f"<{(tag := rng.choice('abc'))}>{rng.randrange(9)}</{tag}>")
        for number in range(count)
    ]


# -- the state of workers ------------------------------------------------------------------------------------


def test_a_worker_catches_up_however_far_it_is_behind(tmp_path: Path) -> None:
    log = Log(tmp_path, QUERIES)
    expected = []
    for batch in range(4):
        log.add(batch, *items(20, batch, 2.0 * batch))
        expected.append(log.join(batch, "always"))
    assert all(map(len, expected))
    assert log.join(0, "sometimes") == expected[0]
    assert log.join(3, "sometimes") == expected[3]  # without having seen the two between
    assert log.join(3, "new") == expected[3]
    assert log.join(1, "new") == expected[1]  # a batch is repeated: from the older state
    assert log.join(2, "always") == expected[2]
    assert log.join(3, "always") == log.join(3, "always") == expected[3]
    assert log.join(3, "other", buckets=5) == expected[3]
    for buckets in (4, 3, 1, 2):  # other messages are in a bucket then
        assert log.join(3, "always", buckets) == expected[3]


def test_a_worker_that_failed_in_a_batch_begins_it_anew(tmp_path: Path) -> None:
    log = Log(tmp_path, QUERIES)
    log.add(0, *items(30, 1, 0))
    log.add(1, *items(30, 2, 3))
    expected = log.join(1, "sound")
    files, start = log.catalog.files, log.catalog._segments[0].end
    emit = EmitJoins(log.snapshot, "failing", 0, 1, files, start, -inf, log.folder, COLUMNS)
    rows = emit(iter(()))
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert log.join(1, "failing", buckets=1) == expected


def test_buckets_are_equally_large() -> None:
    for buckets in (2, 3, 5, 8, 16):
        for count in (1_000, 4_000, 100_000):
            sizes = np.bincount(buckets_of(np.arange(count), buckets), minlength=buckets)
            assert sizes.max() <= 1.1 * count / buckets
    every_other = np.bincount(buckets_of(np.arange(0, 8_000, 2), 2))
    assert every_other.max() <= 1.1 * 2_000


def test_the_state_of_removed_queries_is_dropped(tmp_path: Path) -> None:
    log = Log(tmp_path, QUERIES)
    log.add(0, *items(40, 1, 0))
    log.add(1, *items(40, 2, 100))
    live = LiveBroker(log.snapshot)
    worker = WorkerState()

    def count(watermark: float) -> int:
        wanted = BucketVersion(0, 1, log.catalog.files, log.catalog.end, watermark)
        return worker.load(live, wanted).values

    everything, needed = count(-inf), count(100)
    assert 0 < needed < everything
    live.broker.unsubscribe("endless")
    within_window = count(100)
    assert 0 < within_window < needed
    live.broker.unsubscribe("short")
    assert count(100) == 0


# -- segments ------------------------------------------------------------------------------------------------


def test_segments_are_removed_when_no_query_needs_them(tmp_path: Path) -> None:
    log = Log(tmp_path, {"short": QUERIES["short"]})
    for batch in range(5):
        log.add(batch, *items(5, batch, 10.0 * batch))
    log.vacuum(-inf)
    assert log.segments == [(n, n) for n in range(5)]
    log.vacuum(26)
    assert log.segments == [(3, 3), (4, 4)] or log.segments == [(2, 2), (3, 3), (4, 4)]
    log.vacuum(1_000)
    assert log.segments == [(4, 4)]  # the last one may be repeated
    names = {path.name for path in Path(log.catalog.messages).iterdir()}
    assert names == {Path(file.path).name for file in log.catalog.files}
    assert log.catalog.begin(5, SETTINGS) == 40_400  # the watermark does not depend on what is removed


def test_segments_of_removed_queries_are_removed(tmp_path: Path) -> None:
    log = Log(tmp_path, QUERIES)
    for batch in range(4):
        log.add(batch, *items(8, batch, 10.0 * batch))
    log.vacuum(1_000)
    assert len(log.segments) == 4  # for a window without an end
    log.broker.unsubscribe("endless")
    log.snapshots.version += 1
    log.vacuum(1_000)
    assert log.segments == [(3, 3)]


def test_messages_of_a_chain_stay_as_long_as_it(tmp_path: Path) -> None:
    chain = "S/a->x JOIN{x = y, 5 s} S/b->y JOIN{y = z, INF} S/c->z"
    log = Log(tmp_path, {"chain": chain})
    log.add(0, (0, "<a>1</a>"), (1, "<b>1</b>"))
    log.add(1, (50, "<a>2</a>"))
    carried = next(key for key, found in log.snapshots.equated_variables().items() if found.wait == inf)
    row = LogRow(
        "",
        b"\1",
        1,
        0,
        b"",
        None,
        serialize_ways([[PortableValue(carried, "1", (1, 0))]]),
        b"",
        0,
        b"chain",
        (0, 1),
        1,
    )
    log.add(2, chains=(row,))
    log.catalog._segments[-1].variables[carried.hex()] = 1_000
    log.add(3, (100, "<a>3</a>"))
    log.vacuum(90)
    assert log.segments == [(0, 0), (2, 2), (3, 3)]


def test_small_segments_are_merged_and_can_still_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_catalog, "_MERGED", 4)
    log, merged = Log(tmp_path / "plain", QUERIES), Log(tmp_path / "merged", QUERIES)
    for batch in range(21):
        for each in (log, merged):
            each.add(batch, *items(6, batch, 10.0 * batch))
        expected = log.join(batch, "plain", watermark=10.0 * batch - 20)
        assert merged.join(batch, "merged", watermark=10.0 * batch - 20) == expected
        merged.vacuum(10.0 * batch - 20)
    assert len(merged.segments) < 8 and merged.segments[0] == (0, 15)
    assert sum(map(len, (expected,))) and merged.join(20, "new", watermark=180) == expected
    first = merged.catalog._segments[0].files[0]
    assert first.end - first.first > len(message_log.LogTable(first).positions)  # <b> and old ones are gone
    with pytest.raises(CheckpointError, match="batch 3 cannot be repeated"):
        merged.catalog.begin(3, SETTINGS)


def test_a_batch_that_is_repeated_replaces_its_segment(tmp_path: Path) -> None:
    log = Log(tmp_path, QUERIES)
    log.add(0, *items(9, 1, 0))
    log.add(1, *items(9, 2, 10))
    before = log.catalog.files
    log.catalog = SegmentCatalog(log.folder)  # another run
    log.add(1, *items(9, 2, 10))
    assert log.segments == [(0, 0), (1, 1)]
    assert log.catalog.files[:2] == before[:2] and log.catalog.end == 18
    assert {file.path for file in log.catalog.files[2:]}.isdisjoint(file.path for file in before)
    (Path(log.folder) / "messages" / "orphan.arrow").write_bytes(b"")
    (Path(log.folder) / "segments" / "1-1.json").write_text('{"first": 1')
    with pytest.raises(CheckpointError, match=r"1-1\.json, which describes messages that joins need"):
        SegmentCatalog(log.folder)
    (Path(log.folder) / "segments" / "1-1.json").unlink()
    catalog = SegmentCatalog(log.folder)
    assert len(list((Path(log.folder) / "messages").iterdir())) == 5  # another process may be using them
    catalog.reload()
    assert len(catalog.files) == len(list((Path(log.folder) / "messages").iterdir())) == 2


def test_files_that_tasks_have_left_are_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_catalog, "_CHECKED", 3)
    log = Log(tmp_path, QUERIES)
    orphan = Path(log.folder) / "messages" / "orphan.arrow"
    orphan.write_bytes(b"")
    there = []
    for batch in range(8):
        log.add(batch, *items(2, batch, batch))
        log.vacuum(-inf)
        there.append(orphan.exists())
    assert there == [True] * 6 + [False] * 2  # looked for after batches 3 and 6


def test_columns_do_not_change(tmp_path: Path) -> None:
    catalog = SegmentCatalog(str(tmp_path))
    catalog.check_columns({"message_id": "string", "marked": "bigint"})
    SegmentCatalog(str(tmp_path)).check_columns({"message_id": "string", "marked": "bigint"})
    with pytest.raises(CheckpointError, match=r"marked bigint, and those of the sources now .*marked string"):
        catalog.check_columns({"message_id": "string", "marked": "string"})


def test_feedback_appears_as_a_whole(tmp_path: Path) -> None:
    def write(rows: int) -> FeedbackWriter:
        writer = FeedbackWriter(str(tmp_path), "0")
        for number in range(rows):
            writer.add(FeedbackRow("S", f"m{number}", 1, 1, 0, 0.0, 0, b"<a/>", None))
        return writer

    first, second = write(100), write(70)  # attempts of one task, of which one is killed
    first.close()
    assert [path.name for path in tmp_path.glob("*.arrow")] == ["0.arrow"]
    assert len(list(_read_rows(f"{tmp_path}/0.arrow"))) == 100
    del second


def test_the_watermark_waits_for_the_slowest_source_or_not(tmp_path: Path) -> None:
    catalog = SegmentCatalog(str(tmp_path))
    fastest = JoinConfig(wait_for="fastest", lateness="2 s")
    assert catalog.begin(0, SETTINGS) is None
    catalog.commit(
        0, None, 2, [ExtractionSummary(0, 10.0005), ExtractionSummary(0, 9.0), ExtractionSummary(-1)]
    )
    assert catalog.begin(1, SETTINGS) is None
    assert catalog.begin(1, fastest) == 8_000
    catalog.commit(1, None, 2, [ExtractionSummary(1, 7.0)])
    assert catalog.begin(2, SETTINGS) == 7_000
    catalog.commit(2, 7_000, 2, [ExtractionSummary(1, 5.0)])
    assert SegmentCatalog(str(tmp_path)).begin(3, JoinConfig(lateness="3 s")) == 7_000  # it does not go back


def test_before_1970_nothing_is_late(tmp_path: Path) -> None:
    catalog = SegmentCatalog(str(tmp_path))
    catalog.commit(0, None, 1, [ExtractionSummary(0, -1_000.0)])
    assert catalog.begin(1, SETTINGS) is None


# -- messages that are kept ready ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [15, 500, 10_000])
def test_cached_messages_take_no_more_than_their_room(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 300_000
    monkeypatch.setattr(message_log, "_CACHE_BYTES", room)
    log = Log(tmp_path, QUERIES)
    log.add(0, *((number, f"<a>{number:0{size}}</a>") for number in range(1_000)))
    reader = LogReader()
    reader.use(log.catalog.files)
    records = LoggedRecords(reader, range(1_000))
    assert records[0][0].data  # the files are open
    tracemalloc.start()
    for number in range(1_000):
        (message,) = records[number]
        assert message.arrival == number and len(message.data) == size + 7
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert room / 4 < taken < 1.2 * room
    with pytest.raises(LookupError):
        reader.load(1_000)
