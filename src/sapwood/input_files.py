"""Queries and messages in files: lines, JSON lines, folders, optionally compressed."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sapwood.errors import SapwoodError

STDIN = "-"
QUERY_FILES = {".xpath": "xpath", ".xq": "for-where-return", ".xscl": "xscl"}
"""how the names of files end that hold one query, and its language"""
_NO_STREAMS = (
    "'streams' are for the service, which reads subscriptions from a store: add this one by "
    "'sapwood subscriptions import', or remove 'streams'"
)


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query with its id, its line, and the optional fields of a JSON line."""

    id: Hashable
    text: str
    line: int
    subscriber: str | None = None
    language: str | None = None
    active: bool | None = None
    place: str = ""
    """where it stands, for people: a file and perhaps a line of it"""
    streams: tuple[str, ...] | None = None
    """the streams that it is restricted to; empty for all"""


@dataclass(frozen=True, slots=True)
class NamedMessage:
    """A message and its origin: a path, with `:line` if the file holds one message per line."""

    name: str
    body: bytes


class FileError(SapwoodError, ValueError):
    """Raised for a file that cannot be read or has unexpected content; says which, where and what was
    expected.
    """


class LineError(FileError):
    """Raised for an invalid line; `line` and `reason` serve callers that format the error themselves."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        super().__init__(f"{path}:{line}: {reason}")

    def __reduce__(self) -> tuple[type[LineError], tuple[str, int, str]]:
        return type(self), (self.path, self.line, self.reason)


def read_queries(
    path: str, on_error: Callable[[LineError], None] | None = None, allow_streams: bool = False
) -> Iterator[NamedQuery]:
    """Iterate over the queries of a file or folder.

    A file has one query per line, whose id is the line's number, or JSON lines `{"id": …, "query": …}` with
    optional `subscriber`, `language`, `active` and `streams`. Empty lines and lines that start with `#` are
    skipped. In a folder, every `*.xpath`, `*.xq` and `*.xscl` is one query, whose id is the file's path in
    the folder without the suffix. Invalid lines and files are passed to `on_error`; without it, the error is
    raised. A restriction to streams is invalid without `allow_streams`: most readers would ignore it.
    """
    if path != STDIN and Path(path).is_dir():
        yield from _query_files(Path(path), on_error)
        return
    with _opened(path) as file:
        for number, raw in enumerate(file, 1):
            try:
                query = _query(raw, path, number)
                if query is not None and query.streams and not allow_streams:
                    raise LineError(path, number, _NO_STREAMS)
            except LineError as error:
                if on_error is None:
                    raise
                on_error(error)
            else:
                if query is not None:
                    yield query


def _query(raw: bytes, path: str, number: int) -> NamedQuery | None:
    line = _text(raw, path, number).strip()
    if not line or line.startswith("#"):
        return None
    if line.startswith("{"):
        return _from_json(line, path, number)
    return NamedQuery(number, line, number, place=f"{path}:{number}")


def _query_files(folder: Path, on_error: Callable[[LineError], None] | None) -> Iterator[NamedQuery]:
    found = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix in QUERY_FILES]
    if not found:
        endings = ", ".join(f"*{ending}" for ending in QUERY_FILES)
        raise FileError(f"there are no queries in the folder {str(folder)!r}: no {endings}")
    for number, path in enumerate(found, 1):
        try:
            text = _query_text(path)
        except LineError as error:
            if on_error is None:
                raise
            on_error(error)
        else:
            id = path.relative_to(folder).with_suffix("").as_posix()
            yield NamedQuery(id, text, number, language=QUERY_FILES[path.suffix], place=str(path))


def _query_text(path: Path) -> str:
    """Return the query in a file, without leading lines that are empty or start with `#`."""
    with _opened(str(path)) as file:
        raw = file.read()
    lines = _text(raw, str(path), 1).strip().splitlines()
    while lines and (not lines[0].strip() or lines[0].startswith("#")):
        lines.pop(0)
    return "\n".join(lines).strip()


def _from_json(line: str, path: str, number: int) -> NamedQuery:
    try:
        record = json.loads(line)
        id, query = record["id"], record["query"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LineError(path, number, f'expected {{"id": …, "query": "…"}}, found {line[:60]}') from None
    if not isinstance(query, str) or not isinstance(id, str | int) or isinstance(id, bool):
        raise LineError(path, number, "'query' must be a string and 'id' a string or a whole number")
    subscriber, language, active = (record.get(key) for key in ("subscriber", "language", "active"))
    if not isinstance(subscriber, str | None) or not isinstance(language, str | None):
        raise LineError(path, number, "'subscriber' and 'language' must be strings")
    if not isinstance(active, bool | None):
        raise LineError(path, number, "'active' must be true or false")
    streams = record.get("streams")
    if streams is not None and not (isinstance(streams, list) and all(isinstance(s, str) for s in streams)):
        raise LineError(path, number, "'streams' must be a list of strings")
    names = None if streams is None else tuple(streams)
    return NamedQuery(id, query, number, subscriber, language, active, f"{path}:{number}", names)


def read_messages(sources: Iterable[str]) -> Iterator[NamedMessage]:
    """Iterate over the messages of files, folders (`*.xml`, `*.xmll`), `*.xmll` (one per line), or `-`.

    `-` is the standard input, one message per line. Names may end in `.gz`.
    """
    for source in sources:
        path = Path(source)
        if source == STDIN:
            yield from _lines(source)
        elif path.is_dir():
            found = (p for p in sorted(path.rglob("*")) if p.is_file() and _kind(p.name))
            yield from read_messages(str(p) for p in found)
        elif _kind(path.name) == "lines":
            yield from _lines(source)
        else:
            with _opened(source) as file:
                yield NamedMessage(source, file.read())


def _kind(name: str) -> str | None:
    bare = name.removesuffix(".gz")
    return "lines" if bare.endswith(".xmll") else "message" if bare.endswith(".xml") else None


def _lines(source: str) -> Iterator[NamedMessage]:
    with _opened(source) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield NamedMessage(f"{source}:{number}", line.rstrip(b"\r\n"))


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    try:
        with sys.stdin.buffer if path == STDIN else _file(path) as file:
            yield file
    except FileNotFoundError:
        raise FileError(f"there is no file or folder {path!r}") from None
    except (OSError, EOFError, zlib.error) as error:  # the last two where a .gz is broken
        raise FileError(f"{path!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _file(path: str) -> BinaryIO:
    if path.endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]  # it reads like any binary file
    return Path(path).open("rb")


def _text(raw: bytes, path: str, number: int) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise LineError(path, number, "the line is not UTF-8") from None
