"""What Ctrl-C and SIGTERM mean to a running pipeline: finish the batch, then go; at once if asked twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

ENDED_BY_CTRL_C = 130


class SignalHandler:
    """While it is entered, signals stop a pipeline gently.

    To be entered on the main thread and after the session is made: PySpark has a handler of its own, which
    would cancel the batch that is being served.
    """

    def __init__(
        self, stop: Callable[[], None], tell: Callable[[str], None], leave: Callable[[], None]
    ) -> None:
        """`leave` puts the terminal in order before the process is gone."""
        self._stop = stop
        self._tell = tell
        self._leave = leave
        self._former: dict[signal.Signals, Any] = {}
        self.received: signal.Signals | None = None
        """the first signal that came, if any"""

    def __enter__(self) -> SignalHandler:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._former[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    @property
    def exit_code(self) -> int:
        """0 also after SIGTERM: who sends that wants an orderly end, and has got it."""
        return ENDED_BY_CTRL_C if self.received == signal.SIGINT else 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
            self._stop()
            self._tell("stopping after the current batch; again to stop at once")
        elif number == signal.SIGINT:
            self._tell("stopped at once; the batch that was being served is served again by the next run")
            self._leave()
            os._exit(ENDED_BY_CTRL_C)  # Spark's processes end when this one is gone
