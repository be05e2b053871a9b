"""The data of a report: the outcomes in the batch log of a checkpoint, and the current subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sapwood.config_file import ConfigError
from sapwood.input_files import read_queries
from sapwood.spark.io.file_system import list_names, open_file
from sapwood.spark.monitoring.delivery_counts import MatchedSubscriptions
from sapwood.spark.monitoring.totals import rank_slowest, rank_subscriptions
from sapwood.spark.pipeline.batch import Outcome
from sapwood.spark.pipeline.batch_log import merge_matched, parse_record
from sapwood.spark.pipeline.config import PipelineConfig
from sapwood.store import SubscriptionStore

_LISTED = 50
"""The subscriptions without a match that are listed; others are only counted."""


class Listed(NamedTuple):
    """A subscription in a list of the report."""

    id: str
    subscriber: str
    query: str


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The active subscriptions that have matched no message since a batch."""

    count: int
    since: int
    some: Sequence[Listed] = ()


@dataclass(frozen=True, slots=True)
class ReportData:
    """The data of a report."""

    outcomes: Sequence[Outcome]
    queries: dict[str, str] = field(default_factory=dict)
    """the queries of subscriptions that the report names, as far as they are known"""
    unmatched: Unmatched | None = None
    pending: int | None = None
    """a batch that is planned and not committed"""


def read_checkpoint(config: PipelineConfig) -> ReportData:
    """Read the batch log of a checkpoint, whether the pipeline is running or not; raise ConfigError if it is
    empty."""
    folder = f"{config.run.checkpoint}/sapwood"
    planned = [int(name) for name in list_names(f"{folder}/planned") if name.isdigit()]
    outcomes = [Outcome.from_record(record) for record in _records(f"{folder}/done")]
    if not planned and not outcomes:
        raise ConfigError(f"run.checkpoint: {config.run.checkpoint} has no batch in its log yet")
    outcomes.sort(key=lambda outcome: outcome.batch)
    newest = max(planned, default=-1)
    pending = newest if not outcomes or newest > outcomes[-1].batch else None
    return collect_report_data(config, outcomes, merge_matched(_records(f"{folder}/matched")), pending)


def collect_report_data(
    config: PipelineConfig,
    outcomes: Sequence[Outcome],
    matched: MatchedSubscriptions,
    pending: int | None = None,
) -> ReportData:
    """Add the queries of the subscriptions that a report names, and the subscriptions without a match."""
    named = {id for id, _ in (*rank_slowest(outcomes), *rank_subscriptions(outcomes))}
    left_out = outcomes[-1].left_out if outcomes else {}
    queries: dict[str, str] = {}
    never: list[Listed] = []
    count = 0
    for each in _subscriptions(config):
        if each.id in named:
            queries[each.id] = each.query
        if each.id not in matched.ids and each.id not in left_out:
            count += 1
            if len(never) < _LISTED:
                never.append(each)
    unmatched = Unmatched(count, matched.since, never) if matched.since is not None else None
    return ReportData(outcomes, queries, unmatched, pending)


def _records(folder: str) -> Iterator[dict[str, Any]]:
    """Read the JSON files of a folder; one that is removed meanwhile is skipped."""
    for name in list_names(folder):
        if name.isdigit():
            with suppress(FileNotFoundError), open_file(f"{folder}/{name}") as file:
                yield parse_record(file.read().decode("utf-8", "replace"), f"{folder}/{name}")


def _subscriptions(config: PipelineConfig) -> Iterable[Listed]:
    """Yield the active subscriptions of a pipeline."""
    given = config.subscriptions
    if given.store is not None:
        with SubscriptionStore(given.store, create=False, tenant=given.tenant) as store:
            for found in store.subscriptions(active=True):
                yield Listed(found.id, found.subscriber, found.query)
        return
    assert given.file is not None
    for query in read_queries(given.file):
        yield Listed(str(query.id), query.subscriber or "", query.text)
