"""Drivers of pipelines in processes of their own, which tests kill amid a batch, or an executor of theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

CLUSTER = "local-cluster[2,1,1024]"
"""A master whose executors are processes of their own."""
_SECONDS = 600.0
_ROOT = Path(__file__).parents[3]


def spark_home(folder: Path) -> Path:
    """Make a home that may be written to: that is where the workers of a local cluster put their logs."""
    home = folder / "home"
    if not home.exists():
        home.mkdir()
        for entry in Path(pyspark.__path__[0]).iterdir():
            if entry.name != "work":
                (home / entry.name).symlink_to(entry)
    return home


def start_driver(settings: Path, master: str = "local[2]") -> subprocess.Popen[str]:
    """Start the pipeline of a file in a process, with a session of its own."""
    command = [sys.executable, "-m", "tests.support.spark.spark_driver", str(settings), master]
    environment = dict(os.environ)
    if master == CLUSTER:
        environment["SPARK_HOME"] = str(spark_home(settings.parent))
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=_ROOT, env=environment, start_new_session=True
    )


def finish_driver(settings: Path, process: subprocess.Popen[str]) -> str:
    """Wait until a driver has done all, and return its output."""
    output, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, _read_log(settings)
    return output


def run_driver(settings: Path, master: str = "local[2]") -> None:
    """Run the pipeline of a file to its end."""
    finish_driver(settings, start_driver(settings, master))


def kill_driver(process: subprocess.Popen[str]) -> None:
    """Kill a driver and all that it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=_SECONDS)


def kill_amid_batch(settings: Path, in_log: Callable[[str], bool], delay: float) -> bool:
    """Start a driver, and kill it some time after it has planned its second batch; return whether that batch
    was not committed. `in_log` tells whether the batch log has a file."""
    batch = _first_new_batch(in_log) + 1  # the first after a start takes longer, and is no usual one
    process = start_driver(settings)
    _await_batch(settings, process, in_log, batch)
    time.sleep(delay)
    kill_driver(process)
    return not in_log(f"done/{batch}")


def kill_executor_amid_batch(settings: Path, delay: float) -> bool:
    """Run a pipeline with files in its folder on a local cluster to its end, and kill an executor some time
    after the second batch was planned; return whether that was not committed by then."""
    log = settings.parent / "checkpoint/sapwood"

    def in_log(name: str) -> bool:
        return (log / name).exists()

    batch = _first_new_batch(in_log) + 1
    process = start_driver(settings, CLUSTER)
    _await_batch(settings, process, in_log, batch)
    time.sleep(delay)
    was_amid = not in_log(f"done/{batch}")
    os.kill(list_executors(process)[0], signal.SIGKILL)
    finish_driver(settings, process)
    return was_amid


def list_executors(driver: subprocess.Popen[str]) -> list[int]:
    """Return the executors' processes: Java with their class, in the driver's session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
            except OSError:
                continue
            if session == driver.pid and b"CoarseGrainedExecutorBackend" in command:
                found.append(int(entry.name))
    if not found:
        pytest.fail("there are no executors")
    return found


def _first_new_batch(in_log: Callable[[str], bool]) -> int:
    return next(batch for batch in range(1_000) if not in_log(f"done/{batch}"))


def _await_batch(
    settings: Path, process: subprocess.Popen[str], in_log: Callable[[str], bool], batch: int
) -> None:
    deadline = time.monotonic() + _SECONDS
    while not in_log(f"planned/{batch}") and process.poll() is None:
        if time.monotonic() > deadline:
            kill_driver(process)
            pytest.fail(f"batch {batch} was not planned: {_read_log(settings)}")
        time.sleep(0.02)
    assert process.poll() is None, _read_log(settings)


def _read_log(settings: Path) -> str:
    return (settings.parent / "spark.log").read_text()[-3_000:]
