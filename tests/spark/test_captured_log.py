"""What tests read from the log is the same before and after an error of Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from pyspark.logger import PySparkLogger


@pytest.fixture(scope="module", autouse=True)
def logger_of_an_error() -> Iterator[None]:
    """The logger that PySpark has as soon as a statement failed."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logger, "propagate", False)
        yield


def test_an_exception_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise TypeError("no such thing")
    except TypeError:
        logging.getLogger("sapwood").exception("a defect")
    assert "Traceback" in caplog.text
