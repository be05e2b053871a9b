"""Where messages and queries come from: a folder of published workloads, or the generators."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Protocol

from sapwood.errors import SapwoodError
from sapwood.workload import (
    Dtd,
    MessageGenerator,
    QueriesExhausted,
    QueryGenerator,
    TransformationGenerator,
    load_dtd,
)

DISTINCT = "queries-153928-distinct.txt.gz"
REPEATED = "queries-500000.txt.gz"
PREDICATES = "queries-pred1-100k.txt.gz"
NESTED = "queries-nested1-50k.txt.gz"
MESSAGES = "docs"
NITF_DTD = "nitf-2-5.dtd"


class BenchError(SapwoodError, ValueError):
    """Something asked of the benchmarks that cannot be done; the message says what is missing or unknown."""


class Source(Protocol):
    """Messages and queries of the kinds that the bars are about; each method returns up to `count`."""

    @property
    def label(self) -> str: ...
    @property
    def dtd(self) -> Dtd:
        """What the growth experiments generate their own messages and queries from."""
        ...

    def messages(self, count: int) -> list[bytes]: ...
    def distinct(self, count: int) -> list[str]:
        """Plain paths, no two equal."""
        ...

    def repeated(self, count: int) -> list[str]:
        """Plain paths as people would leave them, many the same."""
        ...

    def predicates(self, count: int) -> list[str]:
        """Paths with one attribute predicate."""
        ...

    def nested(self, count: int) -> list[str]:
        """Paths with one nested path."""
        ...


class NitfFolder:
    """The published NITF workload: messages in docs/*.xml, and compressed files with a query on each line."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise BenchError(f"there is no folder {folder}")
        needed = (DISTINCT, REPEATED, PREDICATES, NESTED)
        missing = [name for name in needed if not (folder / name).is_file()]
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

    def distinct(self, count: int) -> list[str]:
        return self._lines(DISTINCT, count)

    def repeated(self, count: int) -> list[str]:
        return self._lines(REPEATED, count)

    def predicates(self, count: int) -> list[str]:
        return self._lines(PREDICATES, count)

    def nested(self, count: int) -> list[str]:
        return self._lines(NESTED, count)

    def _lines(self, name: str, count: int) -> list[str]:
        try:
            with gzip.open(self._folder / name, "rt", encoding="utf-8") as lines:
                return [line.rstrip("\n") for line in islice(lines, count)]
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise BenchError(f"cannot read {self._folder / name}: {error}") from error


class Generated:
    """Workloads of the same kinds, made from a DTD; the same ones in every run."""

    def __init__(self, dtd: Dtd) -> None:
        self.dtd = dtd
        self.label = f"generated from the DTD {dtd.name!r}"

    def messages(self, count: int) -> list[bytes]:
        return messages(self.dtd, count)

    def distinct(self, count: int) -> list[str]:
        return queries(self.dtd, count)

    def repeated(self, count: int) -> list[str]:
        return queries(self.dtd, count, distinct=False)

    def predicates(self, count: int) -> list[str]:
        return queries(self.dtd, count, predicates=1)

    def nested(self, count: int) -> list[str]:
        return queries(self.dtd, count, nested=1)


def source(nitf: Path | None) -> Source:
    """The published workload if there is a folder of it, else a generated one of the news DTD."""
    return NitfFolder(nitf) if nitf is not None else Generated(load_dtd("news"))


def messages(dtd: Dtd, count: int, depth: int = 6, repeats: int = 3, values: int = 20) -> list[bytes]:
    """Generated messages, the same ones every time."""
    generator = MessageGenerator(dtd, seed=1, max_depth=depth, max_repeats=repeats, values=values)
    return generator.take(count)


def queries(
    dtd: Dtd,
    count: int,
    *,
    depth: int = 6,
    wildcard: float = 0.2,
    descendant: float = 0.2,
    predicates: int = 0,
    nested: int = 0,
    distinct: bool = True,
) -> list[str]:
    """Generated queries, the same ones every time; fewer than `count` if there are no more distinct ones."""
    generator = QueryGenerator(
        dtd,
        seed=2,
        max_depth=depth,
        wildcard=wildcard,
        descendant=descendant,
        predicates=predicates,
        predicate_targets=("attribute",),
        nested=nested,
        distinct=distinct,
    )
    return _until_exhausted(islice(generator, count))


def transformations(
    dtd: Dtd,
    count: int,
    *,
    binding_depth: int = 3,
    predicates: int = 1,
    returns: int = 2,
    descendant: float = 0.2,
    values: int = 10,
) -> list[str]:
    """Generated for-where-return queries, as `queries` gives paths."""
    generator = TransformationGenerator(
        dtd,
        seed=2,
        binding_depth=binding_depth,
        predicate_paths=predicates,
        return_paths=returns,
        descendant=descendant,
        values=values,
    )
    return _until_exhausted(islice(generator, count))


def _until_exhausted(queries: Iterable[str]) -> list[str]:
    found: list[str] = []
    try:
        for query in queries:
            found.append(query)
    except QueriesExhausted:
        if not found:
            raise
    return found
