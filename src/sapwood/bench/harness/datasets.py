"""Datasets of messages and queries: a folder with the published NITF workload, or generators."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from sapwood.bench.harness.experiments import BenchError
from sapwood.workload import (
    Dtd,
    MessageGenerator,
    QueriesExhausted,
    QueryGenerator,
    TransformationGenerator,
    load_dtd,
)

MESSAGES = "docs"
NITF_DTD = "nitf-2-5.dtd"
Kind = Literal["distinct", "repeated", "predicates", "nested"]
"""plain paths, all different; the same with duplicates, as many users would subscribe to them; paths with one
attribute predicate; paths with one nested path"""
QUERY_FILES: dict[Kind, str] = {
    "distinct": "queries-153928-distinct.txt.gz",
    "repeated": "queries-500000.txt.gz",
    "predicates": "queries-pred1-100k.txt.gz",
    "nested": "queries-nested1-50k.txt.gz",
}
_QUERY_OPTIONS: dict[Kind, dict[str, Any]] = {
    "distinct": {},
    "repeated": {"distinct": False},
    "predicates": {"predicates": 1},
    "nested": {"nested": 1},
}


class NitfFolder:
    """The published NITF workload: messages in docs/*.xml, and compressed files with a query on each line.

    Its DTD is for experiments that generate messages and queries themselves.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise BenchError(f"there is no folder {folder}")
        missing = [name for name in QUERY_FILES.values() if not (folder / name).is_file()]
        self._messages = sorted((folder / MESSAGES).glob("*.xml"))
        if not self._messages:
            missing.insert(0, f"{MESSAGES}/*.xml")
        if missing:
            raise BenchError(f"the folder {folder} has no {', no '.join(missing)}")
        self._folder = folder
        self.label = "published NITF workload"
        dtd = folder / NITF_DTD
        self.dtd = load_dtd(dtd if dtd.is_file() else "news")

    def messages(self, count: int) -> list[bytes]:
        return [path.read_bytes() for path in self._messages[:count]]

    def queries(self, kind: Kind, count: int) -> list[str]:
        file = self._folder / QUERY_FILES[kind]
        try:
            with gzip.open(file, "rt", encoding="utf-8") as lines:
                return [line.rstrip("\n") for line in islice(lines, count)]
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise BenchError(f"cannot read {file}: {error}") from error


class GeneratedDataset:
    """The same kinds of messages and queries generated from a DTD, identical in every run."""

    def __init__(self, dtd: Dtd) -> None:
        self.dtd = dtd
        self.label = f"generated from the DTD {dtd.name!r}"

    def messages(self, count: int) -> list[bytes]:
        return generate_messages(self.dtd, count)

    def queries(self, kind: Kind, count: int) -> list[str]:
        return generate_queries(self.dtd, count, **_QUERY_OPTIONS[kind])


Dataset = NitfFolder | GeneratedDataset
"""messages and four kinds of queries; each method returns up to `count` of them"""


def open_dataset(nitf: Path | None = None) -> Dataset:
    """Return the published workload in a folder, or one generated from the news DTD."""
    return GeneratedDataset(load_dtd("news")) if nitf is None else NitfFolder(nitf)


def generate_messages(
    dtd: Dtd, count: int, depth: int = 6, repeats: int = 3, values: int = 20
) -> list[bytes]:
    """Generate messages, the same ones in every run."""
    return MessageGenerator(dtd, seed=1, max_depth=depth, max_repeats=repeats, values=values).take(count)


def generate_queries(dtd: Dtd, count: int, *, depth: int = 6, **options: Any) -> list[str]:
    """Generate path queries, the same ones in every run; fewer if there are not as many distinct ones.

    The options are those of `QueryGenerator`; predicates are on attributes.
    """
    generator = QueryGenerator(dtd, seed=2, max_depth=depth, predicate_targets=("attribute",), **options)
    return _take_available(generator, count)


def generate_transformations(dtd: Dtd, count: int, **options: Any) -> list[str]:
    """Generate for-where-return queries in the same way, with the options of `TransformationGenerator`."""
    return _take_available(TransformationGenerator(dtd, seed=2, **options), count)


def _take_available(generator: Iterator[str], count: int) -> list[str]:
    found: list[str] = []
    try:
        for query in islice(generator, count):
            found.append(query)
    except QueriesExhausted:
        if not found:
            raise
    return found
