"""The parser of server-sent events, by cases of the specification and for any chunks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.client import ProtocolError
from sapwood.client.transport.event_stream import EventStreamParser, ServerEvent


def parse(*chunks: bytes) -> list[tuple[str, str, str]]:
    parser = EventStreamParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return [(event.type, event.data, event.id) for event in events]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [("message", "a", "")]),
        (b"data:a\n\n", [("message", "a", "")]),
        (b"data:  a\n\n", [("message", " a", "")]),  # one space belongs to the field
        (b"data: a\ndata: b\n\n", [("message", "a\nb", "")]),
        (b"data\n\n", [("message", "", "")]),
        (b"data\ndata\n\n", [("message", "\n", "")]),
        (b"data: a:b\n\n", [("message", "a:b", "")]),
        (b"data: a\r\n\r\n", [("message", "a", "")]),
        (b"data: a\r\r", [("message", "a", "")]),
        (b"data: a\n\r\n", [("message", "a", "")]),
        (b"data: a\r\n\n", [("message", "a", "")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [("x", "a", ""), ("message", "b", "")]),
        (b"event: x\n\ndata: b\n\n", [("message", "b", "")]),  # an event without data is none
        (b"id: 7\n\ndata: b\n\n", [("message", "b", "7")]),  # but its id counts
        (b"id: 7\ndata: a\n\nid\ndata: b\n\n", [("message", "a", "7"), ("message", "b", "")]),
        (b"id: 7\nid: 8\0\ndata: a\n\n", [("message", "a", "7")]),
        (b": comment\n\n: more\ndata: a\n\n", [("message", "a", "")]),
        (b"other: x\ndata: a\n\n", [("message", "a", "")]),
        (b"Data: x\n\n", []),
        (b"data: a\n", []),  # the end of the stream is no end of an event
        (b"\xef\xbb\xbfdata: a\n\n", [("message", "a", "")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),  # a second mark is part of a name
        ("data: ü\u2028\x85\n\n".encode(), [("message", "ü\u2028\x85", "")]),  # these end no line
        (b"data: \xff\n\n", [("message", "\ufffd", "")]),
        (b"", []),
        (b"\n\n\r\r\n", []),
    ],
)
def test_cases_of_the_specification(stream: bytes, events: list[tuple[str, str, str]]) -> None:
    assert parse(stream) == events
    assert parse(*(stream[at : at + 1] for at in range(len(stream)))) == events


@pytest.mark.parametrize(
    ("line", "seconds"),
    [(b"retry: 2500", 2.5), (b"retry: -1", None), (b"retry: 1.5", None), (b"retry", None)],
)
def test_the_delay_before_a_reconnection(line: bytes, seconds: float | None) -> None:
    parser = EventStreamParser()
    parser.feed(line + b"\n")
    assert parser.retry == seconds


_TEXT = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=8)
_ENDS = st.sampled_from(["\n", "\r", "\r\n"])
_EVENTS = st.lists(
    st.tuples(st.sampled_from(["", "delivery", "gap"]), st.lists(_TEXT, min_size=1, max_size=3), _TEXT)
)


@given(_EVENTS, st.data(), st.booleans())
def test_any_chunks_give_the_events_that_were_written(
    events: list[tuple[str, list[str], str]], data: st.DataObject, mark: bool
) -> None:
    """Events written with any line ends and comments, and cut anywhere, come out as they were."""
    written, expected = "\ufeff" if mark else "", []
    for type, lines, id in events:
        fields = [f"data: {line}" for line in lines] + [f"id: {id}"] + ([f"event: {type}"] if type else [])
        for field in [*fields, ": comment"]:
            written += field + data.draw(_ENDS)
        # A CR before an LF of an empty line would make them one line end.
        written += "\n" if not written.endswith("\r") else data.draw(st.sampled_from(["\r", "\r\n"]))
        expected.append(ServerEvent(type or "message", "\n".join(lines), id))
    stream = written.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parser = EventStreamParser()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += parser.feed(stream[start:end])
    assert found == expected


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_any_bytes_give_the_same_in_any_chunks(stream: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    assert parse(*chunks) == parse(stream)


def test_an_event_without_an_end_is_refused() -> None:
    parser = EventStreamParser(max_bytes=100)
    with pytest.raises(ProtocolError, match="larger than 100 bytes"):
        for _ in range(101):
            parser.feed(b"x")
    parser = EventStreamParser(max_bytes=100)
    with pytest.raises(ProtocolError, match="larger than 100 bytes"):
        for _ in range(101):
            parser.feed(b"data\n")


def test_the_limit_is_one_of_an_event_and_not_of_the_stream() -> None:
    parser = EventStreamParser(max_bytes=100)
    for _ in range(50):
        assert len(parser.feed(b"data: 0123456789\n\n: comment\n")) == 1
