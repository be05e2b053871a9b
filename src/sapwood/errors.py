"""The errors that Sapwood raises on purpose.

SapwoodError
├── ArgumentError    an argument that is out of range, unknown, or contradicts another
├── QueryError       a query that is not valid, or uses an undeclared prefix
├── MessageError     a message that is not well-formed, or exceeds a limit
│   └── LateMessage      a message behind the watermark of joins
├── FileError        a file that cannot be read, or has unexpected content
│   └── LineError        an invalid line of such a file
├── RecordError      a file whose records cannot be separated
├── PackError        bytes that are not a packed matcher, or of another version
├── RouteError       bytes that are not a route, or of another version
├── WireError        bytes that no broker of a mesh sends, or of another version
│   └── UnknownDictionary  a payload of a link that cannot be read without a dictionary that is not here
├── BodyError        bytes that are not the body of a message in a format of links
├── SkeletonError    bytes that are not the skeleton of a message
├── DictionaryError  bytes that are not a dictionary of links
├── TopologyError    a change after which the brokers of a mesh are no tree
├── TopologyFormatError  a text that describes no tree of brokers
├── MeshUnavailable  a NATS server, or the directory of a mesh, that cannot be reached
├── RevisionConflict an entry of that directory that has changed meanwhile
├── NatsServerError  a NATS server for trials that does not start
├── ConfigError      a file of settings that cannot be used
├── SourceError      a source of which Spark would read nothing
├── CheckpointError  a checkpoint that is damaged, or of another version
├── ClientError      a request that a broker service refuses, or that does not reach it
│   ├── InvalidRequest     an argument that the broker refuses
│   ├── TooLarge           a request or a message beyond a limit
│   ├── Unauthorized       no key, or one that is not known
│   ├── Forbidden          what the key or a quota does not allow
│   ├── NotFound           what does not exist
│   ├── Conflict           an id that is taken, or what is in use
│   │   └── PreconditionFailed a subscription that has changed meanwhile
│   ├── Overloaded         a broker that accepts no more at present
│   ├── Unavailable        a broker that cannot be reached, or cannot answer
│   └── ProtocolError      an answer that is none of a broker
├── StoreError       a store or a log, or an operation that it refuses
│   ├── DatabaseError    a database that cannot be reached, read or written
│   └── ExistingIdError  a subscription to add whose id is taken
├── TablesError      a file of tables that cannot be opened, or an operation that it refuses
├── DtdError         a DTD that cannot be found, read or used
├── QueriesExhausted a generator that finds no new query
├── UnsupportedLanguage  a query that is not a filter, where only filters can be stored
├── KernelError      a compiled kernel that is demanded, and missing or unusable
├── MissingConnector a connector of Kafka or Delta that Spark lacks
├── PackageError     packages of Spark that cannot be fetched
├── KafkaError       a topic or a record that Kafka does not have, or refuses
├── DeltaError       a session that cannot use Delta, or a table that does not fit
├── FileSystemError  a file system that Spark does not know
├── BenchError       a benchmark that cannot run
├── JarError         jars that cannot be fetched
├── KafkaServerError a Kafka server for trials that does not start
└── JavaError        no Java that Spark can run on

Those of `sapwood.serve` are further ones, which its clients see as problems. Everything else that is raised
is a bug, and shows as one.
"""

from __future__ import annotations

from typing import Any


class SapwoodError(Exception):
    """Base class of all errors that Sapwood raises on purpose."""


class ArgumentError(SapwoodError, ValueError):
    """Raised for an argument that is out of range, unknown, or contradicts another."""


class QueryError(SapwoodError, ValueError):
    """Raised for a query that cannot be compiled: what is wrong, where, and what to write instead."""

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
        return _add_hint(f"{self.reason}\n  {shown}\n  {' ' * column}^", self.hint)

    def __reduce__(self) -> tuple[type[QueryError], tuple[str, str, int, str | None]]:
        return type(self), (self.reason, self.query, self.position, self.hint)


class MessageError(SapwoodError, ValueError):
    """Raised for a refused message; line and column count from 1, and are None if no position is known."""

    def __init__(self, reason: str, line: int | None = None, column: int | None = None) -> None:
        self.reason = reason
        self.line = line
        self.column = column
        place = f"line {line}, column {column}: " if line is not None else ""
        super().__init__(place + reason)

    def __reduce__(self) -> tuple[type[MessageError], tuple[str, int | None, int | None]]:
        return type(self), (self.reason, self.line, self.column)


class LateMessage(MessageError):
    """Raised for a message behind the watermark: joins did not receive it, other subscriptions did.

    `deliveries` are those of the other subscriptions, and `failures` theirs.
    """

    def __init__(self, reason: str, deliveries: list[Any] | None = None) -> None:
        self.deliveries = deliveries if deliveries is not None else []
        self.failures: list[Any] = getattr(deliveries, "failures", [])
        super().__init__(reason)

    def __reduce__(self) -> tuple[type[LateMessage], tuple[Any, ...]]:
        return type(self), (self.reason, self.deliveries)


class RouteError(SapwoodError, ValueError):
    """Raised for bytes that are no encoded condition or route: what is wrong with them."""


class KernelError(SapwoodError):
    """Raised if the compiled kernel is demanded and cannot be used; says why and what to do."""


class StoreError(SapwoodError):
    """Raised for an operation that a store cannot do; the text is one line without passwords."""


class DatabaseError(StoreError):
    """Raised if a database cannot be reached, read or written at present; the text has no passwords."""


class ExistingIdError(StoreError):
    """Raised for a subscription to add whose id is taken."""

    def __init__(self, id: str) -> None:
        super().__init__(f"there is a subscription {id!r} already")
        self.id = id

    def __reduce__(self) -> tuple[type[ExistingIdError], tuple[str]]:
        return type(self), (self.id,)


class TablesError(SapwoodError):
    """Raised for an operation that the tables of the relational engine cannot do; says why and what to do."""


def _add_hint(text: str, hint: str | None) -> str:
    return f"{text}\n  hint: {hint}" if hint else text


def _window(line: str, column: int, width: int = 100) -> tuple[str, int]:
    """Return the part of a long line around the column, and the column within it."""
    line = line.replace("\t", " ")
    if len(line) <= width:
        return line, column
    start = max(0, min(column - width // 2, len(line) - width))
    end = start + width
    shown = ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")
    return shown, column - start + (1 if start else 0)


class RecordError(SapwoodError, ValueError):
    """Raised for a file whose records cannot be separated: why, at which byte if known, and what to do."""

    def __init__(self, reason: str, offset: int | None = None, hint: str | None = None) -> None:
        super().__init__(_add_hint(reason if offset is None else f"byte {offset:,}: {reason}", hint))
        self.reason = reason
        self.offset = offset
        self.hint = hint

    def __reduce__(self) -> tuple[type[RecordError], tuple[str, int | None, str | None]]:
        return type(self), (self.reason, self.offset, self.hint)
