"""Files and folders of this machine or others, which the driver and all workers reach without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import BinaryIO, cast

from pyarrow import fs


def make_empty(folder: str) -> None:
    """Makes a folder, or removes all files in it."""
    local = _local(folder)
    if local is not None:
        local.mkdir(parents=True, exist_ok=True)
        for file in local.iterdir():
            file.unlink()
        return
    filesystem, inner = fs.FileSystem.from_uri(folder)
    filesystem.create_dir(inner, recursive=True)
    filesystem.delete_dir_contents(inner)


def names_in(folder: str) -> list[str]:
    """The names of what is in a folder; none if there is no such folder."""
    local = _local(folder)
    if local is not None:
        return [path.name for path in local.iterdir()] if local.is_dir() else []
    filesystem, inner = fs.FileSystem.from_uri(folder)
    found = filesystem.get_file_info(fs.FileSelector(inner, allow_not_found=True))
    return [info.base_name for info in found]


def open_new(path: str) -> BinaryIO:
    """A file to be written, in place of one that is there."""
    local = _local(path)
    if local is not None:
        return local.open("wb")
    filesystem, inner = fs.FileSystem.from_uri(path)
    return cast(BinaryIO, filesystem.open_output_stream(inner))


def open_file(path: str) -> BinaryIO:
    """A file by the path or URI that Spark knows it by."""
    local = _local(path)
    if local is not None:
        return local.open("rb")
    filesystem, inner = fs.FileSystem.from_uri(path)
    return cast(BinaryIO, filesystem.open_input_file(inner))


def remove_file(path: str) -> None:
    local = _local(path)
    if local is not None:
        local.unlink(missing_ok=True)
        return
    filesystem, inner = fs.FileSystem.from_uri(path)
    filesystem.delete_file(inner)


def remove_folder(path: str) -> None:
    """Removes a folder and all in it."""
    local = _local(path)
    if local is not None:
        shutil.rmtree(local, ignore_errors=True)
        return
    filesystem, inner = fs.FileSystem.from_uri(path)
    filesystem.delete_dir(inner)


def _local(path: str) -> Path | None:
    scheme, colon, rest = path.partition(":")
    if not colon or scheme == "file":
        return Path("/" + rest.lstrip("/") if colon else path)
    return None
