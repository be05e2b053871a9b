"""Frames of links as payloads: what goes out together, and when what came in is not needed any more."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.mesh.core.actions import Release, Send
from sapwood.mesh.core.frames import Content, Epoch, Frame, MessageFrame, MessageKey
from sapwood.mesh.wire.frame_codec import Payload, decode_payload, encode_payload
from sapwood.mesh.wire.message_content import MessageContent
from sapwood.serve.mesh.mesh_frames import PayloadArrived, PayloadOut, TagReleased

_PAYLOAD_BYTES = 256 * 1024
"""of frames in one payload, unless one frame is larger"""
_PAYLOAD_FRAMES = 512
_FRAME_BYTES = 100
"""of a frame beside the body of its message"""
FindContent = Callable[[MessageKey], MessageContent | None]


@dataclass(slots=True)
class _ArrivedPayload:
    """A payload that the transport keeps until its frames are stored."""

    tag: int
    epoch: Epoch
    last: int
    is_done: bool = False


class LinkExchange:
    """Encodes what the node sends, and keeps account of what has come, by neighbour."""

    def __init__(self, find_content: FindContent) -> None:
        self._find_content = find_content
        self._outgoing: dict[str, list[Send]] = {}
        self._arrived: dict[str, deque[_ArrivedPayload]] = {}
        self._traffic: dict[str, Counter[str]] = {}

    def traffic(self, link: str) -> Counter[str]:
        """Return the counters of a link."""
        return self._traffic.setdefault(link, Counter())

    # -- what goes out ---------------------------------------------------------------------------------

    def send(self, action: Send) -> None:
        """Send a frame with the next payloads."""
        self._outgoing.setdefault(action.link, []).append(action)

    def take_payloads(self) -> Iterator[PayloadOut]:
        """Yield what is to be sent, consecutive frames of a link together."""
        outgoing, self._outgoing = self._outgoing, {}
        for link, sends in outgoing.items():
            frames: list[Frame] = []
            size = first = 0
            epoch = sends[0].epoch
            for send in sends:
                is_next = send.epoch == epoch and send.number == first + len(frames)
                if frames and not (is_next and size < _PAYLOAD_BYTES and len(frames) < _PAYLOAD_FRAMES):
                    yield self._encode(link, epoch, first, frames)
                    frames, size = [], 0
                if not frames:
                    epoch, first = send.epoch, send.number
                frame = self._fill(send.frame)
                if isinstance(frame, MessageFrame) and isinstance(frame.content, MessageContent):
                    size += len(frame.content.body)
                size += _FRAME_BYTES
                frames.append(frame)
            yield self._encode(link, epoch, first, frames)

    def _fill(self, frame: Frame) -> Frame:
        """Return a frame with the content that is stored; without any, if the log does not keep it."""
        if isinstance(frame, MessageFrame) and frame.content is Content.STORED:
            return MessageFrame(frame.key, self._find_content(frame.key), frame.table, frame.floor)
        return frame

    def _encode(self, link: str, epoch: Epoch, first: int, frames: Sequence[Frame]) -> PayloadOut:
        payload = encode_payload(epoch, first, frames)
        traffic = self.traffic(link)
        traffic["frames out"] += len(frames)
        traffic["bytes out"] += len(payload)
        traffic["messages out"] += sum(isinstance(frame, MessageFrame) for frame in frames)
        return PayloadOut(link, epoch, first + len(frames) - 1, payload)

    # -- what comes in ---------------------------------------------------------------------------------

    def receive(self, item: PayloadArrived) -> Payload:
        """Return the frames of a payload; WireError if it cannot be read, and then it is not needed."""
        arrived = _ArrivedPayload(item.tag, Epoch(0, 0), 0, is_done=True)
        self._arrived.setdefault(item.link, deque()).append(arrived)
        with pause_garbage_collection():  # a table is many objects, none of them in a cycle
            payload = decode_payload(item.payload)
        arrived.is_done = False
        arrived.epoch, arrived.last = payload.epoch, payload.first + len(payload.frames) - 1
        traffic = self.traffic(item.link)
        traffic["frames in"] += len(payload.frames)
        traffic["messages in"] += sum(isinstance(frame, MessageFrame) for frame in payload.frames)
        traffic["bytes in"] += len(item.payload)
        return payload

    def drop(self, link: str, tag: int) -> None:
        """Note that a payload is not needed: its frames come again, if they are."""
        for payload in self._arrived.get(link, ()):
            if payload.tag == tag:
                payload.is_done = True

    def release(self, action: Release) -> None:
        """Note that frames are stored."""
        for payload in self._arrived.get(action.link, ()):
            if (payload.epoch, payload.last) <= (action.epoch, action.number):
                payload.is_done = True

    def take_released(self, link: str) -> TagReleased | None:
        """Return up to which payload of a neighbour none is needed any more, if that is new."""
        arrived, tag = self._arrived.get(link), None
        while arrived and arrived[0].is_done:
            tag = arrived.popleft().tag
        return TagReleased(link, tag) if tag is not None else None
