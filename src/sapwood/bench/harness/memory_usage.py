"""Memory of processes in megabytes (10⁶ bytes): psutil where it is installed, else Linux's /proc."""

from __future__ import annotations

import sys
from functools import cache
from math import nan
from pathlib import Path
from typing import Any

from sapwood.bench.harness.experiments import INSTALL_HINT, BenchError

_STATUS = Path("/proc/self/status")


@cache
def _psutil() -> Any:
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError:
        return None
    return psutil


def resident_megabytes() -> float:
    """Return the resident memory of this process."""
    if (psutil := _psutil()) is not None:
        return float(psutil.Process().memory_info().rss) / 1e6
    resident = _proc_status("VmRSS")
    if resident is None:
        raise BenchError(f"measuring memory on this system needs psutil: {INSTALL_HINT}")
    return resident


def peak_megabytes() -> float:
    """Return the highest resident memory of this process so far; NaN where the system does not report it."""
    # Linux's status file first: getrusage there starts from the peak of the parent process.
    peak = _proc_status("VmHWM")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return nan
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (used if sys.platform == "darwin" else used * 1024) / 1e6  # bytes there, kilobytes elsewhere


def largest_child_megabytes(command: str) -> float:
    """Return the resident memory of the largest descendant whose command line contains `command`, or NaN."""
    if (psutil := _psutil()) is None:
        return nan
    sizes = []
    for child in psutil.Process().children(recursive=True):
        try:
            if any(command in part for part in child.cmdline()):
                sizes.append(child.memory_info().rss / 1e6)
        except psutil.Error:  # it has ended
            continue
    return max(sizes, default=nan)


def _proc_status(key: str) -> float | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(f"{key}:")), None)
