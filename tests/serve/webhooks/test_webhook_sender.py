"""The sender of one webhook: order, retries, dead letters, and failures of targets and of the source."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from sapwood.serve.webhooks import webhook_connection, webhook_sender
from sapwood.serve.webhooks.target_address import SystemResolver, TargetBackend, TargetPolicy, parse_target
from sapwood.serve.webhooks.webhook_connection import ConnectionLimits, WebhookConnection, read_answer
from sapwood.serve.webhooks.webhook_sender import SenderClock, WebhookDelivery, WebhookSender, encode_payload
from sapwood.serve.webhooks.webhook_settings import WebhookSettings
from sapwood.serve.webhooks.webhook_signature import make_secret
from tests.serve.webhooks.webhook_targets import (
    Behaviour,
    Inbox,
    Target,
    VirtualTime,
    answer,
    answer_and_close,
    close,
    hang,
    hang_in_body,
    make_deliveries,
    send_endless_body,
    send_endless_headers,
    send_garbage,
    serve,
)

pytestmark = pytest.mark.anyio
TLS = httpx.create_ssl_context()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits less for the body of an answer."""
    monkeypatch.setattr(webhook_connection, "_BODY_SECONDS", 0.1)


@asynccontextmanager
async def sending(
    target: Target | str,
    inbox: Inbox,
    time: VirtualTime | None = None,
    policy: TargetPolicy | None = None,
    **settings: Any,
) -> AsyncIterator[WebhookSender]:
    """Run a sender; time is virtual, except for the timestamps that receivers verify."""
    time = time if time is not None else VirtualTime()
    url = target if isinstance(target, str) else target.url
    policy = policy if policy is not None else TargetPolicy(allow_private=True)
    connection = WebhookConnection(
        parse_target(url), TargetBackend(policy, SystemResolver()), TLS, ConnectionLimits()
    )
    clock = SenderClock(monotonic=time.monotonic, sleep=time.sleep, uniform=time.uniform)
    given = WebhookSettings(url=url, **{"timeout": 2.0, **settings})
    sender = WebhookSender("sub", given, inbox, connection, clock=clock)
    task = asyncio.create_task(sender.run())
    try:
        yield sender
    finally:
        sender.stop(0.0)
        await asyncio.wait_for(task, 3)
        assert not connection.is_open


# -- requests --------------------------------------------------------------------------------------------


async def test_a_request_is_what_standard_webhooks_asks_for() -> None:
    inbox, secret, old = Inbox(make_deliveries(1)), make_secret(), make_secret()
    async with serve() as target, sending(target, inbox, secret=secret, previous_secrets=(old,)) as sender:
        await inbox.wait()
    [request] = target.requests
    assert request.line == "POST /hook?a=b HTTP/1.1"
    assert request.headers["host"] == f"127.0.0.1:{target.port}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"].startswith("Sapwood/")
    assert request.id == "in-1"
    for each in (secret, old):
        verified = Webhook(each).verify(request.body, request.headers)
        assert verified == {
            "type": "sapwood.delivery",
            "timestamp": "2027-01-15T08:00:00.500Z",
            "data": {"id": "in-1", "number": 1, "body": "<é/>"},
        }
    assert sender.counters.delivered == sender.counters.attempts == 1


def test_a_payload_that_is_encoded_already_is_not_encoded_again() -> None:
    [delivery] = make_deliveries(1)
    assert isinstance(delivery.payload, dict)
    encoded = json.dumps(delivery.payload, ensure_ascii=False, separators=(",", ":")).encode()
    other = WebhookDelivery(delivery.id, delivery.number, delivery.published, encoded)
    assert encode_payload(other) == encode_payload(delivery)


async def test_deliveries_are_sent_in_order_over_one_connection() -> None:
    inbox = Inbox(make_deliveries(25))
    async with serve() as target, sending(target, inbox):
        await inbox.wait()
        await inbox.add(make_deliveries(25, first=26))
        await inbox.wait()
    assert target.ids == [f"in-{n}" for n in range(1, 51)]
    assert target.connections == 1


