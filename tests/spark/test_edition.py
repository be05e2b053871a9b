"""However a worker comes to a version of the subscriptions, it has exactly those of that version."""

from __future__ import annotations

import gc
import logging
import pickle
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pyspark import SparkContext

from sapwood import Matcher
from sapwood.spark.edition import Change, Edition, Population
from sapwood.spark.worker import LiveMatcher, live_matcher
from tests import oracle

_RNG = random.Random(11)
QUERIES = [oracle.random_query(_RNG, native=i % 4 > 0) for i in range(80)]
MESSAGES = [oracle.random_document(_RNG) for _ in range(6)]


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


def issue(population: Population, context: Context) -> Edition:
    return population.issue(cast(SparkContext, context))


def answers(matcher: Matcher) -> list[list[str]]:
    return [sorted(map(str, matches)) for matches in matcher.match_many(MESSAGES)]


def ids_by_number(live: LiveMatcher) -> list[list[str]]:
    """The answers as they leave a worker."""
    numbers = [matches.numbers for matches in live.matcher.match_many(MESSAGES)]
    return [sorted(live.ids.take(of_message).to_pylist()) for of_message in numbers]


class Driver:
    """A population that changes, and what it should be at every version."""

    def __init__(self, rng: random.Random, size: int = 40) -> None:
        self.rng = rng
        self.context = Context()
        self.queries = {f"s{i}": rng.choice(QUERIES) for i in range(size)}
        self.next = size
        matcher = Matcher(oracle.NAMESPACES)
        matcher.add_many(self.queries.items())
        self.population = Population(matcher)
        self.history = {0: dict(self.queries)}

    def change(self) -> None:
        rng = self.rng
        removed = rng.sample(sorted(self.queries), min(len(self.queries), rng.randint(0, 4)))
        left = [id for id in self.queries if id not in removed]
        put = {id: rng.choice(QUERIES) for id in rng.sample(left, min(len(left), rng.randint(0, 3)))}
        for _ in range(rng.randint(0, 4)):
            put[f"s{self.next}"] = rng.choice(QUERIES)
            self.next += 1
        self.advance(Change(self.population.version + rng.randint(1, 3), tuple(removed), tuple(put.items())))

    def advance(self, change: Change) -> None:
        self.population.advance(change)
        for id in change.removed:
            del self.queries[id]
        self.queries |= dict(change.put)
        self.history[change.version] = dict(self.queries)

    def edition(self) -> Edition:
        return issue(self.population, self.context)

    def expected(self, version: int) -> list[list[str]]:
        fresh = Matcher(oracle.NAMESPACES)
        fresh.add_many(self.history[version].items())
        return answers(fresh)


def check(driver: Driver, live: LiveMatcher, version: int) -> None:
    assert live.version == version
    assert set(live.matcher) == set(driver.history[version])
    expected = driver.expected(version)
    assert answers(live.matcher) == expected
    assert ids_by_number(live) == expected


class Worker:
    """A worker with a memory of its own: what the module remembers, kept apart."""

    def __init__(self) -> None:
        self.live: LiveMatcher | None = None
        self.unpacked = 0

    def serve(self, edition: Edition) -> LiveMatcher:
        if self.live is None or not self.live.leads_to(edition):
            self.live = LiveMatcher(edition)
            self.unpacked += 1
        self.live.advance(edition)
        return self.live


