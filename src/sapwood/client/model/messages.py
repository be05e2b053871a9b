"""Messages to publish, the receipts of those that a broker accepted, and the refusals of others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from sapwood.client.transport.retry_policy import is_retriable
from sapwood.errors import ArgumentError, SapwoodError

Time = float | str | datetime
"""when a message happened: seconds since the epoch, ISO 8601, or a datetime with a time zone"""
Wait = Literal["durable", "delivered"]
"""what a publication waits for: that the message survives a crash, or that subscribers acknowledge it, too"""

_LONGEST_ID = 500


def make_id() -> str:
    """Return an id that no other message has."""
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish; without an id, it is given one, with which a repetition is recognised."""

    body: bytes | str
    id: str = field(default_factory=make_id)
    time: Time | None = None


@dataclass(frozen=True, slots=True)
class PublishReceipt:
    """A message that the broker has accepted, and keeps."""

    id: str
    stream: str
    seq: int
    """its place in the order of all messages"""
    version: int
    """the version of the subscriptions that it was evaluated with"""
    deliveries: int
    duplicate: bool = False
    """whether the broker had the message already, so that this publication has changed nothing"""
    failures: int = 0
    """subscriptions that could not be evaluated on it"""
    late: str | None = None
    """the reason why joins did not receive it; None if they did"""
    delivered: bool | None = None
    """whether all its deliveries were acknowledged in time; None unless the publication waited for them"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that the broker has not accepted, and the reason."""

    id: str
    error: SapwoodError


PublishResult = PublishReceipt | Refusal


def encode_body(body: bytes | str) -> bytes:
    """Return the bytes of a message; a text is sent as UTF-8."""
    return body.encode() if isinstance(body, str) else body


def check_id(id: str) -> str:
    """Return the id of a message, which is sent in a header: printable ASCII without spaces at its ends."""
    if not id or len(id) > _LONGEST_ID or not id.isascii() or not id.isprintable() or id != id.strip():
        raise ArgumentError(
            f"the message id {id[:60]!r} must be 1 to {_LONGEST_ID} printable ASCII characters, "
            "without spaces at its ends"
        )
    return id


def format_time(time: Time) -> str:
    """Return the time of a message as a broker reads it."""
    if isinstance(time, str):
        if not time.isascii() or not time.isprintable() or not time.strip():
            raise ArgumentError(f"the time {time!r} must be ISO 8601, or seconds since the epoch")
        return time.strip()
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ArgumentError(
                f"the time {time.isoformat()} has no time zone: add one, such as tzinfo=datetime.UTC"
            )
        return time.isoformat()
    if not math.isfinite(time):
        raise ArgumentError(f"the time {time!r} must be a number of seconds since the epoch")
    return repr(time)


def to_seconds(time: Time) -> float:
    """Return the time of a message as seconds since the epoch."""
    text = format_time(time)
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentError(f"the time {text!r} must be ISO 8601, or seconds since the epoch") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def as_message(item: Message | bytes | str) -> Message:
    """Return a message whose id has been checked, for a message or a body."""
    message = item if isinstance(item, Message) else Message(item)
    check_id(message.id)
    return message


class MessageBatcher:
    """Collects messages into batches of limited count and bytes, so that memory is bounded."""

    def __init__(self, count: int, max_bytes: int) -> None:
        if count < 1 or max_bytes < 1:
            raise ArgumentError("a batch must have at least one message and one byte")
        self._count = count
        self._max_bytes = max_bytes
        self._messages: list[Message] = []
        self._bytes = 0

    def add(self, item: Message | bytes | str) -> Iterator[list[Message]]:
        """Add a message; yield the batch before it if that is complete now, and its own if it is."""
        message = as_message(item)
        size = len(message.body)
        if self._messages and self._bytes + size > self._max_bytes:
            yield self.take()
        self._messages.append(message)
        self._bytes += size
        if len(self._messages) >= self._count or self._bytes >= self._max_bytes:
            yield self.take()

    def take(self) -> list[Message]:
        """Return the messages that are in no batch yet, and begin a new one."""
        taken, self._messages, self._bytes = self._messages, [], 0
        return taken


class PendingBatch:
    """A batch of which a broker may accept a part now, and ask for the rest to be sent later."""

    def __init__(self, messages: list[Message]) -> None:
        self._results: dict[int, PublishResult] = {}
        self._places = list(range(len(messages)))
        """where the waiting messages are in the batch"""
        self.waiting = messages
        """the messages to send next"""
        self.error: SapwoodError | None = None
        """why some of them have to be sent again; None if none has to be"""

    def add(self, results: list[PublishResult]) -> None:
        """Take the results of the messages that were waiting."""
        again: list[int] = []
        self.error = None
        for at, result in enumerate(results):
            self._results[self._places[at]] = result
            if isinstance(result, Refusal) and is_retriable(result.error):
                again.append(at)
                self.error = result.error
        self.waiting = [self.waiting[at] for at in again]
        self._places = [self._places[at] for at in again]

    def results(self) -> list[PublishResult]:
        """Return the newest result of each message, in order."""
        return [self._results[at] for at in range(len(self._results))]


def encode_multipart(messages: list[Message]) -> tuple[str, bytes]:
    """Return the content type and the body of a request with many messages, each with its id and time."""
    boundary = f"sapwood-{uuid4().hex}".encode()
    parts: list[bytes] = []
    for message in messages:
        quoted = message.id.replace("\\", "\\\\").replace('"', '\\"')
        head = [
            f'Content-Disposition: form-data; name="message"; filename="{quoted}"',
            "Content-Type: application/xml",
            f"Sapwood-Message-Id: {message.id}",
        ]
        if message.time is not None:
            head.append(f"Sapwood-Time: {format_time(message.time)}")
        parts += [b"--", boundary, b"\r\n", "\r\n".join(head).encode(), b"\r\n\r\n"]
        parts += [encode_body(message.body), b"\r\n"]
    parts += [b"--", boundary, b"--\r\n"]
    return f"multipart/form-data; boundary={boundary.decode()}", b"".join(parts)


def receipt_from_json(data: dict[str, Any]) -> PublishReceipt:
    """Return the receipt of a message from the broker's answer."""
    return PublishReceipt(
        id=data["id"],
        stream=data["stream"],
        seq=data["seq"],
        version=data["version"],
        deliveries=data["deliveries"],
        duplicate=data.get("duplicate", False),
        failures=data.get("failures", 0),
        late=data.get("late"),
        delivered=data.get("delivered"),
    )
