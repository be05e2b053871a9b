"""A stage of work in Spark's Python workers: rows, and the functions that are applied to them in one pass.

Spark does not fuse two calls of `mapInArrow`: between them, all rows go from one Python worker to the JVM and
on to another worker. A `WorkerStage` collects the functions first, and calls `mapInArrow` once:

    WorkerStage.of(rows).then(read, …).then(match, …).then(deliver, …).to_frame()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Maps the Arrow batches of a partition to other Arrow batches, as a function for `mapInArrow` does."""


@dataclass(frozen=True, slots=True)
class WorkerStage:
    """Rows, and functions that workers apply to them one after another."""

    rows: DataFrame
    schema: StructType
    """the columns after the last function"""
    functions: tuple[ArrowFunction, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    """variables of the environment; Spark runs functions of different environments in different workers"""

    @classmethod
    def of(cls, rows: DataFrame) -> WorkerStage:
        """Return a stage that has no function yet."""
        return cls(rows, rows.schema)

    @property
    def columns(self) -> list[str]:
        """The names of the columns after the last function."""
        return self.schema.names

    def then(self, function: ArrowFunction, schema: StructType) -> WorkerStage:
        """Return a stage with one more function, whose result has the columns of the schema."""
        return replace(self, functions=(*self.functions, function), schema=schema)

    def to_frame(self) -> DataFrame:
        """Return the result of all functions."""
        if not self.functions:
            return self.rows
        names = self.rows.columns
        # mapInArrow takes a name with a dot for a path, so it gets numbers
        numbered = self.rows.toDF(*(f"_{number}" for number in range(len(names))))
        variables = self.rows.sparkSession.sparkContext.environment
        variables.update(self.environment)
        try:
            return numbered.mapInArrow(_FunctionChain(tuple(names), self.functions), self.schema)
        finally:
            for name, _ in self.environment:
                del variables[name]


@dataclass(frozen=True, slots=True)
class _FunctionChain:
    """A function for `mapInArrow`: gives the columns their names, and applies several functions."""

    names: tuple[str, ...]
    functions: tuple[ArrowFunction, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = list(self.names)
        result: Iterator[pa.RecordBatch] = (batch.rename_columns(names) for batch in batches)
        for function in self.functions:
            result = function(result)
        return result
