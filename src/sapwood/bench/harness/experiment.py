"""Experiments: their scales as data, and the context that records their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from sapwood.bench.harness.benchmark_report import (
    BenchmarkReport,
    Chart,
    Detail,
    Figure,
    Listing,
    round_details,
)
from sapwood.errors import SapwoodError

if TYPE_CHECKING:
    from sapwood.bench.harness.datasets import Dataset

ScaleName = Literal["full", "generated", "quick", "smoke"]
Parameters = TypeVar("Parameters")

INSTALL_HINT = "pip install 'sapwood[bench]'"


class BenchError(SapwoodError, ValueError):
    """Raised for options that a benchmark cannot meet, and for contenders whose answers differ."""


@dataclass(frozen=True, slots=True)
class Scales(Generic[Parameters]):
    """The parameters of an experiment at each scale.

    The bars are promises about `full`. `smoke` takes a moment: it shows that everything runs.
    """

    full: Parameters
    quick: Parameters
    smoke: Parameters
    generated: Parameters | None = None
    """where the published workload is missing, if not the same as `full`"""

    def at(self, name: ScaleName) -> Parameters:
        """Return the parameters of a scale."""
        if name == "generated":
            return self.full if self.generated is None else self.generated
        found: Parameters = getattr(self, name)
        return found


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit that a figure is to meet, made by `at_most` or `at_least`."""

    limit: float
    lower: bool
    promised: bool
    """False: shown for reference at every scale"""


def at_most(limit: float, promised: bool = True) -> Bar:
    return Bar(limit, False, promised)


def at_least(limit: float, promised: bool = True) -> Bar:
    return Bar(limit, True, promised)


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
        bar: Bar | None = None,
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

    def chart(
        self,
        name: str,
        title: str,
        x_label: str,
        y_label: str,
        *,
        log_x: bool = False,
        note: str = "",
        unit: str = "×",
    ) -> Chart:
        """Add an empty chart to the report, to be filled during the measurement."""
        self.report.charts.append(Chart(name, title, x_label, y_label, log_x, note, unit))
        return self.report.charts[-1]

    def listing(self, name: str, title: str, columns: tuple[str, ...], note: str = "") -> Listing:
        """Add an empty listing to the report, to be filled during the measurement."""
        self.report.listings.append(Listing(name, title, columns, note))
        return self.report.listings[-1]

    def skip(self, experiment: str, reason: str) -> None:
        """Report that an experiment cannot run."""
        self.report.skipped.append(f"{experiment}: {reason}")


@dataclass(frozen=True, slots=True)
class Experiment(Generic[Parameters]):
    """A named measurement. `steps` performs it, and yields a text before each step."""

    name: str
    about: str
    scales: Scales[Parameters]
    steps: Callable[[Bench, Parameters], Iterator[str]]

    def run(self, bench: Bench) -> Iterator[str]:
        """Measure at the scale of the run."""
        return self.steps(bench, self.scales.at(bench.scale))
