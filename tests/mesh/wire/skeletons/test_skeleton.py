"""Skeletons: what they have of a message, and that others are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.engine.limits import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.mesh.wire.bodies.wire_dictionary import WireDictionary
from sapwood.mesh.wire.skeletons.message_skeleton import read_skeleton
from sapwood.mesh.wire.skeletons.skeleton import (
    LONGEST_VALUE,
    SkeletonError,
    SkeletonParts,
    TestedNames,
    decode_skeleton,
    decode_tested,
)

PATHS = ((-1, "order"), (0, "item"), (0, "total"))
DICTIONARY = WireDictionary((), PATHS)
NOTHING = TestedNames(frozenset(), frozenset())


def read(text: str, attributes: str = "", elements: str = "") -> SkeletonParts:
    tested = TestedNames(frozenset(attributes.split()), frozenset(elements.split()))
    skeleton = read_skeleton(Message(text.encode()), Limits(), DICTIONARY, tested)
    assert skeleton is not None
    assert skeleton.dictionary == DICTIONARY.identity
    return decode_skeleton(skeleton.data, len(PATHS), tested)


def test_paths_are_numbers_of_the_dictionary() -> None:
    assert read("<order><item sku='A1'/><item/></order>") == SkeletonParts(True, (), (0, 1), ())


def test_other_paths_are_written_out() -> None:
    found = read("<order><note><b/></note></order>")
    assert found == SkeletonParts(True, ((0, "note"), (3, "b")), (0, 3, 4), ())


def test_tested_attributes_have_their_values() -> None:
    found = read("<order id='7'><item sku='A1'/><item sku='B2' qty='1'/></order>", attributes="sku a")
    assert found == SkeletonParts(True, (), (0, 1), ((1, 1, "A1"), (1, 1, "B2")))


def test_tested_elements_have_their_values() -> None:
    found = read("<order><total>5</total><total/></order>", elements="total")
    assert found == SkeletonParts(True, (), (0, 2), ((2, -1, ""), (2, -1, "5")))


@pytest.mark.parametrize(
    "text",
    [
        "<order><total>2<b/>0</total></order>",
        "<order><total>20<!-- split -->07</total></order>",
        f"<order><total>{'9' * (LONGEST_VALUE + 1)}</total></order>",
    ],
)
def test_values_that_are_several_or_long_are_left_out(text: str) -> None:
    found = read(text, elements="total")
    assert not found.is_complete
    assert not found.values


def test_a_message_with_very_many_values_has_none() -> None:
    items = "".join(f"<item sku='{i}'/>" for i in range(200))
    found = read(f"<order>{items}</order>", attributes="sku")
    assert not found.is_complete
    assert not found.values


def test_a_message_with_very_many_paths_has_no_skeleton() -> None:
    text = "<order>" + "".join(f"<name-of-element-{i}/>" for i in range(2_000)) + "</order>"
    assert read_skeleton(Message(text.encode()), Limits(), DICTIONARY, NOTHING) is None


def test_tested_names_come_back() -> None:
    tested = TestedNames(frozenset({"a", "uri}b"}), frozenset({"c"}))
    assert decode_tested(tested.encoded) == tested
    assert tested.covers(TestedNames(frozenset({"a"}), frozenset()))
    assert not tested.covers(TestedNames(frozenset({"c"}), frozenset()))


@given(st.binary(max_size=40))
def test_other_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (lambda data: decode_skeleton(data, 3, NOTHING), decode_tested):
        try:
            decode(data)
        except SkeletonError as error:
            assert str(error)


def test_numbers_beyond_the_dictionary_are_refused() -> None:
    skeleton = read_skeleton(Message(b"<order><total/></order>"), Limits(), DICTIONARY, NOTHING)
    assert skeleton is not None
    with pytest.raises(SkeletonError, match="of other paths"):
        decode_skeleton(skeleton.data, 2, NOTHING)
