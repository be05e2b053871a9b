"""Files and folders by path or URI: the only module of the pipeline that knows file systems.

    Arrow    read and written by the driver and all workers, without Spark's JVM
    Hadoop   read and written by the driver, on every file system that Spark is configured for
    local    paths of this machine, for what only works there: locks, DuckDB's file, warnings of unread files

The batch log is written through Hadoop, because a checkpoint may be on any file system that Spark reaches.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from pyarrow import fs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # but not C:/


def is_uri(path: str) -> bool:
    """Return whether a path begins with the scheme of a file system."""
    return _URI.match(path) is not None


def local_path(path: str) -> Path | None:
    """Return the path on this machine, or None if it is on another file system."""
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    return None if is_uri(path) else Path(path)


# -- Arrow's file systems ------------------------------------------------------------------------------------


def make_folder(folder: str) -> None:
    """Create a folder, unless it exists."""
    filesystem, path = _resolve(folder)
    filesystem.create_dir(path, recursive=True)


def clear_folder(folder: str) -> None:
    """Create a folder, or remove everything in it."""
    filesystem, path = _resolve(folder)
    filesystem.create_dir(path, recursive=True)
    filesystem.delete_dir_contents(path)


def list_names(folder: str) -> list[str]:
    """Return the names of the files and folders in a folder; none if it does not exist."""
    filesystem, path = _resolve(folder)
    return [info.base_name for info in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))]


def open_output(path: str) -> BinaryIO:
    """Open a file for writing; an existing one is replaced."""
    filesystem, inner = _resolve(path)
    return cast(BinaryIO, filesystem.open_output_stream(inner))


def open_file(path: str) -> BinaryIO:
    """Open a file for reading, by the path or URI under which Spark lists it."""
    filesystem, inner = _resolve(path)
    if isinstance(filesystem, fs.LocalFileSystem):
        return Path(inner).open("rb")  # whose errors say more
    return cast(BinaryIO, filesystem.open_input_file(inner))


def remove_file(path: str) -> None:
    """Remove a file, if it exists."""
    filesystem, inner = _resolve(path)
    with suppress(FileNotFoundError):
        filesystem.delete_file(inner)


def remove_folder(path: str) -> None:
    """Remove a folder with everything in it, if it exists."""
    filesystem, inner = _resolve(path)
    with suppress(FileNotFoundError):
        filesystem.delete_dir(inner)


def _resolve(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it."""
    scheme, colon, rest = path.partition(":")
    if not colon or scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.lstrip("/") if colon else path
    if scheme in ("s3a", "s3n"):  # Hadoop's names for it
        path = f"s3:{rest}"
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path)
    return found


# -- Hadoop's file systems, on the driver --------------------------------------------------------------------


def qualify_path(spark: SparkSession, path: str) -> str:
    """Return the path with the scheme and authority that Spark adds to it."""
    files, hadoop = _resolve_hadoop(spark, path)
    return str(files.makeQualified(hadoop).toString())


def is_folder(spark: SparkSession, path: str) -> bool:
    """Return whether a path that Spark reads is an existing folder."""
    files, hadoop = _resolve_hadoop(spark, path)
    return bool(files.isDirectory(hadoop))


def escape_glob(spark: SparkSession, path: str) -> str:
    """Escape `[` and the like in the path of an existing file, which Spark takes for patterns otherwise."""
    files, hadoop = _resolve_hadoop(spark, path)
    return re.sub(r"[][{}*?\\]", r"\\\g<0>", path) if files.exists(hadoop) else path


def _resolve_hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return Hadoop's FileSystem and Path of a path."""
    hadoop: Any = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    return hadoop.getFileSystem(spark._jsc.hadoopConfiguration()), hadoop


_WITH_CHECKSUMS = "org.apache.hadoop.fs.ChecksumFileSystem"


class HadoopFolder:
    """A folder of small text files, each of which is replaced as a whole."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm: Any = spark._jvm
        from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]

        self._files, self._path = _resolve_hadoop(spark, path)
        if is_instance_of(spark.sparkContext._gateway, self._files, _WITH_CHECKSUMS):
            # its checksums would refuse a local file that a person has edited to repair it
            self._files = self._files.getRawFileSystem()
        self._files.mkdirs(self._path)

    def path_of(self, name: str) -> str:
        """Return the path of a file."""
        return str(self._at(name).toString())

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if it does not exist."""
        if not self._files.exists(self._at(name)):
            return None
        stream = self._files.open(self._at(name))
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return str(text)

    def write(self, name: str, text: str) -> None:
        """Create or replace a file by renaming a temporary one, so that no reader sees a part of it."""
        unfinished = self._at(f"_{name}.unfinished")
        stream = self._files.create(unfinished, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._files.delete(self._at(name), False)
        if not self._files.rename(unfinished, self._at(name)):
            raise OSError(f"{self.path_of(name)} cannot be written")

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        self._files.delete(self._at(name), False)

    def names(self) -> list[str]:
        """Return the names of the files, without temporary ones."""
        names = [status.getPath().getName() for status in self._files.listStatus(self._path)]
        return [name for name in names if not name.startswith(("_", "."))]

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)
