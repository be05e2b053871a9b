"""The result model: figures with their bars, charts, listings, and the JSON of all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from math import inf
from typing import NamedTuple

Detail = float | int | str | list[float]
Cell = float | int | None
RAW = "× raw parsing"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, with the bar that it is compared with."""

    measure: str
    workload: str
    value: float
    unit: str
    bar: float | None = None
    """an upper limit, or a lower one if `at_least`"""
    judged: bool = False
    """True if the bar is a promise about this workload, False if it is shown for reference"""
    details: Mapping[str, Detail] = field(default_factory=dict)
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """True if the bar is met, None if nothing is promised."""
        if not self.judged or self.bar is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar


class Role(StrEnum):
    """The kind of a curve, which decides how it is drawn."""

    SAPWOOD = "sapwood"
    OTHER = "other"
    """another workload or configuration of Sapwood"""
    FIRST = "first"
    """Sapwood on messages that it has not matched before"""
    TWIN = "twin"
    """Sapwood with an optimisation switched off"""
    BASELINE = "baseline"
    PUBLISHED = "published"
    """figures of a paper about its system"""
    PUBLISHED_BASELINE = "published baseline"
    """figures of a paper about its baseline"""


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    details: Mapping[str, Detail] = field(default_factory=dict)


@dataclass(slots=True)
class Series:
    """A curve, its points in the order of measurement."""

    label: str
    role: Role
    points: list[Point] = field(default_factory=list)

    def add(self, x: float, y: float, **details: Detail) -> None:
        self.points.append(Point(x, y, round_details(details)))


class ChartAxis(NamedTuple):
    """The label of a vertical axis, and the unit of the numbers along it."""

    label: str
    unit: str


@dataclass(slots=True)
class Chart:
    """Curves with common axes. `y`, in `unit`, has a logarithmic axis, and so has `x` if `log_x`."""

    name: str
    title: str
    x_label: str
    y_label: str
    log_x: bool
    note: str
    unit: str
    series: list[Series] = field(default_factory=list)

    def curve(self, label: str, role: Role) -> Series:
        """Return the curve of that label; add it if there is none."""
        for series in self.series:
            if series.label == label:
                return series
        self.series.append(Series(label, role))
        return self.series[-1]


@dataclass(frozen=True, slots=True)
class ListingRow:
    label: str
    cells: tuple[Cell, ...]
    published: bool = False
    """True for figures of a paper"""


@dataclass(slots=True)
class Listing:
    """A table of numbers: a row for each variant, a column for each quantity."""

    name: str
    title: str
    columns: tuple[str, ...]
    note: str = ""
    rows: list[ListingRow] = field(default_factory=list)

    def add(self, label: str, *cells: Cell, published: bool = False) -> None:
        self.rows.append(ListingRow(label, cells, published))

    def add_named(self, label: str, cells: Mapping[str, Cell], published: bool = False) -> None:
        """Add a row by the names of its columns; the other cells stay empty."""
        self.add(label, *map(cells.get, self.columns), published=published)


@dataclass(slots=True)
class BenchmarkReport:
    """Everything that a run of a suite has measured so far."""

    workload: str
    quick: bool
    machine: Mapping[str, str] = field(default_factory=dict)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    seconds: float = 0.0
    interrupted: bool = False
    """True if Ctrl-C ended the run before all experiments were done"""
    figures: list[Figure] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """experiments that could not run, each with the reason"""

    @property
    def missed(self) -> list[Figure]:
        """The figures that miss a promised bar."""
        return [figure for figure in self.figures if figure.met is False]

    @property
    def nonempty_charts(self) -> list[Chart]:
        return [chart for chart in self.charts if any(series.points for series in chart.series)]

    def to_json(self) -> str:
        """Return the whole report as one JSON object."""
        data = asdict(self)
        for entry, figure in zip(data["figures"], self.figures, strict=True):
            entry["met"] = figure.met
        return json.dumps(data, indent=2, ensure_ascii=False)


def round_details(details: Mapping[str, Detail]) -> dict[str, Detail]:
    """Round the numbers that accompany a result to four significant digits, or to whole numbers."""
    return {key: _round_detail(value) for key, value in details.items()}


def _round_detail(value: Detail) -> Detail:
    if isinstance(value, list):
        return [round_number(each) for each in value]
    return round_number(value) if isinstance(value, float) else value


def round_number(value: float) -> float:
    return float(round(value)) if 1_000 <= abs(value) < inf else float(f"{value:.4g}")
