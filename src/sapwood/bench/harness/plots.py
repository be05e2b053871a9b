"""A report as PNG files: one for the bars, one for each chart, and an overview of all of them.

Drawn with matplotlib's objects instead of pyplot, which would change global state and look for a display.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, log10
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.image import imsave
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from sapwood.bench.harness.benchmark_report import BenchmarkReport, Chart, Figure, Role, Series
from sapwood.bench.harness.terminal_tables import format_number

_INK, _FAINT, _GRID = "#24292f", "#6e7781", "#e4e7eb"
_GREEN, _RED, _GREY = "#2a7f4f", "#c4432b", "#9aa3ad"
_LINE: dict[Role, tuple[str, str, str]] = {  # colour, dashes, marker
    Role.SAPWOOD: (_GREEN, "-", "o"),
    Role.OTHER: ("#1f6fb2", "-", "s"),
    Role.FIRST: ("#d08a1d", "--", "o"),
    Role.TWIN: ("#8b4fa8", "--", "^"),
    Role.BASELINE: ("#7b8591", "-", "D"),
    Role.PUBLISHED: (_GREEN, ":", "x"),
    Role.PUBLISHED_BASELINE: ("#7b8591", ":", "x"),
}
_MORE_MARKERS = "v^<>PXDs*h"
"""of the second and later curves of a role, which have the same colour"""
_DPI = 150
_WIDTH, _HEIGHT = 7.2, 4.6
_LONGEST = 2.2
"""times the bar: longer bars are cut here, since their number is written beside them"""

Drawing = Callable[[Canvas], None]
Pixels = NDArray[np.uint8]


def write_charts(report: BenchmarkReport, folder: Path, name: str) -> None:
    """Write PNG files named after the suite into the folder; none for an empty report."""
    barred = [figure for figure in report.figures if figure.bar is not None]
    drawings: dict[str, Drawing] = {"bars": partial(_draw_bars, figures=barred)} if barred else {}
    drawings |= {chart.name: partial(_draw_chart, chart=chart) for chart in report.nonempty_charts}
    panels = []
    for part, draw in drawings.items():
        panels.append(_render(draw, _WIDTH, _HEIGHT))
        imsave(folder / f"{name}-{part}.png", panels[-1], dpi=_DPI)
    if panels:
        imsave(folder / f"{name}.png", _join_panels(report, panels), dpi=_DPI)


def _render(draw: Drawing, width: float, height: float) -> Pixels:
    figure = Canvas(figsize=(width, height), dpi=_DPI, layout="constrained", facecolor="white")
    canvas: Any = FigureCanvasAgg(figure)  # parts of matplotlib have no types
    draw(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())


def _join_panels(report: BenchmarkReport, panels: Sequence[Pixels]) -> Pixels:
    """Return the overview: the panels in a grid below a title."""
    columns = min(len(panels), 3 if len(panels) <= 9 else 4)
    title = _render(partial(_draw_title, report=report), _WIDTH * columns, 0.7)
    height, width, _ = panels[0].shape
    grid = np.full((height * ceil(len(panels) / columns), title.shape[1], 4), 255, np.uint8)
    for number, panel in enumerate(panels):
        top, left = number // columns * height, number % columns * width
        grid[top : top + height, left : left + width] = panel
    return np.vstack([title, grid])


def _draw_title(figure: Canvas, report: BenchmarkReport) -> None:
    machine = report.machine
    figure.suptitle(
        f"Sapwood: {report.workload}"
        f"{', quick run' if report.quick else ''}{', interrupted' if report.interrupted else ''}\n"
        f"{machine['processor']}, {machine['python']}, expat {machine['expat']}, lxml {machine['lxml']}",
        fontsize=13,
        color=_INK,
    )


# -- curves --------------------------------------------------------------------------------------------


def _draw_chart(panel: Canvas, chart: Chart) -> None:
    axes = panel.add_subplot()
    drawn = [series for series in chart.series if series.points]
    for place, series in enumerate(drawn):
        same = sum(other.role is series.role for other in drawn[:place])
        _draw_series(axes, series, same)
    _set_titles(axes, chart.title, chart.note)
    axes.set_xlabel(chart.x_label, color=_INK)
    axes.set_ylabel(chart.y_label, color=_INK)
    _axis_x(axes, sorted({point.x for series in drawn for point in series.points}), chart.log_x)
    _axis_y(axes, [point.y for series in drawn for point in series.points], chart.unit)
    _label_ends(axes, drawn)
    _style_frame(axes)
    panel.legend(
        loc="outside lower center", ncols=2, frameon=False, fontsize=8, labelcolor=_INK, handlelength=2.8
    )


def _draw_series(axes: Axes, series: Series, same: int) -> None:
    """Draw a curve, given how many of its role were drawn before."""
    colour, dashes, marker = _LINE[series.role]
    if same:
        marker = _MORE_MARKERS[(same - 1) % len(_MORE_MARKERS)]
    points = sorted(series.points, key=lambda point: point.x)
    first = series.role is Role.SAPWOOD
    axes.plot(
        [point.x for point in points],
        [point.y for point in points],
        color=colour,
        linestyle=dashes,
        marker=marker,
        markersize=4.5,
        linewidth=2.2 if first else 1.5,
        label=series.label,
        zorder=3 if first else 2,
    )


def _label_ends(axes: Axes, drawn: Sequence[Series]) -> None:
    """Write the last value beside each curve, moved up where it would cover the one below.

    Curves that end before others have it above their end.
    """
    low, high = (log10(bound) for bound in axes.get_ylim())
    room = (high - low) * 0.05
    ends = [max(series.points, key=lambda point: point.x) for series in drawn]
    right = max(end.x for end in ends)
    lowest: dict[float, float] = {}
    for series, end in sorted(zip(drawn, ends, strict=True), key=lambda pair: pair[1].y):
        aside = end.x == right
        height = lowest[end.x] = max(log10(end.y), lowest.get(end.x, low) + room)
        axes.annotate(
            format_number(end.y),
            (end.x, 10**height),
            xytext=(7, 0) if aside else (0, 6),
            textcoords="offset points",
            ha="left" if aside else "center",
            va="center" if aside else "bottom",
            fontsize=8,
            color=_LINE[series.role][0],
            annotation_clip=False,
        )


def _axis_x(axes: Axes, values: Sequence[float], log: bool) -> None:
    axes.margins(x=0.09)
    if not log:
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        return
    axes.set_xscale("log")
    apart = [values[-1]]  # on a logarithmic axis, labels of close values would overlap
    for value in reversed(values):
        if value * 1.8 <= apart[-1]:
            apart.append(value)
    axes.xaxis.set_major_locator(FixedLocator(apart))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1000:.0f}k" if x >= 1000 else f"{x:g}"))


def _axis_y(axes: Axes, values: Sequence[float], unit: str) -> None:
    axes.set_yscale("log")
    axes.set_ylim(min(1.0, min(values) * 0.7), max(10.0, *values) * 2)
    axes.yaxis.set_major_locator(LogLocator(10, numticks=12))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}{unit}" if y < 1 else f"{y:,.0f}{unit}"))


# -- bars ----------------------------------------------------------------------------------------------


def _draw_bars(panel: Canvas, figures: Sequence[Figure]) -> None:
    axes = panel.add_subplot()
    places = range(len(figures), 0, -1)
    shares = [min(_share(figure), _LONGEST) for figure in figures]
    axes.barh(places, shares, height=0.62, color=[_bar_colour(figure) for figure in figures], zorder=2)
    axes.axvline(1, color=_INK, linewidth=1.2, zorder=3)
    for place, share, figure in zip(places, shares, figures, strict=True):
        axes.annotate(
            _format_against_bar(figure),
            (share, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=_INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.9},
            zorder=4,
        )
    _style_frame(axes)
    axes.set_yticks(list(places), [f"{figure.measure}: {figure.workload}" for figure in figures])
    axes.tick_params(axis="y", labelsize=7, length=0)
    axes.set_xlim(0, max(1.3, max(shares) + 0.4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0%}"))
    axes.set_xlabel("share of what the bar allows (less is better)", color=_INK)
    axes.grid(axis="y", visible=False)
    judged = any(figure.met is not None for figure in figures)
    _set_titles(axes, "Bars", "" if judged else "for reference only: no promise about this workload")


def _share(figure: Figure) -> float:
    """Return the share of what the bar allows: up to 1 the bar is met, for lower limits as well."""
    bar = figure.bar or 1
    return bar / figure.value if figure.at_least else figure.value / bar


def _format_against_bar(figure: Figure) -> str:
    unit = "×" if figure.unit.startswith("×") else f" {figure.unit}" if figure.unit else ""
    return f"{format_number(figure.value)}{unit} of {figure.bar:g}"


def _bar_colour(figure: Figure) -> str:
    return {True: _GREEN, False: _RED, None: _GREY}[figure.met]


# -- style ---------------------------------------------------------------------------------------------


def _set_titles(axes: Axes, title: str, note: str) -> None:
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=_INK, pad=22 if note else 8)
    if note:
        axes.text(0, 1.025, note, transform=axes.transAxes, fontsize=8.5, color=_FAINT)


def _style_frame(axes: Axes) -> None:
    axes.grid(axis="both", color=_GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_GREY)
    axes.tick_params(colors=_INK, labelsize=8.5)
