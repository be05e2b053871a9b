"""Servers and programs that tests need: skipped where one is missing, except where all are required."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

REQUIRED = os.environ.get("SAPWOOD_REQUIRE_SERVERS") == "1"
"""Whether a missing server is a failure, as in CI."""


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where servers are required."""
    if REQUIRED:
        pytest.fail(f"{reason}; SAPWOOD_REQUIRE_SERVERS=1 forbids to skip")
    pytest.skip(reason)
