"""Leases: who is taken for dead, and who proposes another tree."""

from __future__ import annotations

from sapwood.mesh.core.membership import DEAD, HEARTBEAT, Membership, Proposal
from sapwood.mesh.core.topology import Topology, build_tree

TREE = build_tree({"a": None, "b": "a", "c": "b", "d": "b"})
STEP = 0.25


class Clock:
    """Memberships of several brokers in one directory, and the proposals they have made."""

    def __init__(self, names: str, tree: Topology = TREE) -> None:
        self.now = 0.0
        self.views = {name: Membership(name, tree) for name in names}
        self.proposals: list[tuple[float, str, Proposal]] = []

    def pass_time(self, seconds: float, alive: str, blind: str = "") -> None:
        """Let living brokers renew their leases, except before those that cannot see the directory."""
        for _ in range(int(seconds / STEP)):
            self.now += STEP
            for name, view in self.views.items():
                proposal = view.tick(self.now, name not in blind)
                if proposal is not None:
                    self.proposals.append((self.now, name, proposal))
                if name not in blind and self.now % HEARTBEAT == 0:
                    view.renew(each for each in alive if each not in blind)


def test_nobody_proposes_as_long_as_all_live() -> None:
    clock = Clock("abcd")
    clock.pass_time(60, alive="abcd")
    assert clock.proposals == []
    assert clock.views["a"].age("b") == 0.0


def test_the_first_living_broker_repairs_the_tree_when_an_inner_one_is_dead() -> None:
    clock = Clock("acd")
    clock.pass_time(20, alive="abcd")
    clock.pass_time(DEAD + 1.25, alive="acd")
    (at, name, proposal) = clock.proposals[0]
    assert name == "a"
    assert DEAD <= at - 20 <= DEAD + 1
    assert proposal.before == 1
    assert proposal.topology.parents == {"a": None, "b": "a", "c": "a", "d": "a"}
    assert "b did not renew the lease" in proposal.reason
    assert not clock.views["a"].is_alive("b")


def test_another_broker_proposes_if_the_first_does_not() -> None:
    clock = Clock("cd")  # the process of "a" renews its lease, and does nothing else
    clock.pass_time(20, alive="abcd")
    clock.pass_time(DEAD + 5, alive="acd")
    assert clock.proposals[0][1] == "c"
    assert clock.proposals[0][0] - 20 > DEAD + 1


def test_a_dead_leaf_is_left_where_it_is() -> None:
    clock = Clock("abc")
    clock.pass_time(20, alive="abcd")
    clock.pass_time(60, alive="abc")
    assert clock.proposals == []
    assert not clock.views["a"].is_alive("d")


def test_who_cannot_see_the_directory_proposes_nothing() -> None:
    clock = Clock("acd")
    clock.pass_time(20, alive="abcd")
    clock.pass_time(60, alive="abcd", blind="acd")
    assert clock.proposals == []
    clock.pass_time(DEAD - 1, alive="abcd")  # sees it again: the others have as much time as ever
    assert clock.proposals == []
    assert clock.views["a"].is_alive("b")


def test_a_broker_that_was_suspended_judges_nobody_by_the_past() -> None:
    view = Membership("a", TREE)
    for second in range(20):
        view.tick(float(second))
        view.renew("abcd")
    assert view.tick(500.0) is None
    assert view.is_alive("b")


def test_proposals_are_repeated_slowly_and_end_with_the_new_tree() -> None:
    clock = Clock("a")
    clock.pass_time(20, alive="abcd")
    clock.pass_time(DEAD + 10, alive="acd")
    times = [at for at, _, _ in clock.proposals]
    assert 5 < len(times) < 12
    clock.views["a"].change_topology(clock.proposals[0][2].topology)
    clock.proposals.clear()
    clock.pass_time(20, alive="acd")
    assert clock.proposals == []


def test_an_older_tree_is_not_taken_over() -> None:
    view = Membership("a", build_tree({"a": None, "b": "a"}))
    newer = view.topology.join("c", "a")
    view.change_topology(newer)
    view.change_topology(TREE)
    assert view.topology is newer


def test_a_lease_that_is_renewed_singly() -> None:
    view = Membership("a", TREE)
    assert view.age("b") is None
    view.tick(1.0)
    view.renewed("b")
    view.tick(3.0)
    assert view.age("b") == 2.0
