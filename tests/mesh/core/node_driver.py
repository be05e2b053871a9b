"""Drives one node by hand, as its runtime would, and answers for its neighbours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from sapwood.mesh.core import actions, events
from sapwood.mesh.core.frames import (
    Control,
    Epoch,
    Frame,
    Intervals,
    MessageFrame,
    MessageKey,
    Open,
    Opened,
    TableFrame,
)
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.node_state import NodeState
from sapwood.mesh.core.topology import Topology

T = TypeVar("T")


class NodeDriver:
    """A node, what it has asked for since, and what of it is stored."""

    def __init__(self, name: str, topology: Topology, state: NodeState | None = None, run: int = 1) -> None:
        self.state = state or NodeState(name)
        self.node = Node(self.state, topology, run)
        self.name = name
        self.topology = topology
        self.asked: list[actions.Action] = []
        self.wanted: dict[int, frozenset[str]] = {}
        """by content, the neighbours that want it; others are wanted by none"""
        self.matches: list[actions.Match] = []
        self.answers_matches = True
        self.answers_stores = True
        self._now = 0.0
        self._sent: dict[str, tuple[Epoch, int]] = {}

    # -- events ----------------------------------------------------------------------------------------

    def feed(self, *fed: events.Event) -> None:
        """Give events to the node, and answer what it asks for at once."""
        waiting = list(fed)
        while waiting:
            for action in self.node.handle(waiting.pop(0)):
                self.asked.append(action)
                if isinstance(action, actions.Match):
                    self.matches.append(action)
                    if self.answers_matches:
                        waiting.append(self._match(self.matches.pop()))
                elif isinstance(action, actions.Store) and self.answers_stores:
                    self.state.apply(action)
                    waiting.append(events.Stored(action.number))

    def _match(self, match: actions.Match) -> events.Matched:
        content = match.content if isinstance(match.content, int) else -1
        return events.Matched(match.token, self.wanted.get(content, frozenset()))

    def answer_matches(self) -> None:
        """Answer the matches that wait."""
        waiting, self.matches = self.matches, []
        self.feed(*(self._match(match) for match in waiting))

    def tick(self, seconds: float = 0.2) -> None:
        """Let time pass."""
        self._now += seconds
        self.feed(events.Tick(self._now))

    def control(self, link: str, control: Control) -> None:
        """Let a neighbour send a control."""
        self.feed(events.Controlled(link, control))

    def open_outbound(self, link: str, have: dict[str, Intervals] | None = None) -> Epoch:
        """Let a neighbour open the link to it."""
        self.tick(0.5)
        epoch = [c.epoch for c in self.controls(link, Open)][-1]
        self.control(link, Opened(epoch, 0, have or {}))
        return epoch

    def open_inbound(self, link: str, epoch: Epoch | None = None, needs_table: bool = False) -> None:
        """Let a neighbour open the link from it."""
        epoch = epoch or Epoch(self.topology.edge(self.name, link), 1)
        self._sent[link] = epoch, 0
        self.control(link, Open(epoch, needs_table))

    def receive(self, link: str, *frames: Frame) -> None:
        """Let frames of a neighbour arrive."""
        for frame in frames:
            epoch, number = self._sent[link]
            self._sent[link] = epoch, number + 1
            self.feed(events.Received(link, epoch, number + 1, frame))

    def connect(self, *links: str) -> None:
        """Open both directions of links, with tables in which nothing is wanted."""
        for link in links:
            self.open_outbound(link)
            self.open_inbound(link)
            self.receive(link, TableFrame(1, begins=True))

    def publish(self, *contents: int) -> None:
        """Publish messages; the content is also who waits for the reply."""
        self.feed(*(events.Published(content, content) for content in contents))

    # -- what was asked for ----------------------------------------------------------------------------

    def take(self, kind: type[T]) -> list[T]:
        """Return what was asked for of a kind, and forget everything."""
        found: list[T] = [action for action in self.asked if isinstance(action, kind)]
        self.asked = []
        return found

    def controls(self, link: str, kind: type[T]) -> list[T]:
        """Return the controls of a kind that a neighbour was sent."""
        sent = [a for a in self.asked if isinstance(a, actions.SendControl) and a.link == link]
        return [action.control for action in sent if isinstance(action.control, kind)]

    def frames(self, link: str, kind: type[T]) -> list[T]:
        """Return the frames of a kind that a neighbour was sent."""
        sent = [a for a in self.asked if isinstance(a, actions.Send) and a.link == link]
        return [action.frame for action in sent if isinstance(action.frame, kind)]

    def messages(self, link: str) -> list[MessageKey]:
        """Return the messages that a neighbour was sent."""
        return [frame.key for frame in self.frames(link, MessageFrame)]

    def replies(self) -> list[object]:
        """Return who was answered."""
        return [action.token for action in self.asked if isinstance(action, actions.Reply)]

    def reports(self) -> list[str]:
        """Return the kinds of all reports."""
        return [action.kind for action in self.asked if isinstance(action, actions.Report)]


def messages_of(source: str, numbers: Iterable[int], table: int = 0) -> list[MessageFrame]:
    """Return frames of messages whose content is their number."""
    return [MessageFrame(MessageKey(source, number), number, table) for number in numbers]
