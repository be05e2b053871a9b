"""The thread that commits batches to the log while the next ones are evaluated."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from queue import Empty, Full, Queue
from threading import Event as Flag
from threading import Thread, Timer

from sapwood.errors import StoreError
from sapwood.serve.engine.frames import Committed, LogState
from sapwood.serve.log.log_batch import LogBatch
from sapwood.serve.log.log_writer import LogWriter

_log = logging.getLogger(__name__)
_DEPTH = 2
"""batches that wait for their commit: what comes meanwhile is one batch"""
_IDLE = 0.1
"""seconds without a batch after which the tail may become segments"""
_FIRST_DELAY, _LONGEST_DELAY = 0.05, 2.0


class CommitThread:
    """Commits batches in order, and says so afterwards; a commit that fails is tried until it succeeds."""

    def __init__(self, writer: LogWriter, announce: Callable[[Committed | LogState], None]) -> None:
        self._writer = writer
        self._announce = announce
        self._queue: Queue[tuple[LogBatch, Committed] | None] = Queue(_DEPTH)
        self._given_up = Flag()
        self._thread = Thread(target=self._run, name="commit", daemon=True)
        self.problem: str | None = None
        """why the log cannot be written at present"""
        self.failure: BaseException | None = None
        """the error that has ended the thread"""
        self._is_incomplete = False
        """whether a batch was given up, after which none may be committed"""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, batch: LogBatch, committed: Committed) -> None:
        """Commit a batch after those before it; waits while two are waiting."""
        self._check()
        self._queue.put((batch, committed))

    def drain(self) -> None:
        """Wait until all batches are committed."""
        self._queue.join()
        self._check()

    def stop(self, wait: float) -> bool:
        """End the thread after what is waiting, within some seconds; return whether all is committed."""
        try:
            self._queue.put(None, timeout=wait)
        except Full:  # of what cannot be committed
            self._given_up.set()
            self._queue.put(None)
        self._thread.join(wait)
        self._given_up.set()
        self._thread.join(_LONGEST_DELAY + 1)
        return not self._thread.is_alive() and self.failure is None and not self._is_incomplete

    def give_up_after(self, seconds: float) -> None:
        """Let the thread give up what cannot be committed until then, so that nobody waits for ever."""
        timer = Timer(seconds, self._given_up.set)
        timer.daemon = True
        timer.start()

    def _check(self) -> None:
        if self.failure is not None:
            raise RuntimeError("the commit thread has ended") from self.failure

    def _run(self) -> None:
        while True:
            try:
                taken = self._queue.get(timeout=_IDLE)
            except Empty:
                self._do(lambda: self._persist(self._writer.compact))
                continue
            if taken is None:
                return
            self._do(partial(self._commit, *taken))
            self._queue.task_done()

    def _do(self, work: Callable[[], object]) -> None:
        """Do something, unless what has failed before forbids it."""
        try:
            if self.failure is None and not self._is_incomplete:
                work()
        except BaseException as error:
            _log.critical("the log is not written any more", exc_info=True)
            self.failure = error

    def _commit(self, batch: LogBatch, committed: Committed) -> None:
        if not self._persist(lambda: self._writer.commit(batch)):
            self._is_incomplete = True
            return
        self._announce(committed)
        self._persist(lambda: self._writer.compact(len(batch.entries)))

    def _persist(self, action: Callable[[], None]) -> bool:
        """Do something until it succeeds; return False if the thread was told to give up."""
        delay = _FIRST_DELAY
        while True:
            try:
                action()
            except StoreError as error:
                if self.problem is None:
                    _log.error("the log cannot be written, and will be tried again: %s", error)
                self._report(str(error))
                if self._given_up.wait(delay):
                    return False
                delay = min(2 * delay, _LONGEST_DELAY)
            else:
                if self.problem is not None:
                    _log.info("the log can be written again")
                self._report(None)
                return True

    def _report(self, problem: str | None) -> None:
        """Tell the server at once: the engine, which reports from time to time, may wait for this thread."""
        changed = problem != self.problem
        self.problem = problem
        if changed:
            self._announce(LogState(problem))
