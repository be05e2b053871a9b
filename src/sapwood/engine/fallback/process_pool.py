"""The pool of processes that evaluate XPath with lxml, shared by all matchers of this process.

Each serves one caller at a time; callers in several threads get one each. An idle process waits for the next
caller, and ends with the last open matcher. One that has read many messages is replaced, because lxml keeps
every name it ever parsed. See `lxml_process` for the protocol.
"""

from __future__ import annotations

import logging
import marshal
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from fcntl import F_DUPFD_CLOEXEC, fcntl
from mmap import mmap
from threading import RLock
from typing import NamedTuple
from weakref import finalize

from sapwood.engine.fallback import lxml_process
from sapwood.engine.fallback.lxml_process import IDLE, LENGTH, Result

_log = logging.getLogger(__name__)

MESSAGES_PER_PROCESS = 5_000
_PATIENCE = 30.0
"""seconds of wall time without a reply, beside 20 times the CPU time that a query may take"""

_CHUNK = 1 << 16
"""bytes read at a time: what a pipe holds"""
_EXIT_TIMEOUT = 5.0
"""seconds for a process to exit after it has closed its pipes"""


class Budget(NamedTuple):
    """The limits of one query on one message."""

    seconds: float
    """of CPU time; 0 is no limit"""
    memory: int
    """bytes of address space, with the message's tree; 0 is no limit"""
    result: int
    """characters"""


class Ended(NamedTuple):
    """The reason why a query has no result: the process ended."""

    over_time: bool
    reason: str
    by_query: bool = True
    """True: it was evaluating this query; False: it was reading the message"""


class _Died(Exception):
    """Raised when the process ends before it has sent all results."""

    def __init__(self, results: list[Result], at: int) -> None:
        self.results = results
        self.at = at
        """the query that it was evaluating, IDLE or READING"""


