"""Steps of tests that run in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def settle() -> None:
    """Let all tasks run, so that one which does not wait would have gone on."""
    await asyncio.sleep(0.05)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds, and see that it still does some time later."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)
    await settle()
    assert condition()
