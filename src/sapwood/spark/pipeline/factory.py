"""Builds the parts of a pipeline that its configuration selects: the subscriptions, the matcher, and joins.

The join state belongs to the checkpoint. So a pipeline that started without joins stays without, and one that
started with joins stays with them, even while there is no subscription of that kind.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sapwood.broker import Broker
from sapwood.config_file import ConfigError
from sapwood.spark.distribution.index_snapshot import IndexSnapshot
from sapwood.spark.distribution.pipeline_subscriptions import (
    FileSubscriptions,
    StoreSubscriptions,
    SubscriptionProvider,
    is_not_filter,
    store_has_joins,
)
from sapwood.spark.joins.join_plan import check_state, state_settings
from sapwood.spark.pipeline.batch import MatchFunction, match_with_broker
from sapwood.spark.pipeline.batch_log import BatchLog
from sapwood.spark.pipeline.config import JoinConfig, PipelineConfig, RelationalConfig
from sapwood.spark.worker_stage import WorkerStage

_log = logging.getLogger(__name__)
_NEW_CHECKPOINT = "configure a new checkpoint, with which it starts from the beginning"


def open_subscriptions(
    config: PipelineConfig,
    batch_log: BatchLog,
    compiled: Broker | None = None,
    cache_folder: str | None = None,
) -> tuple[SubscriptionProvider, JoinConfig | None]:
    """Open the subscriptions, and return them with the configuration of joins, or None without joins.

    `compiled` has the queries of a file, if they were compiled before; `cache_folder` is for those of a
    store. ConfigError is raised if the joins do
    not fit the checkpoint or the rest of the configuration.
    """
    limits = config.matcher_limits()
    given = config.subscriptions
    in_tables = config.engine == "relational"
    serves = {"serves": is_not_filter} if in_tables else {}
    subscriptions: SubscriptionProvider
    if given.store is not None:
        has_joins = store_has_joins(given.store, given.tenant)
        joins = _configure_joins(config, batch_log, has_joins, fixed=False)
        subscriptions = StoreSubscriptions(
            given.store,
            limits,
            joins is not None,
            cache_folder=cache_folder,
            tenant=given.tenant,
            **serves,
        )
    else:
        assert given.file is not None
        subscriptions = fixed = FileSubscriptions(
            given.file, given.namespaces, limits, broker=None if in_tables else compiled, **serves
        )
        joins = _configure_joins(config, batch_log, fixed.joining, fixed=True)
    if in_tables:
        from sapwood.spark.relational import table_subscriptions  # which needs DuckDB

        subscriptions = table_subscriptions.open_table_subscriptions(subscriptions, config)
    _log.info(
        "subscriptions in %s, engine %s, %s joins",
        given.store or given.file,
        config.engine,
        "with" if joins is not None else "without",
    )
    return subscriptions, joins


def select_matcher(config: PipelineConfig, subscriptions: SubscriptionProvider, folder: str) -> MatchFunction:
    """Return the function that matches micro-batches; `folder` is for its temporary files."""
    if config.engine != "relational":
        return match_with_broker
    from sapwood.spark.relational.table_subscriptions import TableSubscriptions

    assert isinstance(subscriptions, TableSubscriptions)
    relational = config.relational or RelationalConfig()
    matching = subscriptions.matching(relational.on, f"{folder}/relational")

    @contextmanager
    def match_with_tables(messages: WorkerStage, snapshot: IndexSnapshot) -> Iterator[WorkerStage]:
        with matching(messages.to_frame(), snapshot) as matched:
            yield WorkerStage.of(matched)

    return match_with_tables


def _configure_joins(
    config: PipelineConfig, batch_log: BatchLog, wanted: bool, fixed: bool
) -> JoinConfig | None:
    """Return the configuration of joins, which has to fit the layout of the join state in the checkpoint.

    `wanted` tells whether a subscription is a join; `fixed`, whether the subscriptions cannot change."""
    recorded = batch_log.join_layout()
    if recorded is None and batch_log.has_started():
        if config.joins is not None or (wanted and fixed):
            raise ConfigError(f"this pipeline started without joins, and cannot add them: {_NEW_CHECKPOINT}")
        return None
    if recorded is None and config.joins is None and not wanted:
        return None
    problem = config.find_join_conflict()
    if problem is not None:
        raise ConfigError(f"some subscriptions join messages. {problem}")
    joins = config.joins or JoinConfig()
    if recorded is None:
        batch_log.commit_join_layout(state_settings())
    else:
        check_state(recorded, config.run.checkpoint)
    return joins
