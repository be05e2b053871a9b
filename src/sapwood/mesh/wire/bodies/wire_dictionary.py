"""Dictionaries for the bodies of messages: trained from samples, and named by their content.

A dictionary has the names of elements and attributes, by number; the tag paths, for skeletons; and bytes
that zstd refers to. It never changes: other samples make another dictionary, with another identity. So
two brokers that name the same identity have the same dictionary, whoever trained it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from threading import local
from typing import Any, TypeVar

import msgpack  # type: ignore[import-untyped, unused-ignore]
import zstandard

from sapwood.errors import SapwoodError
from sapwood.mesh.wire.bodies.element_stream import encode_elements

ZSTD_LEVEL = 3
MOST_BYTES = 2**20
"""of a dictionary on the wire"""
_VERSION = 1
_IDENTITY_BYTES = 12
_MOST_NAMES = 8_000
_MOST_LIST_BYTES = 200_000
"""of all names, and of all paths, of a dictionary that is trained"""
_TRAINED_BYTES = 32 * 1024
_LEAST_SAMPLES = 8
"""with which zstd can be trained"""
_NAME = re.compile(rb"<([^\s<>/!?=\"']+)|\s([^\s<>/=\"']+)\s*=\s*[\"']")
T = TypeVar("T")
TagPath = tuple[int, str]
"""the number of the path to the parent, and the name of an element as the engine has it"""
NO_PARENT = -1


class DictionaryError(SapwoodError):
    """Raised for bytes that are no dictionary."""


class WireDictionary:
    """Names, tag paths and a zstd dictionary, which both sides of a link have."""

    def __init__(self, names: Sequence[bytes], paths: Sequence[TagPath] = (), trained: bytes = b"") -> None:
        self.names = tuple(names)
        """of elements and attributes, as they are written"""
        self.paths = tuple(paths)
        """of elements, each behind its parent: see `skeletons`"""
        self.trained = trained
        """what zstd refers to; empty: nothing"""
        self._contexts = local()  # a zstd context is for one thread at a time

    @cached_property
    def encoded(self) -> bytes:
        """The dictionary as bytes."""
        steps = [part for path in self.paths for part in path]
        encoded: bytes = msgpack.packb([_VERSION, self.names, steps, self.trained])
        return encoded

    @cached_property
    def identity(self) -> bytes:
        """A hash of the content, which no other dictionary has."""
        return blake2b(self.encoded, digest_size=_IDENTITY_BYTES).digest()

    @cached_property
    def numbers(self) -> dict[bytes, int]:
        """The number of each name."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def children(self) -> list[dict[str, int]]:
        """By the number of a path, those of the paths one step below, by name; for roots, at NO_PARENT: the
        last place."""
        below: dict[int, dict[str, int]] = {}
        for number, (parent, name) in enumerate(self.paths):
            below.setdefault(parent, {})[name] = number
        none: dict[str, int] = {}
        return [below.get(number, none) for number in (*range(len(self.paths)), NO_PARENT)]

    @cached_property
    def _zstd(self) -> zstandard.ZstdCompressionDict:
        trained = zstandard.ZstdCompressionDict(self.trained)
        trained.precompute_compress(level=ZSTD_LEVEL)  # once, instead of for every body
        return trained

    def compress(self, data: bytes) -> bytes:
        """Return bytes compressed by zstd with what was trained, and a checksum."""
        compressor: zstandard.ZstdCompressor | None = getattr(self._contexts, "compressor", None)
        if compressor is None:
            compressor = self._contexts.compressor = zstandard.ZstdCompressor(
                level=ZSTD_LEVEL, dict_data=self._zstd, write_checksum=True, write_dict_id=False
            )
        return compressor.compress(data)

    def decompress(self, data: bytes) -> bytes:
        """Return bytes that were compressed; raises zstandard.ZstdError."""
        decompressor: zstandard.ZstdDecompressor | None = getattr(self._contexts, "decompressor", None)
        if decompressor is None:
            decompressor = self._contexts.decompressor = zstandard.ZstdDecompressor(dict_data=self._zstd)
        return decompressor.decompress(data)


def decode_dictionary(data: bytes) -> WireDictionary:
    """Return the dictionary in bytes; raises DictionaryError."""
    if len(data) > MOST_BYTES:
        raise DictionaryError(f"a dictionary of {len(data):,} bytes; at most {MOST_BYTES:,} are allowed")
    try:
        fields: Any = msgpack.unpackb(data, use_list=True)
        version, names, paths, trained = fields
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise DictionaryError(f"{len(data):,} bytes are no dictionary: {error}") from error
    if version != _VERSION:
        raise DictionaryError(
            f"a dictionary in version {version!r}; this version of Sapwood reads {_VERSION}"
        )
    if not (isinstance(names, list) and isinstance(paths, list) and isinstance(trained, bytes)):
        raise DictionaryError("a dictionary that is not names, paths and trained bytes")
    if not all(isinstance(name, bytes) for name in names):
        raise DictionaryError("a dictionary with a name that is not bytes")
    steps = tuple(zip(paths[::2], paths[1::2], strict=False))
    for number, (parent, name) in enumerate(steps):
        if type(parent) is not int or not NO_PARENT <= parent < number or not isinstance(name, str):
            raise DictionaryError(f"a dictionary in which path {number} does not go on from one before it")
    return WireDictionary(names, steps, trained)


def train_dictionary(
    samples: Sequence[bytes], paths: Sequence[TagPath] = (), of_elements: bool = False
) -> WireDictionary:
    """Return a dictionary for messages like the samples, with the frequent names first.

    `of_elements` trains zstd on streams of elements instead of texts.
    """
    counts: Counter[bytes] = Counter()
    for sample in samples:
        for element, attribute in _NAME.findall(sample):
            counts[element or attribute] += 1
    names = [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))][:_MOST_NAMES]
    names, paths = _cut(names, len), _cut(paths, lambda path: len(path[1]) + 4)
    dictionary = WireDictionary(names, paths)
    if of_elements:
        samples = [encode_elements(sample, dictionary.numbers) for sample in samples]
    return WireDictionary(names, paths, _train(samples))


def _cut(items: Sequence[T], size: Callable[[T], int]) -> list[T]:
    """Return the first items, as many as a dictionary has room for: the most frequent ones."""
    ends = accumulate(size(item) + 5 for item in items)
    return [item for item, end in zip(items, ends, strict=True) if end <= _MOST_LIST_BYTES]


def _train(samples: Sequence[bytes]) -> bytes:
    """Return what zstd refers to; the samples themselves where they are too few, or too alike, to train."""
    size = min(_TRAINED_BYTES, max(1_024, sum(map(len, samples)) // 4))
    if len(samples) >= _LEAST_SAMPLES:
        try:
            return zstandard.train_dictionary(size, list(samples)).as_bytes()
        except zstandard.ZstdError:  # which says only that it cannot
            pass
    return b"".join(samples)[-size:]
