"""What operators ask of a whole mesh, and change in it: any broker answers, since it asks the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sapwood.errors import SapwoodError
from sapwood.mesh.core.membership import Proposal
from sapwood.mesh.core.topology import Topology
from sapwood.serve.mesh.administration.mesh_check import check_mesh
from sapwood.serve.mesh.administration.route_cover import RouteCover
from sapwood.serve.mesh.administration.subscription_move import Moved, SubscriptionMove
from sapwood.serve.mesh.mesh_errors import BrokerSilent, UnknownBroker, UnknownSubscription

if TYPE_CHECKING:
    from sapwood.serve.mesh.mesh_service import MeshService

_log = logging.getLogger(__name__)
_DRAIN_WAIT = 60.0
_LONGER = 5.0


class MeshAdministration:
    """Asks all brokers of a mesh, and changes its tree."""

    def __init__(self, mesh: MeshService) -> None:
        self._mesh = mesh

    @property
    def _topology(self) -> Topology:
        return self._mesh.membership.topology

    def _check_broker(self, name: str) -> None:
        if name not in self._topology:
            known = ", ".join(sorted(self._topology.parents)) or "none at present"
            raise UnknownBroker(f"there is no broker {name!r} in the mesh; there are: {known}")

    async def _ask_all(self, what: str, **arguments: Any) -> dict[str, Any]:
        return await self._mesh.queries.ask_all(self._topology.parents, what, **arguments)

    # -- the state -------------------------------------------------------------------------------------

    async def list_brokers(self) -> list[dict[str, Any]]:
        """Return the state of each broker, or why it is not known, with the age of its lease."""
        answers = await self._ask_all("status")
        membership = self._mesh.membership
        found: list[dict[str, Any]] = []
        for name, answer in answers.items():
            is_silent = isinstance(answer, SapwoodError)
            lease = membership.leases.get(name) or {}
            found.append(
                {
                    "broker": name,
                    "parent": self._topology.parents.get(name),
                    "lease_age": membership.membership.age(name),
                    "url": lease.get("url") or None,
                    "host": lease.get("host"),
                    "process": lease.get("process"),
                    "error": str(answer) if is_silent else None,
                    "status": None if is_silent else answer,
                }
            )
        return found

    async def describe_topology(self) -> dict[str, Any]:
        """Return the tree with the figures of all links, in both directions."""
        brokers = {each["broker"]: each for each in await self.list_brokers()}
        links: list[dict[str, Any]] = []
        for child, parent in self._topology.parents.items():
            if parent is not None:
                links += [_describe_link(brokers, child, parent), _describe_link(brokers, parent, child)]
        return {
            "version": self._topology.version,
            "root": self._topology.root,
            "parents": dict(self._topology.parents),
            "brokers": [
                {name: each[name] for name in ("broker", "parent", "lease_age", "url", "error")}
                | {"subscriptions": (each["status"] or {}).get("subscriptions")}
                for each in brokers.values()
            ],
            "links": links,
        }

    async def list_routes(self, broker: str, link: str | None, after: int, limit: int) -> dict[str, Any]:
        """Return what is wanted on a side of a broker."""
        self._check_broker(broker)
        neighbours = self._topology.neighbours(broker)
        if link is not None and link not in neighbours:
            known = ", ".join(sorted(neighbours)) or "none"
            raise UnknownBroker(f"{broker} has no link to {link!r}; its links are: {known}")
        found = await self._mesh.queries.ask(broker, "routes", link=link, after=after, limit=limit)
        end = after + len(found["routes"])
        following = end if end < found["count"] else None
        return {"broker": broker, "link": link, "next": following, **found}

    async def check(self) -> dict[str, Any]:
        """Return whether the mesh is consistent, and what is wrong."""
        brokers = await self.list_brokers()
        tables = await self._ask_all("tables")
        found = check_mesh(self._topology, brokers, tables)
        if any(finding.severity == "error" for finding in found):  # which may only have been on its way
            await asyncio.sleep(1.0)
            brokers, tables = await self.list_brokers(), await self._ask_all("tables")
            found = check_mesh(self._topology, brokers, tables)
        return {
            "consistent": not any(finding.severity == "error" for finding in found),
            "brokers": len(brokers),
            "findings": [asdict(finding) for finding in found],
        }

    # -- subscriptions and messages --------------------------------------------------------------------

    async def explain(self, tenant: str, id: str) -> dict[str, Any]:
        """Return where a subscription is hosted, and which brokers have its routes."""
        answers = await self._ask_all("subscription", tenant=tenant, id=id)
        hosts = {name: answer for name, answer in answers.items() if isinstance(answer, dict)}
        silent = {name: str(answer) for name, answer in answers.items() if isinstance(answer, SapwoodError)}
        if not hosts:
            hint = f"; no answer of {', '.join(sorted(silent))}" if silent else ""
            raise UnknownSubscription(f"no broker has a subscription {id!r}{hint}")
        return {
            "id": id,
            "tenant": tenant,
            "hosts": [await self._explain_host(tenant, name, found) for name, found in hosts.items()],
            "silent": silent,
        }

    async def _explain_host(self, tenant: str, host: str, found: dict[str, Any]) -> dict[str, Any]:
        keys = [route["key"] for route in found["routes"]]
        cover = RouteCover(self._topology)
        await cover.ask(self._ask_all, keys)
        cuts = await self._ask_all("projection", tenant=tenant)
        brokers = cover.describe(host, keys, found["since"])
        fields = ("query", "language", "subscriber", "streams", "active", "routes", "confirmed")
        return {name: found[name] for name in fields} | {
            "broker": host,
            "version": found["since"],
            "brokers": [each | {"projection": _find_cuts(cuts, each, found["streams"])} for each in brokers],
        }

    async def trace(self, tenant: str, id: str) -> dict[str, Any]:
        """Return the way of the messages with an id, hop by hop from their root brokers."""
        answers = await self._ask_all("trace", tenant=tenant, id=id, keys=[])
        keys = sorted(
            {
                (hop["source"], hop["number"])
                for answer in answers.values()
                if isinstance(answer, dict)
                for hop in answer["hops"]
            }
        )
        if keys:  # a broker that knew the id has given the message another one
            answers = await self._ask_all("trace", tenant=tenant, id=id, keys=[list(key) for key in keys])
        known = {name: answer for name, answer in answers.items() if isinstance(answer, dict)}
        return {
            "id": id,
            "tenant": tenant,
            "messages": [self._trace_one(source, number, known) for source, number in keys],
            "refused": [
                {"broker": name} | refused for name, answer in known.items() for refused in answer["refused"]
            ],
            "silent": {name: str(a) for name, a in answers.items() if isinstance(a, SapwoodError)},
        }

    def _trace_one(self, source: str, number: int, answers: dict[str, Any]) -> dict[str, Any]:
        hops: list[dict[str, Any]] = []
        for name, answer in answers.items():
            for hop in answer["hops"]:
                if (hop["source"], hop["number"]) == (source, number):
                    hops.append(self._describe_hop(name, hop))
        # a hop behind its neighbour: the root, then the others as they got it
        order = _order_hops(source, {hop["broker"]: hop["came_by"] for hop in hops})
        hops.sort(key=lambda hop: (order.get(hop["broker"], len(order)), hop["received"]))
        return {"source": source, "number": number, "hops": hops}

    def _describe_hop(self, broker: str, hop: dict[str, Any]) -> dict[str, Any]:
        chosen = hop["links"]
        neighbours = self._topology.neighbours(broker)
        skipped = [name for name in neighbours if name not in (chosen or ()) and name != hop["came_by"]]
        return {
            "broker": broker,
            "id": hop["id"],
            "stream": hop["stream"],
            "seq": hop["seq"],
            "came_by": hop["came_by"],
            "received": hop["received"],
            "version": hop["version"],
            "deliveries": hop["deliveries"],
            "matched_here": hop["is_local"],
            "chosen": None
            if chosen is None
            else [{"link": link, **hop["reasons"].get(link, {"count": 0, "routes": []})} for link in chosen],
            "not_chosen": skipped,
        }

    # -- changes ---------------------------------------------------------------------------------------

    async def _propose(self, changed: Topology, reason: str) -> Topology:
        _log.info("mesh: the tree is changed: %s", reason)
        await self._mesh.membership.propose(Proposal(self._topology.version, changed, reason))
        return changed

    async def move_broker(self, broker: str, parent: str) -> Topology:
        """Give a broker, with all below it, another parent."""
        self._check_broker(broker)
        self._check_broker(parent)
        if self._topology.parents[broker] == parent:
            return self._topology
        return await self._propose(self._topology.move(broker, parent), f"{broker} goes to {parent}")

    async def drain(self, broker: str, force: bool, wait: float = _DRAIN_WAIT) -> dict[str, Any]:
        """Take a broker out of the tree when all that was published there is settled.

        Without `force`, one that hosts subscriptions stays, as a leaf that publishers are refused at.
        """
        self._check_broker(broker)
        try:
            drained: dict[str, Any] = await self._mesh.queries.ask(
                broker, "drain", wait + _LONGER, force=force, seconds=wait
            )
        except BrokerSilent as error:
            if not force:
                raise
            _log.warning("mesh: %s is removed without its consent: %s", broker, error)
            await self._propose(self._topology.leave(broker), f"{broker} is removed by force")
            drained = {"removed": True, "settled": False, "reason": str(error)}
        return {"broker": broker, **drained}

    async def move_subscriptions(self, tenant: str, ids: list[str], target: str) -> list[Moved]:
        """Move subscriptions to a broker, one after the other; raises MoveError at the first that fails."""
        self._check_broker(target)
        move = SubscriptionMove(self._mesh, tenant, target)
        return [await move.move(id) for id in ids]


def _find_cuts(
    answers: dict[str, Any], broker: dict[str, Any], streams: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what a broker cuts from the messages of some streams, or of all, on the way to a side."""
    reports = answers.get(broker["broker"])
    if not isinstance(reports, list):
        return []
    return [
        report
        for report in reports
        if report["link"] == broker["side"] and (not streams or report["stream"] in streams)
    ]


