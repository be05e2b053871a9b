"""What operators ask of a mesh, with brokers that are made up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.errors import SapwoodError
from sapwood.mesh.core.membership import Proposal
from sapwood.mesh.core.topology import Topology, TopologyError, build_tree
from sapwood.serve.mesh.administration.mesh_administration import MeshAdministration
from sapwood.serve.mesh.mesh_errors import BrokerSilent, MoveError, UnknownBroker, UnknownSubscription

TREE = build_tree({"a": None, "b": "a", "c": "a"})
Answer = Callable[[str, str, dict[str, Any]], Any]


class FakeMesh:
    """A mesh whose brokers answer what a function says."""

    def __init__(self, answer: Answer, topology: Topology = TREE) -> None:
        self.config = SimpleNamespace(broker="a", confirm_seconds=1.0, confirm_wait="1 s")
        self.membership: Any = self
        self.queries: Any = self
        self.topology = topology
        self.leases: dict[str, Any] = {"b": {"url": "http://b"}}
        self._answer = answer
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.proposals: list[Proposal] = []

    def age(self, name: str) -> float | None:
        return None if name == "c" else 0.5

    async def propose(self, proposal: Proposal) -> None:
        self.proposals.append(proposal)
        self.topology = proposal.topology

    async def ask(self, broker: str, what: str, wait: float = 3.0, **arguments: Any) -> Any:
        self.asked.append((broker, what, arguments))
        answer = self._answer(broker, what, arguments)
        if isinstance(answer, SapwoodError):
            raise answer
        return answer

    async def ask_all(self, brokers: Iterable[str], what: str, **arguments: Any) -> dict[str, Any]:
        return {name: self._answer(name, what, arguments) for name in brokers}


def administer(mesh: FakeMesh) -> MeshAdministration:
    mesh.membership = SimpleNamespace(
        topology=mesh.topology, membership=mesh, leases=mesh.leases, propose=mesh.propose
    )
    stub: Any = mesh
    return MeshAdministration(stub)


def silent_c(broker: str, what: str, arguments: dict[str, Any]) -> Any:
    if broker == "c":
        return BrokerSilent("the broker 'c' has not answered within 3 s")
    backlog = {"backlog": {"oldest_age": 1.5, "bytes": 10}}
    figures = {"open": True, "outbox": 2, "version": 5, "confirmed": 3, "routes in": 4, "transport": backlog}
    return {"links": {"b" if broker == "a" else "a": figures | {"rates": {"messages out": 7.0}}}}


def test_a_broker_that_does_not_answer_is_listed_with_the_reason() -> None:
    a, b, c = asyncio.run(administer(FakeMesh(silent_c)).list_brokers())
    assert (a["error"], b["url"], b["lease_age"]) == (None, "http://b", 0.5)
    assert c["status"] is None and c["lease_age"] is None and "has not answered" in c["error"]


def test_links_have_the_figures_of_both_ends() -> None:
    found = asyncio.run(administer(FakeMesh(silent_c)).describe_topology())
    links = {(link["sender"], link["receiver"]): link for link in found["links"]}
    assert set(links) == {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}
    down = links["a", "b"]
    assert (down["messages_per_second"], down["outbox"], down["queue_age"], down["table_lag"]) == (
        7.0,
        2,
        1.5,
        2,
    )
    assert links["c", "a"]["open"] is None and links["c", "a"]["table_lag"] is None


def explain_answers(broker: str, what: str, arguments: dict[str, Any]) -> Any:
    if what == "subscription":
        found = {"query": "/x", "language": "xpath", "subscriber": "desk", "streams": [], "active": True}
        found |= {"routes": [{"key": "0f"}], "confirmed": True, "since": 9}
        return found if broker == "b" else None
    if what == "projection":
        cut = {"is_cut": False, "reason": "it is not known yet", "reads": [], "saved": None, "seconds": None}
        links = {"a": ["b", "c"], "b": ["a"], "c": ["a"]}[broker]
        return [cut | {"link": link, "stream": "news"} for link in links]
    sides = {"a": ["b"], "b": ["local"], "c": []}[broker]
    return [{"key": key, "sides": sides, "versions": dict.fromkeys(sides, 4)} for key in arguments["keys"]]


def test_explain_tells_who_lacks_the_routes() -> None:
    found = asyncio.run(administer(FakeMesh(explain_answers)).explain("", "s"))
    (host,) = found["hosts"]
    assert (host["broker"], host["version"], host["confirmed"]) == ("b", 9, True)
    assert [(each["broker"], each["side"], each["has"]) for each in host["brokers"]] == [
        ("a", "b", True),
        ("b", "local", True),
        ("c", "a", False),
    ]
    assert [[each["link"] for each in broker["projection"]] for broker in host["brokers"]] == [
        ["b"],
        [],
        ["a"],
    ]


def test_a_subscription_of_nobody() -> None:
    with pytest.raises(UnknownSubscription, match="no broker has a subscription 's'"):
        asyncio.run(administer(FakeMesh(lambda *_: None)).explain("", "s"))


def trace_answers(broker: str, what: str, arguments: dict[str, Any]) -> Any:
    came_by = {"b": None, "a": "b", "c": "a"}[broker]
    hop = {"source": "b", "number": 3, "came_by": came_by, "received": 5.0, "seq": 1, "stream": "s"}
    hop |= {
        "id": "m",
        "version": 1,
        "deliveries": 0,
        "is_local": True,
        "reasons": {"c": {"count": 1, "routes": []}},
    }
    hop["links"] = {"b": ["a"], "a": ["c"], "c": []}[broker]
    known = broker != "c" or arguments["keys"]  # which has it by another id
    return {"hops": [hop] if known else [], "refused": [{"reason": "bad"}] if broker == "c" else []}


def test_a_trace_goes_from_the_root_on() -> None:
    found = asyncio.run(administer(FakeMesh(trace_answers)).trace("", "m"))
    (message,) = found["messages"]
    assert [hop["broker"] for hop in message["hops"]] == ["b", "a", "c"]
    assert [hop["not_chosen"] for hop in message["hops"]] == [[], [], []]
    assert message["hops"][1]["chosen"] == [{"link": "c", "count": 1, "routes": []}]
    assert message["hops"][0]["chosen"] == [{"link": "a", "count": 0, "routes": []}]
    assert found["refused"] == [{"broker": "c", "reason": "bad"}]


def test_the_tree_is_changed() -> None:
    mesh = FakeMesh(silent_c)
    changed = asyncio.run(administer(mesh).move_broker("c", "b"))
    assert changed.parents == {"a": None, "b": "a", "c": "b"}
    assert [proposal.before for proposal in mesh.proposals] == [1]
    assert asyncio.run(administer(mesh).move_broker("b", "a")).version == 2  # where it is already
    assert len(mesh.proposals) == 1
    with pytest.raises(UnknownBroker, match="there are: a, b, c"):
        asyncio.run(administer(mesh).move_broker("z", "a"))
    with pytest.raises(TopologyError, match="own ancestor"):
        asyncio.run(administer(mesh).move_broker("b", "c"))


def test_a_dead_broker_is_removed_by_force_only() -> None:
    mesh = FakeMesh(silent_c)
    with pytest.raises(BrokerSilent):
        asyncio.run(administer(mesh).drain("c", force=False))
    assert mesh.proposals == []
    found = asyncio.run(administer(mesh).drain("c", force=True))
    assert found["removed"] and not found["settled"]
    assert "c" not in mesh.proposals[-1].topology


# -- moves of subscriptions --------------------------------------------------------------------------------

HOSTED: dict[str, Any] = {
    "query": "/x",
    "language": "xpath",
    "subscriber": "desk",
    "streams": [],
    "active": True,
    "since": 9,
    "namespaces": {},
    "routes": [],
    "confirmed": True,
}


def hosts(confirmed: bool = True, failing: str = "", **found: dict[str, Any]) -> FakeMesh:
    """A mesh whose brokers have a subscription as given; the step `failing` fails."""

    def answer(broker: str, what: str, arguments: dict[str, Any]) -> Any:
        if what == failing:
            return BrokerSilent(f"{broker} has not answered")
        answers = {"subscription": found.get(broker), "hold": confirmed, "yield": {"a": 3}, "adopt": 2}
        return answers.get(what)

    return FakeMesh(answer)


def move(mesh: FakeMesh) -> Any:
    (moved,) = asyncio.run(administer(mesh).move_subscriptions("", ["s"], "c"))
    return moved


def steps(mesh: FakeMesh) -> list[tuple[str, str]]:
    return [(broker, what) for broker, what, _ in mesh.asked]


def test_the_steps_of_a_move() -> None:
    mesh = hosts(b=HOSTED)
    assert move(mesh).deliveries == 2
    assert steps(mesh) == [("c", "hold"), ("b", "yield"), ("c", "adopt"), ("b", "drop")]
    assert mesh.asked[1][2]["expected"] == 9 and mesh.asked[1][2]["is_paused"] is False
    assert mesh.asked[2][2]["positions"] == {"a": 3} and mesh.asked[2][2]["subscriber"] == "desk"


def test_a_move_that_is_not_confirmed_is_undone() -> None:
    mesh = hosts(confirmed=False, b=HOSTED)
    with pytest.raises(MoveError, match="'s' stays at b: not all brokers know within 1 s"):
        move(mesh)
    assert steps(mesh) == [("c", "hold"), ("c", "drop")]


@pytest.mark.parametrize(
    ("failing", "told"),
    [("yield", "is still at b, and c has a copy"), ("adopt", "is paused at b"), ("drop", "is paused at b")],
)
def test_a_failed_step_tells_where_the_subscription_stands(failing: str, told: str) -> None:
    with pytest.raises(MoveError, match=f"{told}.*move it again to finish"):
        move(hosts(failing=failing, b=HOSTED))


def test_a_move_is_finished_from_where_it_stands() -> None:
    copy = HOSTED | {"subscriber": ""}
    paused = HOSTED | {"active": False}
    mesh = hosts(b=paused, c=copy)
    move(mesh)
    assert steps(mesh) == [("c", "hold"), ("b", "yield"), ("c", "adopt"), ("b", "drop")]
    assert mesh.asked[1][2]["is_paused"] is True and mesh.asked[2][2]["positions"] == {"a": 3}
    mesh = hosts(b=paused, c=HOSTED)  # it goes on at c already
    move(mesh)
    assert steps(mesh) == [("b", "drop")]
    mesh = hosts(c=HOSTED)
    assert move(mesh).source == "c" and steps(mesh) == []


def test_a_paused_subscription_is_moved_without_deliveries() -> None:
    mesh = hosts(b=HOSTED | {"active": False})
    move(mesh)
    assert mesh.asked[0][2]["active"] is False and mesh.asked[2][2]["positions"] is None


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({}, "no broker that answers has a subscription 's'"),
        ({"a": HOSTED, "b": HOSTED}, "several brokers have a subscription 's': a, b"),
        ({"b": HOSTED, "c": HOSTED | {"query": "/y"}}, "c has another subscription 's'"),
        ({"b": HOSTED, "c": HOSTED}, "c has another subscription 's'"),
        ({"b": HOSTED | {"language": "xscl"}}, "'s' is a join, whose messages are at b"),
    ],
)
def test_what_is_not_moved(found: dict[str, Any], told: str) -> None:
    mesh = hosts(**found)
    with pytest.raises(MoveError, match=told):
        move(mesh)
    assert steps(mesh) == []
