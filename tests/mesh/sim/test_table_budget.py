"""Random scenarios with tables under a small budget: deliveries are those of exact tables, its null twin.

A scenario that fails is printed as the command that runs it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from sapwood.lang.pattern import Condition
from sapwood.mesh.core.frames import Route
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.tables.link_entries import EntryChange, LinkEntries
from sapwood.mesh.core.topology import build_tree
from sapwood.mesh.routing import weaker_conditions
from sapwood.mesh.sim import __main__ as command
from sapwood.mesh.sim.broker_workload import QUERIES, BrokerWorkload
from sapwood.mesh.sim.check import find_unrest
from sapwood.mesh.sim.sim_broker import NodeFactory
from sapwood.mesh.sim.table_budget import budget_workload, generalising_nodes, run_with_budget
from sapwood.mesh.sim.world import World
from tests.support.requirements import FULL

CHUNK = 25
QUICK, USUAL = 25, 100
SEEDS = 2_000 if FULL else USUAL
TREE = build_tree({"a": None, "b": "a", "c": "a", "d": "b", "e": "b", "f": "c"})
MOST = 200
"""seeds, within which a fault has to be found out"""


def find_problem(seed: int, workload: BrokerWorkload | None = None) -> str | None:
    """Run a scenario, and return what is wrong with it."""
    outcome = run_with_budget(seed, workload=workload)
    if outcome.problems:
        return "\n".join([f"python -m sapwood.mesh.sim --budget --seed {seed}", *outcome.problems[:5]])
    if outcome.counts["report healed"] or outcome.counts["report late"]:
        return f"seed {seed}: a table has drifted"
    return None


@pytest.mark.parametrize(
    "first",
    [pytest.param(n, marks=[] if n < QUICK else [pytest.mark.slow]) for n in range(0, SEEDS, CHUNK)],
)
def test_exactly_once_and_in_order(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert find_problem(seed) is None


# -- exact tables, and others ----------------------------------------------------------------------------


def rest(world: World) -> None:
    """Let time pass until nothing happens any more."""
    while (unrest := find_unrest(world)) is not None:
        assert world.now < 300.0, unrest
        world.run(world.now + 1.0)
    world.run(world.now + 3.0)


def count_deliveries(make_node: NodeFactory, workload: BrokerWorkload) -> tuple[list[Counter[object]], World]:
    """Return the deliveries of three rounds, between which subscriptions are added and removed."""
    world = World(1, TREE, workload, make_node=make_node)
    rest(world)
    rounds: list[Counter[object]] = []
    standing = [world.subscribe(f"{'abcdef'[query % 6]}", query) for query in range(len(QUERIES))]
    for kept in (len(standing), len(standing) // 3, 2):
        for gone in standing[kept:]:
            assert gone is not None
            world.unsubscribe(gone)
        rest(world)
        made = sum(len(broker.storage.deliveries) for broker in world.brokers.values())
        for document in range(workload.documents):
            world.publish(f"{'abcdef'[document % 6]}", document)
        rest(world)
        found = [each for broker in world.brokers.values() for each in broker.storage.deliveries]
        assert len(found) > made
        rounds.append(Counter((each.subscription, each.document) for each in found))
    return rounds, world


@pytest.mark.parametrize("budget", [30, 150, 400])
def test_deliveries_are_those_of_exact_tables(budget: int) -> None:
    workload = budget_workload()
    exact, exact_world = count_deliveries(Node, workload)
    under_budget, world = count_deliveries(generalising_nodes(budget, workload), workload)
    assert under_budget == exact
    assert world.counts["message frames"] > exact_world.counts["message frames"], "nothing was generalised"


def test_tables_are_exact_again_when_subscriptions_are_gone() -> None:
    workload = budget_workload()
    _, exact = count_deliveries(Node, workload)
    _, world = count_deliveries(generalising_nodes(150, workload), workload)
    assert _digests(world) == _digests(exact)
    for broker in world.brokers.values():
        assert broker.node is not None
        for told in broker.node.table.told.values():
            assert told.entries is not None and not told.entries.generalised


def _digests(world: World) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (name, link): (told.digest, told.count)
        for name, broker in world.brokers.items()
        if broker.node is not None
        for link, told in broker.node.table.told.items()
    }


def test_the_command_runs_a_scenario_with_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seed", "3", "--largest", "5", "--budget"]) == 0
    assert f"trace {run_with_budget(3, largest=5).trace}" in capsys.readouterr().out


# -- faults that must be found out -----------------------------------------------------------------------

_renew, _join = LinkEntries.renew, LinkEntries._join


def _replace_without_telling(self: LinkEntries, routes: Sequence[Route]) -> EntryChange:
    return EntryChange([], _renew(self, routes).removed)


def _join_any_entry(self: LinkEntries, route: Route, entry: Route) -> Route | None:
    any_entry = next(iter(self._entries.values()), entry) if self._covering is not None else entry
    return _join(self, route, any_entry)


def _forget_members(self: LinkEntries, route: Route) -> int | None:
    """Remove an entry with the first of its members."""
    key = self._entry_of.pop(route.key, route.key)
    if key in self._entries:
        del self._members[key]
        self._size -= self._generaliser.size(self._entries.pop(key))
        return key
    return None


def _weaken(condition: Condition) -> Iterator[Condition]:
    yield from [each.condition for each in weaker_conditions.list_weakenings(condition)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [
        (LinkEntries, "renew", _replace_without_telling),
        (LinkEntries, "_join", _join_any_entry),
        (LinkEntries, "remove", _forget_members),
        (weaker_conditions, "list_strengthenings", _weaken),
    ],
    ids=["replaces entries silently", "joins any entry", "forgets members", "weakens inside not()"],
)
def test_faults_are_found_out(
    owner: object, name: str, fault: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, fault)
    workload = BrokerWorkload()
    assert any(find_problem(seed, workload) is not None for seed in range(MOST))