class Process:
    """One lxml process, and the pipes to it."""

    def __init__(self) -> None:
        self.messages = 0
        with tempfile.TemporaryFile() as file:
            file.write(IDLE.to_bytes(LENGTH, sys.byteorder, signed=True))
            file.flush()
            self._progress = mmap(file.fileno(), LENGTH)
            # Where this process has no standard input, the file's number is 0, which the child's pipe takes.
            shared = fcntl(file.fileno(), F_DUPFD_CLOEXEC, 3)
            try:
                self._popen = subprocess.Popen(
                    # not from the script's folder (-P), where modules are named like standard ones
                    [sys.executable, "-S", "-P", lxml_process.__file__, str(shared)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    pass_fds=(shared,),
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    bufsize=0,
                    process_group=0,  # so that Ctrl-C reaches the parent alone, which may finish its message
                )
            finally:
                os.close(shared)
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._requests, self._replies = self._popen.stdin, self._popen.stdout
        _log.debug("lxml process %d started", self._popen.pid)
        self._poll = select.poll()
        self._poll.register(self._replies, select.POLLIN)
        self._received = bytearray()
        self._killed = False

    @property
    def pid(self) -> int:
        return self._popen.pid

    def run(self, data: bytes, queries: Sequence[bytes], budget: Budget) -> list[Result]:
        """Return the results of queries on a message; raise _Died if the process does not survive one."""
        self.messages += 1
        results: list[Result] = []
        patience = None if not budget.seconds else 1000 * (_PATIENCE + 20 * budget.seconds)
        request = marshal.dumps((data, *budget, list(queries)))
        try:
            self._write(len(request).to_bytes(LENGTH, "little") + request)
            while len(results) < len(queries):
                results += self._reply(patience)
        except (OSError, EOFError):
            self._end()
            raise _Died(results, int.from_bytes(self._progress[:], sys.byteorder, signed=True)) from None
        return results

    def _write(self, request: bytes) -> None:
        rest = memoryview(request)
        while rest:
            rest = rest[self._requests.write(rest) :]

    def _reply(self, patience: float | None) -> list[Result]:
        length = int.from_bytes(self._read(LENGTH, patience), "little")
        results: list[Result] = marshal.loads(self._read(length, patience))
        return results

    def _read(self, length: int, patience: float | None) -> bytes:
        """Read this many bytes; raise EOFError if the process ends before, or sends nothing for too long."""
        received = self._received
        while len(received) < length:
            if not self._poll.poll(patience):
                self._popen.kill()
                self._killed = True
                raise EOFError
            some = os.read(self._replies.fileno(), _CHUNK)
            if not some:
                raise EOFError
            received += some
        found = bytes(received[:length])
        del received[:length]
        return found

    def why_ended(self, budget: Budget) -> Ended:
        """Return why a process ended that has."""
        code = self._popen.wait()
        if code == -signal.SIGPROF:
            return Ended(True, f"it takes more than {budget.seconds:g} s")
        if self._killed:
            return Ended(True, f"it takes more than {_PATIENCE + 20 * budget.seconds:g} s")
        how = f"signal {-code}" if code < 0 else f"status {code}"
        return Ended(False, f"the process that evaluates it with lxml ended with {how}")

    def kill(self) -> None:
        """End the process."""
        _log.debug("lxml process %d killed after %d messages", self.pid, self.messages)
        self._popen.kill()
        self._popen.wait()
        self._close()

    def _end(self) -> None:
        """Wait for a process that has closed its pipes."""
        try:
            self._popen.wait(_EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._close()

    def abandon(self) -> None:
        """Close the pipes to a process of the parent, after a fork."""
        self._popen.returncode = 0  # so that Popen neither waits for it nor warns that it still runs
        self._close()

    def _close(self) -> None:
        for pipe in (self._requests, self._replies):
            pipe.close()


class ProcessPool:
    """The lxml processes of this process."""

    def __init__(self) -> None:
        self._lock = RLock()  # reentrant: a user may be collected, and leave, while it is held
        self._idle: list[Process] = []
        self._users = 0

    def enter(self, user: object) -> finalize[[], object]:
        """Count a user, until the returned finalizer is called or the user is garbage-collected."""
        with self._lock:
            self._users += 1
        return finalize(user, self._leave)

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            idle = [] if self._users else self._idle
            self._idle = self._idle if self._users else []
        for process in idle:
            process.kill()

    def evaluate(self, data: bytes, queries: Sequence[bytes], budget: Budget) -> list[Result | Ended]:
        """Return the result of each query on a message, or why it has none."""
        answers: dict[int, Result | Ended] = {}
        pending = list(range(len(queries)))
        while pending:
            try:
                process = self._take()
            except OSError as error:  # too many processes or files, say
                reason = f"the process that evaluates it with lxml cannot be started: {error}"
                answers.update(dict.fromkeys(pending, Ended(False, reason, by_query=False)))
                break
            unused = not process.messages
            try:
                results = process.run(data, [queries[i] for i in pending], budget)
                at = len(pending)
            except _Died as death:
                results, at = death.results, death.at
                why = process.why_ended(budget)
                _log.info("lxml process %d ended: %s", process.pid, why.reason)
                if at >= 0:
                    answers[pending[at]] = why
                elif at != IDLE or unused:  # it cannot read the message, or not even start
                    answers.update(dict.fromkeys(pending, why._replace(by_query=False)))
            except BaseException:  # Ctrl-C, say: results may still be on their way
                process.kill()
                raise
            else:
                self._give_back(process)
            answers.update(zip(pending, results, strict=False))
            pending = [i for i in pending if i not in answers]
        return [answers[i] for i in range(len(queries))]

    def _take(self) -> Process:
        with self._lock:
            idle, self._idle = self._idle[-1:], self._idle[:-1]
        return idle[0] if idle else Process()

    def _give_back(self, process: Process) -> None:
        with self._lock:
            if process.messages < MESSAGES_PER_PROCESS and self._users:
                self._idle.append(process)
                return
        process.kill()

    def after_fork(self) -> None:
        """Leave the processes to the parent."""
        self._lock = RLock()
        idle, self._idle = self._idle, []
        for process in idle:
            process.abandon()


POOL = ProcessPool()
os.register_at_fork(after_in_child=POOL.after_fork)
