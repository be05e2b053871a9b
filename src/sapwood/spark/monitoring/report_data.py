"""What a report is made of: the outcomes on record in a checkpoint, and the subscriptions as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sapwood.input_files import read_queries
from sapwood.spark.io.storage import list_names, open_file
from sapwood.spark.monitoring.delivery_counts import MatchedSubscriptions
from sapwood.spark.monitoring.totals import rank_slowest, rank_subscriptions
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.batch_log import merge_matched, parse_record
from sapwood.spark.pipeline.config import ConfigError, PipelineConfig
from sapwood.store import SubscriptionStore

_SHOWN = 50
"""Subscriptions that never matched and are listed; the others are counted."""


class Listed(NamedTuple):
    """A subscription, for people."""

    id: str
    subscriber: str
    query: str


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The active subscriptions that have not matched any message since a batch."""

    count: int
    since: int
    some: Sequence[Listed] = ()


@dataclass(frozen=True, slots=True)
class ReportData:
    """What a report tells."""

    outcomes: Sequence[Outcome]
    queries: dict[str, str] = field(default_factory=dict)
    """the texts of subscriptions that are named in it, as far as they are known"""
    unmatched: Unmatched | None = None
    serving: int | None = None
    """a batch that was planned and is not done"""


def read_checkpoint(settings: PipelineConfig) -> ReportData:
    """What a checkpoint has on record, whether the pipeline runs or not; SettingsError if there is none."""
    folder = f"{settings.run.checkpoint}/sapwood"
    planned = [int(name) for name in list_names(f"{folder}/planned") if name.isdigit()]
    outcomes = [Outcome.from_record(record) for record in _records(f"{folder}/done")]
    if not planned and not outcomes:
        raise ConfigError(f"run.checkpoint: {settings.run.checkpoint} has no batch on record yet")
    outcomes.sort(key=lambda outcome: outcome.batch)
    newest = max(planned, default=-1)
    serving = newest if not outcomes or newest > outcomes[-1].batch else None
    return collect_report_data(settings, outcomes, merge_matched(_records(f"{folder}/matched")), serving)


def collect_report_data(
    settings: PipelineConfig,
    outcomes: Sequence[Outcome],
    matched: MatchedSubscriptions,
    serving: int | None = None,
) -> ReportData:
    """A report's data, with what is known of the subscriptions that it names."""
    named = {id for id, _ in (*rank_slowest(outcomes), *rank_subscriptions(outcomes))}
    left_out = outcomes[-1].left_out if outcomes else {}
    queries: dict[str, str] = {}
    never: list[Listed] = []
    count = 0
    for each in _subscriptions(settings):
        if each.id in named:
            queries[each.id] = each.query
        if each.id not in matched.ids and each.id not in left_out:
            count += 1
            if len(never) < _SHOWN:
                never.append(each)
    unmatched = Unmatched(count, matched.since, never) if matched.since is not None else None
    return ReportData(outcomes, queries, unmatched, serving)


def _records(folder: str) -> Iterator[dict[str, Any]]:
    """The JSON files of a folder; one that is removed meanwhile is passed over."""
    for name in list_names(folder):
        if name.isdigit():
            with suppress(FileNotFoundError), open_file(f"{folder}/{name}") as file:
                yield parse_record(file.read().decode("utf-8", "replace"), f"{folder}/{name}")


def _subscriptions(settings: PipelineConfig) -> Iterable[Listed]:
    given = settings.subscriptions
    if given.store is not None:
        with SubscriptionStore(given.store, create=False) as store:
            for found in store.subscriptions(active=True):
                yield Listed(found.id, found.subscriber, found.query)
        return
    assert given.file is not None
    for query in read_queries(given.file):
        yield Listed(str(query.id), query.subscriber or "", query.text)