# -- random changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("few", [3, 25, 2_000])
def test_every_worker_has_the_subscriptions_of_the_version(
    seed: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.spark.edition._FEW", few)
    driver = Driver(random.Random(seed))
    diligent, lazy = Worker(), Worker()
    for round in range(18):
        edition = driver.edition()
        check(driver, diligent.serve(edition), driver.population.version)
        if driver.rng.random() < 0.25:
            check(driver, lazy.serve(edition), driver.population.version)
        if round % 8 == 7:
            check(driver, Worker().serve(edition), driver.population.version)  # it starts late
        driver.change()
    assert diligent.unpacked == 1  # however often the base was packed anew
    assert (len(driver.context.made) > 1) == (few < 2_000)


def test_an_edition_travels_as_a_pickle() -> None:
    driver = Driver(random.Random(1))
    driver.edition()
    driver.change()
    edition = pickle.loads(pickle.dumps(driver.edition()))
    check(driver, Worker().serve(edition), driver.population.version)


def test_a_worker_can_be_asked_for_an_older_version_again() -> None:
    driver = Driver(random.Random(2))
    editions = []
    for _ in range(5):
        editions.append(driver.edition())
        driver.change()
    for edition in (editions[4], editions[1], editions[3], editions[0], editions[4]):
        check(driver, live_matcher(edition), edition.version)


def test_workers_that_come_by_different_ways_number_alike() -> None:
    driver = Driver(random.Random(3))
    diligent = Worker()
    for _ in range(12):
        edition = driver.edition()
        live = diligent.serve(edition)
        driver.change()
    late = Worker().serve(edition)
    assert [late.matcher.number(id) for id in late.matcher] == [
        live.matcher.number(id) for id in live.matcher
    ]
    assert list(late.matcher) == list(live.matcher)


def test_a_worker_serves_several_populations_in_turn() -> None:
    drivers = [Driver(random.Random(seed)) for seed in range(4)]
    for _ in range(3):
        for driver in drivers:
            check(driver, live_matcher(driver.edition()), driver.population.version)
            driver.change()


def test_a_worker_unpacks_a_base_once() -> None:
    driver = Driver(random.Random(4))
    for _ in range(6):
        live_matcher(driver.edition())
        live_matcher(driver.edition())
        driver.change()
    assert [base.read for base in driver.context.made] == [1]


# -- single changes --------------------------------------------------------------------------------------


def one_change(change: Change, queries: dict[str, str] | None = None) -> LiveMatcher:
    matcher = Matcher()
    matcher.add_many((queries or {"a": "/a", "b": "/b"}).items())
    population, context = Population(matcher, 1), Context()
    live = LiveMatcher(issue(population, context))
    population.advance(change)
    edition = issue(population, context)
    live.advance(edition)
    late = LiveMatcher(edition)
    late.advance(edition)
    for message in ("<a/>", "<b/>", "<c xmlns='urn:c'/>"):
        assert list(live.matcher.match(message)) == list(late.matcher.match(message))
    return live


def test_changes_lead_on_only_to_newer_versions() -> None:
    population = Population(Matcher(), 5)
    for version in (4, 5):
        with pytest.raises(ValueError, match=f"version {version} does not follow version 5"):
            population.advance(Change(version, put=(("a", "/a"),)))
    assert len(population.matcher) == 0


def test_removing_who_is_not_there_is_no_error() -> None:
    live = one_change(Change(2, removed=("nobody", "a")))
    assert list(live.matcher) == ["b"]


def test_an_id_that_is_removed_and_put_has_its_new_query() -> None:
    live = one_change(Change(2, removed=("a",), put=(("a", "/b"),)))
    assert list(live.matcher.match("<b/>")) == ["b", "a"]
    assert list(live.matcher.match("<a/>")) == []


def test_new_prefixes_come_with_a_change() -> None:
    live = one_change(Change(2, put=(("c", "/c:c"),), namespaces={"c": "urn:c"}))
    assert list(live.matcher.match("<c xmlns='urn:c'/>")) == ["c"]


def test_a_query_that_cannot_be_compiled_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        live = one_change(Change(2, put=(("bad", "/a["), ("good", "/a"), ("b", "]"))))
    assert list(live.matcher.match("<a/>")) == ["a", "good"]
    assert "b" not in live.matcher  # its old query is not the one its subscriber wants
    assert "subscription bad is left out" in caplog.text


def test_a_population_can_become_empty_and_grow_again() -> None:
    live = one_change(Change(2, removed=("a", "b")))
    assert list(live.matcher.match("<a/>")) == []
    assert len(live.ids) == 0


# -- broadcasts and memory -------------------------------------------------------------------------------


def test_only_the_last_base_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.spark.edition._FEW", 5)
    driver = Driver(random.Random(5))
    for _ in range(30):
        driver.edition()
        driver.change()
        assert [base.destroyed for base in driver.context.made[:-1]] == [True] * (
            len(driver.context.made) - 1
        )
        assert not driver.context.made[-1].destroyed
    assert len(driver.context.made) > 3
    driver.population.close()
    assert all(base.destroyed for base in driver.context.made)
    driver.population.close()  # nothing is destroyed twice


def test_the_last_base_is_used_while_changes_are_few() -> None:
    driver = Driver(random.Random(6))
    for _ in range(100):
        driver.edition()
        driver.change()
    assert len(driver.context.made) == 1


@pytest.mark.parametrize("empty", [False, True])
def test_editions_stay_small_however_long_subscriptions_change(
    empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.spark.edition._FEW", 50)
    matcher = Matcher()
    matcher.add_many((f"s{i}", f"/a{i}") for i in range(20))
    population, context = Population(matcher), Context()
    sizes = []
    for version in range(1, 2_001):
        edition = issue(population, context)
        sizes.append(len(pickle.dumps(edition.changes)))
        put: Any = () if empty else ((f"s{version % 20}", f"/b{version % 7}"),)
        population.advance(Change(version, put=put))
    assert len(edition.changes) < 150
    assert max(sizes[1_000:]) <= 1.2 * max(sizes[200:400])
    assert len(context.made) > 5
