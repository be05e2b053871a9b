"""The sections of a report: throughput, latency, matches, deliveries, rejects and failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import ceil

from sapwood.spark.monitoring.chart_layout import (
    Bar,
    BarChart,
    Column,
    ColumnChart,
    Mark,
    Section,
    StepChart,
    TableData,
)
from sapwood.spark.monitoring.report_data import ReportData, Unmatched
from sapwood.spark.monitoring.totals import (
    Totals,
    count_failures,
    count_matches,
    count_reasons,
    format_duration,
    list_latest_rejects,
    per_second,
    rank_slowest,
    rank_subscribers,
    rank_subscriptions,
)
from sapwood.spark.pipeline.batch import Outcome

_COLUMNS = 60
"""The columns for which a chart has room; more batches share columns."""
_MARKS = 24
"""Changes of version that are drawn as lines; if there are more, none is."""
_NO_SUBSCRIBER = "(no subscriber named)"
_UNLOGGED_REASONS = "other reasons, of which only the number is in the batch log"


def build_sections(data: ReportData, outcomes: Sequence[Outcome], totals: Totals) -> list[Section]:
    """Return the sections for which there is data, in the order of the page; outcomes are sorted by batch."""
    sections = [
        _throughput(outcomes),
        _latency(outcomes),
        _matches(outcomes),
        _by_subscription(outcomes, data.queries),
        _by_subscriber(outcomes),
        _never_matched(data.unmatched),
        _slowest(outcomes, data.queries),
        _rejects(outcomes),
        _latest_rejects(outcomes),
    ]
    if totals.failures:
        sections.append(_failures(outcomes))
    if totals.last is not None and totals.last.left_out:
        sections.append(_excluded(totals.last.left_out))
    return [section for section in sections if section is not None]


# -- batches over time -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """Successive batches that share a column."""

    batches: Sequence[Outcome]

    @property
    def name(self) -> str:
        first, last = self.batches[0].batch, self.batches[-1].batch
        return f"batch {first}" if first == last else f"batches {first}–{last}"

    @property
    def rate(self) -> float:
        seconds = sum(outcome.seconds for outcome in self.batches)
        return per_second(sum(outcome.messages for outcome in self.batches), seconds)

    @property
    def last(self) -> Outcome:
        return self.batches[-1]


def _group(outcomes: Sequence[Outcome]) -> tuple[list[_Group], int]:
    """Return at most _COLUMNS groups of batches, and the number of batches in each."""
    size = ceil(len(outcomes) / _COLUMNS)
    return [_Group(outcomes[start : start + size]) for start in range(0, len(outcomes), size)], size


def _throughput(outcomes: Sequence[Outcome]) -> Section:
    title, note = "Throughput", "Messages a second, batch by batch."
    if not outcomes:
        return Section(title, note, empty="There is no batch yet.")
    groups, size = _group(outcomes)
    marks = _mark_versions(groups)
    columns = [
        Column(
            str(group.batches[0].batch),
            group.rate,
            f"{group.name}: {group.rate:,.0f} messages a second, version {group.last.version}",
        )
        for group in groups
    ]
    caption = f"batch, {size} to a column" if size > 1 else "batch"
    charts = (
        ColumnChart(columns, "messages a second", caption, marks),
        StepChart([group.last.subscriptions for group in groups], "subscriptions", marks),
    )
    note = f"{note} {_describe_changes(outcomes, bool(marks))}"
    return Section(title, note, charts, _tabulate_batches(outcomes))


def _describe_changes(outcomes: Sequence[Outcome], drawn: bool) -> str:
    changes = sum(a.version != b.version for a, b in pairwise(outcomes))
    if not changes:
        return "All batches used the same version of the subscriptions."
    times = "once" if changes == 1 else f"{changes:,} times"
    where = "at the dashed lines" if drawn else "too often to be drawn here"
    return f"The version of the subscriptions changed {times} during the run, {where}."


def _tabulate_batches(outcomes: Sequence[Outcome]) -> TableData:
    heads = (
        "batch",
        "messages",
        "deliveries",
        "of joins",
        "rejects",
        "time",
        "messages/s",
        "subscriptions",
        "version",
    )
    rows = [
        (
            f"{outcome.batch}",
            f"{outcome.messages:,}",
            f"{outcome.deliveries:,}",
            f"{outcome.joined:,}",
            f"{outcome.rejects:,}",
            format_duration(outcome.seconds),
            f"{per_second(outcome.messages, outcome.seconds):,.0f}",
            f"{outcome.subscriptions:,}",
            f"{outcome.version}",
        )
        for outcome in outcomes
    ]
    return TableData(heads, rows)


def _mark_versions(groups: Sequence[_Group]) -> list[Mark]:
    marks = [
        Mark(index, f"v{group.last.version}")
        for index, group in enumerate(groups)
        if index and group.last.version != groups[index - 1].last.version
    ]
    return marks if len(marks) <= _MARKS else []


def _latency(outcomes: Sequence[Outcome]) -> Section:
    title = "Latency"
    note = "The time of a batch, from its first message read to its last delivery written."
    if not outcomes:
        return Section(title, note, empty="There is no batch yet.")
    groups, size = _group(outcomes)
    longest = max(outcome.seconds for outcome in outcomes)
    scale, unit = (1000, "milliseconds") if longest < 5 else (1, "seconds")
    columns = []
    for group in groups:
        slowest = max(group.batches, key=lambda outcome: outcome.seconds)
        time = format_duration(slowest.seconds)
        hint = f"batch {slowest.batch}, finished {slowest.finished[:19]}: {time}"
        columns.append(Column(_format_clock(group.batches[0], outcomes), slowest.seconds * scale, hint))
    if size > 1:
        note += f" Of {size} batches in a row, the slowest is drawn."
    rows = [(f"{o.batch}", o.finished[:19].replace("T", " "), format_duration(o.seconds)) for o in outcomes]
    chart = ColumnChart(columns, unit, "when it was finished, UTC")
    return Section(title, note, (chart,), TableData(("batch", "finished (UTC)", "time"), rows))


def _format_clock(outcome: Outcome, outcomes: Sequence[Outcome]) -> str:
    """Format a time for an axis: with the day if there are several, with seconds within half an hour."""
    try:
        first, last, this = (
            datetime.fromisoformat(each.finished) for each in (outcomes[0], outcomes[-1], outcome)
        )
    except ValueError:
        return str(outcome.batch)
    if first.date() != last.date():
        return f"{this:%m-%d %H:%M}"
    return f"{this:%H:%M}" if (last - first).total_seconds() > 1_800 else f"{this:%H:%M:%S}"


# -- matches and deliveries --------------------------------------------------------------------------------


def _matches(outcomes: Sequence[Outcome]) -> Section:
    title, note = "Deliveries per message", "The number of subscriptions that a message matches."
    counts = count_matches(outcomes)
    if not counts:
        return Section(title, note, empty="No message has been matched yet.")
    note += " Columns double: the one at 64 holds the messages that match 64 to 127."
    first = next(bin for bin, (_, count) in enumerate(counts) if count)
    columns = [
        Column(_format_lower_end(span), count, f"{count:,} messages match {_format_subscriptions(span)}")
        for span, count in counts[first:]
    ]
    rows = [(span, f"{count:,}") for span, count in counts]
    chart = ColumnChart(columns, "messages", "subscriptions matched")
    return Section(title, note, (chart,), TableData(("subscriptions matched", "messages"), rows))


def _format_lower_end(span: str) -> str:
    """Return the lower end of a span, short enough for an axis."""
    low = span.partition("–")[0].replace(",", "")
    return f"{int(low) // 1024}k" if low.isdigit() and int(low) >= 1024 else low


def _format_subscriptions(span: str) -> str:
    return "1 subscription" if span == "1" else f"{span} subscriptions"


def _by_subscription(outcomes: Sequence[Outcome], queries: Mapping[str, str]) -> Section:
    title, note = "Deliveries by subscription", "The subscriptions with the most deliveries."
    counts = rank_subscriptions(outcomes)
    if not counts:
        return Section(title, note, empty="The batch log has no deliveries yet.")
    if any(outcome.matched > len(outcome.by_subscription) for outcome in outcomes):
        note += " The batch log has only the most frequent ones of a batch, so that these are lower bounds."
    bars = [Bar(id, count, f"{count:,}", queries.get(id)) for id, count in counts]
    rows = [(id, queries.get(id, ""), f"{count:,}") for id, count in counts]
    table = TableData(("subscription", "query", "deliveries"), rows, 2)
    return Section(title, note, (BarChart(bars),), table)


def _by_subscriber(outcomes: Sequence[Outcome]) -> Section | None:
    counts = rank_subscribers(outcomes)
    if not any(name for name, _ in counts):
        return None
    named = [(name or _NO_SUBSCRIBER, count) for name, count in counts]
    note = "The subscribers with the most deliveries, in all batches of the log."
    return _count_bars("Deliveries by subscriber", note, named, ("subscriber", "deliveries"), "blue")


def _count_bars(
    title: str, note: str, counts: Sequence[tuple[str, int]], heads: tuple[str, str], color: str
) -> Section:
    """Return a section of bars with their counts."""
    bars = [Bar(label, count, f"{count:,}") for label, count in counts]
    rows = [(label, f"{count:,}") for label, count in counts]
    return Section(title, note, (BarChart(bars, color),), TableData(heads, rows, 1))


def _never_matched(unmatched: Unmatched | None) -> Section | None:
    if unmatched is None:
        return None
    title = "Never matched"
    since = f" since batch {unmatched.since}" if unmatched.since else ""
    if not unmatched.count:
        note = "Active subscriptions without a match so far."
        return Section(title, note, empty=f"Every active subscription has matched a message{since}.")
    note = f"No message has matched these{since}: {unmatched.count:,} active subscriptions."
    if unmatched.count > len(unmatched.some):
        note += f" The first {len(unmatched.some)} are listed."
    note += " 'sapwood explain' shows what a query matches, and whether it can match at all."
    rows = [(each.id, each.subscriber, each.query) for each in unmatched.some]
    return Section(title, note, list=TableData(("subscription", "subscriber", "query"), rows, 3))


def _slowest(outcomes: Sequence[Outcome], queries: Mapping[str, str]) -> Section:
    title = "Slowest subscriptions"
    note = (
        "Time spent on single subscriptions, over all batches. Those that the shared index decides cost"
        " nothing of their own and are not listed."
    )
    slow = rank_slowest(outcomes)
    if not slow:
        return Section(title, note, empty="No subscription took time of its own.")
    bars = [Bar(id, seconds, _format_fine(seconds), queries.get(id)) for id, seconds in slow]
    rows = [(id, queries.get(id, ""), _format_fine(seconds)) for id, seconds in slow]
    table = TableData(("subscription", "query", "time"), rows, 2)
    return Section(title, note, (BarChart(bars, "amber"),), table)


def _format_fine(seconds: float) -> str:
    """Format seconds with more digits than `format_duration`, since single subscriptions take little."""
    return f"{seconds * 1000:.2g} ms" if seconds < 0.01 else format_duration(seconds)


# -- rejects and failures ----------------------------------------------------------------------------------


def _rejects(outcomes: Sequence[Outcome]) -> Section:
    title = "Rejects by reason"
    note = "Messages that were rejected; the table of rejects has each with its reason."
    counts = [
        (_UNLOGGED_REASONS if reason is None else reason, count) for reason, count in count_reasons(outcomes)
    ]
    if not counts:
        return Section(title, note, empty="No message was rejected.")
    return _count_bars(title, note, counts, ("reason", "messages"), "red")


def _latest_rejects(outcomes: Sequence[Outcome]) -> Section | None:
    latest = list_latest_rejects(outcomes)
    if not latest:
        return None
    total = sum(outcome.rejects for outcome in outcomes)
    note = f"Some of the newest of {total:,} rejects; the table of rejects has them all, with their bodies."
    rows = [(id, reason, f"{batch}") for batch, id, reason in latest]
    return Section("Latest rejects", note, list=TableData(("message", "reason", "batch"), rows, 2))


def _failures(outcomes: Sequence[Outcome]) -> Section:
    note = "Queries that failed on a message; all others were matched with it. The table of rejects has each."
    rows = [(query, f"{count:,}") for query, count in count_failures(outcomes)]
    return Section("Failures", note, table=TableData(("subscription and reason", "messages"), rows, 1))


def _excluded(subscriptions: Mapping[str, str]) -> Section:
    note = "Subscriptions that are excluded from matching, as of the last batch."
    table = TableData(("subscription", "reason"), list(subscriptions.items()), 2)
    return Section("Excluded subscriptions", note, table=table)
