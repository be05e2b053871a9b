"""Queries and messages as people keep them in files: lines, JSON lines, folders, compressed or not."""

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


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query, the id it is to have, the line it stands on, and what else a JSON line may say of it."""

    id: Hashable
    text: str
    line: int
    subscriber: str | None = None
    language: str | None = None
    active: bool | None = None
    place: str = ""
    """where it stands, for people: a file and perhaps a line of it"""


@dataclass(frozen=True, slots=True)
class NamedMessage:
    """A message and where it was found: a path, with `:line` if the file holds one message a line."""

    name: str
    body: bytes


class FileError(SapwoodError, ValueError):
    """A file that does not hold what it should; says which, where and what was expected."""


class LineError(FileError):
    """A line that is not what it should be; its `line` and `reason` for those who tell it their own way."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        super().__init__(f"{path}:{line}: {reason}")

    def __reduce__(self) -> tuple[type[LineError], tuple[str, int, str]]:
        return type(self), (self.path, self.line, self.reason)


def read_queries(path: str, on_error: Callable[[LineError], None] | None = None) -> Iterator[NamedQuery]:
    """Queries, one a line with the line's number as id, or as JSON lines `{"id": …, "query": …}`.

    JSON lines may also tell `subscriber`, `language` and `active`. Empty lines and lines that start with `#`
    are passed over. Of a folder, every `*.xpath`, `*.xq` and `*.xscl` is one query, whose id is the file's
    name without the ending, with the folders below the one given. A line or file that cannot be read is told
    to `on_error`, and the rest follow; without it, the error is raised.
    """
    if path != STDIN and Path(path).is_dir():
        yield from _query_files(Path(path), on_error)
        return
    with _opened(path) as file:
        for number, raw in enumerate(file, 1):
            try:
                query = _query(raw, path, number)
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
    """The query in a file, without the lines before it that are empty or start with `#`."""
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
    return NamedQuery(id, query, number, subscriber, language, active, f"{path}:{number}")


def read_messages(sources: Iterable[str]) -> Iterator[NamedMessage]:
    """Messages from files, folders (all `*.xml` and `*.xmll` in them), `*.xmll` (one a line), or `-`.

    `-` is the standard input, one message a line. Names may end in `.gz`.
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
