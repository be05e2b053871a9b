"""The skeleton of a message: its distinct tag paths, and the values that somebody beyond a link tests.

    <order id="7"><item sku="A1"/><item sku="B2"/></order>      tested: @sku

    paths     /order   /order/item                              by their numbers in a dictionary
    values    /order/item/@sku = A1    /order/item/@sku = B2

A broker that wants to know who wants a message can often tell from that, without reading the message. It has
to know what is *not* in a skeleton, too: attributes that nobody tests, and values that are too long or that
belong to elements with others inside. `TestedNames` says the former, `is_complete` the latter.

The bytes of a skeleton are a list in MessagePack: whether it is complete, the literal paths (parent and name
of each, numbered behind those of the dictionary), the differences of the ascending path numbers (in one byte
each, or in two where one is not enough), and of each value the path number, the number of the tested
attribute (or ELEMENT_VALUE), and the text.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped, unused-ignore]

from sapwood.engine.message.document import Document, N
from sapwood.errors import SapwoodError
from sapwood.mesh.wire.bodies.wire_dictionary import NO_PARENT, TagPath, WireDictionary

LONGEST_VALUE = 64
"""characters of a value in a skeleton"""
_LARGEST_BYTE, _LARGEST_NUMBER = 0xFF, 0xFFFF
MOST_VALUES = 64
MOST_BYTES = 4_096
ELEMENT_VALUE = -1
"""in place of the number of an attribute: the value of the element itself"""
_IDENTITY_BYTES = 8


class SkeletonError(SapwoodError):
    """Raised for bytes that are no skeleton."""


class TestedNames:
    """The names whose attributes and values somebody tests."""

    __test__ = False  # which is for pytest

    def __init__(self, attributes: frozenset[str], elements: frozenset[str]) -> None:
        self.attributes = attributes
        """of attributes of which the existence or the value is tested"""
        self.elements = elements
        """of elements of which the value, or text in them, is tested"""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TestedNames) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @cached_property
    def encoded(self) -> bytes:
        """The names as bytes."""
        encoded: bytes = msgpack.packb([sorted(self.attributes), sorted(self.elements)])
        return encoded

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each attribute."""
        return {name: number for number, name in enumerate(self.attribute_list)}

    @cached_property
    def attribute_list(self) -> list[str]:
        """The names of attributes in the order of their numbers."""
        return sorted(self.attributes)

    @cached_property
    def identity(self) -> bytes:
        """A hash of the names."""
        return blake2b(self.encoded, digest_size=_IDENTITY_BYTES).digest()

    def covers(self, other: TestedNames) -> bool:
        """Return whether all names of another are among these."""
        return other.attributes <= self.attributes and other.elements <= self.elements


def decode_tested(data: bytes) -> TestedNames:
    """Return the tested names in bytes; raises SkeletonError."""
    try:
        attributes, elements = msgpack.unpackb(data, use_list=True)
        if not all(isinstance(name, str) for name in (*attributes, *elements)):
            raise TypeError("a name that is no text")
        return TestedNames(frozenset(attributes), frozenset(elements))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise SkeletonError(f"{len(data):,} bytes are no tested names: {error}") from error


class Skeleton(NamedTuple):
    """A skeleton as bytes, with the dictionary of its paths and the names that its values are of."""

    dictionary: bytes
    """the identity of the dictionary"""
    tested: TestedNames
    data: bytes


TestedValue = tuple[int, int, str]
"""the number of a path, that of an attribute or ELEMENT_VALUE, and a value"""


class SkeletonParts(NamedTuple):
    """What a skeleton says."""

    is_complete: bool
    """whether all tested values are there"""
    literals: tuple[TagPath, ...]
    """paths that the dictionary does not have, numbered behind those that it has"""
    paths: tuple[int, ...]
    """the numbers of all paths, ascending"""
    values: tuple[TestedValue, ...]


def make_skeleton(document: Document[N], dictionary: WireDictionary, tested: TestedNames) -> Skeleton | None:
    """Return the skeleton of a message that was read with text; None if it would be too large."""
    reader = _PathReader(document, dictionary, tested)
    reader.read()
    values = sorted(reader.values) if reader.is_complete else []
    is_complete = reader.is_complete
    numbers = sorted(reader.found)
    if numbers and numbers[-1] > _LARGEST_NUMBER:
        return None
    steps = _pack_steps([number - last for last, number in pairwise((0, *numbers))])
    literals = [part for path in reader.literals for part in path]
    flat = [part for value in values for part in value]
    data: bytes = msgpack.packb([is_complete, literals, steps, flat])
    return Skeleton(dictionary.identity, tested, data) if len(data) <= MOST_BYTES else None


