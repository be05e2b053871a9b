"""The event stream of deliveries: acknowledgement, reconnection, and gaps."""

from __future__ import annotations

import logging
import time

import pytest

from sapwood.client import Gap, NotFound, Unavailable
from sapwood.errors import ArgumentError, SapwoodError
from tests.support.service.face import AsyncStream, Face, SyncFace, SyncStream
from tests.support.service.stub_server import StubServer

pytestmark = pytest.mark.slow


def fill(stub: StubServer, count: int) -> None:
    start = len(stub.state.inboxes["desk"].deliveries)
    for number in range(start + 1, start + count + 1):
        stub.state.deliver("desk", f"<m>{number} ü</m>".encode())


def wait_for_ack(stub: StubServer, number: int, stream: SyncStream | AsyncStream) -> None:
    deadline = time.monotonic() + 5
    while stub.state.inboxes["desk"].acknowledged != number:
        assert time.monotonic() < deadline, stub.state.inboxes["desk"].acks
        stream.rest(0.02)


def test_deliveries_come_in_order_with_all_fields(face: Face, stub: StubServer) -> None:
    fill(stub, 3)
    stream = face.deliveries("desk")
    first, *others = stream.take(3)
    assert first.body == "<m>1 ü</m>".encode()
    assert (first.id, first.number, first.subscriptions, first.message) == ("desk-1", 1, ("s",), "m")
    assert (first.time, first.published) == (None, 1_800_000_001.0)
    assert [delivery.number for delivery in others] == [2, 3]
    fill(stub, 1)
    assert [delivery.number for delivery in stream.take()] == [4]


@pytest.mark.parametrize("chunk", [1, 7])
def test_events_may_come_in_pieces(chunk: int, face: Face, stub: StubServer) -> None:
    stub.api.chunk = chunk
    fill(stub, 2)
    assert [d.body for d in face.deliveries("desk").take(2)] == ["<m>1 ü</m>".encode(), "<m>2 ü</m>".encode()]


def test_what_is_not_utf8_comes_as_bytes(face: Face, stub: StubServer) -> None:
    fill(stub, 1)
    delivery = stub.state.inboxes["desk"].deliveries[0]
    del delivery["body"]
    delivery["body_base64"] = "/w=="
    assert face.deliveries("desk").take()[0].body == b"\xff"


# -- acknowledgement ---------------------------------------------------------------------------------------


def test_a_delivery_is_acknowledged_when_the_next_is_asked_for(face: Face, stub: StubServer) -> None:
    fill(stub, 3)
    stream = face.deliveries("desk")
    stream.take(3)
    assert stub.state.inboxes["desk"].acks == []  # soon, and together
    wait_for_ack(stub, 2, stream)
    assert stub.state.inboxes["desk"].acks == [2]


def test_the_rest_is_acknowledged_at_close(face: Face, stub: StubServer) -> None:
    fill(stub, 3)
    stream = face.deliveries("desk")
    stream.take(3)
    stream.close()
    assert stub.state.inboxes["desk"].acks == [2]
    assert stream.ends()
    stream.close()
    again = face.deliveries("desk")
    assert again.take()[0].number == 3


def test_a_client_that_is_closed_acknowledges(face: Face, stub: StubServer) -> None:
    fill(stub, 2)
    stream = face.deliveries("desk")
    stream.take(2)
    if isinstance(face, SyncFace):
        face.client.close()
    else:
        face.run(face.client.aclose())
    assert stub.state.inboxes["desk"].acknowledged == 1
    assert stream.position == 2


def test_many_deliveries_are_acknowledged_before_half_a_second_has_passed(
    face: Face, stub: StubServer
) -> None:
    fill(stub, 1002)
    stream = face.deliveries("desk")
    stream.take(1001)
    stream.flush()
    stream.rest(0)
    assert stub.state.inboxes["desk"].acks[-1] == 1000


def test_manual_acknowledgement_covers_all_before(face: Face, stub: StubServer) -> None:
    fill(stub, 4)
    stream = face.deliveries("desk", ack="manual")
    deliveries = stream.take(4)
    stream.ack(deliveries[2])
    stream.ack(deliveries[0])
    assert stub.state.inboxes["desk"].acknowledged == 0
    wait_for_ack(stub, 3, stream)
    stream.close()
    assert stub.state.inboxes["desk"].acks == [3]


def test_without_acknowledgement_nothing_is_sent(face: Face, stub: StubServer) -> None:
    fill(stub, 2)
    stream = face.deliveries("desk", ack="none")
    delivery = stream.take(2)[0]
    stream.close()
    assert stub.state.inboxes["desk"].acks == []
    with pytest.raises(ArgumentError, match="use 'manual'"):
        stream.ack(delivery)


