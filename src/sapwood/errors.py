"""What can go wrong, and what the user is told.

SapwoodError
├── QueryError      a subscription that is not valid XPath 1.0, or uses a name nobody declared
├── MessageError    a message that is not well-formed, or exceeds a limit
│   └── LateMessage     one that comes later than joins are ready to wait
├── PackError       bytes that are no packed matcher, or another version's
├── RecordError     a file whose records cannot be told apart
├── ConfigError     a pipeline that cannot run as configured
├── SourceError     a source of which Spark would read nothing
├── CheckpointError a file of a checkpoint that is damaged
├── StoreError      a store that cannot be reached, or cannot do what it is asked to
├── TablesError     a file of tables that cannot be opened, or cannot do what it is asked to
└── JavaError       there is no Java for Spark to run on
"""

from __future__ import annotations

from typing import Any


class SapwoodError(Exception):
    """Base of every error that Sapwood raises on purpose."""


class QueryError(SapwoodError, ValueError):
    """A query that cannot be compiled: says what is wrong, where, and what to write instead if known."""

    def __init__(self, reason: str, query: str, position: int, hint: str | None = None) -> None:
        self.reason = reason
        self.query = query
        self.position = min(max(position, 0), len(query))
        self.hint = hint
        super().__init__(self._render())

    def _render(self) -> str:
        before = self.query[: self.position]
        line_start = before.rfind("\n") + 1
        line_end = self.query.find("\n", self.position)
        line = self.query[line_start : line_end if line_end >= 0 else len(self.query)]
        column = self.position - line_start
        shown, column = _window(line, column)
        text = f"{self.reason}\n  {shown}\n  {' ' * column}^"
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[type[QueryError], tuple[str, str, int, str | None]]:
        return type(self), (self.reason, self.query, self.position, self.hint)


class MessageError(SapwoodError, ValueError):
    """A message that was refused; line and column count from 1 and are None where no place is at fault."""

    def __init__(self, reason: str, line: int | None = None, column: int | None = None) -> None:
        self.reason = reason
        self.line = line
        self.column = column
        place = f"line {line}, column {column}: " if line is not None else ""
        super().__init__(place + reason)

    def __reduce__(self) -> tuple[type[MessageError], tuple[str, int | None, int | None]]:
        return type(self), (self.reason, self.line, self.column)


class LateMessage(MessageError):
    """A message that is older than the lateness allows: joins did not take it, all others did.

    `deliveries` is what they got, with the `failures` of those that should have got something.
    """

    def __init__(self, reason: str, deliveries: list[Any] | None = None) -> None:
        self.deliveries = deliveries if deliveries is not None else []
        self.failures: list[Any] = getattr(deliveries, "failures", [])
        super().__init__(reason)

    def __reduce__(self) -> tuple[type[LateMessage], tuple[Any, ...]]:
        return type(self), (self.reason, self.deliveries)


class StoreError(SapwoodError):
    """What a store of subscriptions cannot do: says why in one line, which never holds a password."""


class TablesError(SapwoodError):
    """What the relational engine's tables cannot do: says why, and what to do, in one line."""


def _window(line: str, column: int, width: int = 100) -> tuple[str, int]:
    """The part of a long line around the column, and the column within it."""
    line = line.replace("\t", " ")
    if len(line) <= width:
        return line, column
    start = max(0, min(column - width // 2, len(line) - width))
    end = start + width
    shown = ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")
    return shown, column - start + (1 if start else 0)


class RecordError(SapwoodError, ValueError):
    """A file whose records cannot be told apart: says why, at which byte (None: nowhere), and what to do."""

    def __init__(self, reason: str, offset: int | None = None, hint: str | None = None) -> None:
        self.reason = reason
        self.offset = offset
        self.hint = hint
        place = f"byte {offset:,}: " if offset is not None else ""
        super().__init__(f"{place}{reason}\n  hint: {hint}" if hint else place + reason)

    def __reduce__(self) -> tuple[type[RecordError], tuple[str, int | None, str | None]]:
        return type(self), (self.reason, self.offset, self.hint)
