"""An incremental parser of server-sent events (the WHATWG event stream format), without I/O.

Bytes come in chunks of any size; a chunk may end within a character, or between a carriage return and its
line feed. Lines are kept as bytes until they are whole, because UTF-8 has no line ends within a character.

    line        ends in LF, CR or CR LF
    event       lines up to an empty one; without a `data` line, it is none
    `:` text    a comment, which brokers send as heartbeats

Unlike a browser, the parser refuses an event that is larger than a limit: a connection to the wrong service
could send one line without an end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sapwood.client.client_errors import ProtocolError

_LINE_END = re.compile(rb"\r\n|\n|\r")
_MARK = b"\xef\xbb\xbf"
MOST_BYTES = 256 << 20
"""the largest event by default: more than JSON makes of the largest message that a broker accepts"""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """An event: its type, its data, and the last event id that was set before its end."""

    type: str
    data: str
    id: str


class EventStreamParser:
    """Splits the bytes of one connection into events."""

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        self._max_bytes = max_bytes
        self._begun = False
        self._after_return = False
        """whether a line feed that comes next belongs to the line that has ended"""
        self._partial: list[bytes] = []
        """the chunks of a line that has not ended"""
        self._partial_size = 0
        self._size = 0
        """the bytes of the whole lines of the event so far"""
        self._data: list[str] = []
        self._type = ""
        self.last_id = ""
        self.retry: float | None = None
        """the seconds before a reconnection that the server asks for"""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that end in this chunk."""
        if not self._begun:
            chunk = self._end_partial(chunk)
            if len(chunk) < len(_MARK) and _MARK.startswith(chunk):
                self._begin_partial(chunk)
                return []
            self._begun = True
            chunk = chunk.removeprefix(_MARK)
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")
        events = []
        start = 0
        for end in _LINE_END.finditer(chunk):
            event = self._take_line(self._end_partial(chunk[start : end.start()]))
            if event is not None:
                events.append(event)
            start = end.end()
        if chunk.endswith(b"\r"):
            self._after_return = True
        self._begin_partial(chunk[start:])
        return events

    def _begin_partial(self, part: bytes) -> None:
        if part:
            self._partial.append(part)
            self._partial_size += len(part)
            self._check_size()

    def _end_partial(self, part: bytes) -> bytes:
        if not self._partial:
            return part
        line = b"".join([*self._partial, part])
        self._partial, self._partial_size = [], 0
        return line

    def _check_size(self) -> None:
        if self._size + self._partial_size > self._max_bytes:
            raise ProtocolError(f"an event is larger than {self._max_bytes:,} bytes")

    def _take_line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._end_event()
        if line.startswith(b":"):
            return None
        self._size += len(line) + 1
        self._check_size()
        name, _, value = line.decode("utf-8", "replace").partition(":")
        self._set_field(name, value.removeprefix(" "))
        return None

    def _set_field(self, name: str, value: str) -> None:
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id":
            if "\0" not in value:
                self.last_id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value) / 1000

    def _end_event(self) -> ServerEvent | None:
        event = None
        if self._data:
            event = ServerEvent(self._type or "message", "\n".join(self._data), self.last_id)
        self._data, self._type, self._size = [], "", 0
        return event
