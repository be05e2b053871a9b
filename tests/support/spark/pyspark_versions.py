"""Another version of PySpark beside that of the environment, in the cache for what is fetched once a machine.

Delta Lake is made for one minor version of Spark. Its tests run with that one, in a process of their own in
which the folder precedes the environment on Python's path.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from sapwood.bench.harness.maven_jars import cache_folder

DELTA_VERSION = "4.2"
"""The Spark that `maven_jars.DELTA` is made for."""
_INSTALL_SECONDS = 900


class InstallError(Exception):
    """Raised when PySpark cannot be installed."""


def runs_delta() -> bool:
    """Whether Delta runs with the PySpark of this process."""
    return pyspark.__version__.startswith(f"{DELTA_VERSION}.")


def install_pyspark(version: str) -> Path:
    """Return a folder with a minor version of PySpark, which pip installs if it is not in the cache."""
    folder = cache_folder() / f"pyspark-{version}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".install-", dir=folder.parent) as name:
        target = Path(name) / "pyspark"
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        command += ["--target", str(target), f"pyspark=={version}.*"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
        if result.returncode:
            reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise InstallError(f"PySpark {version} cannot be installed: {reason}")
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    return folder
