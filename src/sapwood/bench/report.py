"""What the experiments found: figures with their bars, curves, and the JSON of both."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.parsers import expat

from lxml import etree

from sapwood.bench.timing import CLOCK

Detail = float | int | str | list[float]
RAW = "× raw parsing"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a bar is set for, or could be."""

    measure: str
    workload: str
    value: float
    unit: str
    bar: float | None = None
    """at most so much, or at least if `at_least`"""
    judged: bool = False
    """whether the bar is a promise about this workload, or shown for reference only"""
    details: Mapping[str, Detail] = field(default_factory=dict)
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where nothing is promised."""
        if not self.judged or self.bar is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar


class Role(StrEnum):
    """What a curve is, which decides how it is drawn."""

    SAPWOOD = "sapwood"
    OTHER = "other"
    """another workload or way of Sapwood"""
    FIRST = "first"
    """first sight of the messages"""
    TWIN = "twin"
    """an optimisation switched off"""
    BASELINE = "baseline"
    PUBLISHED = "published"
    """what a paper says of its system"""
    PUBLISHED_BASELINE = "published baseline"
    """what a paper says of what it compares its system with"""


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    details: Mapping[str, Detail] = field(default_factory=dict)


@dataclass(slots=True)
class Series:
    """A curve, its points in the order measured."""

    label: str
    role: Role
    points: list[Point] = field(default_factory=list)

    def add(self, x: float, y: float, **details: Detail) -> None:
        self.points.append(Point(x, y, details))


@dataclass(slots=True)
class Chart:
    """Curves that share their axes. `y`, in `unit`, is on a logarithmic axis; `x` is on one if `log_x`."""

    name: str
    title: str
    x_label: str
    y_label: str
    log_x: bool = False
    note: str = ""
    unit: str = "×"
    series: list[Series] = field(default_factory=list)

    def curve(self, label: str, role: Role) -> Series:
        """The curve of that label, new if there is none."""
        for series in self.series:
            if series.label == label:
                return series
        self.series.append(Series(label, role))
        return self.series[-1]


Cell = float | int | None


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    cells: tuple[Cell, ...]
    published: bool = False
    """whether a paper says so, and nothing was measured"""


@dataclass(slots=True)
class Listing:
    """Numbers that are no curve: a row for each way of doing something, a column for each number about it."""

    name: str
    title: str
    columns: tuple[str, ...]
    note: str = ""
    rows: list[Row] = field(default_factory=list)

    def add(self, label: str, *cells: Cell, published: bool = False) -> None:
        self.rows.append(Row(label, cells, published))


@dataclass(slots=True)
class Report:
    """All that has been measured so far."""

    workload: str
    quick: bool
    machine: Mapping[str, str] = field(default_factory=lambda: machine())
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    seconds: float = 0.0
    interrupted: bool = False
    """ended by the user before all experiments were done"""
    figures: list[Figure] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)

    @property
    def missed(self) -> list[Figure]:
        """The figures whose bar is promised and not met."""
        return [figure for figure in self.figures if figure.met is False]

    @property
    def drawn(self) -> list[Chart]:
        """The charts that have something to show."""
        return [chart for chart in self.charts if any(series.points for series in chart.series)]

    def to_json(self) -> str:
        """Everything, as one JSON object."""
        data = asdict(self)
        for entry, figure in zip(data["figures"], self.figures, strict=True):
            entry["met"] = figure.met
        return json.dumps(data, indent=2, ensure_ascii=False)


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    known = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(os.cpu_count() or ""),
        "clock": CLOCK,
        "expat": expat.EXPAT_VERSION.removeprefix("expat_"),
        "lxml": version("lxml"),
        "libxml2": ".".join(map(str, etree.LIBXML_VERSION)),
        "numpy": version("numpy"),
        "sapwood": version("sapwood"),
    }
    with suppress(PackageNotFoundError):  # only the relational engine needs it
        known["duckdb"] = version("duckdb")
    return known


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
