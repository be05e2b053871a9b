"""The contents of messages: those that were stored last, which are sent next, and all others in the log."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from sapwood.mesh.core.frames import MessageKey
from sapwood.mesh.wire.message_content import MessageContent

if TYPE_CHECKING:
    from sapwood.serve.mesh.node.mesh_store import MeshStore

_CACHE_BYTES = 64 * 2**20
_BESIDES = 400
"""bytes of an entry beside its body"""


K = TypeVar("K", bound=Hashable)


class ContentCache(Generic[K]):
    """Contents by key, up to some bytes; the oldest go first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._contents: OrderedDict[K, MessageContent] = OrderedDict()

    def add(self, key: K, content: MessageContent) -> None:
        """Add a content."""
        if key in self._contents:
            return
        self._contents[key] = content
        self._bytes += _size(content)
        while self._bytes > self._most and len(self._contents) > 1:
            _, gone = self._contents.popitem(last=False)
            self._bytes -= _size(gone)

    def replace(self, key: K, content: MessageContent) -> None:
        """Keep another form of a content that is here."""
        old = self._contents.get(key)
        if old is not None:
            self._contents[key] = content
            self._bytes += _size(content) - _size(old)

    def get(self, key: K) -> MessageContent | None:
        """Return a content, if it is here."""
        return self._contents.get(key)


class StoredContents:
    """The contents of all messages in the log, the last ones from memory."""

    def __init__(self, store: MeshStore, counters: Counter[str]) -> None:
        self._store = store
        self._counters = counters
        self._cache: ContentCache[MessageKey] = ContentCache(_CACHE_BYTES)

    def add(self, key: MessageKey, content: MessageContent) -> None:
        """Keep a content in memory, for a while."""
        self._cache.add(key, content)

    def replace(self, key: MessageKey, content: MessageContent) -> None:
        """Keep another form of a content, while it is in memory."""
        self._cache.replace(key, content)

    def find(self, key: MessageKey) -> MessageContent | None:
        """Return a content; None if the log does not keep it any more."""
        found = self._cache.get(key)
        if found is None:
            self._counters["contents read"] += 1
            found = self._store.read_contents([key]).get(key)
            if found is not None:
                self._cache.add(key, found)
        return found


def _size(content: MessageContent) -> int:
    encoded = 0 if content.encoded is None else len(content.encoded.data)
    skeleton = 0 if content.skeleton is None else len(content.skeleton.data)
    return len(content.body) + encoded + skeleton + _BESIDES
