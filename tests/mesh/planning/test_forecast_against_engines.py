"""Forecasts against a following run: engines with all subscriptions, and other messages of the same kind."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from sapwood.mesh.core.topology import build_tree
from sapwood.mesh.planning.memory_forecast import collect_contents
from sapwood.mesh.planning.placement import AS_IT_IS, EXCLUSIVE, LEAST, Placement, place
from sapwood.mesh.planning.planned_subscription import PlannedSubscription, plan_subscription
from sapwood.mesh.planning.traffic_forecast import SampleMessage, TrafficForecast, TrafficSample
from sapwood.serve.mesh.memory_probe import measure_parts
from sapwood.store import NewSubscription, SubscriptionStore
from sapwood.workload import MessageGenerator, QueryGenerator, TransformationGenerator, load_dtd
from tests.mesh.planning.separate_engines import TREE, measure_engine
from tests.support.mesh.linked_engines import LinkedEngines

pytestmark = pytest.mark.slow
FOUR: dict[str, str | None] = {"a": None, "b": "a", "c": "a", "d": "b"}
WITHIN_TRAFFIC, WITHIN_MEMORY = 0.10, 0.25


def make_subscriptions(count: int, seed: int) -> list[PlannedSubscription]:
    queries = QueryGenerator(load_dtd("news"), seed=seed, predicates=1).take(count)
    return [plan_subscription(str(n), query) for n, query in enumerate(queries)]


def forecast(
    subscriptions: list[PlannedSubscription], placement: Placement, messages: list[bytes]
) -> TrafficForecast:
    sample = TrafficSample(build_tree(FOUR))
    sample.count(subscriptions, [placement], map(SampleMessage, messages))
    [found] = sample.forecast()
    return found


def run(
    folder: Path, subscriptions: list[PlannedSubscription], placement: Placement, messages: list[bytes]
) -> dict[tuple[str, str], float]:
    """The share of messages that engines send over each link, each published at a random site."""
    names = list(FOUR)
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        with SubscriptionStore(str(folder / name / "log.db")) as store:
            store.import_many(
                NewSubscription(each.id, each.query, "desk")
                for each, site in zip(subscriptions, placement.sites, strict=True)
                if site == number
            )
    random = Random(2)
    published: dict[str, list[bytes]] = {name: [] for name in names}
    for message in messages:
        published[random.choice(names)].append(message)
    mesh = LinkedEngines(folder, FOUR)
    try:
        for name, bodies in published.items():
            for start in range(0, len(bodies), 100):
                mesh[name].publish(*bodies[start : start + 100])
        mesh.run(mesh.is_settled, wait=120)
        sent = {}
        for name in names:
            runtime = mesh[name].engine._mesh
            assert runtime is not None
            for link, figures in runtime.describe().links.items():
                sent[name, link] = figures.get("messages out", 0) / len(messages)
        return sent
    finally:
        mesh.stop()


@pytest.mark.parametrize("name", [EXCLUSIVE, LEAST])
def test_shares_of_links_are_those_of_a_run(name: str, tmp_path: Path) -> None:
    generator = MessageGenerator(load_dtd("news"), seed=7)
    sample, messages = generator.take(1_500), generator.take(4_000)
    subscriptions = make_subscriptions(60, seed=3)
    placement = place(name, subscriptions, len(FOUR), sample)
    predicted = forecast(subscriptions, placement, sample)
    measured = run(tmp_path, subscriptions, placement, messages)
    shares = {(link.sender, link.receiver): link.messages for link in predicted.links}
    print(name, predicted.verdict)
    for link, share in measured.items():
        print(f"{link}: predicted {shares[link]:.4f}, measured {share:.4f}")
    assert shares == pytest.approx(measured, rel=WITHIN_TRAFFIC)
    assert (
        0.1 < predicted.share_of_flooding < 0.9
    )  # neither everything nor nothing, which are easy to predict


def make_queries(kind: str, count: int) -> list[str]:
    dtd = load_dtd("news")
    if kind == "predicates":
        return QueryGenerator(dtd, seed=1, predicates=1).take(count)
    if kind == "paths":
        return QueryGenerator(dtd, seed=1).take(count)
    if kind == "auction":
        return QueryGenerator(load_dtd("auction"), seed=5, predicates=2).take(count)
    if kind == "transformations":
        return TransformationGenerator(dtd, seed=1).take(count)
    return [f"/news[@topic = '{n % (count // 10)}']" for n in range(count)]


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        pytest.param("predicates", 30_000, marks=pytest.mark.long),
        pytest.param("paths", 20_000, marks=pytest.mark.long),
        pytest.param("paths", 3_000, marks=pytest.mark.long),
        ("auction", 12_000),
        pytest.param("transformations", 10_000, marks=pytest.mark.long),
        ("repeated", 60_000),
    ],
)
def test_memory_is_that_of_an_engine(kind: str, count: int, tmp_path: Path) -> None:
    queries = make_queries(kind, count)
    subscriptions = [plan_subscription(str(n), query) for n, query in enumerate(queries)]
    split = count // 3
    placement = Placement(AS_IT_IS, [0] * split + [1] * (count - split))
    contents = collect_contents(build_tree(TREE), subscriptions, placement)["here"]
    predicted = contents.forecast_bytes(measure_parts)
    routes = len({route for each in subscriptions for route in each.routes})
    full = measure_engine(tmp_path / "full", queries[:split], queries[split:], routes)
    base = measure_engine(tmp_path / "base", ["/a"], ["/b"], 2)
    print(f"{kind}: predicted {predicted / 1e6:.1f} MB, measured {(full - base) / 1e6:.1f} MB")
    assert predicted == pytest.approx(full - base, rel=WITHIN_MEMORY)
