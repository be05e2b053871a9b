"""The contents of messages that were stored last, which are sent next."""

from __future__ import annotations

from collections import OrderedDict

from sapwood.mesh.core.frames import MessageKey
from sapwood.mesh.wire.message_content import MessageContent

_BESIDES = 400
"""bytes of an entry beside its body"""


class ContentCache:
    """Contents by the identity of their message, up to some bytes; the oldest go first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._contents: OrderedDict[MessageKey, MessageContent] = OrderedDict()

    def add(self, key: MessageKey, content: MessageContent) -> None:
        """Add a content."""
        if key in self._contents:
            return
        self._contents[key] = content
        self._bytes += len(content.body) + _BESIDES
        while self._bytes > self._most and len(self._contents) > 1:
            _, gone = self._contents.popitem(last=False)
            self._bytes -= len(gone.body) + _BESIDES

    def get(self, key: MessageKey) -> MessageContent | None:
        """Return a content, if it is here."""
        return self._contents.get(key)