def test_an_acknowledgement_that_fails_is_sent_with_the_next(
    face: Face, stub: StubServer, caplog: pytest.LogCaptureFixture
) -> None:
    fill(stub, 3)
    stream = face.deliveries("desk")
    stream.take(2)
    stub.fail(*[404], slug="not-found")
    deadline = time.monotonic() + 5
    while "were not acknowledged" not in caplog.text:
        assert time.monotonic() < deadline
        stream.rest(0.02)
    stream.take(1)
    wait_for_ack(stub, 2, stream)


def test_a_mode_that_does_not_exist(face: Face) -> None:
    with pytest.raises(ArgumentError, match="ack must be 'auto', 'manual' or 'none'"):
        face.deliveries("desk", ack="never")


# -- reconnection ------------------------------------------------------------------------------------------


def test_a_lost_connection_is_resumed_without_loss_or_repetition(face: Face, stub: StubServer) -> None:
    fill(stub, 5)
    lost: list[SapwoodError] = []
    stream = face.deliveries("desk", on_disconnect=lost.append)
    numbers = [delivery.number for delivery in stream.take(2)]
    stub.drop_streams()
    stub.fail(503)
    numbers += [delivery.number for delivery in stream.take(3)]
    stub.drop_streams()
    fill(stub, 1)
    numbers += [delivery.number for delivery in stream.take(1)]
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert [type(error) for error in lost] == [Unavailable] * len(lost)
    assert 1 <= len(lost) <= 2  # what had arrived may be taken first


def test_a_broker_that_restarts_is_found_again(face: Face, stub: StubServer) -> None:
    fill(stub, 1)
    stream = face.deliveries("desk", ack="manual")
    stream.take(1)
    stub.stop()
    fill(stub, 1)
    waits: list[float] = []

    def restart(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 8:  # more than the retries of a request
            stub.start()

    face.on_sleep(restart)
    assert stream.take(1)[0].number == 2
    assert len(waits) == 8


def test_a_broker_that_is_not_there_at_first_is_an_error(face: Face, stub: StubServer) -> None:
    waits: list[float] = []
    face.on_sleep(waits.append)
    stub.fail(*[503] * 6)
    with pytest.raises(Unavailable, match="ordered: 503"):
        face.deliveries("desk").take()
    assert len(waits) == 5


def test_an_error_that_does_not_pass_ends_the_iteration(face: Face, stub: StubServer) -> None:
    with pytest.raises(NotFound, match="there is no subscriber 'nobody'"):
        face.deliveries("nobody").take()
    fill(stub, 1)
    stream = face.deliveries("desk")
    stream.take()
    stub.fail(404, slug="not-found")
    stub.drop_streams()
    with pytest.raises(NotFound):
        stream.take()


def test_iteration_begins_after_a_position(face: Face, stub: StubServer) -> None:
    fill(stub, 5)
    assert face.deliveries("desk", after=3).take()[0].number == 4
    stub.state.inboxes["desk"].acknowledged = 1
    assert face.deliveries("desk").take()[0].number == 2


def test_an_inbox_that_was_created_anew_is_read_from_its_begin(
    face: Face, stub: StubServer, caplog: pytest.LogCaptureFixture
) -> None:
    fill(stub, 2)
    stream = face.deliveries("desk", ack="manual")
    stream.take(2)
    stub.state.deliver("desk", b"<new/>")
    stub.state.inboxes["desk"].deliveries[2] |= {"id": "other-1", "number": 1}
    [delivery] = stream.take()
    assert (delivery.number, delivery.body) == (1, b"<new/>")
    assert "created anew" in caplog.text
    stream.ack(delivery)
    stream.close()
    assert stub.state.inboxes["desk"].acks == [1]


# -- gaps --------------------------------------------------------------------------------------------------


def test_gaps_are_reported_once_and_logged(
    face: Face, stub: StubServer, caplog: pytest.LogCaptureFixture
) -> None:
    fill(stub, 3)
    stub.state.inboxes["desk"].gaps = [{"after": 1, "count": 7, "reason": "the inbox was full"}]
    gaps: list[Gap] = []
    stream = face.deliveries("desk", ack="none", on_gap=gaps.append)
    with caplog.at_level(logging.WARNING):
        assert [delivery.number for delivery in stream.take(3)] == [1, 2, 3]
    assert gaps == [Gap(1, 7, "the inbox was full")]
    assert "subscriber 'desk' has lost 7 deliveries after number 1: the inbox was full" in caplog.text
