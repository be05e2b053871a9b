"""A sample of the messages that pass a broker, by which the loss of generalised routes is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from sapwood.engine.matcher import Matcher
from sapwood.engine.message.message_reader import Message
from sapwood.engine.registration import Owner
from sapwood.errors import MessageError
from sapwood.lang.pattern import Condition
from sapwood.lang.query import Query
from sapwood.mesh.routing.route import Route

MOST_MESSAGES = 200
MOST_BYTES = 65_536
"""of one message: larger ones would make the sample large, and tell no more"""


@dataclass(frozen=True, slots=True)
class SampleMessage:
    """A message of a sample."""

    tenant: str
    stream: str
    body: bytes


class MessageReservoir:
    """A sample of all messages so far, of which each is in it with the same probability (Vitter's algorithm
    R)."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._messages: list[SampleMessage] = []
        self._seen = 0
        self.is_changed = False
        """whether it is another sample than the one that was taken last"""

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, tenant: str, stream: str, body: bytes) -> None:
        """Let a message take part."""
        if len(body) > MOST_BYTES:
            return
        self._seen += 1
        place = self._random.randrange(self._seen)
        if len(self._messages) < MOST_MESSAGES:
            self._messages.append(SampleMessage(tenant, stream, body))
        elif place < MOST_MESSAGES:
            self._messages[place] = SampleMessage(tenant, stream, body)
        else:
            return
        self.is_changed = True

    def take(self) -> tuple[SampleMessage, ...]:
        """Return the sample of this moment."""
        self.is_changed = False
        return tuple(self._messages)


def find_hits(messages: Sequence[SampleMessage], routes: Sequence[Route]) -> list[int]:
    """Return, for each route, the messages that it accepts, as bits.

    All routes are in one automaton, which matches each message once: with each condition by itself, a table
    of some thousand routes would take minutes.
    """
    if not messages:
        return [0] * len(routes)
    with Matcher() as matcher:
        slots: dict[Condition, int] = {}
        for route in routes:
            if route.condition not in slots:
                query = Query("a sampled condition", "boolean", route.condition)
                slots[route.condition] = matcher.index.register(query, Owner.LINK)
        bits = np.zeros((max(slots.values(), default=0) + 1, -(-len(messages) // 8)), np.uint8)
        for number, message in enumerate(messages):
            try:
                found = matcher.index.find(Message(message.body), owner=Owner.LINK).slots
            except MessageError:
                continue
            bits[found, number >> 3] |= 1 << (number & 7)
    masks: dict[tuple[str, str | None], int] = {}
    hits: list[int] = []
    for route in routes:
        side = route.tenant, route.stream
        if side not in masks:
            masks[side] = sum(1 << n for n, message in enumerate(messages) if _is_of(message, route))
        hits.append(int.from_bytes(bits[slots[route.condition]].tobytes(), "little") & masks[side])
    return hits


def _is_of(message: SampleMessage, route: Route) -> bool:
    return message.tenant == route.tenant and route.stream in (None, message.stream)
