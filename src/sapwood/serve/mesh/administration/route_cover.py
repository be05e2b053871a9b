"""Which entry of each broker's table stands for a route, where tables are generalised.

    host ──/news[@topic = 'a']/p told as /news[@topic]/p──► b ──told as /news──► c

A neighbour of the host has the entry that the host told it, and the next broker what the neighbour made of
that. So the way of a route is followed from its host on: each round asks all brokers for what was found in
the last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from sapwood.errors import SapwoodError
from sapwood.mesh.core.topology import Topology

AskAll = Callable[..., Awaitable[dict[str, Any]]]


class RouteCover:
    """Where routes are wanted, as each broker sees it, by the keys that they have there."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._answers: dict[str, dict[str, Any] | SapwoodError] = {}

    async def ask(self, ask_all: AskAll, keys: Sequence[str]) -> None:
        """Ask all brokers for routes, and for the entries that stand for these."""
        known = wanted = dict.fromkeys(keys)
        while wanted or not self._answers:
            answers = await ask_all("has routes", keys=list(wanted))
            for name, answer in answers.items():
                self._add(name, answer)
            wanted = dict.fromkeys(key for key in self._list_entries() if key not in known)
            known = known | wanted

    def _add(self, name: str, answer: Any) -> None:
        if isinstance(answer, SapwoodError):
            self._answers[name] = answer
            return
        found = self._answers.setdefault(name, {})
        if isinstance(found, dict):
            found.update((each["key"], each) for each in answer)

    def _list_entries(self) -> Iterator[str]:
        """Yield the keys of entries that stand for other routes."""
        for answer in self._answers.values():
            if isinstance(answer, dict):
                for each in answer.values():
                    for entry in each.get("told as", {}).values():
                        yield entry["key"]

    def describe(self, host: str, keys: Sequence[str], since: int) -> list[dict[str, Any]]:
        """Return, for each broker, whether it sends what meets the routes towards their host, and by what."""
        return [self._describe_one(host, name, keys, since) for name in self._answers]

    def _describe_one(self, host: str, name: str, keys: Sequence[str], since: int) -> dict[str, Any]:
        side = "local" if name == host else self._topology.next_hops(name).get(host)
        answer = self._answers[name]
        if isinstance(answer, SapwoodError):
            return {"broker": name, "side": side, "has": None, "error": str(answer)}
        entries: dict[str, Any] = {}
        """by key, those that stand for other routes"""
        there: list[dict[str, Any]] = []
        for key in keys:
            entry = self._follow(host, name, key)
            if entry is not None:
                entries[entry["key"]] = entry
            there.append(answer.get(key if entry is None else entry["key"], {"sides": [], "versions": {}}))
        versions = [each["versions"].get(side) for each in there]
        return {
            "broker": name,
            "side": side,
            "has": all(side in each["sides"] for each in there),
            "table_version": since if name == host else next((v for v in versions if v is not None), None),
            "entries": list(entries.values()),
            "error": None,
        }

    def _follow(self, host: str, name: str, key: str) -> dict[str, Any] | None:
        """Return the entry that a broker has of a route; None if it has the route itself."""
        entry: dict[str, Any] | None = None
        at = host
        while at != name:
            hop = self._topology.next_hops(at).get(name)
            if hop is None:
                return entry
            answer = self._answers.get(at)
            known = answer.get(key if entry is None else entry["key"]) if isinstance(answer, dict) else None
            entry = (known or {}).get("told as", {}).get(hop, entry)
            at = hop
        return entry