# -- targets that fail -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (answer(500), "status 500 Internal Server Error"),
        (answer(404), "status 404 Not Found"),
        (answer(799), "status 799"),
        (answer(302, "location: http://169.254.169.254/\r\n"), "redirects are not followed"),
        (answer(301, "location: /other\r\n"), "redirects are not followed"),
        (hang, "no answer within 0.3 s"),
        (close, "the connection ended without an answer"),
        (send_garbage, "the connection ended without an answer"),
        (send_endless_headers, "the connection ended without an answer"),
    ],
)
async def test_a_delivery_is_tried_again_with_the_same_bytes(
    behaviour: Behaviour, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    inbox, time = Inbox(make_deliveries(3)), VirtualTime()
    async with serve(behaviour, answer(200)) as target, sending(target, inbox, time, timeout=0.3) as sender:
        await inbox.wait()
    assert target.ids == ["in-1", "in-1", "in-2", "in-3"]
    assert target.requests[0].body == target.requests[1].body
    assert (sender.counters.attempts, sender.counters.delivered, sender.counters.failed) == (4, 3, 1)
    assert inbox.dead == []
    assert time.slept == [1.0]
    assert reason in caplog.text


@pytest.mark.parametrize("behaviour", [hang_in_body, send_endless_body, answer(200, body=100_000 * b"x")])
async def test_an_accepting_status_counts_whatever_the_body_is(behaviour: Behaviour) -> None:
    inbox = Inbox(make_deliveries(2))
    async with serve(behaviour) as target, sending(target, inbox):
        await inbox.wait()
    assert target.ids == ["in-1", "in-2"]
    assert target.connections == 2


async def test_an_idle_connection_that_the_target_closes_is_no_failure() -> None:
    inbox = Inbox(make_deliveries(4), limit=1)
    async with serve(answer_and_close) as target, sending(target, inbox) as sender:
        await inbox.wait()
    assert target.ids == ["in-1", "in-2", "in-3", "in-4"]
    assert sender.counters.failed == 0


async def test_a_connection_without_deliveries_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_sender, "_IDLE_SECONDS", 0.05)
    inbox = Inbox(make_deliveries(1))
    async with serve() as target, sending(target, inbox):
        await inbox.wait()
        await reached(lambda: not target.open)
        await inbox.add(make_deliveries(1, first=2))
        await inbox.wait()
    assert target.ids == ["in-1", "in-2"]
    assert target.connections == 2


async def test_a_kept_connection_that_breaks_is_replaced_at_once() -> None:
    inbox = Inbox(make_deliveries(2))
    async with serve(answer(200), close, answer(200)) as target, sending(target, inbox) as sender:
        await inbox.wait()
    assert target.ids == ["in-1", "in-2", "in-2"]
    assert sender.counters.failed == 0


async def test_a_target_that_does_not_exist_is_a_failure() -> None:
    inbox = Inbox(make_deliveries(1))
    async with serve() as target:
        url = target.url
    async with sending(url, inbox, attempts=2):
        await inbox.wait()
    [(_, attempts, reason)] = inbox.dead
    assert attempts == 2
    assert reason.startswith("no connection")


async def test_a_private_target_is_never_connected_to() -> None:
    inbox = Inbox(make_deliveries(1))
    async with serve() as target, sending(target, inbox, policy=TargetPolicy(), attempts=2):
        await inbox.wait()
    assert target.connections == 0
    [(_, _, reason)] = inbox.dead
    assert "its address is loopback" in reason


async def test_a_webhook_that_is_gone_is_disabled() -> None:
    inbox = Inbox(make_deliveries(2))
    async with serve(answer(410)) as target, sending(target, inbox) as sender:
        await inbox.wait()
    assert inbox.disabled == "127.0.0.1 wants no more deliveries: status 410 Gone"
    assert inbox.acknowledged == 0
    assert target.ids == ["in-1"]
    assert sender.status.disabled
    assert sender.counters.disabled == 1


# -- backoff ---------------------------------------------------------------------------------------------


async def test_delays_double_up_to_a_limit_and_the_last_failure_is_a_dead_letter() -> None:
    inbox, time = Inbox(make_deliveries(2)), VirtualTime()
    limits: dict[str, Any] = {"attempts": 6, "first_delay": 2.0, "max_delay": 20.0}
    async with (
        serve(*6 * [answer(500)], answer(200)) as target,
        sending(target, inbox, time, **limits) as sender,
    ):
        await inbox.wait()
    assert time.slept == [2.0, 4.0, 8.0, 16.0, 20.0]
    assert inbox.dead == [("in-1", 6, "status 500 Internal Server Error")]
    assert target.ids == [*6 * ["in-1"], "in-2"]
    assert sender.counters.dead_lettered == 1
    assert sender.status.failure is None


async def test_jitter_is_full() -> None:
    inbox, time = Inbox(make_deliveries(1)), VirtualTime(jitter=0.25)
    async with serve(answer(500)) as target, sending(target, inbox, time, attempts=4):
        await inbox.wait()
    assert time.slept == [0.25, 0.5, 1.0]


async def test_the_last_attempt_is_at_the_end_of_the_time() -> None:
    inbox, time = Inbox(make_deliveries(1)), VirtualTime()
    async with serve(answer(500)) as target, sending(target, inbox, time, attempts=99, retry_for=10):
        await inbox.wait()
    assert time.slept == [1.0, 2.0, 4.0, 3.0]
    assert inbox.dead[0][1] == 5


