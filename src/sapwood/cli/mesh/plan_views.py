"""The forecasts of `sapwood mesh plan`: tables for people, and one object for machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from sapwood.cli.mesh.mesh_views import format_bytes

if TYPE_CHECKING:
    from sapwood.mesh.planning.memory_forecast import NodeForecast
    from sapwood.mesh.planning.placement import Placement
    from sapwood.mesh.planning.traffic_forecast import TrafficForecast

_LEAST_SHOWN = 1_000_000
"""bytes below which what a process takes cannot be measured"""


@dataclass(frozen=True, slots=True)
class PlacementForecast:
    """The forecast for one placement."""

    placement: Placement
    traffic: TrafficForecast
    nodes: Sequence[NodeForecast]


@dataclass(frozen=True, slots=True)
class PlanReport:
    """All forecasts, and what they are made from."""

    parents: Mapping[str, str | None]
    publishers: Mapping[str, float]
    """by site, the share of messages of unknown origin"""
    stream: str
    subscriptions: int
    messages: int
    read: int
    """messages in the files, of which a part may be used"""
    bytes: int
    refused: int
    forecasts: Sequence[PlacementForecast]

    @property
    def best(self) -> PlacementForecast:
        """The placement with the fewest messages on links."""
        return min(self.forecasts, key=lambda each: each.traffic.share_of_flooding)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data; shares are parts of one."""
        return {
            "parents": dict(self.parents),
            "published_at": dict(self.publishers),
            "stream": self.stream,
            "subscriptions": self.subscriptions,
            "messages": self.messages,
            "bytes": self.bytes,
            "refused": self.refused,
            "best": self.best.placement.name,
            "placements": [_to_json(each) for each in self.forecasts],
        }

    def show(self) -> Iterator[str | Table]:
        """Yield texts and tables for people."""
        part = f" of {self.read:,}" if self.read > self.messages + self.refused else ""
        size = format_bytes(self.bytes / self.messages)
        messages = "message" if self.messages == 1 else "messages"
        subscriptions = "subscription" if self.subscriptions == 1 else "subscriptions"
        yield (
            f"{self.messages:,}{part} {messages} of {size} on average, "
            f"{self.subscriptions:,} {subscriptions}, {len(self.parents)} sites"
        )
        if len(self.forecasts) > 1:
            yield _compare(self.forecasts)
        for each in self.forecasts:
            color = "green" if each.traffic.helps else "red"
            yield ""
            yield f"[bold]{each.placement.name}[/] ({each.placement.description})"
            yield f"[{color}]{each.traffic.verdict}[/]"
            yield _show_links(each.traffic)
            yield _show_nodes(each.nodes)
        yield from self._explain()

    def _explain(self) -> Iterator[str]:
        if len(self.forecasts) > 1 and self.best.traffic.helps:
            share = _percent(self.best.traffic.share_of_flooding)
            yield f"fewest messages on links: [bold]{self.best.placement.name}[/], {share} of flooding"
        margin = max(link.margin for each in self.forecasts for link in each.traffic.links)
        yield (
            "shares are of all that is published, and bytes are those of messages as they are published; "
            "flooding sends everything over every link, the fewest possible is what is delivered beyond"
        )
        yield (
            f"with {self.messages:,} messages, a share of messages may be off by "
            f"{100 * margin:.1f} points in 95 of 100 samples"
        )


def _to_json(forecast: PlacementForecast) -> dict[str, Any]:
    traffic = forecast.traffic
    return {
        "placement": forecast.placement.name,
        "verdict": traffic.verdict,
        "helps": traffic.helps,
        "share_of_flooding": traffic.share_of_flooding,
        "share_of_flooded_bytes": traffic.share_of_flooded_bytes,
        "links_per_message": traffic.routed,
        "flooded_links_per_message": traffic.flooded,
        "fewest_links_per_message": traffic.fewest,
        "wanted_everywhere": traffic.everywhere,
        "wanted_nowhere": traffic.nowhere,
        "sites_per_message": traffic.sites_per_message,
        "links": [asdict(link) for link in traffic.links],
        "sites": [asdict(node) for node in forecast.nodes],
    }


def _compare(forecasts: Sequence[PlacementForecast]) -> Table:
    table = Table("placement", "of flooding", "fewest", "bytes", "wanted at all sites", "largest site")
    table.add_column("memory")
    for each in forecasts:
        traffic = each.traffic
        measured = [node.bytes for node in each.nodes if node.bytes is not None]
        table.add_row(
            each.placement.name,
            _percent(traffic.share_of_flooding),
            _percent(traffic.fewest / traffic.flooded),
            _percent(traffic.share_of_flooded_bytes),
            _percent(traffic.everywhere),
            f"{max(node.subscriptions for node in each.nodes):,}",
            _memory(max(measured) if measured else None),
        )
    return table


def _show_links(traffic: TrafficForecast) -> Table:
    table = Table("link", "messages", "flooding", "fewest possible", "bytes", "bytes, flooding")
    for link in traffic.links:
        table.add_row(
            escape(f"{link.sender} → {link.receiver}"),
            _percent(link.messages),
            _percent(link.flooded_messages),
            _percent(link.fewest_messages),
            _percent(link.bytes),
            _percent(link.flooded_bytes),
        )
    return table


def _show_nodes(nodes: Sequence[NodeForecast]) -> Table:
    table = Table("site", "subscriptions", "routes", "memory")
    for node in nodes:
        table.add_row(escape(node.site), f"{node.subscriptions:,}", f"{node.routes:,}", _memory(node.bytes))
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _memory(count: int | None) -> str:
    if count is None:
        return "–"
    return format_bytes(count) if count >= _LEAST_SHOWN else f"below {format_bytes(_LEAST_SHOWN)}"
