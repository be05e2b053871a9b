"""Ctrl-C and SIGTERM while a pipeline runs: it stops after the current micro-batch."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import ClassVar

from sapwood.signal_handler import INTERRUPTED, SignalHandler


class PipelineSignals(SignalHandler):
    """Stops a pipeline when a signal arrives.

    It is entered on the main thread and after the session is created: PySpark has a handler of its own, which
    would cancel the current micro-batch.
    """

    signals: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGINT, signal.SIGTERM)

    def __init__(
        self,
        stop: Callable[[], None],
        notify: Callable[[str], None],
        restore: Callable[[], None],
        when: str = "after the current batch",
    ) -> None:
        """`restore` restores the terminal before the process ends; `when` is the moment at which `stop`
        takes effect."""
        super().__init__()
        self._when = when
        self._stop = stop
        self._notify = notify
        self._restore = restore

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, else 0: SIGTERM requests an orderly end, so it is no error."""
        return INTERRUPTED if self.received == signal.SIGINT else 0

    def on_first(self) -> None:
        """Stop the pipeline after the current micro-batch."""
        self._stop()
        self._notify(f"stopping {self._when}; again to stop at once")

    def on_second(self) -> None:
        """End without the current micro-batch; Spark's processes end with this one."""
        self._notify("stopped at once; the next run repeats the current batch")
        self._restore()
