"""The command `sapwood` in a process of its own, to be interrupted, or to lose the reader of its output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable


def start(*arguments: str, url: str) -> subprocess.Popen[bytes]:
    """Start `sapwood ARGUMENTS`."""
    return subprocess.Popen(
        [sys.executable, "-m", "sapwood.cli", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "SAPWOOD_URL": url, "COLUMNS": "200"},
    )


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
