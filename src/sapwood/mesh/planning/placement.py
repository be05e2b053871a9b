"""Placements: which site of a planned mesh hosts which subscription."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from math import ceil

from sapwood.errors import ArgumentError
from sapwood.mesh.planning.access_key import choose_access_keys
from sapwood.mesh.planning.planned_subscription import PlannedSubscription

AS_IT_IS, LOCAL, EXCLUSIVE, LEAST = "as it is", "local", "exclusive", "least"
PLACEMENTS = (LOCAL, EXCLUSIVE, LEAST)
"""those that spread the subscriptions of one store"""
_DESCRIPTIONS = {
    AS_IT_IS: "each site its own subscriptions",
    LOCAL: "the subscriptions of a subscriber together",
    EXCLUSIVE: "subscriptions that need the same value together",
    LEAST: "subscriptions spread evenly",
}


@dataclass(frozen=True, slots=True)
class Placement:
    """The site of each subscription."""

    name: str
    sites: Sequence[int]
    """by subscription, the number of its site"""

    @property
    def description(self) -> str:
        """What is hosted together."""
        return _DESCRIPTIONS[self.name]


def place(
    name: str, subscriptions: Sequence[PlannedSubscription], sites: int, sample: Sequence[bytes] = ()
) -> Placement:
    """Return a placement of subscriptions at a number of sites.

    The sample has messages from which `exclusive` learns how frequent values are. Raises ArgumentError for
    `local` if fewer than two subscribers are known.
    """
    if name == LEAST:
        groups: list[Hashable] = [each.id for each in subscriptions]
    elif name == EXCLUSIVE:
        keys = choose_access_keys(subscriptions, sample)
        groups = [key or (each.id,) for key, each in zip(keys, subscriptions, strict=True)]
    elif name == LOCAL:
        if not has_subscribers(subscriptions):
            raise ArgumentError(
                "the placement 'local' keeps the subscriptions of a subscriber together, and all of these "
                "have one subscriber or none: choose 'exclusive' or 'least'"
            )
        groups = [("subscriber", each.subscriber) if each.subscriber else each.id for each in subscriptions]
    else:
        raise ArgumentError(f"there is no placement {name!r}, but {', '.join(PLACEMENTS)}")
    return Placement(name, _spread(groups, sites))


def has_subscribers(subscriptions: Sequence[PlannedSubscription]) -> bool:
    """Return whether subscriptions belong to two subscribers at least."""
    return len({each.subscriber for each in subscriptions if each.subscriber}) > 1


def _spread(groups: Sequence[Hashable], sites: int) -> list[int]:
    """Return the site of each member of some groups: large groups first, each to the least loaded site.

    A group that is larger than the fair share of a site is split, or one site would host most subscriptions.
    """
    fair = max(1, ceil(len(groups) / sites))
    sizes = Counter(groups)
    loads = [(0, site) for site in range(sites)]
    heapify(loads)
    room: dict[Hashable, list[list[int]]] = {}
    """by group, its sites and how many of its members each takes"""
    for group in sorted(sizes, key=lambda each: (-sizes[each], _digest(each))):
        parts = ceil(sizes[group] / fair)
        for part in range(parts):
            size = sizes[group] // parts + (part < sizes[group] % parts)
            load, site = heappop(loads)
            heappush(loads, (load + size, site))
            room.setdefault(group, []).append([site, size])
    found: list[int] = []
    for group in groups:
        parts_left = room[group]
        parts_left[-1][1] -= 1
        found.append(parts_left[-1][0])
        if not parts_left[-1][1]:
            parts_left.pop()
    return found


def _digest(group: Hashable) -> bytes:
    """Return a key by which groups are in an order that is the same in every process, and means nothing."""
    return blake2b(repr(group).encode("utf-8", "surrogatepass"), digest_size=8).digest()
