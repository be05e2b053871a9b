"""Whether a pipeline joins messages, which is decided when it begins and then stays so.

What is kept of messages belongs to the checkpoint. So a pipeline that began without joins goes on without,
and one that began with joins goes on with them, even if nobody subscribes to one at the moment.
"""

from __future__ import annotations

from sapwood.spark.ledger import Ledger
from sapwood.spark.population import FixedPopulation, StoredPopulation, Subscribed, joins_in_store
from sapwood.spark.settings import JoinSettings, Settings, SettingsError
from sapwood.spark.stateful import check_protobuf

_ANOTHER = "give it a new checkpoint, in which it begins anew"


def chosen(settings: Settings, ledger: Ledger) -> tuple[Subscribed, JoinSettings | None]:
    """The subscriptions, and how messages are joined if they are; SettingsError if that cannot be."""
    limits = settings.matcher_limits()
    given = settings.subscriptions
    if given.store is not None:
        joins = _joins(settings, ledger, joins_in_store(given.store), fixed=False)
        return StoredPopulation(given.store, limits, joins is not None), joins
    assert given.file is not None
    population = FixedPopulation(given.file, given.namespaces, limits)
    return population, _joins(settings, ledger, population.joining, fixed=True)


def _joins(settings: Settings, ledger: Ledger, wanted: bool, fixed: bool) -> JoinSettings | None:
    recorded = ledger.joins()
    if recorded is None and ledger.last_planned() is not None:
        if settings.joins is not None or (wanted and fixed):
            raise SettingsError(f"this pipeline began without joins, and goes on so: {_ANOTHER}")
        return None
    if recorded is None and settings.joins is None and not wanted:
        return None
    problem = settings.against_joins()
    if problem is not None:
        raise SettingsError(f"some subscriptions join messages. {problem}")
    check_protobuf()
    joins = settings.joins or JoinSettings()
    how = {"buckets": joins.buckets}
    if recorded is None:
        ledger.begin_joins(how)
    elif recorded != how:
        raise SettingsError(
            f"joins.buckets: it began with {recorded['buckets']}, which cannot change; {_ANOTHER}"
        )
    return joins
