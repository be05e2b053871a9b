"""However a worker comes to a version of the subscriptions, it has exactly those of that version."""

from __future__ import annotations

import gc
import pickle
import random
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark import SparkContext

from sapwood import Broker
from sapwood.spark.distribution.index_snapshot import BrokerSnapshots, IndexSnapshot, SnapshotDelta
from sapwood.spark.distribution.match_worker import LiveBroker, load_broker
from tests.support.generators import transform_strategies
from tests.support.oracles import lxml_oracle
from tests.support.spark.spark_stream import delivered_by

_RNG = random.Random(11)
QUERIES = [
    *(lxml_oracle.random_query(_RNG, native=i % 4 > 0) for i in range(80)),
    *(transform_strategies.random_query(_RNG, beyond=i % 4 == 0).sapwood for i in range(40)),
]
NAMESPACES = transform_strategies.NAMESPACES
MESSAGES = [
    *(lxml_oracle.random_document(_RNG) for _ in range(4)),
    *(transform_strategies.random_document(_RNG) for _ in range(3)),
]


@dataclass
class Base:
    """What stands for a broadcast."""

    content: bytes
    destroyed: bool = False
    read: int = 0

    @property
    def value(self) -> bytes:
        assert not self.destroyed, "a broadcast was read after it had been destroyed"
        self.read += 1
        return self.content

    def destroy(self) -> None:
        assert not self.destroyed
        self.destroyed = True
        self.content = b""


