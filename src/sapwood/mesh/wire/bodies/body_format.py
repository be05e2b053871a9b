"""The formats in which the body of a message may cross a link.

    ONYX's six     the text, a stream of elements, or one with a dictionary of names; also with zlib
    today's        the text with zstd, without or with a dictionary that was trained; elements likewise

Every format gives back the same bytes. What is decoded comes from another site: it is bounded in size, and
what is not in the format is a BodyError.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import zstandard

from sapwood.errors import ArgumentError, SapwoodError
from sapwood.mesh.wire.bodies.element_stream import ElementStreamError, decode_elements, encode_elements
from sapwood.mesh.wire.bodies.wire_dictionary import ZSTD_LEVEL, WireDictionary

MOST_BYTES = 256 * 2**20
"""of a body that is decoded"""
_ZLIB_LEVEL = 6


class BodyFormat(IntEnum):
    """The format of a body, by its number on the wire."""

    TEXT = 0
    TEXT_ZLIB = 1
    ELEMENTS = 2
    ELEMENTS_ZLIB = 3
    NAMED_ELEMENTS = 4
    NAMED_ELEMENTS_ZLIB = 5
    TEXT_ZSTD = 6
    TEXT_ZSTD_TRAINED = 7
    NAMED_ELEMENTS_ZSTD = 8
    NAMED_ELEMENTS_ZSTD_TRAINED = 9

    @property
    def needs_dictionary(self) -> bool:
        """Whether both sides need the same dictionary."""
        return self in _WITH_DICTIONARY

    @property
    def label(self) -> str:
        """The name in configurations and reports, such as `text-zstd`."""
        return self.name.lower().replace("_", "-")


_WITH_DICTIONARY = frozenset(
    {
        BodyFormat.NAMED_ELEMENTS,
        BodyFormat.NAMED_ELEMENTS_ZLIB,
        BodyFormat.TEXT_ZSTD_TRAINED,
        BodyFormat.NAMED_ELEMENTS_ZSTD,
        BodyFormat.NAMED_ELEMENTS_ZSTD_TRAINED,
    }
)


AUTO = "auto"
"""in place of a label: the format that takes the least time"""
LABELS = {format.label: format for format in BodyFormat}


def parse_format(label: str) -> BodyFormat | None:
    """Return the format with a label, or None for AUTO; raises ArgumentError."""
    if label == AUTO:
        return None
    if label not in LABELS:
        raise ArgumentError(f"{label!r} is no format of links: use {AUTO}, {', '.join(LABELS)}")
    return LABELS[label]


class BodyError(SapwoodError):
    """Raised for bytes that are no body in the format that they claim."""


class EncodedBody(NamedTuple):
    """A body in a format, with the dictionary that it was encoded with."""

    format: BodyFormat
    dictionary: bytes | None
    """the identity of the dictionary; None: the format has none"""
    data: bytes


def encode_body(text: bytes, format: BodyFormat, dictionary: WireDictionary | None = None) -> EncodedBody:
    """Return a body in a format, which may need a dictionary."""
    data = _CODECS[format].encode(text, dictionary or _NO_DICTIONARY)
    identity = dictionary.identity if dictionary is not None and format.needs_dictionary else None
    return EncodedBody(format, identity, data)


def decode_body(body: EncodedBody, dictionary: WireDictionary | None = None) -> bytes:
    """Return the text of a body, given the dictionary that it names; raises BodyError."""
    if len(body.data) > MOST_BYTES:
        raise BodyError(f"a body of {len(body.data):,} bytes; at most {MOST_BYTES:,} are allowed")
    try:
        return _CODECS[body.format].decode(body.data, dictionary or _NO_DICTIONARY)
    except (zlib.error, zstandard.ZstdError, ElementStreamError, MemoryError) as error:
        raise BodyError(f"a body that is not {body.format.label}, as it claims: {error}") from error


# -- the formats ------------------------------------------------------------------------------------------


class _Codec(NamedTuple):
    encode: Callable[[bytes, WireDictionary], bytes]
    decode: Callable[[bytes, WireDictionary], bytes]


_NO_DICTIONARY = WireDictionary(())
_ZSTD = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
_UNZSTD = zstandard.ZstdDecompressor()


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    text = inflater.decompress(data, MOST_BYTES)
    if not inflater.eof or inflater.unused_data:
        raise zlib.error("it ends too early, or goes on behind its end, or is too large")
    return text


def _check_zstd(data: bytes) -> bytes:
    """Return data that say how large their content is, if it is not too large."""
    size = zstandard.get_frame_parameters(data).content_size
    if size > MOST_BYTES:
        raise zstandard.ZstdError(f"its size is not known, or more than {MOST_BYTES:,} bytes")
    return data


_CODECS: dict[BodyFormat, _Codec] = {
    BodyFormat.TEXT: _Codec(lambda text, _: text, lambda data, _: data),
    BodyFormat.TEXT_ZLIB: _Codec(
        lambda text, _: zlib.compress(text, _ZLIB_LEVEL), lambda data, _: _inflate(data)
    ),
    BodyFormat.ELEMENTS: _Codec(lambda text, _: encode_elements(text), lambda data, _: decode_elements(data)),
    BodyFormat.ELEMENTS_ZLIB: _Codec(
        lambda text, _: zlib.compress(encode_elements(text), _ZLIB_LEVEL),
        lambda data, _: decode_elements(_inflate(data)),
    ),
    BodyFormat.NAMED_ELEMENTS: _Codec(
        lambda text, known: encode_elements(text, known.numbers),
        lambda data, known: decode_elements(data, known.names),
    ),
    BodyFormat.NAMED_ELEMENTS_ZLIB: _Codec(
        lambda text, known: zlib.compress(encode_elements(text, known.numbers), _ZLIB_LEVEL),
        lambda data, known: decode_elements(_inflate(data), known.names),
    ),
    BodyFormat.TEXT_ZSTD: _Codec(
        lambda text, _: _ZSTD.compress(text), lambda data, _: _UNZSTD.decompress(_check_zstd(data))
    ),
    BodyFormat.TEXT_ZSTD_TRAINED: _Codec(
        lambda text, known: known.compress(text), lambda data, known: known.decompress(_check_zstd(data))
    ),
    BodyFormat.NAMED_ELEMENTS_ZSTD: _Codec(
        lambda text, known: _ZSTD.compress(encode_elements(text, known.numbers)),
        lambda data, known: decode_elements(_UNZSTD.decompress(_check_zstd(data)), known.names),
    ),
    BodyFormat.NAMED_ELEMENTS_ZSTD_TRAINED: _Codec(
        lambda text, known: known.compress(encode_elements(text, known.numbers)),
        lambda data, known: decode_elements(known.decompress(_check_zstd(data)), known.names),
    ),
}
