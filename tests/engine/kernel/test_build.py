"""The build compiles the kernel where it can, warns where it cannot, and obeys the switch.

The builds are real ones, of a copy of the project in which one small C file stands for the kernel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from sapwood.engine.kernel.source_checksum import source_checksum

ROOT = Path(__file__).parents[3]
KERNEL = Path("src/sapwood/engine/kernel")
FILE = KERNEL / f"_kernel{sysconfig.get_config_var('EXT_SUFFIX')}"
COPIED = [
    "LICENSE",
    "README.md",
    "hatch_build.py",
    "pyproject.toml",
    "src/sapwood/__init__.py",
    "src/sapwood/errors.py",
    "src/sapwood/engine/__init__.py",
    *(str(file.relative_to(ROOT)) for file in (ROOT / KERNEL).glob("*.py*")),
]
SMALL_MODULE = """
#include <Python.h>
#include "module.h"

static int kernel_exec(PyObject *module) {
    PyObject *checksum = PyLong_FromUnsignedLong(SOURCE_CHECKSUM);
    int added = PyModule_AddObjectRef(module, "SOURCE_CHECKSUM", checksum);
    Py_XDECREF(checksum);
    return added;
}

static PyModuleDef_Slot kernel_slots[] = {{Py_mod_exec, kernel_exec}, {0, NULL}};

static struct PyModuleDef kernel_module = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernel", .m_size = 0, .m_slots = kernel_slots};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&kernel_module); }
"""
NO_COMPILER = {"CC": "/nonexistent/cc"}
ADVICE = (
    "there is no C compiler '/nonexistent/cc'; install a C compiler and Python's headers (Debian/Ubuntu:"
    " sudo apt-get install build-essential python3-dev), and build it again."
)
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the advice of Linux")


def hatch_build() -> ModuleType:
    """The build script as a module."""
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def toolchain_problem() -> str:
    build = hatch_build()
    try:
        build.check_toolchain()
    except build.KernelBuildError as error:
        return str(error)
    return ""


needs_compiler = pytest.mark.skipif(bool(toolchain_problem()), reason=toolchain_problem())
needs_hatchling = pytest.mark.skipif(find_spec("hatchling") is None, reason="needs hatchling")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the build needs, with a small kernel."""
    for name in COPIED:
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    native = tmp_path / KERNEL / "native"
    native.mkdir()
    (native / "module.c").write_text(SMALL_MODULE)
    (native / "module.h").write_text("/* nothing yet */\n")
    return tmp_path


