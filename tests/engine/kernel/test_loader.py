"""The compiled kernel is used, done without, or demanded, as the environment variable has it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sapwood.engine.kernel.loader import load_kernel
from sapwood.engine.kernel.source_checksum import source_checksum
from sapwood.errors import ArgumentError, KernelError, SapwoodError

NAME = "fake_kernel"
AUTOMATIC = [None, ""]


@pytest.fixture
def native(tmp_path: Path) -> Path:
    """A folder of C files."""
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "module.c").write_text("int x;\n")
    (folder / "module.h").write_text("extern int x;\n")
    return folder


@pytest.fixture
def module_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the module is imported from, which is not there yet."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    return tmp_path / f"{NAME}.py"


def write_module(file: Path, native: Path) -> None:
    file.write_text(f"SOURCE_CHECKSUM = {source_checksum(native)}\n")


@pytest.mark.parametrize("switch", [*AUTOMATIC, "1"])
def test_a_module_of_these_sources_is_used(switch: str | None, module_file: Path, native: Path) -> None:
    write_module(module_file, native)
    module, reason = load_kernel(switch, NAME, native)
    assert module is not None
    assert module.__file__ == str(module_file)
    assert reason == ""


def test_it_can_be_switched_off(module_file: Path, native: Path) -> None:
    write_module(module_file, native)
    assert load_kernel("0", NAME, native) == (None, "SAPWOOD_KERNEL=0")


@pytest.mark.parametrize("switch", AUTOMATIC)
def test_a_missing_module_is_done_without(switch: str | None, module_file: Path, native: Path) -> None:
    module, reason = load_kernel(switch, NAME, native)
    assert module is None
    assert reason == (
        "the compiled kernel is not built; run 'make setup', with a C compiler and Python's headers"
    )


def test_a_missing_module_that_is_demanded_is_an_error(module_file: Path, native: Path) -> None:
    with pytest.raises(KernelError, match=r"SAPWOOD_KERNEL=1 demands .* not built; run 'make setup'"):
        load_kernel("1", NAME, native)
    assert issubclass(KernelError, SapwoodError)


def test_without_a_source_tree_one_installs_again(module_file: Path, tmp_path: Path) -> None:
    assert "install Sapwood again" in load_kernel(None, NAME, tmp_path / "none").reason


UNLOADABLE = {
    "undefined symbol: f": "raise ImportError('undefined symbol: f')",
    "No module named 'nowhere'": "import nowhere",
    "other C files": "SOURCE_CHECKSUM = 1",
    "than those in the source tree": "",
}


@pytest.mark.parametrize(("why", "text"), UNLOADABLE.items())
def test_an_unusable_module_gives_a_warning(why: str, text: str, module_file: Path, native: Path) -> None:
    module_file.write_text(text)
    with pytest.warns(RuntimeWarning, match=f"pure Python: the compiled kernel .*{why}.*run 'make setup'"):
        module, reason = load_kernel(None, NAME, native)
    assert module is None
    assert why in reason


@pytest.mark.parametrize(("why", "text"), UNLOADABLE.items())
def test_an_unusable_module_that_is_demanded_is_an_error(
    why: str, text: str, module_file: Path, native: Path
) -> None:
    module_file.write_text(text)
    with pytest.raises(KernelError, match=f"SAPWOOD_KERNEL=1 demands .*{why}"):
        load_kernel("1", NAME, native)


def test_an_installed_module_has_no_sources_to_compare_with(module_file: Path, tmp_path: Path) -> None:
    module_file.write_text("SOURCE_CHECKSUM = 1")
    assert load_kernel(None, NAME, tmp_path / "none").module is not None


def test_other_values_are_refused(module_file: Path, native: Path) -> None:
    with pytest.raises(ArgumentError, match=r"SAPWOOD_KERNEL is 1 to demand the kernel.*not 'yes'"):
        load_kernel("yes", NAME, native)


def test_every_change_of_the_c_files_changes_the_checksum(native: Path) -> None:
    seen = {source_checksum(native)}
    (native / "module.h").write_text("extern long x;\n")
    seen.add(source_checksum(native))
    (native / "module.h").rename(native / "other.h")
    seen.add(source_checksum(native))
    (native / "other.h").unlink()
    seen.add(source_checksum(native))
    (native / "new.c").write_text("")
    seen.add(source_checksum(native))
    assert len(seen) == 5
    (native / "notes.txt").write_text("no source")
    assert source_checksum(native) in seen
