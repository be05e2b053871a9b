"""What a pipeline did, as one web page that needs nothing else: no network, no scripts, no other files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from itertools import pairwise
from math import ceil
from pathlib import Path

from sapwood.spark.monitoring.report_data import ReportData
from sapwood.spark.monitoring.report_html import nothing, section, table
from sapwood.spark.monitoring.report_sections import (
    by_subscriber,
    by_subscription,
    latency,
    never_matched,
    rejected,
    shown_serving,
)
from sapwood.spark.monitoring.svg_charts import (
    Bar,
    Column,
    Mark,
    bars,
    clean_text,
    columns,
    format_compact,
    steps,
)
from sapwood.spark.monitoring.totals import (
    Totals,
    count_failures,
    count_matches,
    count_reasons,
    format_duration,
    per_second,
    rank_slowest,
)
from sapwood.spark.pipeline.batch import Outcome

_COLUMNS = 60
"""Columns that a chart has room for; of more batches, some in a row share one."""
_MARKS = 24
"""Changes of version that are drawn as lines; of more, none is."""
_NOT_ON_RECORD = "other reasons, of which only the number is on record"


def write_report(path: str | Path, name: str, data: ReportData) -> None:
    """Writes the page."""
    page = render(name, data)
    Path(path).write_text(page, "utf-8", errors="replace")


def render(name: str, data: ReportData) -> str:
    """The page itself."""
    outcomes, queries = sorted(data.outcomes, key=lambda outcome: outcome.batch), data.queries
    tally = Totals(outcomes)
    sections = [
        _throughput(outcomes),
        latency(outcomes),
        _matches(outcomes),
        by_subscription(outcomes, queries),
        by_subscriber(outcomes),
        never_matched(data.unmatched),
        _slow(outcomes, queries),
        _rejects(outcomes),
        rejected(outcomes),
    ]
    if tally.failures:
        sections.append(_failures(outcomes))
    if tally.last is not None and tally.last.left_out:
        sections.append(_left_out(tally.last.left_out))
    style = files("sapwood.spark.monitoring").joinpath("report.css").read_text("utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{clean_text(name)}: Sapwood pipeline report</title>
<style>
{style}</style>
</head>
<body>
<header>
<p class="over">Sapwood pipeline report</p>
<h1>{clean_text(name)}</h1>
<p class="faint">{_when(outcomes)}</p>
{shown_serving(data.serving)}{_figures(tally)}
</header>
<main>
{"".join(sections)}
</main>
<footer>Times are those of batches from the first message read to the last delivery written; \
what passes between batches is not counted.</footer>
</body>
</html>
"""


