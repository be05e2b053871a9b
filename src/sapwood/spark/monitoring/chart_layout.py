"""Charts of a report: their data, and the positions of their parts as fractions of the chart's size.

The templates draw them in HTML and SVG by percentages, so that a chart is as wide as the screen while its
text keeps its size. Colours and sizes are those of the style sheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import ClassVar, NamedTuple

_LABELS = 16
"""The labels for which an axis has room; on a phone, every second one is hidden."""


def format_compact(value: float) -> str:
    """Format a number for an axis: 950, 1.5k, 20k, 3M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def round_ticks(highest: float) -> list[float]:
    """Return up to five round, whole numbers, equally spaced from 0 to at least the highest value."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / 4
    size: float = 10 ** int(log10(rough) // 1)
    step = next(size * nice for nice in (1, 2, 2.5, 5, 10) if size * nice >= rough * 0.9999)
    step = ceil(step) if step < 10 else step
    return [step * i for i in range(ceil(highest / step * 0.9999) + 1)]


class Label(NamedTuple):
    """A text at a position between 0 and 1; the text may be empty."""

    position: float
    text: str


class Column(NamedTuple):
    """A column of a chart, with the label below it and the text of its tooltip."""

    label: str
    value: float
    hint: str


class Mark(NamedTuple):
    """A vertical line before the column of this number, and its label."""

    column: int
    label: str


@dataclass(frozen=True, slots=True)
class ColumnChart:
    """Vertical columns that start at zero."""

    kind: ClassVar[str] = "columns"
    columns: Sequence[Column]
    unit: str
    caption: str = ""
    marks: Sequence[Mark] = ()

    @property
    def top(self) -> float:
        """The value at the top of the chart."""
        return round_ticks(max((column.value for column in self.columns), default=0))[-1]

    @property
    def ticks(self) -> list[Label]:
        """The horizontal lines, from the bottom."""
        ticks = round_ticks(max((column.value for column in self.columns), default=0))
        return [Label(tick / ticks[-1], format_compact(tick)) for tick in ticks]

    @property
    def lines(self) -> list[Label]:
        """The vertical lines of the marks, without their labels, which the chart below has."""
        return [Label(mark.column / len(self.columns), "") for mark in self.marks]

    @property
    def axis(self) -> list[Label]:
        """The labels below the columns, as many as there is room for."""
        count = len(self.columns)
        every = ceil(count / _LABELS) or 1
        return [Label((i + 0.5) / count, self.columns[i].label) for i in range(0, count, every)]


@dataclass(frozen=True, slots=True)
class StepChart:
    """A step line, level over each column of the chart above it; it need not start at zero."""

    kind: ClassVar[str] = "steps"
    values: Sequence[int]
    unit: str
    marks: Sequence[Mark] = ()

    def _height(self, value: int) -> float:
        low, high = min(self.values), max(self.values)
        return (value - low) / (high - low) if high > low else 0.5

    @property
    def points(self) -> str:
        """The points of the line, for SVG."""
        return " ".join(
            f"{i + end},{100 - 100 * self._height(value):.2f}"
            for i, value in enumerate(self.values)
            for end in (0, 1)
        )

    @property
    def ticks(self) -> list[Label]:
        """The horizontal lines of the lowest and the highest value."""
        values = sorted({min(self.values), max(self.values)})
        return [Label(self._height(value), f"{value:,}") for value in values]

    @property
    def lines(self) -> list[Label]:
        """The vertical lines of the marks; if there are many, only some have a label."""
        every = ceil(len(self.marks) / _LABELS)
        return [
            Label(mark.column / len(self.values), mark.label if i % every == 0 else "")
            for i, mark in enumerate(self.marks)
        ]


class Bar(NamedTuple):
    """A horizontal bar, with its label, its value as text, and optionally a query."""

    label: str
    value: float
    text: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class BarChart:
    """Horizontal bars, of which the longest is as wide as the chart."""

    kind: ClassVar[str] = "bars"
    bars: Sequence[Bar]
    color: str = ""
    """a class of the style sheet"""

    @property
    def longest(self) -> float:
        """The value of the longest bar."""
        return max((bar.value for bar in self.bars), default=0) or 1


Chart = ColumnChart | StepChart | BarChart


@dataclass(frozen=True, slots=True)
class TableData:
    """A table, of which the first columns are text and the others numbers."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 0


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a report: charts with their table, a list, or a text where there is no data."""

    title: str
    note: str
    charts: Sequence[Chart] = ()
    table: TableData | None = None
    """the data of the charts, which the reader can open"""
    list: TableData | None = None
    """a table that is always open"""
    empty: str = ""
    """the text where there is no data"""
