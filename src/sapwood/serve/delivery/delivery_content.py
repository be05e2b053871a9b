"""What deliveries carry, and the bounded cache of what was published last."""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class DeliveryContent:
    """A message, or what a query made of one; equal for all who get it."""

    message: str
    """the id of the message"""
    stream: str
    time: float | None
    """the event time, if it has one"""
    published: float
    body: bytes
    _json: str = field(default="", repr=False)

    def as_fields(self) -> dict[str, Any]:
        """Return the content as fields of JSON; a body that is no UTF-8 is in base64."""
        fields: dict[str, Any] = {
            "message": self.message,
            "stream": self.stream,
            "time": self.time,
            "published": self.published,
        }
        try:
            fields["body"] = str(self.body, "utf-8")
        except UnicodeDecodeError:
            fields["body_base64"] = base64.b64encode(self.body).decode("ascii")
        return fields

    def as_json(self) -> str:
        """Return the fields without braces; made once, since many subscribers get the same content."""
        if not self._json:
            self._json = json.dumps(self.as_fields(), ensure_ascii=False, separators=(",", ":"))[1:-1]
        return self._json


@dataclass(slots=True)
class Delivery:
    """Content for a subscriber, with the subscriptions that ask for it."""

    inbox: int
    number: int
    """that of the last entry in it: what to acknowledge"""
    seq: int
    subscriptions: list[str]
    content: DeliveryContent

    @property
    def id(self) -> str:
        """The stable id of the delivery."""
        return f"{self.inbox}-{self.number}"

    def as_fields(self) -> dict[str, Any]:
        """Return the delivery as fields of JSON."""
        head = {"id": self.id, "number": self.number, "subscriptions": self.subscriptions}
        return head | self.content.as_fields()

    def as_json(self) -> str:
        """Return the delivery as JSON."""
        names = json.dumps(self.subscriptions, ensure_ascii=False, separators=(",", ":"))
        number = self.number
        return (
            f'{{"id":"{self.inbox}-{number}","number":{number},"subscriptions":{names},'
            f"{self.content.as_json()}}}"
        )


ContentKey = tuple[int, int]
"""the sequence number of a message, and the number of an output, or -1 for the message itself"""


class ContentCache:
    """The contents that were published last, up to some bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._contents: OrderedDict[ContentKey, DeliveryContent] = OrderedDict()
        self._bytes = 0

    def get(self, key: ContentKey) -> DeliveryContent | None:
        """Return a content that is still there."""
        return self._contents.get(key)

    def add(self, key: ContentKey, content: DeliveryContent) -> None:
        """Add a content, in whose place the oldest may have to go."""
        if key in self._contents:
            return
        self._contents[key] = content
        self._bytes += _cost(content)
        while self._bytes > self._most_bytes and len(self._contents) > 1:
            _, oldest = self._contents.popitem(last=False)
            self._bytes -= _cost(oldest)


def _cost(content: DeliveryContent) -> int:
    return 2 * len(content.body) + 2_000  # the body is there as JSON, too, beside objects and texts
