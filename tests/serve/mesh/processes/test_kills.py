"""Brokers and NATS servers that are killed under load: nothing is missing, in excess or there twice."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from sapwood.mesh.core.events import Batch
from sapwood.mesh.core.node import Node
from sapwood.serve.mesh import event_log
from sapwood.serve.mesh.local_mesh import LocalMesh
from sapwood.serve.mesh.node.table_budget import make_generaliser
from tests.support.mesh.mesh_clients import MeshClients, publish_all
from tests.support.mesh.mesh_load import MeshLoad
from tests.support.mesh.mesh_oracle import MeshOracle
from tests.support.mesh.trees import CONFIG, FOUR, SIX, need_nats
from tests.support.requirements import FULL

pytestmark = [pytest.mark.slow, pytest.mark.server]


def _kill(mesh: LocalMesh, victims: list[str], seed: int) -> None:
    """Kill brokers and NATS servers at random moments, one after the other, and start them again.

    In the thread that has started the servers: they end with it.
    """
    rng = Random(seed)
    for victim in victims:
        time.sleep(rng.uniform(0.2, 1.5))
        kind, _, name = victim.partition(" ")
        away = rng.choice([0.0, 0.5, 2.0])
        if kind == "broker":
            mesh.brokers[name].kill()
            time.sleep(away)
            mesh.brokers[name].start()
        else:
            mesh.nats.kill(name)
            time.sleep(away)
            mesh.nats.restart(name)


def _draw_victims(mesh: LocalMesh, count: int, seed: int) -> list[str]:
    """Draw brokers and NATS servers in turn, each before any of them comes again."""
    rng = Random(seed)
    brokers, servers = list(mesh.brokers), mesh.nats.names
    rng.shuffle(brokers)
    rng.shuffle(servers)
    victims: list[str] = []
    for number in range((count + 1) // 2):
        victims.append(f"broker {brokers[number % len(brokers)]}")
        victims.append(f"nats {servers[number % len(servers)]}")
    return victims[:count]


def check_kills(
    folder: Path, parents: dict[str, str | None], subscriptions: int, messages: int, kills: int, seed: int
) -> str:
    """Kill at random moments while all brokers have publishers, and compare with one Broker."""
    load = MeshLoad(seed, list(parents))
    hubs = 3 if FULL else 1
    with (
        MeshOracle() as oracle,
        LocalMesh(folder, parents, CONFIG, f"hub_replicas = {hubs}", hub_servers=hubs) as mesh,
        MeshClients(mesh) as clients,
    ):
        clients.declare()
        rows = load.subscriptions(subscriptions, odd=0.03)
        clients.import_all(rows)
        for row in rows:
            oracle.put(row)
        sent = load.messages(messages)
        load.close()
        for message in sent:
            oracle.publish(message)
        victims = _draw_victims(mesh, kills, seed)
        publishers = publish_all(mesh, sent, pause=0.02, several=3)
        _kill(mesh, victims, seed)
        for publisher in publishers:
            publisher.finish()
        for host in parents:
            expected = oracle.hosts.get(host)
            if expected is not None:
                clients.wait_for(host, host, len(expected.made), 120)
        clients.wait_quiet(120)
        deliveries = sum(oracle.check(host, clients.read(host, host)) for host in parents)
        late = clients.counter("late")
    repeated = sum(publisher.repeated for publisher in publishers)
    assert late == 0
    return (
        f"{kills} kills ({', '.join(victims)}), {len(sent)} messages, {deliveries} deliveries, "
        f"{repeated} requests repeated"
    )


@pytest.mark.parametrize("seed", range(1, 3) if FULL else [1])
def test_kills_lose_and_double_nothing(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """B.8, B.15: kill -9 of the root, inner brokers, hosts, and NATS servers of sites and of the hub.

    What the nodes were told in this run, fed to nodes again, has the same actions.
    """
    need_nats()
    monkeypatch.setenv(event_log.FOLDER, str(tmp_path / "events"))
    if FULL:
        print(check_kills(tmp_path, dict(SIX), subscriptions=1_000, messages=6_000, kills=30, seed=seed))
    else:
        print(check_kills(tmp_path, dict(FOUR), subscriptions=120, messages=800, kills=8, seed=seed))
    logs = sorted((tmp_path / "events").iterdir())
    assert len(logs) > len(FOUR), "no broker was restarted"
    replayed = sum(map(replay, logs))
    assert replayed > 1_000
    print(f"{replayed} events replayed")


def replay(path: Path) -> int:
    """Feed a node what another one was told, compare the actions, and return the number of events."""
    start, pairs = event_log.read_event_log(path)
    node = Node(start.state, start.topology, start.incarnation, make_generaliser(start.table_budget))
    replayed = 0
    for event, actions in pairs:
        assert node.handle(event) == actions, f"{path.name}: event {replayed}"
        replayed += len(event.events) if isinstance(event, Batch) else 1
    return replayed
