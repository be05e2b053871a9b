"""What all parts of a node share: who it is, where in the tree, its links, the time, and what it asks for."""

from __future__ import annotations

from sapwood.mesh.core.actions import Action, Report, SendControl, StoredMessage
from sapwood.mesh.core.frames import ConfirmFrame, Control, MessageKey, TableFrame
from sapwood.mesh.core.links.link_state import Link
from sapwood.mesh.core.messages.journal import Journal
from sapwood.mesh.core.topology import Topology


class NodeContext:
    """A node's place in the mesh, and the actions that it has asked for since the last event."""

    def __init__(self, name: str, incarnation: int, reset: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.reset = reset
        """the version of the topology since which it is known for whom messages are"""
        self.topology = Topology()
        self.hops: dict[str, str] = {}
        """by every other broker, the neighbour on whose side it is"""
        self.links: dict[str, Link] = {}
        self.unsent: dict[str, None] = {}
        """links with frames that the transport was not given"""
        self.unread: dict[str, None] = {}
        """links with frames that wait to be handled"""
        self.now = 0.0
        self.journal = Journal()
        self.actions: list[Action] = []

    def set_topology(self, topology: Topology) -> None:
        """Take over a tree."""
        self.topology = topology
        self.hops = topology.next_hops(self.name)

    def send(self, link: str, frame: TableFrame | ConfirmFrame, store: int = 0) -> None:
        """Send a frame after all others and after a `Store`, if the link is open."""
        outbound = self.links[link].outbound
        if outbound.is_open:
            outbound.add(frame, store)
            self.unsent[link] = None

    def send_message(self, link: str, key: MessageKey, table: int, store: int) -> None:
        """Send a message, if the link is open; if not, it is sent when it opens."""
        outbound = self.links[link].outbound
        if outbound.is_open:
            outbound.add_message(key, table, store)
            self.unsent[link] = None

    def send_control(self, link: str, control: Control) -> None:
        """Send a control."""
        self.actions.append(SendControl(link, control))

    def report(self, kind: str, link: str | None = None, detail: str = "", count: int = 1) -> None:
        """Tell the operator of something."""
        self.actions.append(Report(kind, link, detail, count))

    def store(
        self,
        message: StoredMessage | None = None,
        match: int | None = None,
        reset: int | None = None,
        replaces: int | None = None,
    ) -> int:
        """Store a message, with all that has changed, and return the number of the `Store`."""
        step = self.journal.store(message, match, reset, replaces)
        self.actions.append(step)
        return step.number

    def mark_handled(self, link: str) -> None:
        """Let it be stored how many frames of a link are handled."""
        inbound = self.links[link].inbound
        self.journal.set_cursor(link, inbound.epoch, inbound.handled)
