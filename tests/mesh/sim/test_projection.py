"""Projection in simulated meshes: faults that would change a delivery, or withhold it, must be found out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from pytest import MonkeyPatch

from sapwood.mesh.core.messages.message_pipeline import TABLE_WAIT
from sapwood.mesh.core.messages.number_sets import to_intervals
from sapwood.mesh.core.messages.source_history import SourceHistory
from sapwood.mesh.core.topology import build_tree
from sapwood.mesh.projection import link_projection
from sapwood.mesh.projection.link_projection import ALWAYS
from sapwood.mesh.projection.pruning_plan import make_plan
from sapwood.mesh.routing.read_paths import ReadPaths, unite_reads
from sapwood.mesh.routing.route import routes_of
from sapwood.mesh.sim.broker_workload import NAMESPACES, TENANT, BrokerWorkload, SimDocument, SimQuery, digest
from sapwood.mesh.sim.check import check_deliveries, find_due
from sapwood.mesh.sim.projection_workload import projection_workload
from sapwood.mesh.sim.sim_wire import SimWire, run_on_wire
from sapwood.mesh.sim.world import World
from sapwood.mesh.wire.bodies.body_format import BodyFormat
from sapwood.mesh.wire.message_content import MessageContent, Projection
from tests.mesh.sim.test_behaviour import rest

MOST = 300
"""seeds, within which a fault has to be found out"""
IDS = "for $o in //order return <r>{$o/@id}</r>"
NOTES = "for $n in //note return $n"
TOTALS = "for $o in //order return <r>{$o/total}</r>"

ORDER = SimDocument("<order id='1'><note/><total>7</total></order>", "orders")


@dataclass(frozen=True)
class Mutant:
    """A fault, and the first of the seeds that are to find it out."""

    name: str
    apply: Callable[[MonkeyPatch], None]
    first: int = 0

    def __str__(self) -> str:
        return self.name


def _patch(owner: Any, name: str, replacement: Any) -> Callable[[MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, name, replacement)


def _unite_all_but_one(all_reads: Iterable[ReadPaths | None]) -> ReadPaths | None:
    """Forget what one route reads, where there are several."""
    found = list(all_reads)
    return unite_reads(found[:-1] if len(found) > 1 and None not in found else found)


def _take_partial_for_whole(patch: MonkeyPatch) -> None:
    patch.setattr(SourceHistory, "is_partial", lambda self, number: False)
    patch.setattr(SourceHistory, "have", lambda self: to_intervals(self._numbers))


MUTANTS = (
    Mutant("forgets what one route reads", _patch(link_projection, "unite_reads", _unite_all_but_one)),
    Mutant("takes partial messages for whole ones", _take_partial_for_whole, first=310),
    Mutant(
        "has partial messages sent without content",
        _patch(SourceHistory, "have", lambda self: to_intervals(self._numbers)),
        first=310,
    ),
    Mutant(
        "does not replace partial messages",
        _patch(SourceHistory, "is_partial", lambda self, number: False),
        first=310,
    ),
    Mutant("withholds nothing", _patch(SimWire, "withhold", lambda self, document, queries: list(queries))),
)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_faults_that_must_be_found_out(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    seeds = range(mutant.first, mutant.first + MOST)
    assert any(run_on_wire(seed, projection_workload(), largest=6).problems for seed in seeds)


def test_what_is_cut_and_withheld_and_comes_again() -> None:
    counts: Counter[str] = Counter()
    for seed in range(12):
        outcome = run_on_wire(seed, projection_workload(), largest=6)
        assert not outcome.problems
        counts += outcome.counts
    kinds = ("cut message", "message cut further", "withheld delivery", "whole message again")
    assert all(counts[kind] for kind in kinds), counts
    assert counts["wrong mark of a partial message"] == 0


# -- an open table -----------------------------------------------------------------------------------------


def run_with_open_table() -> list[str]:
    """Publish at a broker of which the neighbour cannot know what is wanted beyond: it waits for a table that
    does not come, until those who want more can be reached again."""
    workload = BrokerWorkload((SimQuery(IDS), SimQuery(NOTES)), (ORDER,))

    def make_wire(world: World, name: str) -> SimWire:
        return SimWire(world, name, workload, BodyFormat.TEXT, ALWAYS, 0.0)

    tree = build_tree({"a": None, "b": "a", "c": "b", "d": "c", "e": "a", "f": "e"})
    world = World(1, tree, workload, make_wire=make_wire)
    world.subscribe("b", 0)
    world.subscribe("d", 1)
    rest(world)
    world.network.cut = frozenset("cd")
    assert world.directory.put(tree.version, tree.move("e", "b"))
    world.run(world.now + 2 * TABLE_WAIT)
    a = world.brokers["a"].node
    assert a is not None and a.table.is_unknown("b") and a.table.routes_of("b")
    world.publish("a", 0)
    world.run(world.now + 1.0)
    world.network.cut = frozenset()
    rest(world)
    assert len(find_due(world)) == 2
    return check_deliveries(world)


def test_messages_stay_whole_while_it_is_not_known_what_is_wanted() -> None:
    assert not run_with_open_table()


def test_cutting_while_it_is_not_known_what_is_wanted_is_found_out(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(SimWire, "_is_known", lambda self, link: True)
    assert [problem.split(":")[0] for problem in run_with_open_table()] == ["missing"]


# -- copies ------------------------------------------------------------------------------------------------


@pytest.fixture
def workload() -> BrokerWorkload:
    return BrokerWorkload((SimQuery(IDS), SimQuery(TOTALS), SimQuery("//note")), (ORDER,))


def cut_by(workload: BrokerWorkload, query: str, body: bytes) -> MessageContent:
    """Return the document without what a query does not read, or what is taken for it."""
    (route,) = routes_of(query, NAMESPACES, TENANT)
    assert route.reads is not None
    whole = workload.content(0, "1")
    return whole._replace(body=body, projection=Projection(make_plan(route.reads), digest(whole.body)))


def test_a_copy_has_the_answers_of_its_bytes(workload: BrokerWorkload) -> None:
    came = cut_by(workload, IDS, b"<order id='1'></order>")
    copy = workload.find_document(came)
    assert copy >= workload.documents
    assert workload.find_document(workload.content(copy, "1")) == copy
    assert workload.find_document(workload.content(0, "1")) == 0
    assert workload.content(copy, "1") == came
    assert (workload.is_partial(0), workload.is_partial(copy)) == (False, True)
    assert [workload.has_all(copy, query) for query in range(3)] == [True, False, False]
    assert [*workload.matching(copy)] == [0, 1]
    assert workload.results(copy, 0) == workload.results(0, 0)
    assert workload.results(copy, 1) != workload.results(0, 1)
    assert len(workload.holding(copy)) == len(workload.holding(0)) - 1


def test_other_bytes_than_a_plan_leaves_are_found_out(workload: BrokerWorkload) -> None:
    with pytest.raises(AssertionError):
        workload.find_document(cut_by(workload, IDS, b"<order id='1'><note/></order>"))
    with pytest.raises(KeyError):
        workload.find_document(workload.content(0, "1")._replace(body=b"<order/>"))
