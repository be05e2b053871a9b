"""The traffic of links in a planned mesh, against flooding and against the fewest messages possible.

A message crosses a link if it was published on one side, and a site on the other side wants it. Where it is
published is either known, or its place has nothing to do with its content: then each site is its source with
some probability, and a share is the expected one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from sapwood.errors import ArgumentError, MessageError
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.planning.placement import Placement
from sapwood.mesh.planning.planned_subscription import PlannedSubscription
from sapwood.mesh.planning.wanted_sites import Wanted, WantedSites

FUTILE = 0.9
"""of what flooding costs: above it, routing saves next to nothing"""
_EVERYWHERE = 0.8
"""share of messages wanted at every site from which on that is the reason to tell"""
_CONFIDENCE = 1.96
"""standard deviations on each side of a share that it lies within in 95 of 100 samples"""
_UNSEEN = 3.0
"""messages of a kind that a sample may have been expected to have, and has none of, in 5 of 100 samples: one
without exceptions does not show that there are none"""


@dataclass(frozen=True, slots=True)
class SampleMessage:
    """A message of a sample, and the site where it is published, if that is known."""

    body: bytes
    site: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """What crosses a link in one direction, as shares of all that is published anywhere."""

    sender: str
    receiver: str
    messages: float
    bytes: float
    flooded_messages: float
    """if every message crossed every link"""
    flooded_bytes: float
    fewest_messages: float
    """if messages went only where they are delivered"""
    fewest_bytes: float
    margin: float
    """by which the share of messages may be off because the sample is small, in 95 of 100 samples"""


@dataclass(frozen=True, slots=True)
class TrafficForecast:
    """The traffic of all links under one placement."""

    placement: str
    links: tuple[LinkTraffic, ...]
    everywhere: float
    """share of messages that are wanted at every site"""
    nowhere: float
    """share of messages that are wanted at no site"""
    sites_per_message: float
    """sites that want a message, on average"""

    @property
    def routed(self) -> float:
        """Links that a message crosses, on average."""
        return sum(link.messages for link in self.links)

    @property
    def flooded(self) -> float:
        """Links that a message crosses if it crosses all."""
        return sum(link.flooded_messages for link in self.links)

    @property
    def fewest(self) -> float:
        """Links on the ways to the sites where a message is delivered, on average."""
        return sum(link.fewest_messages for link in self.links)

    @property
    def share_of_flooding(self) -> float:
        """Messages on links, against flooding."""
        return self.routed / self.flooded

    @property
    def share_of_flooded_bytes(self) -> float:
        """Bytes on links, against flooding."""
        flooded = sum(link.flooded_bytes for link in self.links)
        return sum(link.bytes for link in self.links) / flooded

    @property
    def helps(self) -> bool:
        """Whether routing saves enough to tell it from flooding."""
        return self.share_of_flooding < FUTILE

    @property
    def verdict(self) -> str:
        """Whether routing by content pays, in one sentence."""
        if self.helps:
            return (
                f"routing saves {_percent(1 - self.share_of_flooding)} of the messages on links, and "
                f"{_percent(1 - self.share_of_flooded_bytes)} of the bytes"
            )
        if self.everywhere >= _EVERYWHERE:
            return f"routing will not help: {_percent(self.everywhere)} of messages are wanted at every site"
        return f"routing will not help: links carry {_percent(self.share_of_flooding)} of what flooding would"


def _percent(share: float) -> str:
    """Return a share in few characters; what is not all or nothing is not shown as such."""
    rounded = f"{100 * share:.0f}"
    if rounded in ("0", "100") and share not in (0.0, 1.0):
        rounded = f"{100 * share:.1f}"
    return f"{rounded} %"


@dataclass(slots=True)
class _Sum:
    """Messages that go to the same sites."""

    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message of a sample that cannot be read, and why."""

    name: str
    error: MessageError


