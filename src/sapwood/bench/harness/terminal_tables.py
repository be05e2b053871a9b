"""A report as rich tables for a terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from sapwood.bench.harness.benchmark_report import BenchmarkReport, Chart, Figure, Listing


def build_tables(report: BenchmarkReport) -> list[Table]:
    """Return a table of the figures, and one for each chart and each listing."""
    figures = [_figures_table(report)] if report.figures else []
    charts = [_chart_table(chart) for chart in report.nonempty_charts]
    return [*figures, *charts, *(_listing_table(listing) for listing in report.listings if listing.rows)]


def _figures_table(report: BenchmarkReport) -> Table:
    table = _titled_table(f"Figures: {report.workload}")
    for column in ("measure", "workload", "Sapwood", "unit", "bar", "met"):
        table.add_column(column, justify="right" if column in ("Sapwood", "bar") else "left")
    for figure in report.figures:
        value = Text(format_number(figure.value), style="bold")
        bar = "" if figure.bar is None else f"{'≥' if figure.at_least else '≤'} {figure.bar:g}"
        table.add_row(figure.measure, figure.workload, value, figure.unit, bar, _verdict(figure))
    return table


def _verdict(figure: Figure) -> Text:
    if figure.met is None:
        return Text("" if figure.bar is None else "for reference", style="dim")
    return Text("yes", style="green") if figure.met else Text("no", style="bold red")


def _chart_table(chart: Chart) -> Table:
    table = _titled_table(chart.title, "; ".join(filter(None, (chart.y_label, chart.note))))
    table.add_column(Text(chart.x_label), justify="right")
    curves = [series for series in chart.series if series.points]
    for series in curves:
        table.add_column(Text(series.label), justify="right")
    for x in sorted({point.x for series in curves for point in series.points}):
        cells = [{point.x: format_number(point.y) for point in series.points}.get(x, "") for series in curves]
        table.add_row(f"{x:,.0f}" if x == int(x) else f"{x:,g}", *cells)
    return table


def _listing_table(listing: Listing) -> Table:
    table = _titled_table(listing.title, listing.note)
    table.add_column("", no_wrap=True)
    for column in listing.columns:
        table.add_column(Text(column), justify="right")
    for row in listing.rows:
        cells = ("" if cell is None else format_number(cell) for cell in row.cells)
        table.add_row(Text(row.label), *cells, style="dim" if row.published else "")
    return table


def _titled_table(title: str, caption: str = "") -> Table:
    # As Text, because rich would read the brackets of a query as markup.
    return Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        caption=Text(caption) if caption else None,
        caption_justify="left",
    )


def format_number(value: float) -> str:
    """Format with three digits, or with all digits before the point; counts as they are."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
