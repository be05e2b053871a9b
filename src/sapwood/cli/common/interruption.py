"""Ctrl-C in commands that work in transactions: the first ends after the current one, the second at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sapwood.cli.common import console
from sapwood.signal_handler import SignalHandler


class InterruptHandler(SignalHandler):
    """Raises KeyboardInterrupt after Ctrl-C, but only where the command allows it.

    A database call that is interrupted in the middle may leave its transaction open.
    """

    def __init__(self) -> None:
        super().__init__()
        self._allowed = False

    def __exit__(self, kind: object = None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self.received is not None:
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
        """Handle a signal, at once where that is allowed."""
        if self._allowed:
            raise KeyboardInterrupt
        super().receive(number, frame)

    def on_first(self) -> None:
        """Print that the command ends after the current transaction or batch."""
        console.errors.print("stopping after the current transaction or batch; Ctrl-C again to stop at once")

    def on_second(self) -> None:
        """Restore the cursor, which a progress display hides."""
        console.errors.show_cursor(True)
