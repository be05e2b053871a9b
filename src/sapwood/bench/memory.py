"""Resident memory of a matcher, measured in a process that does nothing else.

    python -m sapwood.bench.memory < LINES

The lines are JSON values: the number of queries, the queries, then the messages (as Latin-1 text). It loads
the queries, matches the messages three times and prints a JSON object with megabytes (10⁶ bytes).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from sapwood import Matcher

_STATUS = Path("/proc/self/status")
PASSES = 3


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes: when nothing but Sapwood was imported, with warm caches, and at most at any time.

    Where the system does not tell the present (it does on Linux), `resident` is the peak too.
    """

    empty: float
    resident: float
    peak: float


def measure(queries: Sequence[str], messages: Sequence[bytes]) -> Memory:
    """The memory of a fresh process that has loaded the queries and matched the messages."""
    lines = [len(queries), *queries, *(message.decode("latin-1") for message in messages)]
    run = subprocess.run(
        [sys.executable, "-m", "sapwood.bench.memory"],
        input="".join(json.dumps(line) + "\n" for line in lines),
        stdout=subprocess.PIPE,
        encoding="ascii",
        check=True,
    )
    return Memory(**json.loads(run.stdout))


def load_and_match(lines: TextIO) -> Memory:
    """What the fresh process does."""
    empty = resident()
    values: Iterator[int | str] = map(json.loads, lines)
    count = next(values)
    assert isinstance(count, int)
    matcher = Matcher()
    matcher.add_many((number, str(query)) for number, query in enumerate(islice(values, count)))
    messages = [str(message).encode("latin-1") for message in values]
    for _ in range(PASSES):
        for message in messages:
            len(matcher.match(message))
    return Memory(empty, resident(), peak())


def resident() -> float:
    """Megabytes of this process that are in memory now."""
    now = _status("VmRSS")
    return peak() if now is None else now


def peak() -> float:
    """Megabytes of this process that were in memory at most; NaN where the system does not tell."""
    # Not first by getrusage: on Linux it goes on counting from what the parent process had.
    most = _status("VmHWM")
    if most is not None:
        return most
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (used if sys.platform == "darwin" else used * 1024) / 1e6  # bytes there, kilobytes elsewhere


def _status(key: str) -> float | None:
    """Megabytes by a line of Linux's status file."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(f"{key}:")), None)


def main() -> int:
    try:
        found = load_and_match(sys.stdin)
    except KeyboardInterrupt:  # the parent has it too, and says so
        return 130
    print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
