"""Deferred evaluation: local subscriptions see messages of other brokers after these are forwarded.

Priority scheduling with three classes, of which only the last can wait for long:

    message of a neighbour ─► 1 links are decided, stored ─► commit ─► 2 encoded for these links, sent
                                      └─► queue of its tenant ─────► 3 local subscriptions, deliveries stored

A message is *deferred* between 1 and 3: its row says so, and after a crash it is evaluated from the log, with
the version of the store that it was stored with. Messages of a tenant are evaluated in the order of the log,
whichever way they take: joins and inboxes depend on it. So who needs an evaluation at once, as a publisher
whose receipt has the number of deliveries, waits for all of the tenant that were deferred before.

The queue is worked off in short slices while there is nothing to route. Starvation guard: if the first has
waited for `PATIENCE`, there is a slice after each batch; if the queue is long, it is shortened at once, which
holds back neighbours.

To defer costs a second pass over the message and a second transaction, so it is done only where local work,
as measured, takes longer than that. The unit is a message: one evaluation is never interrupted. A second
thread would not help, since it competes for the interpreter with every step of routing.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sapwood.errors import MessageError
from sapwood.serve.mesh.node.partial_message import find_query_reads, unite_route_reads, withhold_partial
from sapwood.serve.tenants.evaluation import Deferred, Evaluation, Publication

if TYPE_CHECKING:
    from sapwood.mesh.routing.read_paths import ReadPaths
    from sapwood.mesh.routing.route import Route
    from sapwood.serve.tenants.tenant_engines import TenantEngines

FCFS, PRIORITY, DEPENDENCIES = "fcfs", "priority", "dependencies"
WORTH = 0.0003
"""seconds of local work for a message from which it is deferred"""
PATIENCE = 0.05
"""seconds that a message is deferred at most without local work in between"""
SLICE = 0.005
"""seconds after which local work looks whether there is something to route"""
MOST_MESSAGES, MOST_BYTES = 2_000, 32 * 1024 * 1024
"""of deferred messages, beyond which routing waits"""
_WEIGHT = 0.1
"""of a measurement in a moving average"""

Outcome = Evaluation | MessageError


class LocalWork:
    """The deferred messages of all tenants, and what it costs to evaluate them."""

    def __init__(
        self,
        engines: TenantEngines,
        policy: str,
        counters: Counter[str],
        store: Callable[[Deferred, Outcome], None],
        find_routes: Callable[[str, int], Sequence[Route]] = lambda tenant, place: (),
    ) -> None:
        """`store` puts the outcome for a deferred message into the batch that is being built, and
        `find_routes` returns the routes of the subscription of a tenant at a place, if they are known."""
        self._engines = engines
        self._is_deferring = policy != FCFS
        self._counters = counters
        self._store = store
        self._find_routes = find_routes
        self._queues: dict[str, deque[tuple[Deferred, float]]] = {}
        """by tenant, messages with the time when they were stored; none is empty"""
        self._recovered: list[tuple[Deferred, Outcome]] = []
        self._bytes = self._count = 0
        self._evaluation: dict[str, float] = {}
        """by tenant, seconds to evaluate a message, for links and local subscriptions"""
        self._routing: dict[str, float] = {}
        """by tenant, seconds to decide only on the links of a message"""
        self.is_inner = False
        """whether messages of neighbours may be for other neighbours"""

    def __len__(self) -> int:
        return self._count + len(self._recovered)

    # -- what is deferred ------------------------------------------------------------------------------

    def defers(self, tenant: str) -> bool:
        """Return whether messages of a tenant that nobody waits for are deferred."""
        if tenant in self._queues:
            return True
        local = self._evaluation.get(tenant, 0.0) - self._routing.get(tenant, 0.0)
        return self._is_deferring and self.is_inner and local >= WORTH

    def add(self, deferred: Deferred) -> None:
        """Defer a message that is stored with the batch that is being built."""
        self._queues.setdefault(deferred.message.tenant, deque()).append((deferred, time.monotonic()))
        self._bytes += len(deferred.message.body)
        self._count += 1
        self._counters["deferred messages"] += 1

    @property
    def first(self) -> int | None:
        """The first deferred message."""
        seqs = [queue[0][0].seq for queue in self._queues.values()]
        return min([*seqs, *(deferred.seq for deferred, _ in self._recovered)], default=None)

    @property
    def is_overdue(self) -> bool:
        """Whether a message has waited for so long that it must not wait for all routing."""
        oldest = min((queue[0][1] for queue in self._queues.values()), default=None)
        return oldest is not None and time.monotonic() - oldest >= PATIENCE

    @property
    def is_full(self) -> bool:
        """Whether so much is deferred that routing has to wait."""
        return self._count > MOST_MESSAGES or self._bytes > MOST_BYTES

    # -- evaluation ------------------------------------------------------------------------------------

    def evaluate(self, tenant: str, messages: Sequence[Publication]) -> Iterable[Outcome]:
        """Evaluate messages of a tenant that are not deferred, all before which are evaluated."""
        started = time.perf_counter()
        outcomes = self._evaluate(tenant, messages)
        _average(self._evaluation, tenant, (time.perf_counter() - started) / len(messages))
        return outcomes

    def _evaluate(self, tenant: str, messages: Sequence[Publication]) -> list[Outcome]:
        outcomes = list(self._engines.of(tenant).evaluate(messages))
        for message, outcome in zip(messages, outcomes, strict=True):
            if message.projection is not None and isinstance(outcome, Evaluation):
                find_reads = partial(self._find_reads, tenant)
                self._counters["withheld deliveries"] += withhold_partial(message, outcome, find_reads)
        return outcomes

    def _find_reads(self, tenant: str, place: int) -> ReadPaths | None:
        routes = self._find_routes(tenant, place)
        if routes:
            return unite_route_reads(routes)
        return find_query_reads(self._engines.of(tenant), tenant, place)

    def evaluate_links(self, message: Publication) -> Evaluation:
        """Return only what links make of a message; MessageError if it cannot be read."""
        started = time.perf_counter()
        evaluation = self._engines.of(message.tenant).evaluate_links(message)
        _average(self._routing, message.tenant, time.perf_counter() - started)
        return evaluation

    def drain(self, tenant: str) -> None:
        """Evaluate all that is deferred of a tenant."""
        while tenant in self._queues:
            self._evaluate_first(tenant)

    def run(self, seconds: float | None = None) -> None:
        """Evaluate deferred messages in order, for some seconds, but at least one; all without a limit."""
        recovered, self._recovered = self._recovered, []
        for deferred, outcome in recovered:
            self._store(deferred, outcome)
        started = time.perf_counter()
        while self._queues:
            self._evaluate_first(min(self._queues, key=lambda tenant: self._queues[tenant][0][0].seq))
            if seconds is not None and time.perf_counter() - started >= seconds:
                return

    def _evaluate_first(self, tenant: str) -> None:
        queue = self._queues[tenant]
        deferred, _ = queue.popleft()
        if not queue:
            del self._queues[tenant]
        self._count -= 1
        self._bytes -= len(deferred.message.body)
        (outcome,) = self.evaluate(tenant, [deferred.message])
        self._store(deferred, outcome)

    def recover(self, messages: Iterable[Deferred]) -> None:
        """Evaluate what a former run has deferred, each with its version of the store.

        The outcomes are stored by `run`, when the node is able to route what queries publish.
        """
        for deferred in messages:
            if deferred.version > self._engines.version:
                self._engines.follow_store(deferred.version)
            (outcome,) = self._evaluate(deferred.message.tenant, [deferred.message])
            self._recovered.append((deferred, outcome))


def _average(averages: dict[str, float], tenant: str, seconds: float) -> None:
    """Add a measurement to a moving average."""
    before = averages.get(tenant, 0.0)
    averages[tenant] = before + _WEIGHT * (seconds - before)
