"""Ctrl-C where work is done in transactions: it waits until one is finished; a second one does not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from sapwood.cli.common import console

_ENDED_BY_CTRL_C = 130


class Interruption:
    """Whether Ctrl-C has come, and when it may end the command.

    A database that is interrupted anywhere has to be made to give its transaction up, and does not always.
    So Ctrl-C raises KeyboardInterrupt only where the command says that it may.
    """

    def __init__(self) -> None:
        self._came = False
        self._allowed = False

    def check(self) -> None:
        """Ends the command now if Ctrl-C has come."""
        if self._came:
            raise KeyboardInterrupt

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """In this block, which may wait for something, Ctrl-C ends the command at once."""
        self.check()
        self._allowed = True
        try:
            yield
        finally:
            self._allowed = False

    def receive(self, number: int, frame: FrameType | None) -> None:
        """What the signal does."""
        if self._allowed:
            raise KeyboardInterrupt
        if self._came:
            console.errors.show_cursor(True)
            os._exit(_ENDED_BY_CTRL_C)  # as after a crash, what is committed is there
        self._came = True
        console.errors.print("stopping as soon as what is under way is done; again to stop at once")


@contextmanager
def gently_interrupted() -> Iterator[Interruption]:
    """While it is entered, Ctrl-C ends the command where it may, or else at the end of the block."""
    interruption = Interruption()
    if current_thread() is not main_thread():  # others get no signals
        yield interruption
        return
    former = signal.signal(signal.SIGINT, interruption.receive)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, former)
    interruption.check()
