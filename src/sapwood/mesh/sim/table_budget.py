"""Nodes with a budget for their tables that is so small that these are generalised all the time."""

from __future__ import annotations

from functools import cache

from sapwood.mesh.core.node import Node
from sapwood.mesh.core.node_state import NodeState
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.routing.message_sample import SampleMessage
from sapwood.mesh.routing.route_generaliser import RouteGeneraliser
from sapwood.mesh.sim.broker_workload import BrokerWorkload
from sapwood.mesh.sim.scenario import Outcome, run_scenario
from sapwood.mesh.sim.sim_broker import NodeFactory

_BUDGETS = (40, 120, 250, 500)
"""bytes: a route takes about 40, and few tables have more than 20 of them"""


@cache
def budget_workload() -> BrokerWorkload:
    """Return a workload to which nodes add the routes that they make."""
    return BrokerWorkload()


def generalising_nodes(budget: int, workload: BrokerWorkload) -> NodeFactory:
    """Return what makes nodes with a budget, which measure losses with the documents of a workload."""

    def make_node(state: NodeState, topology: Topology, incarnation: int) -> Node:
        generaliser = RouteGeneraliser(budget, lambda _, routes: workload.find_hits(routes))
        generaliser.set_sample([SampleMessage("", "", b"")])  # of which there is no other use
        return Node(state, topology, incarnation, generaliser)

    return make_node


def run_with_budget(seed: int, largest: int = 30, workload: BrokerWorkload | None = None) -> Outcome:
    """Run a random scenario with a budget that depends on the seed, and check what came of it."""
    known = workload or budget_workload()
    make_node = generalising_nodes(_BUDGETS[seed % len(_BUDGETS)], known)
    return run_scenario(seed, known, make_node, largest, is_exact=False)
