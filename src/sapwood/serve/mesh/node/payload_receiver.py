"""Payloads of neighbours, read in order; those that need a dictionary which is not here wait for it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sapwood.mesh.wire.bodies.dictionary_controls import (
    DictionaryControl,
    LackDictionary,
    OfferDictionary,
    OfferPlan,
)
from sapwood.mesh.wire.frame_codec import UnknownDictionary, encode_control
from sapwood.mesh.wire.held_payloads import HeldPayloads
from sapwood.serve.mesh.mesh_frames import ControlOut, PayloadArrived

if TYPE_CHECKING:
    from sapwood.mesh.wire.bodies.dictionary_exchange import LinkControl
    from sapwood.mesh.wire.frame_codec import Payload
    from sapwood.mesh.wire.link_codec import LinkCodec
    from sapwood.serve.mesh.mesh_frames import MeshOutputItem
    from sapwood.serve.mesh.node.link_exchange import LinkExchange

_log = logging.getLogger(__name__)


class PayloadReceiver:
    """Reads the payloads of neighbours, and asks for the dictionaries that they need."""

    def __init__(
        self,
        links: LinkExchange,
        codec: LinkCodec,
        counters: Counter[str],
        send: Callable[[MeshOutputItem], None],
    ) -> None:
        self._links = links
        self._codec = codec
        self._counters = counters
        self._send = send
        self._held: HeldPayloads[PayloadArrived] = HeldPayloads()

    def receive(self, item: PayloadArrived) -> Payload | None:
        """Return the frames of a payload, None if it has to wait; raises WireError."""
        if self._held.holds(item.link):
            self._held.add(item.link, item)
            return None
        try:
            return self._links.receive(item)
        except UnknownDictionary as error:
            if self._held.waits_in_vain(item.link, error.identities):
                self._links.refuse(item)
                raise
            self._counters["held payloads"] += 1
            _log.info("a payload from %s waits: %s", item.link, error)
            self._held.begin(item.link, item, error.identities, time.monotonic())
            self.send_controls(self._codec.ask(item.link, error.identities))
            return None

    def holds(self, link: str) -> bool:
        """Return whether payloads of a neighbour wait."""
        return self._held.holds(link)

    def receive_control(self, link: str, control: DictionaryControl) -> list[PayloadArrived]:
        """Handle what a neighbour tells of dictionaries; return the payloads that can be read now."""
        self.send_controls(self._codec.receive(link, control))
        if isinstance(control, LackDictionary):
            self._held.note_lack(link, control.identity)
            self.check_held(time.monotonic())
        if isinstance(control, OfferDictionary | OfferPlan):
            self._held.note_offer(link)
            return self._held.take(link)
        return []

    def check_held(self, now: float) -> None:
        """Ask again for dictionaries, and drop what has waited for too long."""
        for link in self._held.expired(now):
            _log.warning("payloads from %s are dropped: their dictionary does not come", link)
            for item in self._held.take(link):
                self._counters["refused payloads"] += 1
                self._links.refuse(item)
            self.release(link)
        for link, identities in self._held.ask_again(now):
            self.send_controls(self._codec.ask(link, identities))

    def send_controls(self, controls: Iterable[LinkControl]) -> None:
        """Send controls to neighbours."""
        for link, control in controls:
            self._send(ControlOut(link, encode_control(control)))

    def release(self, link: str) -> None:
        """Tell up to which payload of a neighbour none is needed any more, if that is new."""
        released = self._links.take_released(link)
        if released is not None:
            self._send(released)
