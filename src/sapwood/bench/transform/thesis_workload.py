"""The two workloads of the YFilter thesis: messages of a DTD, and for-where-return queries that suit them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sapwood.bench.harness.datasets import generate_messages, generate_transformations
from sapwood.engine.bulk_load import pause_garbage_collection
from sapwood.lang.fwr.compiler import compile_transformation
from sapwood.lang.fwr.model import Transformation
from sapwood.workload import Dtd, load_dtd

MANY_VALUES = 100
"""MaxValue where very many distinct queries are needed; elsewhere it is 10"""


@dataclass(frozen=True, slots=True)
class ThesisWorkload:
    """A DTD with the sizes of its messages and the depth of the binding paths."""

    dtd: Dtd
    depth: int
    repeats: int
    binding_depth: int

    def messages(self, count: int, values: int = 10) -> list[bytes]:
        """Generate messages about as large as those of the thesis."""
        return generate_messages(self.dtd, count, self.depth, self.repeats, values)

    def queries(self, count: int, **options: Any) -> list[str]:
        """Generate distinct queries, fewer if there are not as many; options as of the generator."""
        return generate_transformations(self.dtd, count, binding_depth=self.binding_depth, **options)


def bibliography() -> ThesisWorkload:
    """Return the workload without recursion: 160 elements a message, 149 in the thesis."""
    return ThesisWorkload(load_dtd("bibliography"), depth=4, repeats=12, binding_depth=2)


def book() -> ThesisWorkload:
    """Return the workload with up to four nested sections: 88 elements a message, 83 in the thesis."""
    return ThesisWorkload(load_dtd("book"), depth=6, repeats=5, binding_depth=3)


def compile_all(queries: Iterable[str]) -> list[Transformation]:
    """Compile queries, without collecting garbage in between."""
    with pause_garbage_collection():
        return [compile_transformation(query, {}) for query in queries]
