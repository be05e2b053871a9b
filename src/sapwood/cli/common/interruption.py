"""Ctrl-C in commands that work in transactions: the first ends after the current one, the second at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from sapwood.cli.common import console

_ENDED_BY_CTRL_C = 130


class InterruptHandler:
    """The state of Ctrl-C, and the places at which it may end the command.

    A database call that is interrupted in the middle may leave its transaction open, so Ctrl-C raises
    KeyboardInterrupt only where the command allows it.
    """

    def __init__(self) -> None:
        self._came = False
        self._allowed = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self._came:
            raise KeyboardInterrupt

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let Ctrl-C end the command at once within this block, which may wait."""
        self.check()
        self._allowed = True
        try:
            yield
        finally:
            self._allowed = False

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT."""
        if self._allowed:
            raise KeyboardInterrupt
        if self._came:
            console.errors.show_cursor(True)
            os._exit(_ENDED_BY_CTRL_C)  # as after a crash, what is committed is there
        self._came = True
        console.errors.print("stopping as soon as what is under way is done; again to stop at once")


@contextmanager
def handle_interrupts() -> Iterator[InterruptHandler]:
    """Handle Ctrl-C within the block: it ends the command where that is allowed, or at the end of the
    block.
    """
    interruption = InterruptHandler()
    if current_thread() is not main_thread():  # others get no signals
        yield interruption
        return
    former = signal.signal(signal.SIGINT, interruption.receive)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, former)
    interruption.check()
