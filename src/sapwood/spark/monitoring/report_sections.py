"""The sections of a report on who gets deliveries, who never does, how long it takes, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import ceil

from sapwood.spark.monitoring.report_data import Unmatched
from sapwood.spark.monitoring.report_html import nothing, open_table, section, table
from sapwood.spark.monitoring.svg_charts import Bar, Column, bars, clean_text, columns
from sapwood.spark.monitoring.totals import (
    format_duration,
    list_latest_rejects,
    rank_subscribers,
    rank_subscriptions,
)
from sapwood.spark.pipeline.batch import Outcome

_COLUMNS = 60
_NO_NAME = "(no subscriber named)"


def latency(outcomes: Sequence[Outcome]) -> str:
    """How long batches took, as time went by."""
    title, note = (
        "Latency",
        "How long a batch took, from its first message read to its last delivery written.",
    )
    if not outcomes:
        return section(title, note, nothing("There is no batch yet."))
    size = ceil(len(outcomes) / _COLUMNS)
    groups = [outcomes[start : start + size] for start in range(0, len(outcomes), size)]
    longest = max(outcome.seconds for outcome in outcomes)
    scale, unit = (1000, "milliseconds") if longest < 5 else (1, "seconds")
    drawn = []
    for group in groups:
        slowest = max(group, key=lambda outcome: outcome.seconds)
        hint = f"batch {slowest.batch}, finished {slowest.finished[:19]}: {format_duration(slowest.seconds)}"
        drawn.append(Column(_clock(group[0], outcomes), slowest.seconds * scale, hint))
    if size > 1:
        note += f" Of {size} batches in a row, the slowest is drawn."
    rows = [(f"{o.batch}", o.finished[:19].replace("T", " "), format_duration(o.seconds)) for o in outcomes]
    chart = columns(drawn, unit, "when it was finished, UTC")
    return section(title, note, chart + table(("batch", "finished (UTC)", "time"), rows))


def _clock(outcome: Outcome, outcomes: Sequence[Outcome]) -> str:
    """A time for an axis: with the day if there are several, with seconds if it is all within minutes."""
    try:
        first, last, this = (
            datetime.fromisoformat(each.finished) for each in (outcomes[0], outcomes[-1], outcome)
        )
    except ValueError:
        return str(outcome.batch)
    if first.date() != last.date():
        return f"{this:%m-%d %H:%M}"
    return f"{this:%H:%M}" if (last - first).total_seconds() > 1_800 else f"{this:%H:%M:%S}"


def by_subscription(outcomes: Sequence[Outcome], queries: Mapping[str, str]) -> str:
    """The subscriptions with the most deliveries."""
    counted = rank_subscriptions(outcomes)
    title, note = "Deliveries by subscription", "The subscriptions that got the most."
    if not counted:
        return section(title, note, nothing("Nothing is on record that was delivered."))
    if any(outcome.matched > len(outcome.by_subscription) for outcome in outcomes):
        note += " A batch has only its most frequent ones on record, so these are the least that they got."
    drawn = [Bar(id, count, f"{count:,}", queries.get(id)) for id, count in counted]
    rows = [(id, queries.get(id, ""), f"{count:,}") for id, count in counted]
    return section(title, note, bars(drawn) + table(("subscription", "query", "deliveries"), rows, 2))


def by_subscriber(outcomes: Sequence[Outcome]) -> str:
    """The subscribers with the most deliveries; nothing where none has a name."""
    counted = rank_subscribers(outcomes)
    if not any(name for name, _ in counted):
        return ""
    named = [(name or _NO_NAME, count) for name, count in counted]
    drawn = [Bar(name, count, f"{count:,}") for name, count in named]
    rows = [(name, f"{count:,}") for name, count in named]
    note = "The subscribers that got the most, in all batches on record."
    chart = bars(drawn, "blue") + table(("subscriber", "deliveries"), rows, 1)
    return section("Deliveries by subscriber", note, chart)


def never_matched(found: Unmatched | None) -> str:
    """The subscriptions that have not matched any message."""
    if found is None:
        return ""
    since = "No message has matched these" + (f" since batch {found.since}" if found.since else "")
    if not found.count:
        told = "Every active subscription has matched a message" + (
            f" since batch {found.since}." if found.since else "."
        )
        return section("Never matched", "Active subscriptions that got nothing so far.", nothing(told))
    note = f"{since}: {found.count:,} active subscriptions."
    if found.count > len(found.some):
        note += f" The first {len(found.some)} are listed."
    note += " 'sapwood explain' says what a query wants, and whether it can match at all."
    rows = [(each.id, each.subscriber, each.query) for each in found.some]
    listed = open_table(("subscription", "subscriber", "query"), rows, 3)
    return section("Never matched", note, f'<div class="list">{listed}</div>')


def rejected(outcomes: Sequence[Outcome]) -> str:
    """The ids of the latest rejects; nothing if there are none."""
    latest = list_latest_rejects(outcomes)
    if not latest:
        return ""
    total = sum(outcome.rejects for outcome in outcomes)
    note = f"Some of the newest of {total:,} rejects; the table of rejects has them all, with their bodies."
    rows = [(id, reason, f"{batch}") for batch, id, reason in latest]
    listed = open_table(("message", "reason", "batch"), rows, 2)
    return section("Latest rejects", note, f'<div class="list">{listed}</div>')


def shown_serving(batch: int | None) -> str:
    """Which batch is not done yet, in the page's head."""
    if batch is None:
        return ""
    return f'<p class="faint">{clean_text(f"Batch {batch} is planned and not done yet.")}</p>'
