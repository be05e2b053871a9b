"""The compiled kernel for tests: they are skipped where it is not built.

SAPWOOD_REQUIRE_KERNEL=1 makes a missing kernel a failure.
"""

from __future__ import annotations

import os
from types import ModuleType

import pytest

REQUIRED = os.environ.get("SAPWOOD_REQUIRE_KERNEL") == "1"


def compiled_kernel() -> ModuleType:
    """Return the extension module, or skip all tests of the module that asks."""
    try:
        from sapwood.engine.kernel import _kernel
    except ImportError as error:
        if REQUIRED:
            raise
        pytest.skip(f"the compiled kernel is not built: {error}", allow_module_level=True)
    return _kernel
