"""A Spark session for Sapwood: Java is there, workers run this Python, and Spark's noise goes to a file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from sapwood.errors import SapwoodError

OLDEST_JAVA = 17


class JavaError(SapwoodError):
    """There is no Java that Spark runs on; says how to get one."""


def session(
    master: str = "local[*]",
    *,
    name: str = "sapwood",
    config: Mapping[str, str] | None = None,
    log: str | Path | None = None,
) -> SparkSession:
    """The running session, or a new one whose settings suit Sapwood.

    With a `log`, all that Spark and its workers print goes to that file instead of the terminal.
    """
    check_java()
    settings = {"spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= {
            "spark.driver.host": "127.0.0.1",  # on a laptop, the name of the machine often leads nowhere
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
            # what a page that nobody sees would show is kept for a thousand jobs by default
            "spark.ui.retainedJobs": "20",
            "spark.ui.retainedStages": "20",
            "spark.ui.retainedTasks": "200",
            "spark.sql.ui.retainedExecutions": "10",
        }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (settings | dict(config or {})).items():
        builder = builder.config(key, value)
    with _output_to(log):
        return builder.getOrCreate()


@contextmanager
def _output_to(log: str | Path | None) -> Iterator[None]:
    """What is started inside inherits the file as its standard output and error, and keeps it."""
    if log is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    ours = os.dup(1), os.dup(2)
    try:
        with Path(log).open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        yield
    finally:
        for number, saved in zip((1, 2), ours, strict=True):
            os.dup2(saved, number)
            os.close(saved)


def check_java() -> None:
    """JavaError unless there is a Java that Spark runs on."""
    java = _java()
    if java is None:
        raise JavaError(f"Spark needs Java {OLDEST_JAVA} or newer, and there is none.\n{_INSTALL}")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise JavaError(
            f"Spark needs Java, and {java} cannot be run: {error.strerror}.\n{_INSTALL}"
        ) from None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if answer.returncode or (found and int(found[1]) < OLDEST_JAVA):
        version = found[1] if found else "unknown"
        raise JavaError(f"Spark needs Java {OLDEST_JAVA} or newer; {java} is version {version}.\n{_INSTALL}")


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


_INSTALL = f"""Install it:
  Debian, Ubuntu   sudo apt-get install openjdk-{OLDEST_JAVA}-jre-headless
  Fedora           sudo dnf install java-{OLDEST_JAVA}-openjdk-headless
  macOS            brew install openjdk@{OLDEST_JAVA}
and, if there are several, point JAVA_HOME at it."""
