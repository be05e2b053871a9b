"""Charts as pieces of a web page: plain HTML and SVG whose colours and sizes a style sheet decides.

Bars and lines are placed by percentages, so that a chart is as wide as the screen while its text keeps its
size. Whatever text comes in is a stranger's, and goes out escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log10

_TEXT = 400
"""Characters of a stranger's text that are shown."""
_LABELS = 16
"""Names along an axis that have room; a phone has it for every second one."""


def clean_text(text: str) -> str:
    """A stranger's text, safe in a page: escaped, on one line, clipped, with nothing invisible in it."""
    flat = " ".join(text[: 4 * _TEXT].split())
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in flat)
    return escape(plain if len(plain) <= _TEXT else plain[:_TEXT] + "…")


def format_compact(value: float) -> str:
    """A number for an axis: 950, 1.5k, 20k, 3M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column, what it is called under the axis, and what it says when it is pointed at."""

    label: str
    value: float
    hint: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line before a column, and what is written on it."""

    place: int
    label: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A lying bar: what it stands for, how long it is, its value for people, and perhaps a line of code."""

    label: str
    value: float
    told: str
    code: str | None = None


def columns(given: Sequence[Column], unit: str, under: str = "", marks: Sequence[Mark] = ()) -> str:
    """Standing columns from zero."""
    ticks = round_ticks(max((column.value for column in given), default=0))
    top = ticks[-1]
    drawn = "".join(
        f'<div title="{clean_text(column.hint)}">'
        + (f'<i style="height:{column.value / top:.2%}"></i></div>' if column.value else "</div>")
        for column in given
    )
    lines = "".join(_tick(tick / top, format_compact(tick)) for tick in ticks)
    marked = _marks([Mark(mark.place, "") for mark in marks], len(given))
    return (
        f'<div class="plot"><span class="unit">{clean_text(unit)}</span>{lines}'
        f'<div class="columns">{drawn}</div>{marked}</div>'
        f"{_axis([column.label for column in given])}"
        + (f'<div class="under">{clean_text(under)}</div>' if under else "")
    )


def steps(values: Sequence[int], unit: str, marks: Sequence[Mark] = ()) -> str:
    """A small line, level over each place, with steps between them; it need not start at zero."""
    low, high = min(values), max(values)

    def height(value: int) -> float:
        return (value - low) / (high - low) if high > low else 0.5

    points = " ".join(
        f"{place + end},{100 - 100 * height(value):.2f}"
        for place, value in enumerate(values)
        for end in (0, 1)
    )
    lines = "".join(_tick(height(value), f"{value:,}") for value in sorted({low, high}))
    return (
        f'<div class="plot small"><span class="unit">{clean_text(unit)}</span>{lines}'
        f'<svg viewBox="0 0 {len(values)} 100" preserveAspectRatio="none" aria-hidden="true">'
        f'<polyline points="{points}"/></svg>{_marks(marks, len(values))}</div>'
    )


def bars(given: Sequence[Bar], kind: str = "") -> str:
    """Lying bars, the longest as wide as there is room."""
    longest = max((bar.value for bar in given), default=0) or 1
    rows = []
    for bar in given:
        code = f"<code>{clean_text(bar.code)}</code>" if bar.code is not None else ""
        rows.append(
            f'<li><div class="what"><span>{clean_text(bar.label)}</span><span>{clean_text(bar.told)}</span></div>{code}'
            f'<div class="bar"><i style="width:{bar.value / longest:.2%}"></i></div></li>'
        )
    return f'<ul class="bars {kind}">{"".join(rows)}</ul>'


def round_ticks(highest: float) -> list[float]:
    """Four round steps or fewer from 0 to at least the highest value, in whole numbers."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / 4
    size: float = 10 ** int(log10(rough) // 1)
    step = next(size * nice for nice in (1, 2, 2.5, 5, 10) if size * nice >= rough * 0.9999)
    step = ceil(step) if step < 10 else step
    return [step * i for i in range(ceil(highest / step * 0.9999) + 1)]


def _tick(height: float, label: str) -> str:
    return f'<div class="tick" style="bottom:{height:.2%}"><span>{clean_text(label)}</span></div>'


def _marks(marks: Sequence[Mark], places: int) -> str:
    """The marks; every so many of them is named where there are too many names."""
    every = ceil(len(marks) / _LABELS)
    return "".join(
        f'<div class="mark" style="left:{mark.place / places:.2%}">'
        + (f"<span>{clean_text(mark.label)}</span>" if mark.label and i % every == 0 else "")
        + "</div>"
        for i, mark in enumerate(marks)
    )


def _axis(labels: Sequence[str]) -> str:
    every = ceil(len(labels) / _LABELS) or 1
    names = "".join(
        f'<span style="left:{(i + 0.5) / len(labels):.2%}">{clean_text(label)}</span>'
        for i, label in enumerate(labels)
        if i % every == 0
    )
    return f'<div class="axis">{names}</div>'