def run(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CC", "CFLAGS", "LD_PRELOAD", "PYTHONPATH", "SAPWOOD_KERNEL")
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def build(project: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run(project, "hatch_build.py", *options, **variables)


def loaded_checksum(project: Path) -> int:
    """The checksum in the kernel that a Python with this source tree loads."""
    code = "from sapwood.engine.kernel import KERNEL; print(KERNEL.SOURCE_CHECKSUM)"
    done = run(project, "-c", code, PYTHONPATH=str(project / "src"), SAPWOOD_KERNEL="1")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


# -- The switch --------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("switch", ["", "1"])
def test_the_kernel_is_compiled_beside_its_modules(project: Path, switch: str) -> None:
    done = build(project, SAPWOOD_KERNEL=switch)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert loaded_checksum(project) == source_checksum(project / KERNEL / "native")
    new = {file.name for file in (project / KERNEL).iterdir()} - {Path(name).name for name in COPIED}
    assert new - {"__pycache__"} == {FILE.name, "native"}


@on_linux
def test_without_a_compiler_the_build_warns_and_goes_on(project: Path) -> None:
    (project / FILE).write_text("an old kernel")
    done = build(project, **NO_COMPILER)
    assert done.returncode == 0
    assert done.stderr == f"warning: Sapwood is built without its compiled kernel: {ADVICE}\n"
    assert not (project / FILE).exists()  # it would not fit the sources


@on_linux
def test_without_a_compiler_a_demanded_kernel_is_an_error(project: Path) -> None:
    done = build(project, SAPWOOD_KERNEL="1", **NO_COMPILER)
    assert done.returncode == 1
    assert done.stderr == f"error: SAPWOOD_KERNEL=1 demands the compiled kernel: {ADVICE}\n"


def test_a_forbidden_kernel_is_neither_compiled_nor_kept(project: Path) -> None:
    (project / FILE).write_text("an old kernel")
    done = build(project, "--if-older", SAPWOOD_KERNEL="0", **NO_COMPILER)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (project / FILE).exists()


def test_other_values_of_the_switch_are_refused(project: Path) -> None:
    done = build(project, SAPWOOD_KERNEL="yes")
    assert done.returncode == 1
    assert done.stderr == "error: SAPWOOD_KERNEL is 1 to demand the kernel, 0 to forbid it: not 'yes'.\n"


@needs_compiler
@pytest.mark.parametrize(("switch", "status"), [("", 0), ("1", 1)])
def test_the_compiler_words_its_errors_itself(project: Path, switch: str, status: int) -> None:
    (project / KERNEL / "native" / "wrong.c").write_text("int f(void) { return undeclared_name; }\n")
    done = build(project, SAPWOOD_KERNEL=switch)
    assert done.returncode == status
    assert "undeclared_name" in done.stdout + done.stderr
    assert "the C compiler failed, with the message above.\n" in done.stderr
    assert not (project / FILE).exists()


@pytest.mark.parametrize(
    ("platform", "advice"),
    [
        ("linux", "build-essential python3-dev"),
        ("darwin", "xcode-select --install"),
        ("win32", "Build Tools"),
    ],
)
def test_missing_headers_and_compilers_are_named_with_what_to_install(
    platform: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = hatch_build()
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("CC", NO_COMPILER["CC"])
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(script.KernelBuildError, match=rf"headers are missing \(Python.h\); .*{advice}"):
        script.check_toolchain()
    (tmp_path / "Python.h").touch()
    with pytest.raises(script.KernelBuildError, match=f"no C compiler '/nonexistent/cc'; .*{advice}"):
        script.check_toolchain()


# -- Building again ----------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.slow
def test_it_is_compiled_again_only_after_a_change(project: Path) -> None:
    native = project / KERNEL / "native"

    def rebuilt() -> bool:
        before = (project / FILE).stat().st_ino if (project / FILE).exists() else None
        time.sleep(0.02)  # more than the resolution of file times
        assert build(project, "--if-older").returncode == 0
        assert loaded_checksum(project) == source_checksum(native)
        return (project / FILE).stat().st_ino != before

    (native / "more.c").write_text("typedef int nothing;\n")
    assert rebuilt()
    assert not rebuilt()
    (native / "module.h").write_text("/* a comment */\n")
    assert rebuilt()
    (native / "more.c").unlink()
    assert rebuilt()
    shutil.copy2(ROOT / "hatch_build.py", project)
    assert rebuilt()
    assert not rebuilt()


@needs_compiler
def test_a_build_into_a_folder_replaces_what_is_there(project: Path) -> None:
    """As with sanitizers: the copy of the package has the ordinary kernel, newer than the C files."""
    (project / FILE).write_text("the ordinary kernel")
    done = build(project, "--into", str(KERNEL))
    assert (done.returncode, done.stderr) == (0, "")
    assert loaded_checksum(project) == source_checksum(project / KERNEL / "native")


# -- Packages ----------------------------------------------------------------------------------------------


def hatchling(project: Path, target: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run(project, "-m", "hatchling", "build", "-t", target, "-d", "dist", **variables)


@needs_compiler
@needs_hatchling
def test_a_wheel_has_the_kernel_and_no_c_file(project: Path) -> None:
    done = hatchling(project, "wheel", SAPWOOD_KERNEL="1")
    assert done.returncode == 0, done.stderr
    [wheel] = (project / "dist").glob("*.whl")
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{version}-{version}" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert f"sapwood/engine/kernel/{FILE.name}" in names
    assert "sapwood/engine/kernel/_kernel.pyi" in names
    assert [name for name in names if name.endswith((".c", ".h", ".o"))] == []
    assert not (project / FILE).exists()  # the source tree is left as it is


@needs_hatchling
@pytest.mark.parametrize(
    "variables", [{"SAPWOOD_KERNEL": "0"}, NO_COMPILER], ids=["forbidden", "no compiler"]
)
def test_a_wheel_without_the_kernel_is_for_all_platforms(project: Path, variables: dict[str, str]) -> None:
    (project / FILE).write_text("a kernel of the source tree")
    done = hatchling(project, "wheel", **variables)
    assert done.returncode == 0, done.stderr
    assert ("warning: Sapwood is built without its compiled kernel" in done.stderr) == ("CC" in variables)
    [wheel] = (project / "dist").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".so", ".pyd", ".c"))] == []


@needs_hatchling
def test_a_wheel_with_a_demanded_kernel_fails_without_a_compiler(project: Path) -> None:
    done = hatchling(project, "wheel", SAPWOOD_KERNEL="1", **NO_COMPILER)
    assert done.returncode == 1
    assert "SAPWOOD_KERNEL=1 demands the compiled kernel: there is no C compiler" in done.stderr
    assert "Traceback" not in done.stderr


@needs_hatchling
def test_an_sdist_has_the_c_files_and_no_kernel(project: Path) -> None:
    shutil.copy(ROOT / ".gitignore", project)
    (project / FILE).write_text("a kernel of the source tree")
    done = hatchling(project, "sdist", **NO_COMPILER)
    assert (done.returncode, "warning" in done.stderr) == (0, False), done.stderr
    [sdist] = (project / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames()]
    assert {str(KERNEL / "native/module.c"), str(KERNEL / "native/module.h"), "hatch_build.py"} <= set(names)
    assert str(FILE) not in names
