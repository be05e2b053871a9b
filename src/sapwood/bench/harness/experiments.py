"""Experiments: their scales as data, and the context that records their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sapwood.bench.harness.benchmark_report import (
    BenchmarkReport,
    Chart,
    ChartAxis,
    Detail,
    Figure,
    Listing,
    round_details,
)
from sapwood.errors import SapwoodError

if TYPE_CHECKING:
    from sapwood.bench.harness.datasets import Dataset

ScaleName = Literal["full", "generated", "quick", "smoke"]
"""`full`, which the bars are promises about; `generated`, the same without the published workload; `quick`,
for a first look; `smoke`, which takes a moment and shows that everything runs"""
_COLUMNS: dict[int, tuple[ScaleName, ...]] = {
    3: ("full", "quick", "smoke"),
    4: ("full", "generated", "quick", "smoke"),
}
Value = TypeVar("Value")

INSTALL_HINT = "in a clone of Sapwood, pip install '.[bench]'"
_MISSING = {
    "psutil": f"psutil is missing: {INSTALL_HINT}",
    "confluent_kafka": f"confluent-kafka is missing: {INSTALL_HINT}",
    "pyspark": "Spark is missing: in a clone of Sapwood, pip install '.[spark]'",
}


class BenchError(SapwoodError, ValueError):
    """Raised for options that a benchmark cannot meet, and for contenders whose answers differ."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that a figure is to meet, made by `at_most` or `at_least`."""

    limit: float
    lower: bool
    promised: bool
    """False: shown for reference at every scale"""


def at_most(limit: float, promised: bool = True) -> Limit:
    return Limit(limit, False, promised)


def at_least(limit: float, promised: bool = True) -> Limit:
    return Limit(limit, True, promised)


@dataclass(slots=True)
class Bench:
    """The context of the experiments of one run: scale, inputs, and the report to write to."""

    report: BenchmarkReport
    scale: ScaleName
    dataset: Dataset
    folder: Path
    """for temporary files"""
    cache: dict[object, Any] = field(default_factory=dict)
    """inputs that several experiments use"""

    def figure(
        self,
        measure: str,
        workload: str,
        value: float,
        unit: str = "times",
        bar: Limit | None = None,
        /,
        **details: Detail,
    ) -> None:
        """Report a figure. Its bar is judged at full scale."""
        details = round_details(details)
        if bar is None:
            figure = Figure(measure, workload, value, unit, details=details)
        else:
            judged = self.scale == "full" and bar.promised
            figure = Figure(measure, workload, value, unit, bar.limit, judged, details, bar.lower)
        self.report.figures.append(figure)

    def ratio(
        self, measure: str, workload: str, bar: Limit | None = None, unit: str = "times", /, **parts: Detail
    ) -> None:
        """Report the first of the given numbers divided by the second; all of them are details."""
        first, second, *_ = parts.values()
        assert isinstance(first, float | int) and isinstance(second, float | int)
        self.figure(measure, workload, first / second, unit, bar, **parts)

    def chart(
        self, name: str, title: str, x_label: str, y: ChartAxis, *, log_x: bool = False, note: str = ""
    ) -> Chart:
        """Add an empty chart to the report, to be filled during the measurement."""
        self.report.charts.append(Chart(name, title, x_label, y.label, log_x, note, y.unit))
        return self.report.charts[-1]

    def listing(self, name: str, title: str, columns: tuple[str, ...], note: str = "") -> Listing:
        """Add an empty listing to the report, to be filled during the measurement."""
        self.report.listings.append(Listing(name, title, columns, note))
        return self.report.listings[-1]

    def select(self, row: tuple[Value, ...]) -> Value:
        """Return the value for the scale of the run: see `scale`."""
        columns = _COLUMNS[len(row)]
        return row[columns.index(self.scale if self.scale in columns else "full")]


Steps = Callable[..., Iterator[str]]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A named measurement. `steps` performs it, and yields a text before each step."""

    name: str
    about: str
    steps: Steps
    table: Mapping[str, tuple[Any, ...]]
    """the arguments of `steps` at each scale"""
    needs: str = ""
    """a library without which the experiment is skipped"""

    def run(self, bench: Bench) -> Iterator[str]:
        """Measure at the scale of the run, or report what is missing."""
        if self.needs and find_spec(self.needs) is None:
            bench.report.skipped.append(f"{self.name}: {_MISSING[self.needs]}")
            return iter(())
        return self.steps(bench, **{name: bench.select(row) for name, row in self.table.items()})


@dataclass(frozen=True, slots=True)
class Scales:
    """The values of an argument at each scale, made by `scale`."""

    values: tuple[Any, ...]


def scale(*values: Any) -> Any:
    """Declare an argument by its values for full, quick, smoke, or for full, generated, quick, smoke."""
    return Scales(values)


def experiment(name: str, about: str, needs: str = "", /) -> Callable[[Steps], Experiment]:
    """Declare an experiment by its function, whose arguments have values for every scale as defaults.

        @experiment("memory", "resident memory with plain paths")
        def measure_memory(bench: Bench, query_count: int = scale(150_000, 10_000, 60)) -> Iterator[str]:

    Where the library that it needs is missing, it is skipped.
    """

    def declare(steps: Steps) -> Experiment:
        defaults = {name: parameter.default for name, parameter in signature(steps).parameters.items()}
        table = {name: each.values for name, each in defaults.items() if isinstance(each, Scales)}
        return Experiment(name, about, steps, table, needs)

    return declare