class TrafficSample:
    """The sites that want the messages of a sample, counted by placement."""

    def __init__(self, topology: Topology, publishers: Mapping[str, float] | None = None) -> None:
        """`publishers` are the sites where messages of unknown origin are published, with their weights; by
        default all sites alike."""
        self._topology = topology
        self._sites = list(topology.parents)
        if len(self._sites) < 2:
            raise ArgumentError("a plan is for two sites at least: one broker has no links")
        weights = dict(publishers) if publishers else dict.fromkeys(self._sites, 1.0)
        for site, weight in weights.items():
            if site not in topology:
                raise ArgumentError(f"messages are published at {site!r}, which is no site of the mesh")
            if not 0 < weight < float("inf"):
                raise ArgumentError(f"the weight of the publishers at {site!r} must be above 0, not {weight}")
        total = sum(weights.values())
        self.publishers = {site: weight / total for site, weight in weights.items()}
        """by site, the share of messages of unknown origin that are published there"""
        self._sums: list[dict[tuple[str | None, Wanted], _Sum]] = []
        self._placements: Sequence[Placement] = ()
        self.messages = self.bytes = 0
        self.refused: list[Refusal] = []
        """messages that cannot be read: no broker accepts them, so that they cross no link"""

    def count(
        self,
        subscriptions: Sequence[PlannedSubscription],
        placements: Sequence[Placement],
        messages: Iterable[SampleMessage],
        stream: str = "",
    ) -> None:
        """Match the messages of a sample against all subscriptions."""
        self._placements = placements
        self._sums = [{} for _ in placements]
        wanted_sites = WantedSites(subscriptions, placements, len(self._sites), stream)
        try:
            for message in messages:
                if message.site is not None and message.site not in self._topology:
                    raise ArgumentError(
                        f"messages are published at {message.site!r}, which is no site of the mesh"
                    )
                try:
                    found = wanted_sites.find(message.body)
                except MessageError as error:
                    self.refused.append(Refusal(message.name, error))
                    continue
                self.messages += 1
                self.bytes += len(message.body)
                for sums, wanted in zip(self._sums, found, strict=True):
                    entry = sums.setdefault((message.site, wanted), _Sum())
                    entry.messages += 1
                    entry.bytes += len(message.body)
        finally:
            wanted_sites.close()

    def forecast(self) -> list[TrafficForecast]:
        """Return the traffic for each placement; raises ArgumentError if no message could be read."""
        if not self.messages:
            raise ArgumentError(
                "the sample has no message that can be read: give files *.xml, *.xmll or a folder of them"
            )
        return [
            self._forecast_one(placement, sums)
            for placement, sums in zip(self._placements, self._sums, strict=True)
        ]

    def _forecast_one(
        self, placement: Placement, sums: Mapping[tuple[str | None, Wanted], _Sum]
    ) -> TrafficForecast:
        every = (1 << len(self._sites)) - 1
        by_mask: dict[int, int] = {}
        for (_, wanted), entry in sums.items():
            by_mask[wanted.by_routes] = by_mask.get(wanted.by_routes, 0) + entry.messages
        sites = sum(mask.bit_count() * count for mask, count in by_mask.items())
        return TrafficForecast(
            placement.name,
            tuple(
                self._forecast_link(sender, receiver, sums)
                for sender in self._sites
                for receiver in self._topology.neighbours(sender)
            ),
            by_mask.get(every, 0) / self.messages,
            by_mask.get(0, 0) / self.messages,
            sites / self.messages,
        )

    def _forecast_link(
        self, sender: str, receiver: str, sums: Mapping[tuple[str | None, Wanted], _Sum]
    ) -> LinkTraffic:
        hops = self._topology.next_hops(sender)
        beyond = {site for site, hop in hops.items() if hop == receiver}
        mask = sum(1 << number for number, site in enumerate(self._sites) if site in beyond)
        near = sum(weight for site, weight in self.publishers.items() if site not in beyond)
        totals = dict.fromkeys(("routed", "flooded", "fewest"), (0.0, 0.0))
        squares = 0.0
        """of what each message adds to the share"""
        for (site, wanted), entry in sums.items():
            chance = near if site is None else float(site not in beyond)
            crosses = {
                "flooded": True,
                "routed": bool(wanted.by_routes & mask),
                "fewest": bool(wanted.by_matches & mask),
            }
            for kind, crossed in crosses.items():
                if crossed:
                    messages, size = totals[kind]
                    totals[kind] = messages + chance * entry.messages, size + chance * entry.bytes
            if crosses["routed"]:
                squares += chance * chance * entry.messages
        share = {
            kind: (messages / self.messages, size / max(self.bytes, 1))
            for kind, (messages, size) in totals.items()
        }
        variance = max(squares / self.messages - share["routed"][0] ** 2, 0.0)
        return LinkTraffic(
            sender,
            receiver,
            *share["routed"],
            *share["flooded"],
            *share["fewest"],
            max(
                _CONFIDENCE * sqrt(variance / self.messages),
                share["flooded"][0] * min(1.0, _UNSEEN / self.messages),
            ),
        )
