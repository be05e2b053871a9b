"""A worker whose task runs for long comes to the newest subscriptions, whatever it has missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pyarrow as pa
import pytest

from sapwood import Broker
from sapwood.spark.distribution.checkpoint_transport import CheckpointTransport
from sapwood.spark.distribution.index_snapshot import BrokerSnapshots, SnapshotDelta
from sapwood.spark.distribution.real_time_worker import REJECT_COLUMN, RealTimePartition
from sapwood.spark.distribution.snapshot_feed import FeedFollower, SnapshotFeed
from sapwood.spark.distribution.worker_cache import WORKER_CACHE

MANY = 2_500
"""More changes than those after which the broker is packed again."""


class Driver:
    """The side of the driver: subscriptions that change, and the feed."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.transport = CheckpointTransport(self.folder)
        self.feed = SnapshotFeed(self.transport)
        broker = Broker()
        broker.subscribe_many([("a", "/m/a"), ("made", "for $x in /m/a return <out>{$x}</out>")])
        self.source = BrokerSnapshots(broker, 1, subscribers={"a": "Ann"})
        self.feed.publish(self.source.issue(self.transport))

    def put(self, *pairs: tuple[str, str], removed: tuple[str, ...] = (), name: str = "") -> None:
        names = tuple((id, name) for id, _ in pairs)
        self.source.advance(SnapshotDelta(self.source.version + 1, removed, pairs, subscribers=names))
        self.feed.publish(self.source.issue(self.transport))


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path / "feed")
    yield made
    made.source.close()
    WORKER_CACHE.clear()


def _ids(follower: FeedFollower, message: bytes = b"<m><a/><b/></m>") -> set[str]:
    result = follower.live.match(message)
    return {*follower.live.ids_of(result.filters).to_pylist()}


def _within(seconds: float, true: Callable[[], bool]) -> bool:
    limit = monotonic() + seconds
    while not true() and monotonic() < limit:
        sleep(0.02)
    return true()


def test_a_follower_applies_the_changes_that_it_has_not_seen(driver: Driver) -> None:
    follower = FeedFollower(driver.folder)
    assert (_ids(follower), follower.live.subscribers) == ({"a"}, {"a": "Ann"})
    assert not follower.refresh()
    broker = follower.live.broker
    driver.put(("b", "/m/b"), name="Bob")
    driver.put(("c", "/m[a]/b"), removed=("a",), name="Cy")
    assert follower.refresh() and not follower.refresh()
    assert (_ids(follower), follower.live.version) == ({"b", "c"}, 3)
    assert follower.live.broker is broker  # was not unpacked again
    assert (follower.live.subscribers["b"], follower.live.subscribers["c"]) == ("Bob", "Cy")
    follower.close()


def test_a_follower_that_has_missed_two_packed_brokers_unpacks_the_newest(driver: Driver) -> None:
    follower, early = FeedFollower(driver.folder), FeedFollower(driver.folder)
    for round in range(3):
        driver.put(*((f"{round}-{i}", f"/m/x{i}") for i in range(MANY)), name=f"n{round}")
        early.refresh()
    driver.put(("b", "/m/b"), name="Bob")
    for each in (follower, early):
        assert each.refresh()
        assert _ids(each) == {"a", "b"}
        assert len(each.live.broker) == 3 * MANY + 3
        assert (each.live.subscribers["2-7"], each.live.subscribers["b"], each.live.subscribers["a"]) == (
            "n2",
            "Bob",
            "Ann",
        )
        each.close()
    late = FeedFollower(driver.folder)
    assert (_ids(late), late.live.subscribers["0-7"]) == ({"a", "b"}, "n0")
    late.close()


def test_a_follower_polls_while_a_task_runs_and_survives_a_damaged_feed(driver: Driver) -> None:
    follower = FeedFollower(driver.folder)
    with follower:
        (Path(driver.folder) / "current").write_text("")  # as it is in the midst of a write
        sleep(0.4)
        driver.put(("b", "/m/b"))
        assert _within(10, lambda: _ids(follower) == {"a", "b"})
    driver.put(("c", "/m/b"))
    sleep(0.6)
    assert _ids(follower) == {"a", "b"}  # no task runs
    with follower:
        assert _ids(follower) == {"a", "b", "c"}  # before the first message
    follower.close()


def _rows(*bodies: bytes | None) -> pa.RecordBatch:
    """Messages, each with the row that is none after it, as Spark passes them."""
    twice = [row for body in bodies for row in ((body, True), (None, False))]
    columns = {
        "_0": pa.array([f"m{i // 2}" for i in range(len(twice))]),
        "_1": pa.array([body for body, _ in twice], pa.binary()),
        "_2": pa.nulls(len(twice), pa.string()),
        "_3": pa.array([is_message for _, is_message in twice]),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_a_worker_gives_rows_of_deliveries_and_rejects_message_by_message(driver: Driver) -> None:
    driver.put(("never", "/m[contains(string(count(//a)), 'x') or count(//a) > 99]"))
    batch = _rows(b'<?xml version="1.0"?>\n<m><a>1</a></m>', b"<m><b/></m>", b"<m>", None)
    one_by_one = (batch.slice(i, 1) for i in range(batch.num_rows))
    partition = RealTimePartition(driver.folder, text=True)
    rows = [row for found in partition(one_by_one) for row in found.to_pylist()]
    delivered = [(row["_0"], row["subscription"], row["subscriber"], row["body"]) for row in rows[:2]]
    assert delivered == [
        ("m0", "a", "Ann", "<m><a>1</a></m>"),
        ("m0", "made", None, "<out><a>1</a></out>"),
    ]
    assert {row["version"] for row in rows} == {2}
    rejects = [(row["_0"], row["subscription"], row[REJECT_COLUMN]["body"]) for row in rows[2:]]
    assert rejects == [("m2", None, b"<m>"), ("m3", None, None)]
    assert rows[2][REJECT_COLUMN]["line"] == 1
    without = [
        row for found in RealTimePartition(driver.folder, False)(iter([batch])) for row in found.to_pylist()
    ]
    assert [row["body"] for row in without[:2]] == [None, "<out><a>1</a></out>"]


def test_many_deliveries_of_one_message_come_in_several_batches(driver: Driver) -> None:
    driver.put(*((f"s{i}", "/m") for i in range(1_500)))
    body = b"<m>" + b"x" * 20_000 + b"</m>"
    sizes = [found.num_rows for found in RealTimePartition(driver.folder, True)(iter([_rows(body)]))]
    assert sum(sizes) == 1_500 and len(sizes) == 2


def test_the_feed_of_another_run_is_another(tmp_path: Path) -> None:
    """Entries are numbered from 1 in every run, and so may be the versions of the subscriptions."""
    first = Driver(tmp_path / "feed")
    follower = FeedFollower(first.folder)
    assert _ids(follower) == {"a"}
    first.source.close()
    second = SnapshotFeed(CheckpointTransport(first.folder))
    broker = Broker()
    broker.subscribe("b", "/m/b")
    source = BrokerSnapshots(broker, 1)
    second.publish(source.issue(second.transport))
    assert follower.refresh()
    assert _ids(follower) == {"b"}
    follower.close()
    source.close()
    WORKER_CACHE.clear()
