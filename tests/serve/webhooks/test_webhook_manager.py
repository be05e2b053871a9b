"""All webhooks of a broker: none delays another, settings change while they run, and all end in time."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import ArgumentError
from sapwood.serve.webhooks.target_address import Address, TargetPolicy
from sapwood.serve.webhooks.webhook_connection import ConnectionLimits
from sapwood.serve.webhooks.webhook_manager import WebhookManager
from sapwood.serve.webhooks.webhook_settings import WebhookSettings
from tests.serve.webhooks.webhook_targets import Inbox, Target, answer, hang, make_deliveries, serve
from tests.support.service.certificate import make_certificate

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def resolve_to_loopback(host: str, port: int) -> Sequence[Address]:
    """Resolve every name to this machine."""
    return [ipaddress.ip_address("127.0.0.1")]


@asynccontextmanager
async def managing(**options: Any) -> AsyncIterator[WebhookManager]:
    """Run a manager that may send to loopback."""
    policy = TargetPolicy(allow_private=True)
    manager = WebhookManager(policy, **{"resolver": resolve_to_loopback, "grace": 0.2, **options})
    try:
        yield manager
    finally:
        async with asyncio.timeout(3):
            await manager.close()
        assert len(manager) == 0


async def reached(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def to(target: Target, **settings: Any) -> WebhookSettings:
    """Return settings for a target."""
    return WebhookSettings(url=target.url, **settings)


# -- none delays another ---------------------------------------------------------------------------------


async def test_a_target_that_hangs_does_not_delay_others() -> None:
    stuck, others = Inbox(make_deliveries(3)), [Inbox(make_deliveries(20)) for _ in range(10)]
    async with serve(hang) as slow, serve() as fast, managing() as manager:
        manager.put("slow", to(slow, timeout=60), stuck)
        await reached(lambda: slow.requests)
        for number, inbox in enumerate(others):
            manager.put(f"fast {number}", to(fast), inbox)
        for inbox in others:
            await inbox.wait(seconds=2)
        assert stuck.acknowledged == 0
        assert manager.counters.delivered == 200


async def test_webhooks_to_a_slow_host_do_not_use_up_the_connections_of_others() -> None:
    stuck, inbox = [Inbox(make_deliveries(1)) for _ in range(6)], Inbox(make_deliveries(20))
    limits = ConnectionLimits(total=4, per_host=3)
    async with serve(hang) as slow, serve() as fast, managing(limits=limits) as manager:
        for number, each in enumerate(stuck):
            manager.put(f"slow {number}", to(slow, timeout=60), each)
        await reached(lambda: len(slow.requests) == 3)
        url = f"http://fast.example:{fast.port}/"
        manager.put("fast", WebhookSettings(url=url), inbox)
        await inbox.wait(seconds=2)
        assert slow.connections == 3


async def test_webhooks_take_turns_where_connections_are_short() -> None:
    inboxes = [Inbox(make_deliveries(10)) for _ in range(5)]
    async with serve() as target, managing(limits=ConnectionLimits(total=1, per_host=1)) as manager:
        for number, inbox in enumerate(inboxes):
            manager.put(f"sub {number}", to(target), inbox)
        for inbox in inboxes:
            await inbox.wait(seconds=4)
        assert len(target.requests) == 50
        assert {each.acknowledged for each in inboxes} == {10}


async def test_limits_keep_no_account_of_hosts_that_are_not_used() -> None:
    limits = ConnectionLimits(total=1, per_host=1)
    await limits.acquire("a")
    waiting = [asyncio.create_task(limits.acquire(host)) for host in ("a", "b")]
    await asyncio.sleep(0)
    assert limits.contended("a")
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert not limits.contended("a")
    limits.release("a")
    assert not limits._hosts
    await asyncio.wait_for(limits.acquire("b"), 1)


# -- changes ---------------------------------------------------------------------------------------------


async def test_changed_settings_take_effect_and_nothing_is_lost_or_out_of_order() -> None:
    inbox = Inbox(make_deliveries(300), limit=7)
    async with serve() as first, serve() as second, managing() as manager:
        manager.put("sub", to(first), inbox)
        await inbox.wait(20)
        manager.put("sub", to(second), inbox)
        manager.put("sub", to(second, attempts=3), inbox)
        await inbox.wait()
        assert len(manager) == 1
    sent = first.ids + second.ids
    assert second.ids
    assert list(dict.fromkeys(sent)) == [f"in-{n}" for n in range(1, 301)]
    assert sent == sorted(sent, key=lambda each: int(each[3:]))


async def test_a_new_url_does_not_wait_for_the_retries_of_the_old_one() -> None:
    inbox = Inbox(make_deliveries(1))
    async with serve(answer(500)) as broken, serve() as repaired, managing() as manager:
        manager.put("sub", to(broken, first_delay=3600, max_delay=3600), inbox)
        await reached(lambda: (status := manager.status("sub")) and status.retry_at)
        status = manager.status("sub")
        assert status is not None
        assert status.delivery == "in-1"
        assert status.failure == "status 500 Internal Server Error"
        manager.put("sub", to(repaired), inbox)
        await inbox.wait(seconds=1)


async def test_the_same_settings_again_change_nothing() -> None:
    inbox = Inbox(make_deliveries(1))
    async with serve(hang) as target, managing() as manager:
        settings = to(target, timeout=60)
        manager.put("sub", settings, inbox)
        await reached(lambda: target.requests)
        manager.put("sub", settings.model_copy(), inbox)
        await asyncio.sleep(0.05)
        assert len(target.requests) == 1


async def test_a_disabled_webhook_ends_and_can_be_started_again() -> None:
    inbox = Inbox(make_deliveries(2))
    async with serve(answer(410), answer(200)) as target, managing() as manager:
        settings = to(target)
        manager.put("sub", settings, inbox)
        await reached(lambda: inbox.disabled and not len(manager))
        assert manager.status("sub") is None
        inbox.disabled = None
        manager.put("sub", settings, inbox)
        await inbox.wait()
        assert target.ids == ["in-1", "in-1", "in-2"]


async def test_a_removed_webhook_sends_nothing_more() -> None:
    inbox = Inbox(make_deliveries(1))
    async with serve() as target, managing() as manager:
        manager.put("sub", to(target), inbox)
        await inbox.wait()
        await manager.remove("sub")
        await manager.remove("nobody")
        await inbox.add(make_deliveries(1, first=2))
        await asyncio.sleep(0.05)
        assert target.ids == ["in-1"]


async def test_a_webhook_that_is_removed_and_put_at_once_runs_once() -> None:
    inbox = Inbox(make_deliveries(1))
    async with serve(hang, answer(200)) as target, managing() as manager:
        manager.put("sub", to(target), inbox)
        await reached(lambda: target.requests)
        removal = asyncio.create_task(manager.remove("sub"))
        await asyncio.sleep(0)
        manager.put("sub", to(target), inbox)
        await removal
        await inbox.wait()
        assert len(manager) == 1


async def test_many_hanging_targets_end_together_within_the_bound() -> None:
    async with serve(hang) as target, managing() as manager:
        for number in range(20):
            manager.put(f"sub {number}", to(target, timeout=60), Inbox(make_deliveries(1)))
        await reached(lambda: len(target.requests) == 20)
        begin = asyncio.get_running_loop().time()
        await manager.close()
        assert asyncio.get_running_loop().time() - begin < 1.5


async def test_a_target_is_checked_before_it_is_stored() -> None:
    manager = WebhookManager(resolver=resolve_to_loopback)
    with pytest.raises(ArgumentError, match="its address is loopback"):
        await manager.check(WebhookSettings(url="https://hooks.example/"))


# -- TLS -------------------------------------------------------------------------------------------------


async def test_tls_names_and_checks_the_host_and_not_its_address(tmp_path: Path) -> None:
    path = make_certificate(tmp_path, "hooks.example")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    names: list[str | None] = []
    server.sni_callback = lambda _, name, __: names.append(name)
    trusted = ssl.create_default_context(cafile=str(path))
    right, wrong = Inbox(make_deliveries(1)), Inbox(make_deliveries(1))
    async with serve(tls=server) as target, managing(ssl_context=trusted) as manager:
        url = f"https://hooks.example:{target.port}/"
        manager.put("right", WebhookSettings(url=url), right)
        await right.wait()
        url = f"https://other.example:{target.port}/"
        manager.put("wrong", WebhookSettings(url=url, attempts=1), wrong)
        await wrong.wait()
        assert target.requests[0].headers["host"] == f"hooks.example:{target.port}"
    assert right.dead == []
    assert names == ["hooks.example", "other.example"]
    [(_, _, reason)] = wrong.dead
    assert "certificate" in reason
    assert len(target.requests) == 1
