"""How a pipeline keeps its subscriptions; and whether it joins messages, which is decided when it begins and
then stays so.

What is kept of messages belongs to the checkpoint. So a pipeline that began without joins goes on without,
and one that began with joins goes on with them, even if nobody subscribes to one at the moment.
"""

from __future__ import annotations

from sapwood.broker import Broker
from sapwood.spark.distribution.pipeline_subscriptions import (
    FileSubscriptions,
    StoreSubscriptions,
    SubscriptionProvider,
    is_not_filter,
    store_has_joins,
)
from sapwood.spark.joins.join_plan import check_protobuf, check_state, state_settings
from sapwood.spark.pipeline.batch import Matching, by_broker
from sapwood.spark.pipeline.batch_log import BatchLog
from sapwood.spark.pipeline.config import ConfigError, JoinConfig, PipelineConfig, RelationalConfig

_ANOTHER = "give it a new checkpoint, in which it begins anew"


def chosen(
    settings: PipelineConfig, ledger: BatchLog, compiled: Broker | None = None
) -> tuple[SubscriptionProvider, JoinConfig | None]:
    """The subscriptions, and how messages are joined if they are; SettingsError if that cannot be. Those of a
    file may have been compiled already."""
    limits = settings.matcher_limits()
    given = settings.subscriptions
    tabled = settings.engine == "relational"
    serves = {"serves": is_not_filter} if tabled else {}
    population: SubscriptionProvider
    if given.store is not None:
        joins = _joins(settings, ledger, store_has_joins(given.store), fixed=False)
        population = StoreSubscriptions(given.store, limits, joins is not None, **serves)
    else:
        assert given.file is not None
        population = fixed = FileSubscriptions(
            given.file, given.namespaces, limits, broker=None if tabled else compiled, **serves
        )
        joins = _joins(settings, ledger, fixed.joining, fixed=True)
    if tabled:
        from sapwood.spark.relational.table_subscriptions import in_tables  # which needs DuckDB

        population = in_tables(population, settings)
    return population, joins


def matching_by(settings: PipelineConfig, population: SubscriptionProvider, folder: str) -> Matching:
    """What matches messages with the subscriptions; `folder` is for what it leaves there meanwhile."""
    if settings.engine != "relational":
        return by_broker
    from sapwood.spark.relational.table_subscriptions import TabledPopulation

    assert isinstance(population, TabledPopulation)
    how = settings.relational or RelationalConfig()
    return population.matching(how.on, f"{folder}/relational")


def _joins(settings: PipelineConfig, ledger: BatchLog, wanted: bool, fixed: bool) -> JoinConfig | None:
    recorded = ledger.joins()
    if recorded is None and ledger.last_planned() is not None:
        if settings.joins is not None or (wanted and fixed):
            raise ConfigError(f"this pipeline began without joins, and goes on so: {_ANOTHER}")
        return None
    if recorded is None and settings.joins is None and not wanted:
        return None
    problem = settings.against_joins()
    if problem is not None:
        raise ConfigError(f"some subscriptions join messages. {problem}")
    check_protobuf()
    joins = settings.joins or JoinConfig()
    if recorded is None:
        ledger.begin_joins(state_settings(joins))
    else:
        check_state(recorded, joins, settings.run.checkpoint)
    return joins
