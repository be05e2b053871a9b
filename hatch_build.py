"""Compiles the kernel, the optional extension module `sapwood.engine.kernel._kernel`.

Hatchling calls the hook when it builds a wheel or installs the project as editable. Without a C compiler or
Python's headers, the build warns and gives a package in pure Python. `SAPWOOD_KERNEL=1` makes that an error,
`SAPWOOD_KERNEL=0` does not compile. Hatchling needs nothing of this for an sdist, which has the C files.

As a script, `python hatch_build.py` compiles into the source tree for the Python that runs it, without pip.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    _Hook = BuildHookInterface[Any]
else:
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface as _Hook
    except ImportError:  # run as a script, which needs setuptools only
        _Hook = object

PACKAGE = Path("src/sapwood/engine/kernel")
ROOT = Path(__file__).resolve().parent

_OPTIMISED = ["-O3", "-g0"]
# Assertions are compiled in, overflow is not defined away as by Python's own flags, and the first report ends
# the process.
_SANITISED = ["-O1", "-g", "-UNDEBUG", "-fno-wrapv", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
_UNIX_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-fvisibility=hidden", "-Wall", "-Wextra"]
_MSVC_FLAGS = ["/std:c11", "/O2", "/W3"]

_INSTALL = {
    "darwin": "install Apple's compiler (xcode-select --install)",
    "win32": "install the Build Tools for Visual Studio with the workload 'Desktop development with C++'",
}
_INSTALL_ELSEWHERE = (
    "install a C compiler and Python's headers"
    " (Debian/Ubuntu: sudo apt-get install build-essential python3-dev)"
)


class KernelBuildError(Exception):
    """Raised if the kernel cannot be compiled; says why, and what to do."""


class KernelBuildHook(_Hook):
    """Hatchling's hook: compiles the kernel into a wheel, or into the source tree of an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernel, and have it packed into a wheel that is tagged for this platform."""
        try:
            if version == "editable":
                compiled = build_in_tree(Path(self.root))
            else:
                self.output = TemporaryDirectory()
                compiled = build(Path(self.root), Path(self.output.name))
                if compiled is not None:
                    destination = PACKAGE.relative_to("src") / compiled.name
                    build_data["force_include"][str(compiled)] = destination.as_posix()
        except KernelBuildError as error:
            self.app.abort(str(error))
        if compiled is not None:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the compiled module, which is in the wheel now."""
        if version != "editable":
            self.output.cleanup()


def build_in_tree(root: Path, *, if_older: bool = False) -> Path | None:
    """Compile the kernel beside its Python modules; return its file, or None without one.

    The new file replaces the old one at once, so that processes which have loaded that one go on. An old one
    that cannot be compiled again is removed: it would not fit the sources.
    """
    installed = root / PACKAGE / f"_kernel{sysconfig.get_config_var('EXT_SUFFIX')}"
    if if_older and _wish() != "0" and _is_current(installed, root):
        return installed
    # Beside the destination, since a file cannot be renamed across file systems.
    with TemporaryDirectory(dir=root / PACKAGE, prefix=".build-") as directory:
        compiled = None
        try:
            compiled = build(root, Path(directory))
        finally:
            if compiled is None:
                installed.unlink(missing_ok=True)
        return compiled.replace(installed) if compiled is not None else None


def _is_current(installed: Path, root: Path) -> bool:
    native = root / PACKAGE / "native"
    # A folder changes when a C file in it is removed.
    sources = [native, *native.rglob("*"), root / "hatch_build.py"]
    return installed.exists() and installed.stat().st_mtime > max(map(_last_change, sources))


def _last_change(file: Path) -> float:
    # A copy that preserves the time of modification has a new time of change.
    return max(file.stat().st_mtime, file.stat().st_ctime)


def build(root: Path, output: Path) -> Path | None:
    """Compile the kernel as `SAPWOOD_KERNEL` wishes; return its file, or None after a warning."""
    wish = _wish()
    if wish == "0":
        return None
    try:
        return compile_kernel(root, output)
    except KernelBuildError as error:
        if wish == "1":
            raise KernelBuildError(f"SAPWOOD_KERNEL=1 demands the compiled kernel: {error}.") from error
        print(f"warning: Sapwood is built without its compiled kernel: {error}.", file=sys.stderr, flush=True)
        return None


def _wish() -> str:
    wish = os.environ.get("SAPWOOD_KERNEL", "")
    if wish not in ("", "0", "1"):
        raise KernelBuildError(f"SAPWOOD_KERNEL is 1 to demand the kernel, 0 to forbid it: not {wish!r}.")
    return wish


def compile_kernel(root: Path, output: Path, sanitizers: str = "") -> Path:
    """Compile all C files of the kernel into one extension module in the folder `output`."""
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext
    from setuptools.errors import BaseError, CCompilerError

    check_toolchain()
    native = root / PACKAGE / "native"
    source_checksum = runpy.run_path(str(root / PACKAGE / "source_checksum.py"))["source_checksum"]
    windows = sys.platform == "win32"
    flags = [*_UNIX_FLAGS, *_OPTIMISED]
    if sanitizers:
        flags = [*_UNIX_FLAGS, *_SANITISED, f"-fsanitize={sanitizers}"]
    extension = Extension(
        "_kernel",
        sorted(str(file) for file in native.rglob("*.c")),
        include_dirs=sorted({str(file.parent) for file in native.rglob("*.h")}),
        define_macros=[("SOURCE_CHECKSUM", f"{source_checksum(native)}u")],
        extra_compile_args=_MSVC_FLAGS if windows else flags,
        extra_link_args=[f"-fsanitize={sanitizers}"] if sanitizers else [],
    )
    command = build_ext(Distribution({"ext_modules": [extension]}))
    command.build_lib = str(output)
    command.force = True
    try:
        with TemporaryDirectory() as objects:
            command.build_temp = objects
            command.ensure_finalized()
            command.run()
    except CCompilerError as error:
        raise KernelBuildError("the C compiler failed, with the message above") from error
    except (BaseError, OSError) as error:
        raise KernelBuildError(f"{error}; {_remedy()}") from error
    return Path(command.get_ext_fullpath("_kernel"))


def check_toolchain() -> None:
    """Raise an error if Python's headers or the C compiler are missing."""
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise KernelBuildError(f"Python's headers are missing (Python.h); {_remedy()}")
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC")  # None on Windows: setuptools looks
    if compiler and shutil.which(shlex.split(compiler)[0]) is None:
        raise KernelBuildError(f"there is no C compiler {compiler!r}; {_remedy()}")


def _remedy() -> str:
    return f"{_INSTALL.get(sys.platform, _INSTALL_ELSEWHERE)}, and build it again"


def main() -> None:
    """Compile the kernel into the source tree, or with sanitizers into another folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--if-older", action="store_true", help="only if a C file is newer than the kernel")
    parser.add_argument("--sanitize", metavar="NAMES", default="", help="such as address,undefined")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="where the sanitized kernel goes")
    options = parser.parse_args()
    try:
        if options.into is not None:
            compile_kernel(ROOT, options.into.resolve(), options.sanitize)
        else:
            build_in_tree(ROOT, if_older=options.if_older)
    except KernelBuildError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
