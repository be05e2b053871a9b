"""A Spark session for Sapwood: checks Java, sets Python for workers, and sends Spark's log to a file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from sapwood.errors import SapwoodError
from sapwood.spark.io.connectors import PACKAGES, find_unresolved

OLDEST_JAVA = 17
_ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Arrow checks each value that Spark copies from Python, twice, and one message may match thousands."""


class JavaError(SapwoodError):
    """Raised when there is no Java that Spark runs on; says how to install one."""


class PackageError(SapwoodError):
    """Raised when Spark cannot fetch the packages in its settings."""


def session(
    master: str = "local[*]",
    *,
    name: str = "sapwood",
    config: Mapping[str, str] | None = None,
    log: str | Path | None = None,
) -> SparkSession:
    """Return the running session, or a new one with settings for Sapwood.

    With a `log`, the output of Spark and its workers goes to that file instead of the terminal.
    """
    check_java()
    settings = {"spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= {
            "spark.driver.host": "127.0.0.1",  # on a laptop, the name of the machine often does not resolve
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "4",
            "spark.python.daemon.module": "sapwood.spark_daemon",  # on a cluster, it may not be installed
            # by default up to 64 MB: hash tables of a few rows would keep Java's garbage collector busy
            "spark.buffer.pageSize": "1m",
            # by default 10,000, until which Python waits for Java, and then Java for Python
            "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
            "spark.driver.extraJavaOptions": _ARROW_OPTIONS,
            "spark.ui.enabled": "false",
            # by default, the UI retains a thousand jobs in memory, even if it is off
            "spark.ui.retainedJobs": "20",
            "spark.ui.retainedStages": "20",
            "spark.ui.retainedTasks": "200",
            "spark.sql.ui.retainedExecutions": "10",
        }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (settings | dict(config or {})).items():
        builder = builder.config(key, value)
    try:
        with _redirect_output(log):
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise _explain_exit(error, settings | dict(config or {}), log) from error


def _explain_exit(
    error: PySparkRuntimeError, settings: Mapping[str, str], log: str | Path | None
) -> Exception:
    """Return an error that names the packages that Spark could not fetch, if it ended because of them."""
    packages = settings.get(PACKAGES)
    if packages is None or error.getCondition() != "JAVA_GATEWAY_EXITED":
        return error
    lines = Path(log).read_text("utf-8", "replace").splitlines() if log is not None else []
    reason = find_unresolved(lines)
    if reason is None and log is not None:
        return error
    return PackageError(
        f"Spark cannot fetch the packages {packages}{f': {reason}' if reason else ''}. Check their names and "
        "versions; where Maven Central cannot be reached, fetch the jars elsewhere, and name them in [spark] "
        '"spark.jars" = "folder/*.jar" instead'
    )


@contextmanager
def _redirect_output(log: str | Path | None) -> Iterator[None]:
    """Redirect standard output and error to the file, for processes that are started inside."""
    if log is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    saved = os.dup(1), os.dup(2)
    try:
        with Path(log).open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        yield
    finally:
        for number, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, number)
            os.close(copy)


def check_java() -> None:
    """Raise JavaError unless there is a Java that Spark runs on."""
    java = find_java()
    if java is None:
        raise JavaError(f"Spark needs Java {OLDEST_JAVA} or newer, and there is none.\n{_INSTALL}")
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise JavaError(
            f"Spark needs Java, and {java} cannot be run: {error.strerror}.\n{_INSTALL}"
        ) from None
    found = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    if result.returncode or (found and int(found[1]) < OLDEST_JAVA):
        version = found[1] if found else "unknown"
        raise JavaError(f"Spark needs Java {OLDEST_JAVA} or newer; {java} is version {version}.\n{_INSTALL}")


def find_java() -> str | None:
    """Return the Java that JAVA_HOME or PATH names, or None."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


_INSTALL = f"""Install it:
  Debian, Ubuntu   sudo apt-get install openjdk-{OLDEST_JAVA}-jre-headless
  Fedora           sudo dnf install java-{OLDEST_JAVA}-openjdk-headless
  macOS            brew install openjdk@{OLDEST_JAVA}
and, if there are several, point JAVA_HOME at it."""
