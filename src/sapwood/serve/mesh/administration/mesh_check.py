"""The consistency of a mesh: what both ends of its links say of each other, and what brokers report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sapwood.errors import SapwoodError
from sapwood.mesh.core.membership import SUSPECT
from sapwood.mesh.core.topology import Topology

Severity = Literal["error", "warning"]
_SYNCED = (2, 10)
"""the first version of nats-server that can be told to acknowledge only what is on disk"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong in a mesh, or may be."""

    severity: Severity
    where: str
    what: str
    advice: str


def check_mesh(
    topology: Topology, brokers: Sequence[Mapping[str, Any]], tables: Mapping[str, Any]
) -> list[Finding]:
    """Return what is wrong, given what all brokers say; those without an answer have an error."""
    found: list[Finding] = []
    for broker in brokers:
        found += _check_lease(broker)
        if broker["status"] is not None:
            found += _check_status(broker["broker"], broker["status"], topology)
    for child, parent in topology.parents.items():
        if parent is not None:
            found += _check_tables(child, parent, tables)
            found += _check_tables(parent, child, tables)
    return found


def _check_lease(broker: Mapping[str, Any]) -> Iterator[Finding]:
    name, age = broker["broker"], broker["lease_age"]
    if broker["error"] is not None:
        yield Finding("error", name, broker["error"], "see that its server runs and reaches its NATS server")
    elif age is None or age > SUSPECT:
        told = "was never seen" if age is None else f"is {age:.0f} s old"
        yield Finding("error", name, f"its lease {told}", "see that it reaches the hub")


def _check_status(name: str, status: Mapping[str, Any], topology: Topology) -> Iterator[Finding]:
    if status.get("problem"):
        yield Finding("error", name, status["problem"], "see its log")
    if status.get("topology") != topology.version:
        known = f"it has version {status.get('topology')} of the tree, not {topology.version}"
        yield Finding("error", name, known, "wait, or see that it reaches the hub")
    counters = status.get("counters") or {}
    if counters.get("lost"):
        yield Finding("error", name, f"{counters['lost']:,} frames were lost", "its log tells which")
    if counters.get("late"):
        late = f"{counters['late']:,} messages came by a former table"
        yield Finding("error", name, late, "a defect: please report it, with the logs")
    if status.get("unconfirmed"):
        waiting = f"{status['unconfirmed']:,} changes of subscriptions are not confirmed by all brokers"
        yield Finding("warning", name, waiting, "wait, or look for a link that is broken")
    for link, state in (status.get("links") or {}).items():
        if not state.get("open"):
            broken = f"the link to {link} is not open"
            yield Finding("error", name, broken, f"see that {link} runs and both reach their NATS servers")
    yield from _check_server(name, status.get("server") or {})


def _check_server(name: str, server: Mapping[str, Any]) -> Iterator[Finding]:
    version = re.match(r"v?(\d+)\.(\d+)", server.get("version") or "")
    if version is None:
        yield Finding("warning", name, "the version of its NATS server is not known", "see its connection")
    elif (int(version[1]), int(version[2])) < _SYNCED:
        old = f"its NATS server {server['version']} acknowledges messages before they are on disk"
        yield Finding(
            "warning",
            name,
            old,
            "to survive a power failure, use 2.10 or newer with sync_interval: always",
        )


def _check_tables(teller: str, hearer: str, tables: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare what a broker has told its neighbour with what the neighbour has."""
    said, heard = tables.get(teller), tables.get(hearer)
    if isinstance(said, SapwoodError) or isinstance(heard, SapwoodError) or not said or not heard:
        return  # which is told as an error of the broker
    where = f"{teller} → {hearer}"
    told = (said.get(hearer) or {}).get("told")
    wanted = (heard.get(teller) or {}).get("wanted")
    if told is None or wanted is None:
        yield Finding(
            "error", where, "one of them does not know of the link", "wait for the tree to be adopted"
        )
        return
    if not wanted["known"]:
        yield Finding("warning", where, "the table is not there yet, so everything is sent", "wait")
    elif told["version"] != wanted["version"] and wanted["version"] >= 0:
        behind = f"the table is at version {wanted['version']}, and should be at {told['version']}"
        yield Finding("error", where, behind, "wait, or look for a link that is broken")
    elif (told["digest"], told["count"]) != (wanted["digest"], wanted["count"]):
        differ = f"the tables differ: {told['count']:,} routes were told, and {wanted['count']:,} are there"
        yield Finding("error", where, differ, "it is sent again within a minute; if not, please report it")
    elif told["confirmed"] < told["version"]:
        waits = f"version {told['version']} is not confirmed by all brokers behind {hearer}"
        yield Finding("error", where, waits, "wait, or look for a broker that does not answer")
