"""The queues of a link: numbering, windows, going back, and the backlog."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.mesh.core.frames import (
    ConfirmFrame,
    Content,
    Epoch,
    Frame,
    MessageFrame,
    MessageKey,
    TableFrame,
)
from sapwood.mesh.core.links import link_state
from sapwood.mesh.core.links.link_state import InboundLink, OutboundLink

EPOCH = Epoch(1, 1)


def frame_of(key: MessageKey, table: int) -> MessageFrame | None:
    return MessageFrame(key, Content.STORED, table)


def opened() -> OutboundLink:
    link = OutboundLink(EPOCH)
    link.open({})
    return link


def take(link: OutboundLink, stored: int = 1_000_000) -> list[int]:
    link.refill(frame_of)
    return [number for number, _ in link.take(stored)]


def with_messages(count: int) -> OutboundLink:
    link = opened()
    for number in range(1, count + 1):
        link.add_message(MessageKey("s", number), 0, 0)
    return link


def test_frames_are_numbered_and_sent_once() -> None:
    link = with_messages(3)
    assert take(link) == [1, 2, 3]
    assert take(link) == []
    assert len(link) == 3
    link.acknowledge(2)
    assert len(link) == 1


def test_the_window_limits_what_is_sent_and_not_accepted() -> None:
    link = with_messages(link_state.WINDOW + 10)
    assert len(take(link)) == link_state.WINDOW
    link.accept(4)
    assert take(link) == [link_state.WINDOW + n for n in (1, 2, 3, 4)]


def test_a_frame_waits_until_what_it_tells_is_stored() -> None:
    link = opened()
    link.add_message(MessageKey("s", 1), 0, store=5)
    link.add(TableFrame(1), store=7)
    assert take(link, stored=4) == []
    assert take(link, stored=5) == [1]
    assert take(link, stored=7) == [2]


def test_going_back_sends_again_what_is_not_received() -> None:
    link = with_messages(6)
    assert take(link) == [1, 2, 3, 4, 5, 6]
    link.accept(6)
    link.acknowledge(2)
    link.go_back(3)
    assert take(link) == [4, 5, 6]
    link.go_back(0)  # what is received is forgotten
    assert take(link) == [3, 4, 5, 6]


def test_a_failure_sends_again_after_a_while() -> None:
    link = with_messages(3)
    take(link)
    link.accept(1)
    waits = []
    for _ in range(8):
        link.fail(now=10.0)
        waits.append(link.retry_at - 10.0)
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0])
    assert take(link) == [2, 3]
    link.accept(3)
    link.fail(now=20.0)
    assert link.retry_at == pytest.approx(20.1)


def test_acknowledgements_of_more_than_there_is_change_nothing_else() -> None:
    link = with_messages(2)
    take(link)
    assert len(link.acknowledge(99)) == 2
    link.add_message(MessageKey("s", 3), 0, 0)
    assert take(link) == [3]


def test_an_acknowledgement_implies_acceptance() -> None:
    link = with_messages(link_state.WINDOW + 1)
    take(link)
    link.acknowledge(link_state.WINDOW)
    assert take(link) == [link_state.WINDOW + 1]


def test_what_the_receiver_has() -> None:
    link = OutboundLink(EPOCH)
    link.open({"s": ((2, 4), (7, 7))})
    assert [n for n in range(1, 9) if link.has(MessageKey("s", n))] == [2, 3, 4, 7]
    assert not link.has(MessageKey("t", 2))
    link.begin(Epoch(1, 1, 1))
    assert not link.is_open
    assert not link.has(MessageKey("s", 2))


ITEMS = st.lists(
    st.tuples(st.sampled_from(["s", "t", "u", "table", "confirm"]), st.integers(1, 2)), max_size=60
)


@given(ITEMS, st.integers(1, 5), st.lists(st.integers(1, 9), max_size=20))
def test_the_backlog_keeps_the_order_of_each_source_and_of_tables(
    items: list[tuple[str, int]], kept: int, acknowledgements: list[int]
) -> None:
    """However small the limits: nothing is lost or repeated, and no message passes another frame."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link_state, "KEPT", kept)
        patch.setattr(link_state, "_TURN", 2)
        link = opened()
        last: Counter[str] = Counter()
        for number, (what, table) in enumerate(items):
            if what == "table":
                link.add(TableFrame(number))
            elif what == "confirm":
                link.add(ConfirmFrame(EPOCH, number))
            else:
                last[what] += 1
                link.add_message(MessageKey(what, last[what]), table, 0)
        assert len(link) == len(items)
        sent: list[Frame] = []
        for count in [*acknowledgements, *[kept] * len(items)]:
            link.refill(frame_of)
            messages = [each for each in link.frames if isinstance(each.frame, MessageFrame)]
            assert len(messages) <= kept
            sent += [frame for _, frame in link.take(0)]
            link.acknowledge(link.received + count)
        assert len(link) == 0
        assert not link.is_unsent
    assert segments(sent) == segments(expand(items))


def expand(items: list[tuple[str, int]]) -> list[Frame]:
    last: Counter[str] = Counter()
    frames: list[Frame] = []
    for number, (what, table) in enumerate(items):
        last[what] += 1
        if what == "table":
            frames.append(TableFrame(number))
        elif what == "confirm":
            frames.append(ConfirmFrame(EPOCH, number))
        else:
            frames.append(MessageFrame(MessageKey(what, last[what]), Content.STORED, table))
    return frames


def segments(frames: list[Frame]) -> list[object]:
    """Frames that are not messages, and between them the messages by source."""
    found: list[object] = [{}]
    for frame in frames:
        if isinstance(frame, MessageFrame):
            messages = found[-1]
            assert isinstance(messages, dict)
            messages.setdefault(frame.key.source, []).append((frame.key.number, frame.table))
        else:
            found += [frame, {}]
    return found


def test_messages_that_nobody_needs_any_more_are_left_out() -> None:
    link = with_messages(5)
    link.refill(lambda key, table: None if key.number < 4 else frame_of(key, table))
    assert [frame.key.number for _, frame in link.take(0) if isinstance(frame, MessageFrame)] == [4, 5]
    assert len(link) == 2


def test_messages_of_a_source_that_are_not_received(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_state, "KEPT", 2)
    link = with_messages(5)
    link.add_message(MessageKey("t", 9), 0, 0)
    take(link)
    link.acknowledge(1)
    assert link.messages_of("s") == {2, 3, 4, 5}
    assert link.messages_of("t") == {9}


def test_a_backlog_of_a_stalled_link_is_small() -> None:
    link = with_messages(link_state.KEPT + 50_000)
    take(link)
    assert len(link.frames) == link_state.KEPT
    assert len(link) == link_state.KEPT + 50_000


def test_the_expected_frame() -> None:
    inbound = InboundLink()
    inbound.begin(EPOCH)
    assert inbound.expected == 1
    inbound.queue.append(TableFrame(1))
    inbound.in_work, inbound.handled = 2, 3
    assert inbound.expected == 7
    inbound.begin(Epoch(1, 2))
    assert (inbound.expected, inbound.epoch) == (1, Epoch(1, 2))
