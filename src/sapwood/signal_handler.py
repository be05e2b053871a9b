"""Graceful interruption: a first signal asks for an orderly end, a second Ctrl-C ends the process at once."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, ClassVar, Self

INTERRUPTED = 130
"""The exit code of a process that Ctrl-C has ended."""


class SignalHandler(ABC):
    """A context manager that handles signals while it is entered.

    On another thread than the main one it does nothing, since Python handles no signals there.
    """

    signals: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGINT,)

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """the first signal, if any"""
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if current_thread() is main_thread():
            for number in self.signals:
                self._former[number] = signal.signal(number, self.receive)
        return self

    def __exit__(self, *error: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)
        self._former.clear()

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; Python calls this on the main thread."""
        if self.received is None:
            self.received = signal.Signals(number)
            self.on_first()
        elif number == signal.SIGINT:
            self.on_second()
            os._exit(INTERRUPTED)  # as after a crash: what is committed is there

    @abstractmethod
    def on_first(self) -> None:
        """Ask for an orderly end."""

    @abstractmethod
    def on_second(self) -> None:
        """Restore the terminal before the process ends."""
