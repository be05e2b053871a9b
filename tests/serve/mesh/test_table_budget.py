"""Engines whose tables have a budget: deliveries are the same, and operators see what stands for a route."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.mesh.core.node import Node
from sapwood.mesh.core.tables.generaliser import EXACT
from sapwood.mesh.core.topology import build_tree
from sapwood.mesh.routing.message_sample import MOST_MESSAGES
from sapwood.serve.config import parse_config
from sapwood.serve.mesh import event_log
from sapwood.serve.mesh.administration.route_cover import RouteCover
from sapwood.serve.mesh.mesh_errors import BrokerSilent
from sapwood.serve.mesh.node.table_budget import MessageSampler, make_generaliser
from sapwood.serve.tenants.evaluation import Publication
from tests.support.mesh.linked_engines import LinkedEngine, LinkedEngines

CHAIN: dict[str, str | None] = {"a": None, "b": "a", "c": "b"}
TOPICS = 40
MakeMesh = Callable[[str, int | None], LinkedEngines]


@pytest.fixture
def make_mesh(tmp_path: Path) -> Iterator[MakeMesh]:
    made: list[LinkedEngines] = []

    def make(name: str, budget: int | None) -> LinkedEngines:
        folder = tmp_path / name
        folder.mkdir()
        made.append(LinkedEngines(folder, CHAIN, table_budget=budget))
        return made[-1]

    yield make
    for mesh in made:
        mesh.stop()


def subscribe(mesh: LinkedEngines) -> None:
    for number in range(TOPICS):
        mesh["c"].subscribe(f"c{number}", f"/news[@topic = 't{number}'][p]/q")
    mesh["b"].subscribe("b", "/news[not(@topic = 't1' or p)]")
    mesh["a"].subscribe("a", "//order[item[2]]")


def publish(mesh: LinkedEngines) -> None:
    for number in range(0, 2 * TOPICS, 3):
        mesh["abc"[number % 3]].publish(
            b"<news topic='t%d'><p/><q/></news>" % number, b"<news topic='t%d'/>" % number
        )
    mesh["c"].publish(b"<order><item/><item/></order>", b"<order><item/></order>")
    mesh.settle()


def deliveries(mesh: LinkedEngines) -> dict[str, list[Any]]:
    return {name: sorted(mesh[name].deliveries()) for name in CHAIN}


def status_of(engine: LinkedEngine, link: str) -> dict[str, Any]:
    runtime = engine.engine._mesh
    assert runtime is not None
    return dict(runtime.describe().links[link])


@pytest.mark.slow
def test_deliveries_are_those_of_exact_tables(make_mesh: MakeMesh) -> None:
    exact, other = make_mesh("exact", None), make_mesh("budget", 200)
    for mesh in (exact, other):
        subscribe(mesh)
        publish(mesh)
    assert deliveries(other) == deliveries(exact)
    assert sum(map(len, deliveries(exact).values())) > 20
    told, exact_told = status_of(other["c"], "b"), status_of(exact["c"], "b")
    assert (exact_told["routes out"], exact_told["generalised"]) == (TOPICS, 0)
    assert told["routes out"] < 5 and told["generalised"] >= 1
    keys = [each["key"] for each in other["c"].ask("subscription routes", tenant="", place=1)]

    async def ask_all(what: str, **arguments: Any) -> dict[str, Any]:
        return {name: other[name].ask(what, **arguments) for name in CHAIN}

    cover = RouteCover(build_tree(CHAIN))
    asyncio.run(cover.ask(ask_all, keys))
    found = {each["broker"]: each for each in cover.describe("c", keys, 5)}
    assert all(each["has"] for each in found.values())
    assert found["c"]["entries"] == []
    assert "news" in found["b"]["entries"][0]["condition"] and "news" in found["a"]["entries"][0]["condition"]


@pytest.mark.slow
def test_a_log_of_events_with_samples_is_replayed_to_the_same_actions(
    make_mesh: MakeMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(event_log.FOLDER, str(tmp_path / "events"))
    monkeypatch.setattr("sapwood.serve.mesh.node.table_budget._INTERVAL", 0.0)
    mesh = make_mesh("budget", 300)
    subscribe(mesh)
    publish(mesh)
    for number in range(TOPICS, TOPICS + 20):
        mesh["c"].subscribe(f"c{number}", f"/news[@topic = 't{number}'][p]/r")
    mesh.settle()
    mesh.stop()
    samples = 0
    for path in sorted((tmp_path / "events").iterdir()):
        start, pairs = event_log.read_event_log(path)
        node = Node(start.state, start.topology, start.incarnation, make_generaliser(start.table_budget))
        for event, actions in pairs:
            samples += type(event).__name__ == "Sampled"
            assert node.handle(event) == actions
    assert samples > 3


def test_the_budget_is_in_the_server_file() -> None:
    mesh = {"broker": "basel"}
    never = parse_config({"mesh": mesh, "tables": {"budget": "1 MB"}}).engine_settings()
    bounded = parse_config({"mesh": mesh, "tables": {"budget": "1 MB", "generalise": "budget"}})
    assert never.mesh is not None and never.mesh.table_budget is None
    settings = bounded.engine_settings().mesh
    assert settings is not None and settings.table_budget == 10**6
    assert make_generaliser(None) is EXACT and make_generaliser(7).budget == 7


def test_samples_are_taken_now_and_then() -> None:
    message = Publication("t", "s", "1", b"<a/>")
    without = MessageSampler(None)
    without.add(message)
    assert without.take(5.0) is None
    sampler = MessageSampler(100)
    assert sampler.take(0.0) is None
    sampler.add(message)
    assert sampler.take(1.0) is None
    for _ in range(MOST_MESSAGES):
        sampler.add(message)
    sampler.add(Publication("t", "s", "2", b""))
    first = sampler.take(2.0)
    assert first is not None and len(first.messages) == MOST_MESSAGES
    for _ in range(20 * MOST_MESSAGES):
        sampler.add(message)
    assert sampler.take(3.0) is None
    assert sampler.take(100.0) is not None


def test_the_way_of_a_route_ends_at_a_broker_that_does_not_answer() -> None:
    entry = {"key": "ff", "condition": "news"}

    async def ask_all(what: str, keys: list[str]) -> dict[str, Any]:
        told = {"b": entry} if "01" in keys else {}
        there = [{"key": key, "sides": ["b"], "versions": {"b": 3}} for key in keys if key == "ff"]
        host = [{"key": key, "sides": ["local"], "versions": {}, "told as": told} for key in keys]
        return {"c": host, "b": BrokerSilent("no answer"), "a": there}

    cover = RouteCover(build_tree(CHAIN))
    asyncio.run(cover.ask(ask_all, ["01"]))
    found = {each["broker"]: each for each in cover.describe("c", ["01"], 5)}
    assert (found["c"]["has"], found["c"]["table_version"], found["b"]["has"]) == (True, 5, None)
    assert (found["a"]["has"], found["a"]["entries"], found["a"]["table_version"]) == (True, [entry], 3)