@dataclass
class Context:
    """What stands for Spark."""

    made: list[Base] = field(default_factory=list)

    def broadcast(self, content: bytes) -> Base:
        self.made.append(Base(content))
        return self.made[-1]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Workers freeze what they have unpacked; here it is to be collected."""
    yield
    gc.unfreeze()


def issue(source: BrokerSnapshots, context: Context) -> IndexSnapshot:
    return source.issue(cast(SparkContext, context))


Answers = list[list[tuple[str, str | None]]]


def answers(broker: Broker) -> Answers:
    return [sorted(delivered_by(broker, message)) for message in MESSAGES]


def matched(broker: Broker, message: str) -> list[str]:
    return [id for id, _ in delivered_by(broker, message)]


def by_number(live: LiveBroker) -> Answers:
    """The answers as they leave a worker."""
    said: Answers = []
    for message in MESSAGES:
        answer = live.broker.answer(message)
        made = [number for number, _ in answer.made]
        ids = live.ids.take(pa.array([*answer.matches.numbers, *made], pa.int64()))
        bodies = [*([None] * len(answer.matches)), *(body.decode() for _, body in answer.made)]
        said.append(sorted(zip(ids.to_pylist(), bodies, strict=True)))
    return said


class Driver:
    """A source that changes, and what it should be at every version."""

    def __init__(self, rng: random.Random, size: int = 40) -> None:
        self.rng = rng
        self.context = Context()
        self.queries = {f"s{i}": rng.choice(QUERIES) for i in range(size)}
        self.next = size
        broker = Broker(NAMESPACES)
        broker.subscribe_many(self.queries.items())
        self.source = BrokerSnapshots(broker)
        self.history = {0: dict(self.queries)}

    def change(self) -> None:
        rng = self.rng
        removed = rng.sample(sorted(self.queries), min(len(self.queries), rng.randint(0, 4)))
        left = [id for id in self.queries if id not in removed]
        put = {id: rng.choice(QUERIES) for id in rng.sample(left, min(len(left), rng.randint(0, 3)))}
        for _ in range(rng.randint(0, 4)):
            put[f"s{self.next}"] = rng.choice(QUERIES)
            self.next += 1
        self.advance(
            SnapshotDelta(self.source.version + rng.randint(1, 3), tuple(removed), tuple(put.items()))
        )

    def advance(self, change: SnapshotDelta) -> None:
        self.source.advance(change)
        for id in change.removed:
            del self.queries[id]
        self.queries |= dict(change.put)
        self.history[change.version] = dict(self.queries)

    def snapshot(self) -> IndexSnapshot:
        return issue(self.source, self.context)

    def expected(self, version: int) -> Answers:
        fresh = Broker(NAMESPACES)
        fresh.subscribe_many(self.history[version].items())
        return answers(fresh)


def check(driver: Driver, live: LiveBroker, version: int) -> None:
    assert live.version == version
    assert set(live.broker) == set(driver.history[version])
    expected = driver.expected(version)
    assert answers(live.broker) == expected
    assert by_number(live) == expected


class Worker:
    """A worker with a memory of its own: what the module remembers, kept apart."""

    def __init__(self) -> None:
        self.live: LiveBroker | None = None
        self.unpacked = 0

    def serve(self, snapshot: IndexSnapshot) -> LiveBroker:
        if self.live is None or not self.live.can_advance_to(snapshot):
            self.live = LiveBroker(snapshot)
            self.unpacked += 1
        self.live.advance(snapshot)
        return self.live


# -- random changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("few", [3, 25, 2_000])
def test_every_worker_has_the_subscriptions_of_the_version(
    seed: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.spark.distribution.index_snapshot._MIN_CHANGES_TO_PACK", few)
    driver = Driver(random.Random(seed))
    diligent, lazy = Worker(), Worker()
    for round in range(18):
        snapshot = driver.snapshot()
        check(driver, diligent.serve(snapshot), driver.source.version)
        if driver.rng.random() < 0.25:
            check(driver, lazy.serve(snapshot), driver.source.version)
        if round % 8 == 7:
            check(driver, Worker().serve(snapshot), driver.source.version)  # it starts late
        driver.change()
    assert diligent.unpacked == 1  # however often the base was packed anew
    assert (len(driver.context.made) > 1) == (few < 2_000)


def test_a_snapshot_travels_as_a_pickle() -> None:
    driver = Driver(random.Random(1))
    driver.snapshot()
    driver.change()
    snapshot = pickle.loads(pickle.dumps(driver.snapshot()))
    check(driver, Worker().serve(snapshot), driver.source.version)


def test_a_worker_can_be_asked_for_an_older_version_again() -> None:
    driver = Driver(random.Random(2))
    snapshots = []
    for _ in range(5):
        snapshots.append(driver.snapshot())
        driver.change()
    for snapshot in (snapshots[4], snapshots[1], snapshots[3], snapshots[0], snapshots[4]):
        check(driver, load_broker(snapshot), snapshot.version)


def numbers(broker: Broker) -> dict[object, int]:
    ids, numbers = broker.numbered()
    return dict(zip(ids, numbers.tolist(), strict=True))


def test_workers_that_come_by_different_ways_number_alike() -> None:
    driver = Driver(random.Random(3))
    diligent = Worker()
    for _ in range(12):
        snapshot = driver.snapshot()
        live = diligent.serve(snapshot)
        driver.change()
    late = Worker().serve(snapshot)
    assert numbers(late.broker) == numbers(live.broker)
    assert list(late.broker) == list(live.broker)


def test_a_worker_serves_several_populations_in_turn() -> None:
    drivers = [Driver(random.Random(seed)) for seed in range(4)]
    for _ in range(3):
        for driver in drivers:
            check(driver, load_broker(driver.snapshot()), driver.source.version)
            driver.change()


def test_a_worker_unpacks_a_base_once() -> None:
    driver = Driver(random.Random(4))
    for _ in range(6):
        load_broker(driver.snapshot())
        load_broker(driver.snapshot())
        driver.change()
    assert [base.read for base in driver.context.made] == [1]


# -- single changes --------------------------------------------------------------------------------------


def one_change(change: SnapshotDelta, queries: dict[str, str] | None = None) -> LiveBroker:
    broker = Broker()
    broker.subscribe_many((queries or {"a": "/a", "b": "/b"}).items())
    source, context = BrokerSnapshots(broker, 1), Context()
    live = LiveBroker(issue(source, context))
    source.advance(change)
    snapshot = issue(source, context)
    live.advance(snapshot)
    late = LiveBroker(snapshot)
    late.advance(snapshot)
    for message in ("<a/>", "<b/>", "<c xmlns='urn:c'/>"):
        assert delivered_by(live.broker, message) == delivered_by(late.broker, message)
    return live


def test_changes_lead_on_only_to_newer_versions() -> None:
    source = BrokerSnapshots(Broker(), 5)
    for version in (4, 5):
        with pytest.raises(ValueError, match=f"version {version} does not follow version 5"):
            source.advance(SnapshotDelta(version, put=(("a", "/a"),)))
    assert len(source.broker) == 0


def test_removing_an_unknown_id_is_no_error() -> None:
    live = one_change(SnapshotDelta(2, removed=("nobody", "a")))
    assert list(live.broker) == ["b"]


def test_an_id_that_is_removed_and_put_has_its_new_query() -> None:
    live = one_change(SnapshotDelta(2, removed=("a",), put=(("a", "/b"),)))
    assert matched(live.broker, "<b/>") == ["b", "a"]
    assert matched(live.broker, "<a/>") == []


def test_new_prefixes_come_with_a_change() -> None:
    live = one_change(SnapshotDelta(2, put=(("c", "/c:c"),), namespaces={"c": "urn:c"}))
    assert matched(live.broker, "<c xmlns='urn:c'/>") == ["c"]


def test_a_query_that_does_not_compile_is_omitted_and_reported() -> None:
    change = SnapshotDelta(2, put=(("bad", "/a["), ("good", "/a"), ("b", "]")))
    live = one_change(change)
    assert matched(live.broker, "<a/>") == ["a", "good"]
    assert "b" not in live.broker  # its old query is not the one its subscriber wants
    errors: dict[Hashable, str] = {}
    BrokerSnapshots(Broker(), 1).advance(change, lambda id, error: errors.update({id: str(error)}))
    assert list(errors) == ["bad", "b"] and "/a[" in errors["bad"]


def test_a_subscription_may_become_one_of_the_other_kind_and_back() -> None:
    made = "for $b in //b return <made>{$b}</made>"
    live = one_change(SnapshotDelta(2, put=(("a", made), ("b", "//b["))))
    assert delivered_by(live.broker, "<b/>") == [("a", "<made><b/></made>")]
    live = one_change(SnapshotDelta(2, put=(("a", "/b"),)), {"a": made})
    assert delivered_by(live.broker, "<b/>") == [("a", None)]


def test_a_snapshot_says_whether_it_has_transformations() -> None:
    source, context = BrokerSnapshots(Broker()), Context()
    said = [issue(source, context).transforming]
    for version, change in enumerate(
        (
            SnapshotDelta(1, put=(("a", "/a"), ("bad", "for $a in //a return <a>"))),
            SnapshotDelta(2, put=(("b", "for $a in //a return <b/>"),)),
            SnapshotDelta(3, put=(("a", "for $a in //a return <b/>"),)),
            SnapshotDelta(4, put=(("b", "//b"),)),
            SnapshotDelta(5, removed=("a",)),
        ),
        1,
    ):
        source.advance(change)
        snapshot = issue(source, context)
        assert snapshot.version == version
        said.append(snapshot.transforming)
    assert said == [False, False, True, True, True, False]


def test_a_population_can_become_empty_and_grow_again() -> None:
    live = one_change(SnapshotDelta(2, removed=("a", "b")))
    assert matched(live.broker, "<a/>") == []
    assert len(live.ids) == 0


# -- broadcasts and memory -------------------------------------------------------------------------------


def test_only_the_last_base_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.spark.distribution.index_snapshot._MIN_CHANGES_TO_PACK", 5)
    driver = Driver(random.Random(5))
    for _ in range(30):
        driver.snapshot()
        driver.change()
        assert [base.destroyed for base in driver.context.made[:-1]] == [True] * (
            len(driver.context.made) - 1
        )
        assert not driver.context.made[-1].destroyed
    assert len(driver.context.made) > 3
    driver.source.close()
    assert all(base.destroyed for base in driver.context.made)
    driver.source.close()  # nothing is destroyed twice


def test_the_last_base_is_used_while_changes_are_few() -> None:
    driver = Driver(random.Random(6))
    for _ in range(100):
        driver.snapshot()
        driver.change()
    assert len(driver.context.made) == 1


@pytest.mark.parametrize("empty", [False, True])
def test_snapshots_stay_small_however_long_subscriptions_change(
    empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.spark.distribution.index_snapshot._MIN_CHANGES_TO_PACK", 50)
    broker = Broker()
    broker.subscribe_many((f"s{i}", f"/a{i}") for i in range(20))
    source, context = BrokerSnapshots(broker), Context()
    sizes = []
    for version in range(1, 2_001):
        snapshot = issue(source, context)
        sizes.append(len(pickle.dumps(snapshot.deltas)))
        put: Any = () if empty else ((f"s{version % 20}", f"/b{version % 7}"),)
        source.advance(SnapshotDelta(version, put=put))
    assert len(snapshot.deltas) < 150
    assert max(sizes[1_000:]) <= 1.2 * max(sizes[200:400])
    assert len(context.made) > 5