def _pack_steps(steps: list[int]) -> bytes | list[bytes]:
    """Return differences of numbers as bytes, one or two each: a list of integers takes longer to check."""
    if max(steps, default=0) <= _LARGEST_BYTE:
        return bytes(steps)
    return [struct.pack(f"<{len(steps)}H", *steps)]


def _unpack_steps(packed: Any) -> Sequence[int]:
    """Return differences of numbers, none of which is negative; TypeError if these are no such."""
    if isinstance(packed, bytes):
        return packed
    (wide,) = packed
    if not isinstance(wide, bytes):
        raise TypeError("differences that are no bytes")
    return struct.unpack(f"<{len(wide) // 2}H", wide)


class _PathReader:
    """Numbers the paths of a message's elements and tested attributes, and collects tested values."""

    def __init__(self, document: Document[N], dictionary: WireDictionary, tested: TestedNames) -> None:
        self._document = document
        self._children = dictionary.children
        self._tested = tested
        self.literals: list[TagPath] = []
        self.found: set[int] = set()
        self.values: set[TestedValue] = set()
        self.is_complete = True

    def read(self) -> None:
        document, tested = self._document, self._tested
        numbers = document.number_paths(self._children, self.literals)
        self.found.update(numbers)
        self.found.discard(NO_PARENT)
        if tested.elements:
            self._read_values(numbers)
        if tested.attributes and self.is_complete:
            self._read_attributes(numbers)

    def _read_attributes(self, numbers: Sequence[int]) -> None:
        wanted, add = self._tested.numbers.get, self.values.add
        for number, attributes in zip(numbers, self._document.attributes, strict=True):
            if not attributes:
                continue
            for name, value in zip(attributes[::2], attributes[1::2], strict=True):
                tested = wanted(name)
                if tested is not None:
                    add((number, tested, value))
            if len(self.values) > MOST_VALUES:
                break
        self._check_values()

    def _read_values(self, numbers: Sequence[int]) -> None:
        document, wanted = self._document, self._tested.elements
        for element, name in enumerate(document.names):
            if name in wanted:
                start, end = document.text_starts[element], document.text_ends[element]
                if document.ends[element] > element + 1 or end - start > 1:
                    self.is_complete = False  # which has several values: of text nodes, and their whole
                    return
                value = document.texts[start] if end > start else ""
                self.values.add((numbers[element], ELEMENT_VALUE, value))
        self._check_values()

    def _check_values(self) -> None:
        """Note whether values are too many, or too long."""
        is_short = all(len(value) <= LONGEST_VALUE for _, _, value in self.values)
        self.is_complete = is_short and len(self.values) <= MOST_VALUES


def decode_skeleton(data: bytes, paths: int, tested: TestedNames) -> SkeletonParts:
    """Return what a skeleton says, given how many paths its dictionary has; raises SkeletonError."""
    if len(data) > MOST_BYTES:
        raise SkeletonError(f"a skeleton of {len(data):,} bytes; at most {MOST_BYTES:,} are allowed")
    try:
        fields: Any = msgpack.unpackb(data, use_list=True)
        is_complete, literals, packed, flat = fields
        steps = _unpack_steps(packed)
        numbers = tuple(accumulate(steps))
        made = tuple(zip(literals[::2], literals[1::2], strict=True))
        values = tuple(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
        total = paths + len(made)
        is_read = isinstance(is_complete, bool) and (not steps or numbers[-1] < total)
        for at, (parent, name) in enumerate(made, paths):
            is_read &= type(parent) is int and NO_PARENT <= parent < at and isinstance(name, str)
        for path, attribute, value in values:
            is_read &= type(path) is int and type(attribute) is int and isinstance(value, str)
            is_read &= 0 <= path < total and ELEMENT_VALUE <= attribute < len(tested.attributes)
    except (ValueError, TypeError, struct.error, msgpack.UnpackException) as error:
        raise SkeletonError(f"{len(data):,} bytes are no skeleton: {error}") from error
    if not is_read:
        raise SkeletonError(f"{len(data):,} bytes are a skeleton of other paths")
    return SkeletonParts(is_complete, made, numbers, values)
