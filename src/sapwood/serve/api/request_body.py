"""The body of a request, bounded before and after inflation, and the messages in it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import zstandard
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sapwood.serve.api.problems import Problem
from sapwood.serve.service import Service

XMLL = "application/x-xmll"
_MULTIPART = "multipart/"
_IN_THREAD = 256 * 1024
"""bytes whose inflation is left to a thread"""
_GZIP_PIECE, _ZSTD_PIECE = 4_096, 256
"""bytes that are inflated at once, which make at most 4 MB and 11 MB"""
_MOST_MEMBERS = 10_000
"""gzip members or zstd frames of a body, since each costs time, even if it is empty"""
_MOST_HEADERS = 16_384
"""bytes of the headers of a part"""


@dataclass(frozen=True, slots=True)
class BodyMessage:
    """A message of a request."""

    body: bytes
    id: str | None = None
    time: str | None = None


class BodyLimit:
    """Middleware that refuses bodies above a size, also those that the framework reads as a whole."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count the bytes of its body."""
        size = 0

        async def receive_bounded() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._most:
                # an HTTPException, since the framework takes any other for malformed JSON
                raise HTTPException(413, f"the body has more than {self._most:,} bytes")
            return message

        await self._app(scope, receive_bounded if scope["type"] == "http" else receive, send)


async def read_body(request: Request, service: Service) -> bytes:
    """Read and inflate the body of a request; the bytes count as pending until `release` is called for them.

    Raises Problem for one that is too large, or if too much is pending.
    """
    most = service.config.overload.largest_body
    received: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            if size + len(chunk) > most:  # before it is reserved: to try again later would not help
                raise too_large(f"the body has more than {most:,} bytes")
            service.reserve(len(chunk))
            size += len(chunk)
            received.append(chunk)
        body = b"".join(received)
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if coding in ("", "identity"):
            return body
        if coding not in ("gzip", "x-gzip", "zstd"):
            raise Problem(
                415,
                "unsupported-media-type",
                f"the content coding {coding!r} is not known; there are gzip and zstd",
                headers={"Accept-Encoding": "gzip, zstd"},
            )
        inflate = _inflate_zstd if coding == "zstd" else _inflate_gzip
        if len(body) > _IN_THREAD:
            inflated = await asyncio.to_thread(inflate, body, most)
        else:
            inflated = inflate(body, most)
        service.reserve(len(inflated) - size)
        return inflated
    except ClientDisconnect:
        service.release(size)
        raise Problem(400, "bad-request", "the connection ended before the body did") from None
    except BaseException:
        service.release(size)
        raise


def too_large(detail: str) -> Problem:
    """Return the problem of a body that is too large."""
    return Problem(413, "too-large", detail)


class _Inflater(Protocol):
    """Inflates one gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _inflate_gzip(body: bytes, most: int) -> bytes:
    return _inflate(body, most, "gzip", _GZIP_PIECE, lambda: zlib.decompressobj(wbits=31))


def _inflate_zstd(body: bytes, most: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=2**27)
    return _inflate(body, most, "zstd", _ZSTD_PIECE, decompressor.decompressobj)


def _inflate(body: bytes, most: int, coding: str, piece: int, begin: Callable[[], _Inflater]) -> bytes:
    """Inflate all members or frames of a body, piece by piece, so that a bomb is seen before it is large."""
    found = bytearray()
    position = members = 0
    try:
        while position < len(body) and not _is_padding(body, position):
            members += 1
            if members > _MOST_MEMBERS:
                raise Problem(
                    400, "bad-request", f"the {coding} body has more than {_MOST_MEMBERS:,} members"
                )
            member = begin()
            while not member.eof:
                if position >= len(body):
                    raise Problem(400, "bad-request", f"the {coding} body is cut off")
                found += member.decompress(body[position : position + piece])
                position = min(position + piece, len(body))
                _check_inflated(len(found), most)
            position -= len(member.unused_data)
    except (zlib.error, zstandard.ZstdError, MemoryError) as error:
        raise Problem(400, "bad-request", f"the body is not {coding}: {error}") from None
    return bytes(found)


def _is_padding(body: bytes, position: int) -> bool:
    """Return whether nothing but NUL follows, with which some programs fill the last block of gzip."""
    return body[position] == 0 and body.count(b"\0", position) == len(body) - position


def _check_inflated(size: int, most: int) -> None:
    if size > most:
        raise too_large(f"the inflated body has more than {most:,} bytes")


# -- messages ----------------------------------------------------------------------------------------------


def is_many(content_type: str) -> bool:
    """Return whether a body of this type has several messages."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == XMLL or kind.startswith(_MULTIPART)


def split_body(body: bytes, content_type: str, key: str | None, most: int) -> list[BodyMessage]:
    """Return the messages of a body that has several; those without an id get `key` and their number."""
    kind = content_type.partition(";")[0].strip().lower()
    found = list(_bounded(_iter_lines(body) if kind == XMLL else _iter_parts(body, content_type), most))
    if key is None:
        return found
    return [
        message if message.id is not None else BodyMessage(message.body, f"{key}-{number}", message.time)
        for number, message in enumerate(found, 1)
    ]


def _bounded(messages: Iterator[BodyMessage], most: int) -> Iterator[BodyMessage]:
    for number, message in enumerate(messages):
        if number >= most:
            raise too_large(f"a request has at most {most:,} messages; send the rest in another")
        yield message


def _iter_lines(body: bytes) -> Iterator[BodyMessage]:
    for line in body.split(b"\n"):
        stripped = line.strip()
        if stripped:
            yield BodyMessage(stripped)


def _iter_parts(body: bytes, content_type: str) -> Iterator[BodyMessage]:
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise Problem(400, "bad-request", "the multipart type has no boundary")
    collector = _PartCollector()
    try:
        parser = MultipartParser(boundary, collector.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise Problem(400, "bad-request", f"the multipart body is malformed: {error}") from None
    if not collector.is_complete:
        raise Problem(400, "bad-request", "the multipart body is cut off")
    yield from collector.messages


class _PartCollector:
    """Collects the parts of a multipart body."""

    def __init__(self) -> None:
        self.messages: list[BodyMessage] = []
        self.is_complete = False
        self._headers: dict[str, str] = {}
        self._field = bytearray()
        self._value = bytearray()
        self._data = bytearray()
        self._header_bytes = 0

    def callbacks(self) -> dict[str, object]:
        """Return the functions that the parser calls."""
        return {
            "on_part_begin": self._begin,
            "on_part_data": self._add_data,
            "on_part_end": self._end,
            "on_header_field": self._add_field,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_end": self._complete,
        }

    def _begin(self) -> None:
        self._headers.clear()
        self._data.clear()
        self._header_bytes = 0

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]

    def _add_field(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._field += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._value += data[start:end]

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > _MOST_HEADERS:
            raise Problem(400, "bad-request", f"the headers of a part have more than {_MOST_HEADERS:,} bytes")

    def _end_header(self) -> None:
        self._headers[self._field.decode("latin-1").lower()] = self._value.decode("utf-8", "replace")
        self._field.clear()
        self._value.clear()

    def _end(self) -> None:
        id = self._headers.get("sapwood-message-id")
        if id is None:
            _, options = parse_options_header(self._headers.get("content-disposition", ""))
            name = options.get(b"filename")
            id = name.decode("utf-8", "replace") if name else None
        self.messages.append(BodyMessage(bytes(self._data), id, self._headers.get("sapwood-time")))

    def _complete(self) -> None:
        self.is_complete = True
