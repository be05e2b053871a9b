"""The check of a mesh finds what is wrong, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.mesh.core.topology import build_tree
from sapwood.serve.mesh.administration.mesh_check import Finding, check_mesh
from sapwood.serve.mesh.mesh_errors import BrokerSilent

TREE = build_tree({"a": None, "b": "a"})


def broker(name: str, **changes: Any) -> dict[str, Any]:
    other = "b" if name == "a" else "a"
    status: dict[str, Any] = {
        "problem": None,
        "topology": 1,
        "counters": {"late": 0, "lost": 0},
        "unconfirmed": 0,
        "links": {other: {"open": True}},
        "server": {"version": "2.10.1"},
    }
    found = {"broker": name, "lease_age": 0.4, "error": None, "status": status | changes.pop("status", {})}
    return found | changes


def table(**changes: Any) -> dict[str, Any]:
    return {"version": 3, "confirmed": 3, "count": 2, "digest": "0f", "known": True} | changes


def tables(told: dict[str, Any] | None = None, wanted: dict[str, Any] | None = None) -> dict[str, Any]:
    """The tables of both brokers; the arguments are what a has told b, and what b has of it."""
    return {
        "a": {"b": {"told": told or table(), "wanted": table()}},
        "b": {"a": {"told": table(), "wanted": wanted or table()}},
    }


def check(
    a: dict[str, Any] | None = None, b: dict[str, Any] | None = None, of: dict[str, Any] | None = None
) -> list[Finding]:
    return check_mesh(TREE, [a or broker("a"), b or broker("b")], of or tables())


def test_a_mesh_that_agrees_has_no_findings() -> None:
    assert check() == []


@pytest.mark.parametrize(
    ("changes", "severity", "told"),
    [
        ({"lease_age": 4.0}, "error", "its lease is 4 s old"),
        ({"lease_age": None}, "error", "its lease was never seen"),
        ({"error": "no answer", "status": None}, "error", "no answer"),
        ({"status": {"problem": "it is not there"}}, "error", "it is not there"),
        ({"status": {"topology": 0}}, "error", "it has version 0 of the tree, not 1"),
        ({"status": {"counters": {"lost": 2}}}, "error", "2 frames were lost"),
        ({"status": {"counters": {"late": 1}}}, "error", "1 messages came by a former table"),
        ({"status": {"unconfirmed": 5}}, "warning", "5 changes of subscriptions are not confirmed"),
        ({"status": {"links": {"b": {"open": False}}}}, "error", "the link to b is not open"),
        ({"status": {"server": {"version": "2.9.10"}}}, "warning", "2.9.10 acknowledges messages before"),
        ({"status": {"server": {"version": None}}}, "warning", "the version of its NATS server is not known"),
    ],
)
def test_a_broker_with_a_fault_is_found(changes: dict[str, Any], severity: str, told: str) -> None:
    if changes.get("status", {}) is None:
        found = check(broker("a") | changes)
    else:
        found = check(broker("a", **changes))
    (finding,) = found
    assert (finding.severity, finding.where) == (severity, "a")
    assert told in finding.what and finding.advice


@pytest.mark.parametrize(
    ("told", "wanted", "severity", "what"),
    [
        (table(version=4), table(), "error", "is at version 3, and should be at 4"),
        (table(), table(digest="00"), "error", "the tables differ: 2 routes were told, and 2 are there"),
        (table(), table(count=1), "error", "the tables differ"),
        (table(confirmed=2), table(), "error", "version 3 is not confirmed by all brokers behind b"),
        (table(), table(known=False), "warning", "everything is sent"),
    ],
)
def test_tables_that_differ_are_found(
    told: dict[str, Any], wanted: dict[str, Any], severity: str, what: str
) -> None:
    (finding,) = check(of=tables(told, wanted))
    assert (finding.severity, finding.where) == (severity, "a → b")
    assert what in finding.what


def test_a_broker_without_an_answer_is_one_finding() -> None:
    silent = broker("b") | {"error": "b has not answered", "status": None}
    found = check(b=silent, of=tables() | {"b": BrokerSilent("b has not answered")})
    assert [finding.what for finding in found] == ["b has not answered"]
