"""Launching a server: its engine first, since that starts while the server imports what it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from sapwood.serve.config import ServerConfig
from sapwood.serve.engine.engine_spawn import spawn_engine

if TYPE_CHECKING:
    from sapwood.serve.server import Companion, OnReady


def run(config: ServerConfig, on_ready: OnReady | None = None, companion: Companion | None = None) -> None:
    """Run a server on an event loop of its own, until it is told to stop."""
    spawned = spawn_engine(config.engine_settings())
    try:
        from sapwood.serve.server import serve  # here: see above

        _run_loop(serve(config, spawned, on_ready, companion))
    except BaseException:
        spawned.abandon()
        raise


def _run_loop(work: Coroutine[None, None, None]) -> None:
    try:
        import uvloop
    except ImportError:  # which Windows does not have
        asyncio.run(work)
    else:
        uvloop.run(work)
