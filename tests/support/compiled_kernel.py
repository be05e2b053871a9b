"""The compiled kernel for tests of what it has in C: they are skipped where it is not built or switched off.

`SAPWOOD_KERNEL=1` makes a missing kernel an error of the import.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from sapwood.engine.kernel import KERNEL, REASON


def compiled_kernel() -> ModuleType:
    """Return the extension module, or skip all tests of the module that asks."""
    if KERNEL is None:
        pytest.skip(f"needs the compiled kernel: {REASON}", allow_module_level=True)
    return KERNEL
