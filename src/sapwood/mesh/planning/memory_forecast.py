"""The memory that a broker of a planned mesh takes for its subscriptions and routes.

Part of what a broker would hold is registered for real, in a process of its own, and the rest is estimated by
what the last of it took:

    memory  │              ·  estimated
            │         ·
            │     ×              second half of the sample
            │   ×                first half: sharing is rare yet, so each pattern takes more
            └──────────────────  patterns

The sample is drawn by the keys of routes, which are hashes, so that a condition that is wanted here and
beyond a link, or by several links, is in the sample with all of these, or not at all. Many subscriptions may
have one query: repetitions take much less than a first one, and are measured by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sapwood.mesh.core.tables.route_table import PART
from sapwood.mesh.core.topology import Topology
from sapwood.mesh.planning.placement import Placement
from sapwood.mesh.planning.planned_subscription import PlannedSubscription
from sapwood.mesh.routing.route import Route

SAMPLE = 8_000
"""patterns that are registered for a forecast"""
EXCHANGE_BYTES = 1_000
"""for each route, up to those of one frame: engines that have exchanged their tables take so much more than
what they hold. It was found by comparing linked engines with the forecasts for them (7 sizes and kinds of
queries); it grows with the tables, and not any more when these have several frames, as buffers do that are
used again."""
_KEY_SPACE = 1 << 128


@dataclass(frozen=True, slots=True)
class NodePart:
    """Part of what a broker holds: local subscriptions, and routes by neighbour."""

    subscriptions: Sequence[PlannedSubscription]
    routes: Mapping[str, Sequence[Route]]


MeasureMemory = Callable[[Sequence[NodePart]], Sequence[int]]
"""Registers parts one after the other in a new engine, and returns by how many bytes each makes it grow."""


@dataclass(frozen=True, slots=True)
class NodeForecast:
    """What one broker holds, and the memory that it takes for it."""

    site: str
    subscriptions: int
    routes: int
    """distinct ones that neighbours want"""
    bytes: int | None
    """beyond those of a broker without subscriptions and routes; None if they were not to be measured"""


class NodeContents:
    """All that a broker holds."""

    def __init__(
        self, subscriptions: Sequence[PlannedSubscription], routes: Mapping[str, Sequence[Route]]
    ) -> None:
        self.subscriptions = subscriptions
        self.routes = routes

    def count_routes(self) -> int:
        """Return the number of distinct routes that neighbours want."""
        return len({route for routes in self.routes.values() for route in routes})

    def forecast_bytes(self, measure: MeasureMemory, sample: int = SAMPLE) -> int:
        """Return the bytes that a broker takes for all, by measuring what a sample of the patterns takes."""
        first_ones, repeated = self._split_subscriptions()
        keys = {_key_of(each) for each in first_ones}
        keys.update(route.key for routes in self.routes.values() for route in routes)
        if not keys:
            return 0
        end = _KEY_SPACE if len(keys) <= sample else _KEY_SPACE * sample // len(keys)
        halves = [
            self._take_part(first_ones, start, stop) for start, stop in ((0, end // 2), (end // 2, end))
        ]
        in_sample = [each for each in repeated if _key_of(each) < end][:sample]
        first, second, more = measure([*halves, NodePart(in_sample, {})])
        last = sum(end // 2 <= key < end for key in keys)
        rest = sum(key >= end for key in keys)
        patterns = first + second + (second * rest / last if last else 0.0)
        each_repeated = more / len(in_sample) if in_sample else 0.0
        exchange = EXCHANGE_BYTES * min(self.count_routes(), PART)
        return round(patterns + each_repeated * len(repeated) + exchange)

    def _split_subscriptions(self) -> tuple[list[PlannedSubscription], list[PlannedSubscription]]:
        """Return the first subscription with each query, and all others."""
        first_ones: dict[str, PlannedSubscription] = {}
        repeated = [
            each for each in self.subscriptions if first_ones.setdefault(each.query, each) is not each
        ]
        return list(first_ones.values()), repeated

    def _take_part(self, subscriptions: Sequence[PlannedSubscription], start: int, stop: int) -> NodePart:
        return NodePart(
            [each for each in subscriptions if start <= _key_of(each) < stop],
            {
                link: [route for route in routes if start <= route.key < stop]
                for link, routes in self.routes.items()
            },
        )


def _key_of(subscription: PlannedSubscription) -> int:
    return subscription.routes[0].key if subscription.routes else 0


def collect_contents(
    topology: Topology, subscriptions: Sequence[PlannedSubscription], placement: Placement
) -> dict[str, NodeContents]:
    """Return, by site, what its broker holds under a placement."""
    names = list(topology.parents)
    hosted: dict[str, list[PlannedSubscription]] = {name: [] for name in names}
    for subscription, site in zip(subscriptions, placement.sites, strict=True):
        hosted[names[site]].append(subscription)
    wanted = {
        name: dict.fromkeys(route for each in own for route in each.routes) for name, own in hosted.items()
    }

    def collect_one(name: str) -> NodeContents:
        beyond: dict[str, dict[Route, None]] = {link: {} for link in topology.neighbours(name)}
        for site, link in topology.next_hops(name).items():
            beyond[link].update(wanted[site])
        return NodeContents(hosted[name], {link: list(routes) for link, routes in beyond.items()})

    return {name: collect_one(name) for name in names}
