"""The metrics of the service, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sapwood.serve.delivery.delivery_feed import DeliveryFeed
from sapwood.serve.engine.frames import EngineStatus
from sapwood.serve.webhooks.webhook_sender import WebhookCounters

_LATENCIES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """Counters and histograms that the server keeps; what the engine and the feed know is read on demand."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.published = Counter(
            "sapwood_messages_published", "Messages in the log", ["tenant"], registry=self.registry
        )
        self.published_bytes = Counter(
            "sapwood_published_bytes", "Bytes of messages in the log", ["tenant"], registry=self.registry
        )
        self.duplicates = Counter(
            "sapwood_messages_duplicate", "Messages published again", ["tenant"], registry=self.registry
        )
        self.rejected = Counter(
            "sapwood_messages_rejected", "Messages refused", ["tenant"], registry=self.registry
        )
        self.matched = Counter(
            "sapwood_deliveries", "Deliveries entered into inboxes", ["tenant"], registry=self.registry
        )
        self.failures = Counter(
            "sapwood_query_failures", "Failures of queries on messages", ["tenant"], registry=self.registry
        )
        self.delivered = Counter(
            "sapwood_delivered", "Deliveries sent to subscribers", ["way"], registry=self.registry
        )
        self.refusals = Counter(
            "sapwood_requests_refused",
            "Requests refused for overload or rate",
            ["reason"],
            registry=self.registry,
        )
        self.publish_seconds = Histogram(
            "sapwood_publish_seconds", "From request to durable", buckets=_LATENCIES, registry=self.registry
        )
        self.delivery_seconds = Histogram(
            "sapwood_delivery_seconds",
            "From received to sent live",
            ["way"],
            buckets=_LATENCIES,
            registry=self.registry,
        )
        self.connections = Gauge(
            "sapwood_listeners", "Open connections of subscribers", ["way"], registry=self.registry
        )
        self.pending_bytes = Gauge(
            "sapwood_pending_bytes", "Bytes of messages that are not in the log yet", registry=self.registry
        )


class StatusCollector(Collector):
    """What the engine reported last, the backlog of inboxes, and the state of webhooks."""

    def __init__(self, feed: DeliveryFeed, webhooks: WebhookCounters) -> None:
        self._feed = feed
        self._webhooks = webhooks
        self.status: EngineStatus | None = None
        self.restarts = 0

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the metrics are not known beforehand."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        status = self.status
        if status is not None:
            yield GaugeMetricFamily("sapwood_engine_memory_bytes", "Memory of the engine", status.memory)
            yield GaugeMetricFamily("sapwood_store_version", "Version of the store", status.version)
            yield GaugeMetricFamily("sapwood_join_messages", "Messages that joins hold", status.join_messages)
            yield GaugeMetricFamily(
                "sapwood_log_available", "Whether the log can be written", float(status.problem is None)
            )
            busy = CounterMetricFamily("sapwood_engine_busy_seconds", "Time that the engine has worked")
            busy.add_metric([], status.counters.get("busy", 0.0))
            yield busy
            subscriptions = GaugeMetricFamily(
                "sapwood_subscriptions", "Subscriptions that are evaluated", labels=["tenant", "language"]
            )
            for tenant, counts in status.subscriptions.items():
                for language, count in counts.items():
                    subscriptions.add_metric([tenant, language], count)
            yield subscriptions
        restarts = CounterMetricFamily("sapwood_engine_restarts", "Times that the engine was started again")
        restarts.add_metric([], self.restarts)
        yield restarts
        yield from self._backlog()
        for name in ("attempts", "delivered", "failed", "dead_lettered"):
            metric = CounterMetricFamily(f"sapwood_webhook_{name}", f"Webhooks: {name.replace('_', ' ')}")
            metric.add_metric([], getattr(self._webhooks, name))
            yield metric

    def _backlog(self) -> Iterator[Metric]:
        """Yield the backlog by tenant: one by subscriber might be too many."""
        inboxes = self._feed.inboxes
        totals: dict[str, int] = {}
        most: dict[str, int] = {}
        for number, (tenant, _) in inboxes.names.items():
            backlog = inboxes.backlog(number)
            totals[tenant] = totals.get(tenant, 0) + backlog
            most[tenant] = max(most.get(tenant, 0), backlog)
        total = GaugeMetricFamily(
            "sapwood_backlog", "Deliveries that are not acknowledged", labels=["tenant"]
        )
        highest = GaugeMetricFamily(
            "sapwood_backlog_highest", "The backlog of the slowest subscriber", labels=["tenant"]
        )
        for tenant in totals:
            total.add_metric([tenant], totals[tenant])
            highest.add_metric([tenant], most[tenant])
        yield total
        yield highest
        yield GaugeMetricFamily("sapwood_inboxes", "Inboxes", len(inboxes.names))
        yield GaugeMetricFamily("sapwood_inboxes_suspended", "Suspended inboxes", len(inboxes.suspended))
