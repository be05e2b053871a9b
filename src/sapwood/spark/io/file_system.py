"""Files and folders by path or URI: the only module of the pipeline that knows file systems.

    Arrow    read and written by the driver and all workers, without Spark's JVM
    Hadoop   read and written by the driver, on every file system that Spark is configured for
    local    paths of this machine, for what only works there: locks, DuckDB's file, warnings of unread files

The batch log is written through Hadoop where a checkpoint is not local, because it may be on any file system
that Spark reaches. Locally it is not: a call of the JVM takes longer than writing the file.
"""

from __future__ import annotations

import re
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from pyarrow import fs

from sapwood.errors import SapwoodError
from sapwood.spark.io.s3_settings import open_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FileSystemError(SapwoodError):
    """Raised when Spark does not know the file system of a path; says what to do."""


_BUFFER_BYTES = 1 << 20
"""What a reader of a remote file asks for at a time."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # but not C:/


def is_uri(path: str) -> bool:
    """Return whether a path begins with the scheme of a file system."""
    return _URI.match(path) is not None


def local_path(path: str) -> Path | None:
    """Return the path on this machine, or None if it is on another file system."""
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    return None if is_uri(path) else Path(path)


def is_reached_by_workers(path: str) -> bool:
    """Return whether workers can write files there without Spark: on local, or shared and mounted, disks."""
    return local_path(path) is not None


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


def replace_file(path: str, content: bytes) -> None:
    """Create or replace a file, so that no reader sees a part of it, whenever this process ends."""
    filesystem, inner = _resolve(path)
    if not isinstance(filesystem, fs.LocalFileSystem | fs.HadoopFileSystem):
        with filesystem.open_output_stream(inner) as stream:  # an object is there when it is complete
            stream.write(content)
        return
    with filesystem.open_output_stream(f"{inner}.unfinished") as stream:
        stream.write(content)
    filesystem.move(f"{inner}.unfinished", inner)


def open_file(path: str) -> BinaryIO:
    """Open a file for reading, by the path or URI under which Spark lists it."""
    filesystem, inner = _resolve(path)
    if isinstance(filesystem, fs.LocalFileSystem):
        return Path(inner).open("rb")  # whose errors say more
    return BufferedReader(filesystem.open_input_file(inner), _BUFFER_BYTES)  # Arrow's has no lines


def move_file(path: str, target: str) -> None:
    """Move a file within a file system; an existing one is replaced."""
    filesystem, inner = _resolve(path)
    filesystem.move(inner, _resolve(target)[1])


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
    if scheme in ("s3", "s3a", "s3n"):  # the others are Hadoop's names for it
        inner = rest.lstrip("/")
        s3 = open_s3(inner.partition("/")[0])
        if s3 is not None:
            return s3, inner
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
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    hadoop: Any = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    try:
        return hadoop.getFileSystem(spark._jsc.hadoopConfiguration()), hadoop
    except Py4JJavaError as error:
        reason = str(error.java_exception)
        if not any(kind in reason for kind in _NO_FILE_SYSTEM):
            raise
        scheme = path.partition(":")[0]
        hint = f"; for s3a it is {_S3_PACKAGE}" if scheme in ("s3", "s3a", "s3n") else ""
        raise FileSystemError(
            f"{path}: Spark has no file system for {scheme}:// here ({reason.splitlines()[0]}); name its "
            f'package in [spark], "spark.jars.packages"{hint}'
        ) from None


_NO_FILE_SYSTEM = "ClassNotFoundException", "NoClassDefFoundError", "UnsupportedFileSystemException"
_S3_PACKAGE = "org.apache.hadoop:hadoop-aws in the version of Spark's Hadoop, such as 3.5.0"


_WITH_CHECKSUMS = "org.apache.hadoop.fs.ChecksumFileSystem"
_OBJECT_STORES = frozenset({"s3", "s3a", "s3n", "gs"})
"""Schemes of stores in which a file appears when it is closed, as a whole, and renaming copies it."""


class TextFolder(Protocol):
    """A folder of small text files, each of which is replaced as a whole."""

    def path_of(self, name: str) -> str:
        """Return the path of a file."""

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if it does not exist."""

    def write(self, name: str, text: str) -> None:
        """Create or replace a file, so that no reader sees a part of it."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    def names(self) -> list[str]:
        """Return the names of the files, without temporary ones."""


def open_text_folder(spark: SparkSession, path: str) -> TextFolder:
    """Open a folder of small text files, and create it unless it exists."""
    local = local_path(qualify_path(spark, path))
    return LocalFolder(local) if local is not None else HadoopFolder(spark, path)


class LocalFolder:
    """A folder of small text files on this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True)

    def path_of(self, name: str) -> str:
        return str(self._path / name)

    def read(self, name: str) -> str | None:
        try:
            return (self._path / name).read_text("utf-8")
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        unfinished = self._path / f"_{name}.unfinished"
        unfinished.write_text(text, "utf-8")
        unfinished.replace(self._path / name)

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        return [path.name for path in self._path.iterdir() if not path.name.startswith(("_", "."))]


class HadoopFolder:
    """A folder of small text files on a file system that Spark is configured for."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm: Any = spark._jvm
        from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]

        self._files, self._path = _resolve_hadoop(spark, path)
        if is_instance_of(spark.sparkContext._gateway, self._files, _WITH_CHECKSUMS):
            # its checksums would refuse a local file that a person has edited to repair it
            self._files = self._files.getRawFileSystem()
        self._is_object_store = str(self._files.getUri().getScheme()) in _OBJECT_STORES
        if not self._is_object_store:  # which has no folders
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
        """Create or replace a file so that no reader sees a part of it, or none: in an object store at once,
        elsewhere by renaming a temporary one."""
        if self._is_object_store:
            stream = self._files.create(self._at(name), True)
            stream.write(bytearray(text.encode()))
            stream.close()  # not if that failed, since it would create a part
            return
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
        if self._is_object_store and not self._files.exists(self._path):
            return []
        names = [status.getPath().getName() for status in self._files.listStatus(self._path)]
        return [name for name in names if not name.startswith(("_", "."))]

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)
