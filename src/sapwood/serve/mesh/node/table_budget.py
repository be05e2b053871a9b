"""The budget of a node's tables: what generalises them, and a sample of messages to measure losses with.

The node sees a sample only as an event, so that a log of its events has all that its actions depend on.
"""

from __future__ import annotations

from random import Random

from sapwood.mesh.core import events
from sapwood.mesh.core.tables.generaliser import EXACT, Generaliser
from sapwood.mesh.routing.message_sample import MOST_MESSAGES, MessageReservoir
from sapwood.mesh.routing.route_generaliser import RouteGeneraliser
from sapwood.serve.tenants.evaluation import Publication

_INTERVAL = 60.0
"""seconds between samples that the node gets; a first one comes with enough messages"""


def make_generaliser(budget: int | None) -> Generaliser:
    """Return what makes tables smaller that exceed a budget; without one, tables are exact."""
    return EXACT if budget is None else RouteGeneraliser(budget)


class MessageSampler:
    """Samples the messages that a broker handles, if its tables have a budget."""

    def __init__(self, budget: int | None) -> None:
        self._reservoir = MessageReservoir(Random()) if budget is not None else None
        self._since: float | None = None
        """when the last sample was taken, or the first message was there"""
        self._is_first = True

    def add(self, message: Publication) -> None:
        """Let a message take part."""
        if self._reservoir is not None and message.body:
            self._reservoir.add(message.tenant, message.stream, message.body)

    def take(self, now: float) -> events.Sampled | None:
        """Return the sample, if another one is due."""
        if self._reservoir is None or not self._reservoir.is_changed:
            return None
        if self._since is None:
            self._since = now
        is_early = self._is_first and len(self._reservoir) == MOST_MESSAGES
        if now - self._since < _INTERVAL and not is_early:
            return None
        self._since, self._is_first = now, False
        return events.Sampled(self._reservoir.take())