@pytest.mark.parametrize("status", [429, 503])
async def test_a_target_may_ask_for_time(status: int) -> None:
    inbox, time = Inbox(make_deliveries(1)), VirtualTime()
    busy = answer(status, "Retry-After: 77\r\n")
    async with serve(busy, answer(200)) as target, sending(target, inbox, time):
        await inbox.wait()
    assert time.slept == [77.0]


async def test_a_target_cannot_ask_for_more_time_than_there_is() -> None:
    inbox, time = Inbox(make_deliveries(1)), VirtualTime()
    busy = answer(429, "retry-after: 99999999999999999999\r\n")
    async with serve(busy) as target, sending(target, inbox, time, retry_for=60):
        await inbox.wait()
    assert time.slept == [60.0]
    assert inbox.dead == [("in-1", 2, "status 429 Too Many Requests")]


@pytest.mark.parametrize(
    ("status", "value", "seconds"),
    [
        (429, b"5", 5.0),
        (503, b" 0 ", 0.0),
        (503, b"Fri, 15 Jan 2027 08:01:30 GMT", 90.0),
        (503, b"Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        (503, b"soon", None),
        (503, b"-5", None),
        (503, b"\xff\xb2", None),
        (503, b"", None),
        (500, b"5", None),
    ],
)
def test_retry_after_is_read(status: int, value: bytes, seconds: float | None) -> None:
    now = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
    assert read_answer(status, {b"Retry-After": value}, now).retry_after == seconds


# -- the source fails ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "behaviour"),
    [("next", answer(200)), ("acknowledge", answer(200)), ("dead_letter", answer(500))],
)
async def test_a_source_that_fails_once_loses_nothing(method: str, behaviour: Behaviour) -> None:
    inbox, time = Inbox(make_deliveries(3)), VirtualTime()
    inbox.failing.add(method)
    async with serve(behaviour, behaviour, answer(200)) as target, sending(target, inbox, time, attempts=1):
        await inbox.wait()
    assert list(dict.fromkeys(target.ids)) == ["in-1", "in-2", "in-3"]
    if method != "dead_letter":  # what the target has accepted is not sent again
        assert len(target.ids) == 3
    assert 5.0 in time.slept


# -- the log ---------------------------------------------------------------------------------------------


async def test_the_log_has_what_an_operator_needs_and_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "sapwood")
    inbox, secret = Inbox(make_deliveries(1)), make_secret()
    async with serve(answer(500), answer(200)) as target, sending(target, inbox, secret=secret):
        await inbox.wait()
    failed, sent = [record.getMessage() for record in caplog.records if record.name.startswith("sapwood")]
    expected = (
        "delivery in-1 to 127.0.0.1 failed: status 500 Internal Server Error (attempt 1, next in 1.0 s)"
    )
    assert failed == expected
    assert sent == "delivery in-1 sent to 127.0.0.1: status 200, attempt 2"
    assert secret not in caplog.text
    assert "/hook" not in caplog.text


# -- stopping --------------------------------------------------------------------------------------------


async def reached(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_stopping_lets_the_attempt_in_flight_end() -> None:
    release = asyncio.Event()

    async def answer_later(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await answer(200)(writer)

    inbox = Inbox(make_deliveries(3))
    async with serve(answer_later) as target, sending(target, inbox) as sender:
        await reached(lambda: target.requests)
        sender.stop(5.0)
        await asyncio.sleep(0.02)
        assert inbox.acknowledged == 0
        release.set()
        await inbox.wait(1)
    assert target.ids == ["in-1"]
    assert inbox.acknowledged == 1


async def test_stopping_does_not_wait_for_a_target_that_hangs() -> None:
    inbox = Inbox(make_deliveries(1))
    async with serve(hang) as target, sending(target, inbox, timeout=60) as sender:
        await reached(lambda: target.requests)
        sender.stop(0.05)
    assert inbox.acknowledged == 0
    assert inbox.dead == []


async def test_a_cancelled_send_is_sent_again_by_the_next_sender() -> None:
    inbox = Inbox(make_deliveries(2))
    async with serve(hang, answer(200)) as target:
        async with sending(target, inbox, timeout=60):
            await reached(lambda: target.requests)
        async with sending(target, inbox):
            await inbox.wait()
    assert target.ids == ["in-1", "in-1", "in-2"]


async def test_stopping_ends_a_wait_at_once() -> None:
    inbox = Inbox()
    async with serve() as target, sending(target, inbox) as sender:
        await asyncio.sleep(0.01)
        sender.stop(60.0)
    assert inbox.acknowledged == 0
