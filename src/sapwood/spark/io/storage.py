"""Files and folders of this machine or others, which the driver and all workers reach without Spark."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from pyarrow import fs


def make_folder(folder: str) -> None:
    """Makes a folder, unless it is there."""
    filesystem, path = _found(folder)
    filesystem.create_dir(path, recursive=True)


def clear_folder(folder: str) -> None:
    """Makes a folder, or removes all that is in it."""
    filesystem, path = _found(folder)
    filesystem.create_dir(path, recursive=True)
    filesystem.delete_dir_contents(path)


def list_names(folder: str) -> list[str]:
    """The names of what is in a folder; none if there is no such folder."""
    filesystem, path = _found(folder)
    return [info.base_name for info in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))]


def open_output(path: str) -> BinaryIO:
    """A file to be written, in place of one that is there."""
    filesystem, inner = _found(path)
    return cast(BinaryIO, filesystem.open_output_stream(inner))


def open_file(path: str) -> BinaryIO:
    """A file by the path or URI that Spark knows it by."""
    filesystem, inner = _found(path)
    if isinstance(filesystem, fs.LocalFileSystem):
        return Path(inner).open("rb")  # whose errors say more
    return cast(BinaryIO, filesystem.open_input_file(inner))


def remove_file(path: str) -> None:
    """Removes a file, if it is there."""
    filesystem, inner = _found(path)
    with suppress(FileNotFoundError):
        filesystem.delete_file(inner)


def remove_folder(path: str) -> None:
    """Removes a folder and all in it, if it is there."""
    filesystem, inner = _found(path)
    with suppress(FileNotFoundError):
        filesystem.delete_dir(inner)


def _found(path: str) -> tuple[fs.FileSystem, str]:
    """The filesystem that a path or URI is of, and what it is called there."""
    scheme, colon, rest = path.partition(":")
    if not colon or scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.lstrip("/") if colon else path
    if scheme in ("s3a", "s3n"):  # Hadoop's names for it
        path = f"s3:{rest}"
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path)
    return found