def _when(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "No batch has been served yet."
    first, last = _minute(outcomes[0].finished), _minute(outcomes[-1].finished)
    batches = f"Batch {outcomes[0].batch}"
    if len(outcomes) > 1:
        batches = f"Batches {outcomes[0].batch} to {outcomes[-1].batch}"
    when = f"{first} UTC" if first == last else f"{first} to {last} UTC"
    return clean_text(f"{batches}, finished {when}")


def _minute(finished: str) -> str:
    try:
        return f"{datetime.fromisoformat(finished):%Y-%m-%d %H:%M}"
    except ValueError:
        return finished


# -- the headline ------------------------------------------------------------------------------------------


def _figures(tally: Totals) -> str:
    a_message = per_second(tally.deliveries, tally.messages)
    boxes = [
        _figure("messages", f"{tally.messages:,}", f"{tally.messages - tally.rejects:,} accepted"),
        _figure("deliveries", _large(tally.deliveries), f"{a_message:,.1f} a message"),
        _figure("rejects", f"{tally.rejects:,}", _share(tally.rejects, tally.messages), bool(tally.rejects)),
        _figure("messages a second", f"{tally.messages_per_second:,.0f}", "while a batch was served"),
        _figure("deliveries a second", _large(round(tally.deliveries_per_second)), "written to the sink"),
        _figure("batches", f"{tally.batches:,}", f"in {format_duration(tally.seconds)}"),
        _figure(
            "latency of a batch",
            format_duration(tally.latency),
            f"{format_duration(tally.latency_95)} for 95 of 100",
        ),
        _figure("subscriptions", f"{tally.last.subscriptions:,}" if tally.last else "–", _versions(tally)),
    ]
    if tally.joined or (tally.last is not None and tally.last.kept is not None):
        share = per_second(tally.joined, tally.deliveries)
        boxes.append(_figure("joined", _large(tally.joined), f"{share:.1%} of the deliveries"))
    if tally.last is not None and tally.last.kept is not None:
        boxes.append(_figure("kept for joins", _large(tally.last.kept), "rows before the last batch"))
    kind = "figures wide" if len(boxes) > 8 else "figures"
    return f'<dl class="{kind}">{"".join(boxes)}</dl>'


def _figure(what: str, value: str, more: str, warn: bool = False) -> str:
    kind = "figure warn" if warn else "figure"
    return f'<div class="{kind}"><dt>{what}</dt><dd>{clean_text(value)}<small>{clean_text(more)}</small></dd></div>'


def _large(number: int) -> str:
    return format_compact(number) if number >= 10_000_000 else f"{number:,}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2%} of all messages" if part and whole else "no message was refused"


def _versions(tally: Totals) -> str:
    if tally.versions is None:
        return "no version seen"
    first, last = tally.versions
    return f"version {last}" if first == last else f"versions {first} to {last}"


# -- throughput --------------------------------------------------------------------------------------------


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


def _throughput(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return section("Throughput", "Messages a second, batch by batch.", nothing("There is no batch yet."))
    size = ceil(len(outcomes) / _COLUMNS)
    groups = [_Group(outcomes[start : start + size]) for start in range(0, len(outcomes), size)]
    marks = _version_marks(groups)
    drawn = [
        Column(
            str(group.batches[0].batch),
            group.rate,
            f"{group.name}: {group.rate:,.0f} messages a second, version {group.last.version}",
        )
        for group in groups
    ]
    together = f", {size} to a column" if size > 1 else ""
    chart = columns(drawn, "messages a second", f"batch{together}", marks)
    chart += steps([group.last.subscriptions for group in groups], "subscriptions", marks)
    changed = sum(a.version != b.version for a, b in pairwise(outcomes))
    note = "Messages a second, batch by batch. "
    if changed:
        times = "once" if changed == 1 else f"{changed:,} times"
        note += f"Newer subscriptions took over {times} while it ran"
        note += ", at the dashed lines." if marks else ", too often to be drawn here."
    else:
        note += "All batches were served with the same subscriptions."
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
    return section("Throughput", note, chart + table(heads, rows))


def _version_marks(groups: Sequence[_Group]) -> list[Mark]:
    marks = [
        Mark(place, f"v{group.last.version}")
        for place, group in enumerate(groups)
        if place and group.last.version != groups[place - 1].last.version
    ]
    return marks if len(marks) <= _MARKS else []


# -- the other charts --------------------------------------------------------------------------------------


def _matches(outcomes: Sequence[Outcome]) -> str:
    counted = count_matches(outcomes)
    title, note = "Deliveries per message", "How many subscriptions a message matches."
    if not counted:
        return section(title, note, nothing("No message has been matched yet."))
    note += " Columns double: the one at 64 holds the messages that match 64 to 127."
    first = next(place for place, (_, count) in enumerate(counted) if count)
    drawn = [
        Column(_from(span), count, f"{count:,} messages match {_noun(span)}")
        for span, count in counted[first:]
    ]
    rows = [(span, f"{count:,}") for span, count in counted]
    chart = columns(drawn, "messages", "subscriptions matched")
    return section(title, note, chart + table(("subscriptions matched", "messages"), rows))


def _from(span: str) -> str:
    """The lower end of a span, short enough for an axis."""
    low = span.partition("–")[0].replace(",", "")
    return f"{int(low) // 1024}k" if low.isdigit() and int(low) >= 1024 else low


def _noun(span: str) -> str:
    return "1 subscription" if span == "1" else f"{span} subscriptions"


def _slow(outcomes: Sequence[Outcome], queries: Mapping[str, str]) -> str:
    slow = rank_slowest(outcomes)
    title = "Slowest subscriptions"
    note = (
        "Time spent on single subscriptions, in all batches together. Those that the shared structure decides"
        " cost nothing of their own and are not listed."
    )
    if not slow:
        return section(title, note, nothing("No subscription took time of its own."))
    drawn = [Bar(id, seconds, _fine(seconds), queries.get(id)) for id, seconds in slow]
    rows = [(id, queries.get(id, ""), _fine(seconds)) for id, seconds in slow]
    return section(title, note, bars(drawn, "amber") + table(("subscription", "query", "time"), rows, 2))


def _fine(seconds: float) -> str:
    """Like `format_duration`, but finer, since single subscriptions take little."""
    return f"{seconds * 1000:.2g} ms" if seconds < 0.01 else format_duration(seconds)


def _rejects(outcomes: Sequence[Outcome]) -> str:
    refused = [
        (reason if reason is not None else _NOT_ON_RECORD, count) for reason, count in count_reasons(outcomes)
    ]
    title, note = (
        "Rejects by reason",
        "Messages that were refused, and kept with their reason in the rejects.",
    )
    if not refused:
        return section(title, note, nothing("No message was refused."))
    drawn = [Bar(reason, count, f"{count:,}") for reason, count in refused]
    rows = [(reason, f"{count:,}") for reason, count in refused]
    return section(title, note, bars(drawn, "red") + table(("reason", "messages"), rows, 1))


def _failures(outcomes: Sequence[Outcome]) -> str:
    note = "Queries that had no answer on a message that all others got. The rejects have them one by one."
    rows = [(query, f"{count:,}") for query, count in count_failures(outcomes)]
    return section("Failures", note, table(("subscription and reason", "messages"), rows, 1))


def _left_out(subscriptions: Mapping[str, str]) -> str:
    note = "Subscriptions that cannot be served, as of the last batch."
    return section("Left out", note, table(("subscription", "why"), list(subscriptions.items()), 2))
