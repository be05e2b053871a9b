"""Frames of links as payloads: what goes out together, and when what came in is not needed any more."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.mesh.core.actions import Release, Send
from sapwood.mesh.core.frames import Content, Epoch, Frame, MessageFrame, MessageKey
from sapwood.mesh.projection.link_projection import LinkProjection
from sapwood.mesh.wire.frame_codec import (
    Payload,
    UnknownDictionary,
    WireError,
    decode_payload,
    encode_payload,
)
from sapwood.mesh.wire.link_codec import LinkCodec
from sapwood.mesh.wire.message_content import Hits, MessageContent, Projection
from sapwood.serve.engine.message_ids import digest
from sapwood.serve.mesh.mesh_frames import PayloadArrived, PayloadOut, TagReleased
from sapwood.serve.mesh.node.content_cache import ContentCache

_PAYLOAD_BYTES = 256 * 1024
"""of frames in one payload, unless one frame is larger"""
_PAYLOAD_FRAMES = 512
_CUT_BYTES = 8 * 2**20
_FRAME_BYTES = 100
"""of a frame beside the body of its message"""


class ContentSource(Protocol):
    """Has the contents of messages that are stored."""

    def find(self, key: MessageKey) -> MessageContent | None:
        """Return a content, if the log keeps it."""

    def replace(self, key: MessageKey, content: MessageContent) -> None:
        """Keep a form of a content that was made of it."""


@dataclass(slots=True)
class _ArrivedPayload:
    """A payload that the transport keeps until its frames are stored."""

    tag: int
    epoch: Epoch
    last: int
    is_done: bool = False


class LinkExchange:
    """Encodes what the node sends, and keeps account of what has come, by neighbour."""

    def __init__(
        self,
        codec: LinkCodec,
        contents: ContentSource,
        projection: LinkProjection | None = None,
        find_hits: Callable[[str, MessageKey], Hits | None] = lambda link, key: None,
    ) -> None:
        """`find_hits` returns what a message is to carry of the routes of a neighbour that it meets."""
        self._codec = codec
        self._contents = contents
        self._projection = projection
        self._find_hits = find_hits
        self._cut: ContentCache[tuple[MessageKey, bytes]] = ContentCache(_CUT_BYTES)
        """by message and plan, what is left of contents, as several links may get it"""
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

    def keep_only(self, links: Collection[str]) -> None:
        """Forget what is to be sent to neighbours that are none any more."""
        self._outgoing = {link: sends for link, sends in self._outgoing.items() if link in links}

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
                frame = self._fill(link, send.frame)
                if isinstance(frame, MessageFrame) and isinstance(frame.content, MessageContent):
                    size += _encoded_size(frame.content)
                size += _FRAME_BYTES
                frames.append(frame)
            yield self._encode(link, epoch, first, frames)

    def encode_for_all(self, key: MessageKey, links: Iterable[str]) -> None:
        """Encode a message for neighbours, whether they want it or not."""
        for link in links:
            found = self._contents.find(key)
            if found is not None:
                self._cut_content(link, key, found)

    def _encode_content(self, link: str, key: MessageKey, found: MessageContent) -> MessageContent:
        content = self._codec.encode(link, found)
        encoded, skeleton = content.encoded or found.encoded, content.skeleton or found.skeleton
        if encoded is not found.encoded or skeleton is not found.skeleton:  # which other links may need
            self._contents.replace(key, found._replace(encoded=encoded, skeleton=skeleton, hits=None))
        return content

    def _fill(self, link: str, frame: Frame) -> Frame:
        """Return a frame with the content that is stored; without any, if the log does not keep it."""
        if not isinstance(frame, MessageFrame) or not isinstance(frame.content, Content):
            return frame
        found = self._contents.find(frame.key)
        if found is None:
            return MessageFrame(frame.key, None, frame.table, frame.floor)
        hits = self._find_hits(link, frame.key)
        if hits is not None:
            found = found._replace(hits=hits)
        if frame.content is Content.WHOLE:
            content = self._encode_content(link, frame.key, found)
        else:
            content = self._cut_content(link, frame.key, found)
        traffic = self.traffic(link)
        traffic["cut messages out"] += content.projection is not found.projection
        traffic["cut bytes out"] += len(found.body) - len(content.body)
        traffic["text out"] += len(content.body)
        traffic["bodies out"] += _encoded_size(content)
        traffic["skeletons out"] += content.skeleton is not None
        traffic["hits out"] += content.hits is not None
        is_partial = content.projection is not None
        return MessageFrame(frame.key, content, frame.table, frame.floor, is_partial)

    def _cut_content(self, link: str, key: MessageKey, found: MessageContent) -> MessageContent:
        """Return a message as it goes over a link, without what nobody beyond reads, if that pays."""
        before, projection = found.projection, self._projection
        plan = None
        if projection is not None:
            plan = projection.choose_plan(link, found.tenant, found.stream, before.plan if before else None)
        if projection is None or plan is None:
            return self._encode_content(link, key, found)
        cached = self._cut.get((key, plan.identity))
        if cached is None:
            body = projection.cut(link, found.tenant, found.stream, found.body, plan)
            if len(body) == len(found.body):
                return self._encode_content(link, key, found)
            original = digest(found.body) if before is None else before.original
            cached = found._replace(body=body, encoded=None, projection=Projection(plan, original))
        content = self._codec.encode(link, cached._replace(hits=found.hits))
        self._cut.add((key, plan.identity), content._replace(hits=None))
        return content

    def _encode(self, link: str, epoch: Epoch, first: int, frames: Sequence[Frame]) -> PayloadOut:
        payload = encode_payload(epoch, first, frames, partial(self._codec.shares_plan, link))
        traffic = self.traffic(link)
        traffic["frames out"] += len(frames)
        traffic["bytes out"] += len(payload)
        traffic["messages out"] += sum(isinstance(frame, MessageFrame) for frame in frames)
        return PayloadOut(link, epoch, first + len(frames) - 1, payload)

    # -- what comes in ---------------------------------------------------------------------------------

    def receive(self, item: PayloadArrived) -> Payload:
        """Return the frames of a payload; WireError if it cannot be read, and then it is not needed, and
        UnknownDictionary if it cannot be read yet."""
        try:
            with pause_garbage_collection():  # a table is many objects, none of them in a cycle
                payload = decode_payload(item.payload, self._codec.dictionaries, self._codec.plans)
        except UnknownDictionary:
            raise
        except WireError:
            self.refuse(item)
            raise
        last = payload.first + len(payload.frames) - 1
        self._arrived.setdefault(item.link, deque()).append(_ArrivedPayload(item.tag, payload.epoch, last))
        traffic = self.traffic(item.link)
        traffic["frames in"] += len(payload.frames)
        traffic["messages in"] += sum(isinstance(frame, MessageFrame) for frame in payload.frames)
        traffic["bytes in"] += len(item.payload)
        return payload

    def refuse(self, item: PayloadArrived) -> None:
        """Note that a payload was not read: its frames come again."""
        self._arrived.setdefault(item.link, deque()).append(
            _ArrivedPayload(item.tag, Epoch(0, 0), 0, is_done=True)
        )

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


def _encoded_size(content: MessageContent) -> int:
    return len(content.body) if content.encoded is None else len(content.encoded.data)
