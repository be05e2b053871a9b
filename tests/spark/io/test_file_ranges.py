"""The files of a batch are read from their descriptions, and dealt out to tasks by bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sapwood.spark.io import file_ranges
from sapwood.spark.io.file_ranges import EMPTY, ListedFile
from sapwood.spark.io.file_reader import CHUNK_BYTES

MOMENT = datetime(2026, 11, 17, tzinfo=UTC)
MILLISECONDS = int(MOMENT.timestamp() * 1000)
REST = (
    "replication=1; blocksize=33554432; "
    f"modification_time={MILLISECONDS}; access_time=0; owner=root; isSymlink=false"
)


class Status:
    """A file's status in the JVM, described in some form."""

    def __init__(self, path: str, length: int, form: str) -> None:
        self.path, self.length = path, length
        self.text = form.format(path=path, length=length, rest=REST)

    def getPath(self) -> Any:
        return self

    def toString(self) -> str:
        return self.path

    def getLen(self) -> int:
        return self.length

    def getModificationTime(self) -> int:
        return MILLISECONDS


class Statuses:
    """A sequence in the JVM."""

    def __init__(self, *statuses: Status) -> None:
        self.each = statuses

    def mkString(self, separator: str) -> str:
        return separator.join(status.text for status in self.each)

    def apply(self, index: int) -> Status:
        return self.each[index]

    def size(self) -> int:
        return len(self.each)


@pytest.mark.parametrize(
    "form",
    [
        "FileStatus{{path={path}; isDirectory=false; length={length}; {rest}}}",
        "S3AFileStatus{{S3AFileStatus{{path={path}; isDirectory=false; length={length}; {rest}}}[eTag='x'}}",
        "of a form that nobody knows",
    ],
)
def test_files_are_found_in_any_description(form: str) -> None:
    paths = {
        "file:/in/a.xml": 3,
        "file:/in/odd; isDirectory=true; length=7; name.xml": 5,
        "file:/in/b.xml": 0,
    }
    found = file_ranges._read_statuses(
        Statuses(*(Status(path, length, form) for path, length in paths.items()))
    )
    assert {file.path: file.length for file in found} == paths
    assert {file.published_at for file in found} == {MOMENT}
    assert [file.problem for file in found] == [None, None, EMPTY]
    assert file_ranges._read_statuses(Statuses()) == []


def test_ranges_cover_every_byte_once_and_keep_all_tasks_busy() -> None:
    files = [ListedFile(f"f{i}.xml", 10_000 * i, MOMENT) for i in range(1, 9)]
    files += [ListedFile("lines.xmll", 40 << 20, MOMENT), ListedFile("packed.xmll.gz", 30 << 20, MOMENT)]
    ranges = file_ranges._split_files(files, 4)
    for file in files:
        parts = sorted((each.start, each.end) for each in ranges if each.path == file.path)
        assert [0, *(end for _, end in parts)] == [*(start for start, _ in parts), file.length]
    lines = [each for each in ranges if each.path == "lines.xmll"]
    assert len(lines) == 5 and all(each.end - each.start <= CHUNK_BYTES for each in lines)
    tasks = file_ranges._balance(ranges, 4)
    assert sorted(each for task in tasks for each in task) == sorted(ranges)
    loads = [sum(each.end - each.start for each in task) for task in tasks]
    assert len(loads) == 4 and max(loads) == 30 << 20  # the file that cannot be split


@pytest.mark.parametrize(("length", "tasks"), [(3_000, 1), (40_000, 2), (200_000, 4)])
def test_small_batches_are_few_tasks(length: int, tasks: int) -> None:
    files = [ListedFile(f"f{i}.xml", length // 10, MOMENT) for i in range(10)]
    assert len(file_ranges._balance(file_ranges._split_files(files, 4), 4)) == tasks
