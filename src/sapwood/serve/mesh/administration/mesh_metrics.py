"""The metrics of a broker in a mesh, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sapwood.serve.mesh.mesh_frames import MeshStatus

_COUNTERS = {
    "late": "Messages that came by a former table: a defect, if there are any",
    "lost": "Frames of neighbours that were lost",
    "duplicates": "Messages that came again, and were not handled again",
    "refused": "Messages of neighbours that cannot be read here",
    "refused payloads": "Payloads of neighbours that were damaged, or that nobody can read here",
    "held payloads": "Payloads of neighbours that had to wait for a dictionary",
    "decided by skeleton": "Messages that were routed by their skeleton, without being read",
    "decided by hits": "Messages that were routed by the hits that they came with, without being read",
    "outdated hits": "Messages whose hits are of another table than the neighbour was told",
    "withheld deliveries": "Deliveries that were not made because the message lacked what the query reads",
    "healed": "Tables that were sent again, because they differed",
}
_LINK_COUNTERS = {
    "messages in": "Messages of a neighbour",
    "messages out": "Messages for a neighbour",
    "bytes in": "Bytes of a neighbour",
    "bytes out": "Bytes for a neighbour",
    "text out": "Bytes of the texts of messages for a neighbour",
    "bodies out": "Bytes of these as they were sent",
    "skeletons out": "Messages for a neighbour that have a skeleton",
    "hits out": "Messages for a neighbour that carry hits",
    "cut messages out": "Messages for a neighbour from which parts were cut",
    "cut bytes out": "Bytes of these parts",
}
_LINK_GAUGES = {
    "outbox": ("outbox", "Frames that a neighbour has not received"),
    "unsettled": ("unsettled", "Messages that are not settled on the side of a neighbour"),
    "routes in": ("routes", "Routes that are wanted on the side of a neighbour"),
    "generalised": ("generalised", "Entries for a neighbour that stand for several routes"),
    "version": ("table_version", "The version of the table that a neighbour was told"),
    "confirmed": ("table_confirmed", "The version of it that all brokers on its side have"),
}


class MeshCollector(Collector):
    """What the node of the mesh reported last."""

    def __init__(self, read: Callable[[], tuple[MeshStatus | None, bool, int]]) -> None:
        """`read` returns the report, whether there is a connection, and the version of the tree."""
        self._read = read

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the metrics are not known beforehand."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        status, connected, topology = self._read()
        yield GaugeMetricFamily(
            "sapwood_mesh_connected", "Whether there is a connection to a NATS server", float(connected)
        )
        yield GaugeMetricFamily("sapwood_mesh_topology_version", "Version of the tree", topology)
        if status is None:
            return
        yield GaugeMetricFamily(
            "sapwood_mesh_unsettled", "Messages that are not settled everywhere", status.unsettled
        )
        yield GaugeMetricFamily(
            "sapwood_mesh_unconfirmed", "Changes that not all brokers have", status.unconfirmed
        )
        yield GaugeMetricFamily("sapwood_mesh_routes", "Routes that are known", status.routes)
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"sapwood_mesh_{name.replace(' ', '_')}", text)
            counter.add_metric([], status.counters.get(name, 0))
            yield counter
        yield from _collect_links(status.links)


def _collect_links(links: dict[str, dict[str, Any]]) -> Iterator[Metric]:
    is_open = GaugeMetricFamily(
        "sapwood_mesh_link_open", "Whether a neighbour receives what is sent", labels=["link"]
    )
    for link, state in links.items():
        is_open.add_metric([link], float(state["open"]))
    yield is_open
    for name, (short, text) in _LINK_GAUGES.items():
        gauge = GaugeMetricFamily(f"sapwood_mesh_link_{short}", text, labels=["link"])
        for link, state in links.items():
            gauge.add_metric([link], state.get(name, 0))
        yield gauge
    for name, text in _LINK_COUNTERS.items():
        counter = CounterMetricFamily(f"sapwood_mesh_link_{name.replace(' ', '_')}", text, labels=["link"])
        for link, state in links.items():
            counter.add_metric([link], state.get(name, 0))
        yield counter
