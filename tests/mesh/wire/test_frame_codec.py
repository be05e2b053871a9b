"""Frames, controls and trees as bytes: they come back as they were, and anything else is refused."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgpack  # type: ignore[import-untyped, unused-ignore]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.mesh.core.frames import (
    Ack,
    Beat,
    ConfirmFrame,
    Control,
    Epoch,
    Frame,
    MessageFrame,
    MessageKey,
    Nack,
    NeedTable,
    Open,
    Opened,
    Refused,
    TableFrame,
)
from sapwood.mesh.core.topology import Topology, TopologyError, build_tree
from sapwood.mesh.routing.route import routes_of
from sapwood.mesh.wire.bodies.body_format import BodyFormat, EncodedBody, encode_body
from sapwood.mesh.wire.bodies.dictionary_controls import (
    DictionaryControl,
    HaveDictionary,
    LackDictionary,
    NeedDictionary,
    OfferDictionary,
)
from sapwood.mesh.wire.bodies.wire_dictionary import train_dictionary
from sapwood.mesh.wire.frame_codec import (
    VERSION,
    UnknownDictionary,
    WireError,
    decode_control,
    decode_payload,
    encode_control,
    encode_payload,
    protect,
)
from sapwood.mesh.wire.message_content import MOST_HITS, Hits, MessageContent
from sapwood.mesh.wire.skeletons.skeleton import Skeleton, TestedNames
from sapwood.mesh.wire.topology_codec import TopologyFormatError, decode_topology, encode_topology

TEXT = b"<order id='1'/>"
DICTIONARY = train_dictionary([TEXT], [(-1, "order")])
TESTED = TestedNames(frozenset({"id"}), frozenset())
CONTENT = MessageContent(
    "t",
    "s",
    "i",
    1.5,
    TEXT,
    False,
    encode_body(TEXT, BodyFormat.TEXT_ZSTD_TRAINED, DICTIONARY),
    Skeleton(DICTIONARY.identity, TESTED, b"bones"),
)

numbers = st.integers(0, 2**53)
names = st.text(max_size=20)
epochs = st.builds(Epoch, numbers, numbers, numbers)
times = st.none() | st.floats(allow_nan=False, allow_infinity=False)
marks = st.integers(0, 2**128 - 1)
hits = st.builds(
    Hits, marks, st.lists(marks, min_size=1, max_size=MOST_HITS, unique=True).map(tuple), st.booleans()
)
contents = st.tuples(
    st.tuples(names, names, names, times, st.binary(max_size=200), st.booleans()), st.none() | hits
).map(lambda drawn: MessageContent(*drawn[0])._replace(hits=drawn[1]))
keys = st.builds(MessageKey, names, numbers)
routes = st.sampled_from(["/a", "//b[@c = 1]", "/a[not(b)]/c", "//x[contains(., 'y')]"]).map(
    lambda query: routes_of(query, {}, "tenant", ("news",))[0]
)
message_frames = st.builds(MessageFrame, keys, st.none() | contents, st.integers(-2, 2**40), numbers)
table_frames = st.builds(
    TableFrame,
    numbers,
    st.lists(routes, max_size=3).map(tuple),
    st.lists(st.integers(0, 2**128 - 1), max_size=3).map(tuple),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
frames: st.SearchStrategy[Frame] = message_frames | table_frames | st.builds(ConfirmFrame, epochs, numbers)
ranges = st.lists(st.integers(0, 1_000), unique=True, max_size=6).map(
    lambda found: tuple((2 * n, 2 * n) for n in sorted(found))
)
by_source = st.dictionaries(names, numbers, max_size=3)
controls: st.SearchStrategy[Control | DictionaryControl] = st.one_of(
    st.builds(OfferDictionary, st.binary(max_size=50)),
    st.builds(HaveDictionary, st.binary(max_size=12)),
    st.builds(NeedDictionary, st.binary(max_size=12)),
    st.builds(LackDictionary, st.binary(max_size=12)),
    st.builds(Open, epochs, st.booleans()),
    st.builds(Opened, epochs, numbers, st.dictionaries(names, ranges, max_size=3), by_source),
    st.builds(Refused, epochs),
    st.builds(Ack, epochs, numbers, numbers, by_source),
    st.builds(Nack, epochs, numbers),
    st.builds(Beat, epochs, numbers, st.integers(-1, 99), st.integers(0, 2**128 - 1), numbers, by_source),
    st.builds(NeedTable, epochs),
)


@given(epochs, numbers, st.lists(frames, max_size=5))
def test_payloads_come_back(epoch: Epoch, first: int, sent: list[Frame]) -> None:
    payload = decode_payload(encode_payload(epoch, first, sent))
    assert (payload.epoch, payload.first, payload.frames) == (epoch, first, sent)


@given(controls)
def test_controls_come_back(control: Control | DictionaryControl) -> None:
    assert decode_control(encode_control(control)) == control


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_payload, decode_control):
        try:
            decode(data)
        except WireError:
            continue


@given(epochs, st.lists(frames, min_size=1, max_size=3), st.data())
def test_a_damaged_payload_is_refused(epoch: Epoch, sent: list[Frame], data: st.DataObject) -> None:
    encoded = bytearray(encode_payload(epoch, 1, sent))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(encoded), bytes(encoded[:at])):
        with pytest.raises(WireError, match=r"damaged on their way|of the format, this one"):
            decode_payload(damaged)


@given(st.lists(st.integers(0, 60), max_size=5))
def test_what_has_the_right_checksum_is_read_or_refused(changes: list[int]) -> None:
    packed = bytearray(encode_payload(Epoch(1, 1), 1, [MessageFrame(MessageKey("a", 1), CONTENT)])[5:])
    for at in changes:
        packed[at % len(packed)] ^= 1 + at
    data = bytes((VERSION,)) + crc32(packed).to_bytes(4, "big") + packed
    try:
        decode_payload(data, {DICTIONARY.identity: DICTIONARY})
    except WireError as error:
        assert str(error)


def test_another_version_is_named() -> None:
    encoded = encode_payload(Epoch(1, 1), 1, [])
    with pytest.raises(WireError, match=f"version 99 of the format, this one {VERSION}"):
        decode_payload(bytes((99,)) + encoded[1:])


def test_fields_of_another_type_are_refused() -> None:
    good = [[1, 1, 0], 1, [[0, "a", 1, 0, 0, None]], [], [], [], []]
    assert decode_payload(protect(good)).frames == [MessageFrame(MessageKey("a", 1), None, 0, 0)]
    for path, value in (((0,), [1, 1, -1]), ((1,), "1"), ((2, 0, 0), 7), ((2, 0, 1), 5), ((2, 0, 2), True)):
        bad = msgpack.unpackb(msgpack.packb(good))
        target = bad
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        with pytest.raises(WireError):
            decode_payload(protect(bad))


def test_bodies_and_skeletons_come_back() -> None:
    frame = MessageFrame(MessageKey("a", 1), CONTENT)
    payload = decode_payload(encode_payload(Epoch(1, 1), 1, [frame]), {DICTIONARY.identity: DICTIONARY})
    assert payload.frames == [frame]


def with_hits(table: int, *met: int) -> MessageFrame:
    content = CONTENT._replace(encoded=None, skeleton=None, hits=Hits(table, met, True))
    return MessageFrame(MessageKey("a", 1), content)


def test_keys_are_listed_once_in_a_payload() -> None:
    frames = [with_hits(5, 2**127, 7), with_hits(5, 7), with_hits(5, 2**127, 7)]
    sizes = [len(encode_payload(Epoch(1, 1), 1, frames[:count])) for count in (1, 2, 3)]
    assert decode_payload(encode_payload(Epoch(1, 1), 1, frames)).frames == frames
    assert sizes[2] - sizes[1] < sizes[0] - 3 * 16


def test_hits_that_cannot_be_are_refused() -> None:
    packed = encode_payload(Epoch(1, 1), 1, [with_hits(5, 6, 7)])[5:]
    good = msgpack.unpackb(packed)
    assert decode_payload(protect(good)).frames == [with_hits(5, 6, 7)]
    wrong: list[Any] = [
        [0, [], True],
        [0, [1, 1], True],
        [0, [3], True],
        [3, [1], True],
        [0, [-1], True],
        [0, 1, True],
        [0, [1], 1],
        [0, [1]],
        ["0", [1], True],
        7,
    ]
    for met in wrong:
        bad = msgpack.unpackb(packed)
        bad[2][0][-1][-1] = met
        with pytest.raises(WireError):
            decode_payload(protect(bad))
    many = msgpack.unpackb(packed)
    many[6] = [bytes((number,)) * 16 for number in range(MOST_HITS + 2)]
    many[2][0][-1][-1] = [0, list(range(1, MOST_HITS + 2)), True]
    with pytest.raises(WireError, match="1 to 8 routes"):
        decode_payload(protect(many))
    for keys in ([b"short", b"", b""], "keys", [5, 6, 7]):
        bad = msgpack.unpackb(packed)
        bad[6] = keys
        with pytest.raises(WireError):
            decode_payload(protect(bad))


def test_a_dictionary_that_is_missing_is_named() -> None:
    encoded = encode_payload(Epoch(1, 1), 1, [MessageFrame(MessageKey("a", 1), CONTENT)])
    with pytest.raises(UnknownDictionary) as caught:
        decode_payload(encoded)
    assert caught.value.identities == (DICTIONARY.identity,)


def test_a_body_without_its_dictionary_is_refused() -> None:
    for encoded in (
        EncodedBody(BodyFormat.TEXT_ZSTD_TRAINED, None, b"x"),
        EncodedBody(BodyFormat.TEXT, DICTIONARY.identity, b"x"),
    ):
        frame = MessageFrame(MessageKey("a", 1), CONTENT._replace(encoded=encoded))
        with pytest.raises(WireError, match="needs a dictionary"):
            decode_payload(encode_payload(Epoch(1, 1), 1, [frame]), {DICTIONARY.identity: DICTIONARY})


def test_ranges_ascend() -> None:
    for wrong in ([[5, 3]], [[1, 4], [2, 6]]):
        with pytest.raises(WireError, match="ranges ascend"):
            decode_control(protect([1, [[1, 1, 0], 0, {"a": wrong}, {}]]))


def test_trees_come_back() -> None:
    tree = build_tree({"a": None, "b": "a", "c": "b"}).join("d", "a")
    assert decode_topology(encode_topology(tree)) == tree
    assert decode_topology(encode_topology(Topology())) == Topology()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": "1", "reset": 1, "parents": {}, "joined": {}}', b"\xff".decode("latin-1")],
)
def test_a_text_that_is_no_tree_is_refused(text: str) -> None:
    with pytest.raises(TopologyFormatError, match="cannot be read"):
        decode_topology(text)


def test_a_tree_with_two_roots_is_refused() -> None:
    with pytest.raises(TopologyError, match="one root"):
        decode_topology('{"version": 1, "reset": 1, "parents": {"a": null, "b": null}, "joined": {}}')
