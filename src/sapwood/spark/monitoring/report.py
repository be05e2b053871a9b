"""The HTML report on a pipeline: one page that needs nothing else, no network, no scripts, no other files.

The sections are data (`report_sections`, `chart_layout`), which Jinja2 templates draw. Ids, queries and
reasons in them come from strangers: every value that a template writes is cleaned, clipped and escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sapwood.input_files import FileError
from sapwood.spark.monitoring.chart_layout import format_compact
from sapwood.spark.monitoring.report_data import ReportData
from sapwood.spark.monitoring.report_sections import build_sections
from sapwood.spark.monitoring.totals import Totals, format_duration, per_second
from sapwood.spark.pipeline.batch import Outcome

_LONGEST_TEXT = 400
"""The characters of a value that the page shows."""


def write_report(path: str | Path, name: str, data: ReportData) -> None:
    """Write the report to a file; raises FileError."""
    page = render_report(name, data)
    try:
        Path(path).write_text(page, "utf-8", errors="replace")
    except OSError as error:
        raise FileError(f"the report {str(path)!r} cannot be written: {error.strerror}") from None


def render_report(name: str, data: ReportData) -> str:
    """Return the report as an HTML page."""
    outcomes = sorted(data.outcomes, key=lambda outcome: outcome.batch)
    totals = Totals(outcomes)
    return (
        template_environment()
        .get_template("report.html")
        .render(
            name=name,
            period=_describe_period(outcomes),
            pending=data.pending,
            figures=_build_figures(totals),
            sections=build_sections(data, outcomes, totals),
        )
    )


@cache
def template_environment() -> Environment:
    """Return the environment of the templates, in which every value is cleaned and escaped."""
    environment = Environment(
        loader=PackageLoader("sapwood.spark.monitoring"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = "{:.2%}".format
    return environment


def _finalize(value: object) -> str:
    """Clean a value before it is escaped; the output of macros is Markup, and is clean already."""
    return value if isinstance(value, Markup) else clean_text(str(value))


def clean_text(text: str) -> str:
    """Return a text on one line, clipped, without characters that are invisible or reverse its direction."""
    flat = " ".join(text[: 4 * _LONGEST_TEXT].split())
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in flat)
    return plain if len(plain) <= _LONGEST_TEXT else plain[:_LONGEST_TEXT] + "…"


def _describe_period(outcomes: Sequence[Outcome]) -> str:
    """Return the numbers of the batches, and when they were finished."""
    if not outcomes:
        return "No batch has been committed yet."
    first, last = _format_minute(outcomes[0].finished), _format_minute(outcomes[-1].finished)
    batches = f"Batch {outcomes[0].batch}"
    if len(outcomes) > 1:
        batches = f"Batches {outcomes[0].batch} to {outcomes[-1].batch}"
    period = f"{first} UTC" if first == last else f"{first} to {last} UTC"
    return f"{batches}, finished {period}"


def _format_minute(finished: str) -> str:
    try:
        return f"{datetime.fromisoformat(finished):%Y-%m-%d %H:%M}"
    except ValueError:
        return finished


# -- the headline ------------------------------------------------------------------------------------------


class ReportFigure(NamedTuple):
    """A figure of the headline."""

    label: str
    value: str
    detail: str
    warn: bool = False


def _build_figures(totals: Totals) -> list[ReportFigure]:
    per_message = per_second(totals.deliveries, totals.messages)
    latency_95 = f"{format_duration(totals.latency_95)} for 95 of 100"
    subscriptions = f"{totals.last.subscriptions:,}" if totals.last else "–"
    figures = [
        ReportFigure("messages", f"{totals.messages:,}", f"{totals.messages - totals.rejects:,} accepted"),
        ReportFigure("deliveries", _format_large(totals.deliveries), f"{per_message:,.1f} a message"),
        ReportFigure("rejects", f"{totals.rejects:,}", _describe_rejects(totals), warn=totals.rejects > 0),
        ReportFigure(
            "messages a second", f"{totals.messages_per_second:,.0f}", "while batches were processed"
        ),
        ReportFigure(
            "deliveries a second", _format_large(round(totals.deliveries_per_second)), "written to the sink"
        ),
        ReportFigure("batches", f"{totals.batches:,}", f"in {format_duration(totals.seconds)}"),
        ReportFigure("latency of a batch", format_duration(totals.latency), latency_95),
        ReportFigure("subscriptions", subscriptions, _describe_versions(totals)),
    ]
    state = totals.last.kept if totals.last is not None else None
    if totals.joined or state is not None:
        share = per_second(totals.joined, totals.deliveries)
        figures.append(ReportFigure("joined", _format_large(totals.joined), f"{share:.1%} of the deliveries"))
    if state is not None:
        figures.append(ReportFigure("join state", _format_large(state), "values after the last batch"))
    return figures


def _format_large(number: int) -> str:
    return format_compact(number) if number >= 10_000_000 else f"{number:,}"


def _describe_rejects(totals: Totals) -> str:
    if not (totals.rejects and totals.messages):
        return "no message was rejected"
    return f"{totals.rejects / totals.messages:.2%} of all messages"


def _describe_versions(totals: Totals) -> str:
    if totals.versions is None:
        return "no version seen"
    first, last = totals.versions
    return f"version {last}" if first == last else f"versions {first} to {last}"
