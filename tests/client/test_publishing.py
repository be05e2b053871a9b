"""Publishing: receipts, refusals, batches, and repetitions that are never a second message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from sapwood import MessageError
from sapwood.client import Conflict, Message, Overloaded, PublishReceipt, Refusal, TooLarge
from sapwood.client.model.messages import MessageBatcher, format_time
from sapwood.errors import ArgumentError
from tests.support.service.face import AsyncFace, Face
from tests.support.service.stub_server import StubServer

pytestmark = pytest.mark.slow


def test_a_message_has_a_receipt(face: Face, stub: StubServer) -> None:
    face.call("subscribe", "all", "//a", subscriber="desk")
    receipt = face.call("publish", "news", "<a/>", id="one")
    assert receipt == PublishReceipt("one", "news", 1, 1, 1)
    again = face.call("publish", "news", b"<a/>", id="one")
    assert again == PublishReceipt("one", "news", 1, 1, 1, duplicate=True)
    assert face.call("publish", "news", "<b/>", wait="delivered", timeout=2).delivered is True
    assert len(stub.state.messages) == 2


def test_the_id_of_another_message_is_a_conflict(face: Face) -> None:
    face.call("publish", "news", "<a/>", id="one")
    with pytest.raises(Conflict, match="belongs to another message") as caught:
        face.call("publish", "news", "<b/>", id="one")
    assert (caught.value.status, caught.value.slug) == (409, "conflict")


def test_a_refused_message_is_an_error_with_its_position(face: Face) -> None:
    with pytest.raises(MessageError) as caught:
        face.call("publish", "news", "<a>\n<b></a>")
    assert (caught.value.line, caught.value.column) == (2, 6)


@pytest.mark.parametrize("fault", ["lost", 503, 429])
def test_a_repetition_is_no_second_message(fault: Any, face: Face, stub: StubServer) -> None:
    if fault == "lost":
        stub.lose_answers(2)
    else:
        stub.fail(fault, fault)
    receipt = face.call("publish", "news", "<a/>")
    assert receipt.duplicate is (fault == "lost")
    assert len(stub.state.messages) == 1
    assert len(stub.api.requests) == 3


def test_many_messages_have_results_in_order(face: Face, stub: StubServer) -> None:
    messages = [Message("<a/>", "first", 7), b"<b>", "<c\u00fc/>", Message("<d/>", "first"), "<e/>\n--x\r\n"]
    results = face.call("publish_many", "news", messages)
    assert [type(result) for result in results] == [PublishReceipt, Refusal, PublishReceipt, Refusal, Refusal]
    assert results[0].id == "first"
    assert isinstance(results[1].error, MessageError)
    assert isinstance(results[3].error, Conflict)
    assert len(stub.api.requests) == 1


def test_bodies_arrive_byte_by_byte(face: Face, stub: StubServer) -> None:
    """Also those whose ends look like line ends of the encoding."""
    face.call("subscribe", "all", "//*", subscriber="desk")
    bodies = ["<a/>\r\n", "\r\n<a/>", '<a b="--"/>\r\n\r\n', "<ü/>\n"]
    assert not [r for r in face.call("publish_many", "s", bodies) if isinstance(r, Refusal)]
    assert [one["body"] for one in stub.state.inboxes["desk"].deliveries] == bodies


def test_batches_are_repeated_whole_with_the_same_ids(face: Face, stub: StubServer) -> None:
    stub.fail(503)
    stub.lose_answers(1)
    results = face.call("publish_many", "news", [f"<a n='{n}'/>" for n in range(25)], batch=10)
    assert [result.duplicate for result in results] == [True] * 10 + [False] * 15
    assert len({result.id for result in results}) == len(stub.state.messages) == 25


def test_messages_are_read_as_results_are_taken(face: Face) -> None:
    read = []

    def bodies() -> Iterator[str]:
        for number in range(1000):
            read.append(number)
            yield f"<a n='{number}'/>"

    results = face.iterate("publish_many", "news", bodies(), batch=10)
    next(results)
    assert len(read) == 10


def test_messages_may_come_from_an_asynchronous_iterator(stub: StubServer) -> None:
    async def bodies() -> AsyncIterator[str]:
        yield "<a/>"
        yield "<b/>"

    with AsyncFace(stub.url) as face:
        assert len(face.call("publish_many", "news", bodies())) == 2


def test_a_request_that_is_too_large_is_divided(face: Face, stub: StubServer) -> None:
    stub.api.max_batch_bytes = 2000
    bodies = [f"<a>{'x' * 100}</a>"] * 20 + [f"<a>{'x' * 3000}</a>", "<a/>"]
    results = face.call("publish_many", "news", bodies)
    assert [number for number, result in enumerate(results) if isinstance(result, Refusal)] == [20]
    assert isinstance(results[20].error, TooLarge)
    assert len(stub.state.messages) == 21


def test_an_overload_ends_with_what_was_published_before(face: Face, stub: StubServer) -> None:
    results = face.iterate("publish_many", "news", ["<a/>"] * 4, batch=2)
    assert [next(results).seq, next(results).seq] == [1, 2]
    stub.fail(*[429] * 6, slug="backlog")
    with pytest.raises(Overloaded) as caught:
        next(results)
    assert (caught.value.slug, len(stub.state.messages)) == ("backlog", 2)


def test_messages_for_which_an_inbox_is_full_are_sent_again(face: Face, stub: StubServer) -> None:
    waits: list[float] = []
    face.on_sleep(waits.append)
    stub.api.backlog = [{"1", "2", "3"}, {"2"}]
    messages = [Message(f"<a n='{n}'/>", str(n)) for n in range(5)]
    results = face.call("publish_many", "news", messages)
    assert [(result.id, result.duplicate) for result in results] == [(str(n), False) for n in range(5)]
    assert list(stub.state.messages) == ["0", "4", "1", "3", "2"]
    assert len(waits) == 2


def test_messages_for_which_an_inbox_stays_full_are_refused(face: Face, stub: StubServer) -> None:
    face.on_sleep(lambda _: None)
    stub.api.backlog = [{"1"}] * 6
    results = face.call("publish_many", "news", [Message("<a/>", "0"), Message("<a/>", "1")])
    assert isinstance(results[0], PublishReceipt)
    assert isinstance(results[1].error, Overloaded)


def test_nothing_is_sent_for_no_messages(face: Face, stub: StubServer) -> None:
    assert face.call("publish_many", "news", []) == []
    assert stub.api.requests == []


@pytest.mark.parametrize("id", ["", " a", "ü", "a\nb", "x" * 501])
def test_ids_that_no_header_can_hold_are_refused(id: str, face: Face) -> None:
    with pytest.raises(ArgumentError, match="message id"):
        face.call("publish", "news", "<a/>", id=id)
    with pytest.raises(ArgumentError, match="message id"):
        face.call("publish_many", "news", [Message("<a/>", id)])


def test_ids_with_quotes_survive(face: Face, stub: StubServer) -> None:
    id = 'a"b\\c;d=%20'
    face.call("publish_many", "news", [Message("<a/>", id)])
    assert list(stub.state.messages) == [id]


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (1.5, "1.5"),
        (7, "7"),
        (" 2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    ],
)
def test_times(time: Any, text: str) -> None:
    assert format_time(time) == text


@pytest.mark.parametrize("time", [float("nan"), datetime(2026, 1, 1), "", "a\nb"])
def test_times_that_are_none_are_refused(time: Any) -> None:
    with pytest.raises(ArgumentError, match="the time"):
        format_time(time)


def test_arguments_that_contradict_each_other(face: Face) -> None:
    with pytest.raises(ArgumentError, match="timeout goes with wait='delivered'"):
        face.call("publish", "s", "<a/>", timeout=3)
    with pytest.raises(ArgumentError, match="wait must be"):
        face.call("publish", "s", "<a/>", wait="done")


@pytest.mark.parametrize(
    ("count", "max_bytes", "sizes", "batches"),
    [
        (2, 100, [1, 1, 1], [[1, 1], [1]]),
        (9, 10, [4, 4, 4], [[4, 4], [4]]),
        (9, 10, [20, 1], [[20], [1]]),
        (9, 10, [1, 20, 1], [[1], [20], [1]]),
        (9, 10, [5, 5, 5], [[5, 5], [5]]),
    ],
)
def test_batches_are_bounded_by_count_and_bytes(
    count: int, max_bytes: int, sizes: list[int], batches: list[list[int]]
) -> None:
    batcher = MessageBatcher(count, max_bytes)
    found = [batch for size in sizes for batch in batcher.add(b"x" * size)]
    if rest := batcher.take():
        found.append(rest)
    assert [[len(message.body) for message in batch] for batch in found] == batches