def _describe_link(brokers: dict[str, Any], sender: str, receiver: str) -> dict[str, Any]:
    """Return the figures of one direction of a link: the sender's, and the queue at the receiver."""
    sending = ((brokers[sender]["status"] or {}).get("links") or {}).get(receiver) or {}
    receiving = ((brokers[receiver]["status"] or {}).get("links") or {}).get(sender) or {}
    rates = sending.get("rates") or {}
    backlog = (receiving.get("transport") or {}).get("backlog") or {}
    version, confirmed = receiving.get("version"), receiving.get("confirmed")
    return {
        "sender": sender,
        "receiver": receiver,
        "open": sending.get("open"),
        "messages_per_second": rates.get("messages out"),
        "bytes_per_second": rates.get("bytes out"),
        "messages": sending.get("messages out"),
        "bytes": sending.get("bytes out"),
        "format": sending.get("format"),
        "text_bytes": sending.get("text out"),
        "body_bytes": sending.get("bodies out"),
        "cut_messages": sending.get("cut messages out"),
        "cut_bytes": sending.get("cut bytes out"),
        "outbox": sending.get("outbox"),
        "unsettled": sending.get("unsettled"),
        "queue_age": backlog.get("oldest_age"),
        "queue_bytes": backlog.get("bytes"),
        "routes": sending.get("routes in"),
        "generalised": receiving.get("generalised"),
        "table_known": sending.get("knows table"),
        "table_version": version,
        "table_lag": None if version is None or confirmed is None else max(0, version - confirmed),
    }


def _order_hops(source: str, came_by: dict[str, str | None]) -> dict[str, int]:
    """Return how many links each broker is from the root of a message, by the way that it took."""
    order = {source: 0}
    changed = True
    while changed:
        changed = False
        for broker, before in came_by.items():
            if broker not in order and before in order:
                order[broker] = order[before] + 1
                changed = True
    return order
