"""Frames, controls and trees as bytes: they come back as they were, and anything else is refused."""

from __future__ import annotations

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
from sapwood.mesh.wire.frame_codec import (
    WireError,
    decode_control,
    decode_payload,
    encode_control,
    encode_payload,
)
from sapwood.mesh.wire.message_content import MessageContent
from sapwood.mesh.wire.topology_codec import TopologyFormatError, decode_topology, encode_topology

numbers = st.integers(0, 2**53)
names = st.text(max_size=20)
epochs = st.builds(Epoch, numbers, numbers, numbers)
times = st.none() | st.floats(allow_nan=False)
contents = st.builds(MessageContent, names, names, names, times, st.binary(max_size=200), st.booleans())
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
controls: st.SearchStrategy[Control] = st.one_of(
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
def test_controls_come_back(control: Control) -> None:
    assert decode_control(encode_control(control)) == control


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_payload, decode_control):
        try:
            decode(data)
        except WireError:
            continue


@given(epochs, st.lists(frames, min_size=1, max_size=3), st.data())
def test_a_damaged_payload_is_read_or_refused(epoch: Epoch, sent: list[Frame], data: st.DataObject) -> None:
    encoded = bytearray(encode_payload(epoch, 1, sent))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(encoded), bytes(encoded[:at])):
        try:
            decode_payload(damaged)
        except WireError as error:
            assert str(error)


def test_another_version_is_named() -> None:
    with pytest.raises(WireError, match="version 99 of the format, this one 1"):
        decode_payload(msgpack.packb([99, [1, 1, 0], 1, []]))


def test_fields_of_another_type_are_refused() -> None:
    good = [1, [1, 1, 0], 1, [[0, "a", 1, 0, 0, None]]]
    assert decode_payload(msgpack.packb(good)).frames == [MessageFrame(MessageKey("a", 1), None, 0, 0)]
    for path, value in (((1,), [1, 1, -1]), ((2,), "1"), ((3, 0, 0), 7), ((3, 0, 1), 5), ((3, 0, 2), True)):
        bad = msgpack.unpackb(msgpack.packb(good))
        target = bad
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        with pytest.raises(WireError):
            decode_payload(msgpack.packb(bad))


def test_ranges_ascend() -> None:
    for wrong in ([[5, 3]], [[1, 4], [2, 6]]):
        with pytest.raises(WireError, match="ranges ascend"):
            decode_control(msgpack.packb([1, 1, [[1, 1, 0], 0, {"a": wrong}, {}]]))


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
