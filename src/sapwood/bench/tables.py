"""A report as tables for a terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from sapwood.bench.report import Cell, Chart, Figure, Listing, Report


def tables(report: Report) -> list[Table]:
    """The figures with their bars, then a table for each chart and each listing."""
    figures = [_figures(report)] if report.figures else []
    curves = [_curves(chart) for chart in report.drawn]
    return [*figures, *curves, *(_listed(listing) for listing in report.listings if listing.rows)]


def _figures(report: Report) -> Table:
    table = Table(title=Text(f"Figures: {report.workload}"), title_justify="left", title_style="bold")
    table.add_column("measure")
    table.add_column("workload")
    table.add_column("Sapwood", justify="right")
    table.add_column("unit")
    table.add_column("bar", justify="right")
    table.add_column("met")
    for figure in report.figures:
        table.add_row(
            figure.measure,
            figure.workload,
            Text(number(figure.value), style="bold"),
            figure.unit,
            "" if figure.bar is None else f"{'≥' if figure.at_least else '≤'} {figure.bar:g}",
            _verdict(figure),
        )
    return table


def _verdict(figure: Figure) -> Text:
    if figure.met is None:
        return Text("" if figure.bar is None else "for reference", style="dim")
    return Text("yes", style="green") if figure.met else Text("no", style="bold red")


def _curves(chart: Chart) -> Table:
    table = _titled(chart.title, "; ".join(filter(None, (chart.y_label, chart.note))))
    table.add_column(Text(chart.x_label), justify="right")
    drawn = [series for series in chart.series if series.points]
    for series in drawn:
        table.add_column(Text(series.label), justify="right")
    for x in sorted({point.x for series in drawn for point in series.points}):
        cells = [{point.x: number(point.y) for point in series.points}.get(x, "") for series in drawn]
        table.add_row(f"{x:,.0f}" if x == int(x) else f"{x:,g}", *cells)
    return table


def _listed(listing: Listing) -> Table:
    table = _titled(listing.title, listing.note)
    table.add_column("", no_wrap=True)
    for column in listing.columns:
        table.add_column(Text(column), justify="right")
    for row in listing.rows:
        table.add_row(Text(row.label), *map(_cell, row.cells), style="dim" if row.published else "")
    return table


def _titled(title: str, caption: str) -> Table:
    # As Text, because rich takes what a query has in brackets for its own marks.
    return Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        caption=Text(caption),
        caption_justify="left",
    )


def _cell(value: Cell) -> str:
    return "" if value is None else number(value)


def number(value: float) -> str:
    """Three digits, or all before the point; whole numbers that were counted as they are."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
