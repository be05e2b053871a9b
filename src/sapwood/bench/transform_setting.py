"""What the experiments with transformations are given: sizes, and the workloads of the YFilter thesis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sapwood.bench import sources
from sapwood.bench.setting import Notebook
from sapwood.bench.sources import Source
from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.lang.fwr.compiler import compile_transformation
from sapwood.lang.fwr.model import Transformation
from sapwood.workload import Dtd, load_dtd

MANY_VALUES = 100
"""MaxValue where very many distinct queries are needed; elsewhere it is 10"""


@dataclass(frozen=True, slots=True)
class TransformScale:
    """Sizes of all experiments. The bars are promises about `FULL` only."""

    messages: int
    """few, because 50,000 plans take long"""
    rounds: int

    # The bars.
    sharing_sizes: tuple[int, ...]
    """queries, where both a shared network and one plan for each of them are measured"""
    shared_alone: int
    """where only the shared network is"""
    cost_queries: int
    cost_messages: int
    cost_rounds: int
    adding_sizes: tuple[int, int]
    """queries that are there when another one comes, few and many"""
    arriving: int

    # The experiments of the thesis.
    bibliography_queries: int
    book_queries: int
    predicate_counts: tuple[int, ...]
    return_counts: tuple[int, ...]
    descendants: tuple[float, ...]
    growth_sizes: tuple[int, ...]


FULL = TransformScale(
    messages=10,
    rounds=3,
    sharing_sizes=(10_000, 20_000, 30_000, 40_000, 50_000),
    shared_alone=100_000,
    cost_queries=10_000,
    cost_messages=180,
    cost_rounds=9,
    adding_sizes=(100, 50_000),
    arriving=300,
    bibliography_queries=5_000,
    book_queries=10_000,
    predicate_counts=(1, 2, 3),
    return_counts=(1, 2, 3, 4),
    descendants=(0.05, 0.1, 0.2, 0.4),
    growth_sizes=(5_000, 10_000, 20_000, 40_000),
)

QUICK = TransformScale(
    messages=5,
    rounds=2,
    sharing_sizes=(1_000, 3_000, 5_000),
    shared_alone=10_000,
    cost_queries=2_000,
    cost_messages=50,
    cost_rounds=5,
    adding_sizes=(100, 5_000),
    arriving=100,
    bibliography_queries=1_000,
    book_queries=1_000,
    predicate_counts=FULL.predicate_counts,
    return_counts=FULL.return_counts,
    descendants=(0.05, 0.2, 0.4),
    growth_sizes=(500, 1_000, 2_000),
)


@dataclass(slots=True)
class TransformSetting(Notebook):
    """The surroundings of an experiment with transformations."""

    scale: TransformScale
    nitf: Source | None
    """the published messages, if there are any"""


@dataclass(frozen=True, slots=True)
class Kind:
    """Messages of a DTD, about as large as those of the thesis, and queries that suit them."""

    dtd: Dtd
    depth: int
    repeats: int
    binding_depth: int

    def messages(self, count: int, values: int = 10) -> list[bytes]:
        return sources.messages(self.dtd, count, self.depth, self.repeats, values)

    def queries(
        self,
        count: int,
        *,
        predicates: int = 1,
        returns: int = 2,
        descendant: float = 0.2,
        values: int = 10,
    ) -> list[str]:
        """So many distinct queries, or all there are."""
        return sources.transformations(
            self.dtd,
            count,
            binding_depth=self.binding_depth,
            predicates=predicates,
            returns=returns,
            descendant=descendant,
            values=values,
        )


def bibliography() -> Kind:
    """Nothing nests in itself: 160 elements a message, where the thesis has 149."""
    return Kind(load_dtd("bibliography"), depth=4, repeats=12, binding_depth=2)


def book() -> Kind:
    """Sections hold sections, up to four levels of them: 88 elements a message, where the thesis has 83."""
    return Kind(load_dtd("book"), depth=6, repeats=5, binding_depth=3)


def compiled(queries: Iterable[str]) -> list[Transformation]:
    """The queries, ready to be planned."""
    with pause_garbage_collection(lambda: False):
        return [compile_transformation(query, {}) for query in queries]
