"""Drivers of pipelines in processes of their own, which tests kill amid a batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

_SECONDS = 600.0
_ROOT = Path(__file__).parents[3]


def start_driver(settings: Path, master: str = "local[2]") -> subprocess.Popen[str]:
    """Start the pipeline of a file in a process, with a session of its own."""
    command = [sys.executable, "-m", "tests.support.spark.spark_driver", str(settings), master]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT, start_new_session=True)


def run_driver(settings: Path) -> None:
    """Run the pipeline of a file to its end."""
    process = start_driver(settings)
    process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, _read_log(settings)


def kill_amid_batch(settings: Path, in_log: Callable[[str], bool], delay: float) -> bool:
    """Start a driver, and kill it some time after it has planned its second batch; return whether that batch
    was not committed. `in_log` tells whether the batch log has a file."""
    first = next(batch for batch in range(1_000) if not in_log(f"done/{batch}"))
    batch = first + 1  # the first after a start takes longer, and is no usual one
    process = start_driver(settings)
    deadline = time.monotonic() + _SECONDS
    while not in_log(f"planned/{batch}") and process.poll() is None:
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"batch {batch} was not planned: {_read_log(settings)}")
        time.sleep(0.05)
    assert process.poll() is None, _read_log(settings)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return not in_log(f"done/{batch}")


def _read_log(settings: Path) -> str:
    return (settings.parent / "spark.log").read_text()[-3_000:]
