"""Loads the compiled kernel, if it is there and belongs to these sources."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from sapwood.engine.kernel.source_checksum import source_checksum
from sapwood.errors import ArgumentError, KernelError

SWITCH = "SAPWOOD_KERNEL"
"""The environment variable: 1 demands the kernel, 0 switches it off."""

_MODULE = "sapwood.engine.kernel._kernel"
_NATIVE = Path(__file__).parent / "native"


class Loaded(NamedTuple):
    """The compiled module, or why it is not used."""

    module: ModuleType | None
    reason: str = ""  # one that can stand in brackets behind a version


def load_kernel(switch: str | None, name: str = _MODULE, native: Path = _NATIVE) -> Loaded:
    """Import the compiled module as the environment variable `SAPWOOD_KERNEL` has it.

    A module that is not there is no more than a reason. One that is there and cannot be used gives a warning,
    for somebody has built it to be used.
    """
    if switch not in (None, "", "0", "1"):
        raise ArgumentError(f"{SWITCH} is 1 to demand the kernel, 0 to do without it: not {switch!r}")
    if switch == "0":
        return Loaded(None, f"{SWITCH}=0")
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name == name
        problem = "is not built" if missing else f"cannot be loaded ({error})"
        return _do_without(switch, problem, native, warn=not missing)
    except ImportError as error:
        return _do_without(switch, f"cannot be loaded ({error})", native)
    if native.is_dir() and source_checksum(native) != getattr(module, "SOURCE_CHECKSUM", None):
        return _do_without(switch, "is built from other C files than those in the source tree", native)
    return Loaded(module)


def _do_without(switch: str | None, problem: str, native: Path, *, warn: bool = True) -> Loaded:
    # Only a source tree has the C files.
    again = "run 'make setup'" if native.is_dir() else "install Sapwood again"
    remedy = f"{again}, with a C compiler and Python's headers"
    if switch == "1":
        raise KernelError(f"{SWITCH}=1 demands the compiled kernel, which {problem}; {remedy}")
    reason = f"the compiled kernel {problem}; {remedy}"
    if warn:
        warnings.warn(f"Sapwood matches in pure Python: {reason}", RuntimeWarning, stacklevel=2)
    return Loaded(None, reason)
