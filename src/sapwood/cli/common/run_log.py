"""The log of a command that runs Spark: a file for everything, the terminal for warnings and errors."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from logging.handlers import WatchedFileHandler
from pathlib import Path

from sapwood.cli.common.console import fail, report
from sapwood.errors import SapwoodError

_log = logging.getLogger(__name__)
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_BUG = 1
"""The exit code after an error that is not the user's."""


class Verbosity(IntEnum):
    """The number of `-v` options."""

    WARNINGS = 0
    BATCHES = 1
    DETAILS = 2

    @classmethod
    def _missing_(cls, value: object) -> Verbosity:
        return cls.DETAILS

    @property
    def terminal_level(self) -> int:
        """The lowest level of log records on the terminal."""
        return (logging.WARNING, logging.INFO, logging.DEBUG)[self]

    @property
    def file_level(self) -> int:
        """The lowest level of log records in the file, which has each batch in any case."""
        return logging.DEBUG if self is Verbosity.DETAILS else logging.INFO


@contextmanager
def log_to_file(path: Path, verbosity: Verbosity = Verbosity.WARNINGS) -> Iterator[None]:
    """Append the log records of Sapwood to a file, to which Spark's output goes, too."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = WatchedFileHandler(path, encoding="utf-8")  # which follows a rotation
    except OSError as error:
        fail(f"the log {path} cannot be written: {error.strerror}")
    handler.setFormatter(logging.Formatter(_FORMAT))
    with _handle(handler, verbosity.file_level):
        yield


class _NoteHandler(logging.Handler):
    """Passes the text of log records to the display, which a print would tear."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(record.getMessage())


@contextmanager
def log_to_notes(note: Callable[[str], None], verbosity: Verbosity = Verbosity.WARNINGS) -> Iterator[None]:
    """Show the log records of Sapwood on the terminal: warnings, and with `-v` more."""
    with _handle(_NoteHandler(note), verbosity.terminal_level):
        yield


@contextmanager
def _handle(handler: logging.Handler, level: int) -> Iterator[None]:
    """Send the log records of Sapwood from a level on to a handler."""
    logger = logging.getLogger("sapwood")
    former = logger.level
    handler.setLevel(level)
    logger.setLevel(min(level, former) if former else level)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(former)
        handler.close()


@contextmanager
def report_errors(log: Path) -> Iterator[None]:
    """End the command with a line that names the log, after an error of Spark or a bug.

    Errors of the user are SapwoodErrors, which need no log; any other exception is logged with its traceback.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except SapwoodError:
        raise
    except (PySparkException, Py4JError) as error:
        _log.debug("Spark failed", exc_info=error)
        fail(f"Spark: {summarize_error(error)}; more is in {log}")
    except OSError as error:  # a full disk, a lost connection
        _log.error("the run failed", exc_info=error)
        fail(f"{error}; more is in {log}")
    except Exception as error:
        _log.critical("the run failed by a bug in Sapwood", exc_info=error)
        bug = f"this is a bug in Sapwood; please report it with the traceback in {log}"
        report("internal error", f"{type(error).__name__}: {error}\n{bug}")
        sys.exit(_BUG)


def summarize_error(error: Exception) -> str:
    """Return the first line of an error of Spark, or the last of a worker's traceback."""
    cause = getattr(error, "java_exception", None)
    text = str(cause.toString()) if cause is not None else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        python = [line for line in text.splitlines() if line and not line[0].isspace()]
        return python[-1].strip().rstrip(".")
    return lines[0].rstrip(".;") if lines else type(error).__name__
