"""Queries and messages as people keep them in files: lines, JSON lines, folders, compressed or not."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

STDIN = "-"


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query, the id it is to have, and the line it stands on."""

    id: Hashable
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class NamedMessage:
    """A message and where it was found: a path, with `:line` if the file holds one message a line."""

    name: str
    body: bytes


class FileError(ValueError):
    """A file that does not hold what it should; says which, where and what was expected."""


def read_queries(path: str) -> Iterator[NamedQuery]:
    """Queries, one a line with the line's number as id, or as JSON lines `{"id": …, "query": …}`.

    Empty lines and lines that start with `#` are passed over.
    """
    with _opened(path) as file:
        for number, raw in enumerate(file, 1):
            line = _text(raw, path, number).strip()
            if not line or line.startswith("#"):
                continue
            yield _from_json(line, path, number) if line.startswith("{") else NamedQuery(number, line, number)


def _from_json(line: str, path: str, number: int) -> NamedQuery:
    try:
        record = json.loads(line)
        id, query = record["id"], record["query"]
    except (ValueError, KeyError, TypeError):
        raise FileError(f'{path}:{number}: expected {{"id": …, "query": "…"}}, found {line[:60]}') from None
    if not isinstance(query, str) or not isinstance(id, str | int):
        raise FileError(f"{path}:{number}: 'query' must be a string and 'id' a string or a whole number")
    return NamedQuery(id, query, number)


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


def _opened(path: str) -> BinaryIO:
    if path == STDIN:
        return sys.stdin.buffer
    try:
        if path.endswith(".gz"):
            return gzip.open(path, "rb")  # type: ignore[return-value]  # it reads like any binary file
        return Path(path).open("rb")
    except FileNotFoundError:
        raise FileError(f"there is no file or folder {path!r}") from None
    except OSError as error:
        raise FileError(f"{path!r} cannot be read: {error.strerror}") from None


def _text(raw: bytes, path: str, number: int) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise FileError(f"{path}:{number}: the line is not UTF-8") from None
