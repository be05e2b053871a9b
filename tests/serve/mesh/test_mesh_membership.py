"""The membership of a broker in its mesh, without a server of NATS."""

from __future__ import annotations

import asyncio

import pytest

from sapwood.mesh.nats.settings import TransportSettings
from sapwood.serve.mesh.mesh_membership import MeshMembership


def test_a_call_that_swallows_its_cancellation_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So `asyncio.wait_for` does in Python 3.11, if what it waits for comes at the same moment."""
    swallowed: list[str] = []

    async def answer_at_the_last_moment(self: MeshMembership) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if swallowed:
                raise
            swallowed.append("once")

    async def run() -> None:
        settings = TransportSettings("news", "a", ["nats://127.0.0.1:1"])
        membership = MeshMembership(settings, None, "log", dict, lambda topology: None)
        await membership.start()
        await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            await membership.stop()

    monkeypatch.setattr(MeshMembership, "_renew", answer_at_the_last_moment)
    asyncio.run(run())
    assert swallowed
