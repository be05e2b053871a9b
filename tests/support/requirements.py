"""Conditions of tests: servers and programs that they need, and the runs that include the longest ones."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import pytest

from sapwood.engine.kernel import KERNEL, REASON

REQUIRED = os.environ.get("SAPWOOD_REQUIRE_SERVERS") == "1"
"""Whether a missing server is a failure, as in CI."""


FULL = os.environ.get("SAPWOOD_TESTS") == "full"
"""Whether the longest tests run, and others at full size: `make test-full`."""

SANITIZED = os.environ.get("SAPWOOD_TESTS") == "sanitized"
"""Whether the kernel runs under a sanitizer."""

SLOWDOWN = 4 if sys.gettrace() or SANITIZED else 1
"""What limits of time are multiplied by: coverage and sanitizers take time."""

PATIENCE = SLOWDOWN * (10 if FULL else 1)
"""What limits are multiplied by where full size takes more time, and none is promised."""

needs_kernel = pytest.mark.skipif(KERNEL is None, reason=f"needs the compiled kernel: {REASON}")
"""Skips a test without the compiled kernel. `SAPWOOD_KERNEL=1` forbids to skip."""


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where servers are required."""
    if REQUIRED:
        pytest.fail(f"{reason}; SAPWOOD_REQUIRE_SERVERS=1 forbids to skip")
    pytest.skip(reason)
