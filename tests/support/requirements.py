"""Conditions of tests: servers and programs that they need, and the runs that include the longest ones."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

REQUIRED = os.environ.get("SAPWOOD_REQUIRE_SERVERS") == "1"
"""Whether a missing server is a failure, as in CI."""


FULL = os.environ.get("SAPWOOD_TESTS") == "full"
"""Whether the longest tests run, and others at full size: `make test-full`."""


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where servers are required."""
    if REQUIRED:
        pytest.fail(f"{reason}; SAPWOOD_REQUIRE_SERVERS=1 forbids to skip")
    pytest.skip(reason)
