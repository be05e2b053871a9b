"""`match`: matches the messages of a DataFrame, batch or streaming, with subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from sapwood.broker import Broker
from sapwood.engine import Limits, Matcher
from sapwood.errors import ArgumentError
from sapwood.lang.namespaces import Namespaces
from sapwood.spark.distribution import match_result
from sapwood.spark.distribution.index_snapshot import BrokerSnapshots, IndexSnapshot
from sapwood.spark.distribution.match_worker import MatchPartition
from sapwood.spark.worker_stage import WorkerStage

Shape = Literal["pairs", "messages"]
Id = str | int
Pairs = Mapping[str, str] | Mapping[int, str] | Iterable[tuple[Id, str]]
Subscriptions = DataFrame | Pairs | Matcher | Broker

PROBLEM = "_problem"
"""A column with the reason why a source rejects a message that it could not read."""
IS_PROBLEM = {"sapwood": "problem"}
"""The metadata of that column in the result of `read_messages`, where users name it."""

MATCHES = "_sapwood_matches"
"""A column with a `MatchResult` for messages that an earlier stage has matched, null for others."""

ERROR = from_arrow_type(match_result.ERROR)
UNDECIDED = from_arrow_type(match_result.FAILURES)
COSTS = from_arrow_type(match_result.COSTS)
BODIES = from_arrow_type(match_result.BODIES)
RESULT_COLUMNS = frozenset({"subscriptions", "bodies", "error", "undecided", "costs"})
"""The columns that matching adds to those of a message."""


def match(
    messages: DataFrame,
    subscriptions: Subscriptions,
    *,
    shape: Shape = "pairs",
    namespaces: Namespaces | None = None,
    limits: Limits | None = None,
) -> DataFrame:
    """Match each message with the subscriptions, and apply those that are transformations.

    `messages` has the columns `message_id` and `body` (binary or string), and may be streaming; all its other
    columns pass to the result. `subscriptions` has the columns `id` and `query`, a filter or transformation,
    or is a mapping, pairs, a Matcher or a Broker. Ids that are whole numbers stay numbers; all others become
    strings.

    shape="pairs"     one row for each (message, subscription): the message's columns, `subscription`, and
                      `body`: the XML that the transformation made, null for a filter, which delivers the
                      message as it is. Messages that match nothing or are rejected have no row.
    shape="messages"  one row for each message: its columns, `subscriptions`, ids in any order, and `error`,
                      null or a struct of `reason`, `line`, `column` and the rejected `body`. If there are
                      transformations, also `bodies`: what each of them made, null for filters. And
                      `undecided`, null or a list of structs of `subscription`, `kind` and `reason`: those
                      that have no result for this message, and why.
    """
    check_shape(shape)
    if MATCHES in messages.columns:
        raise ArgumentError(f"messages must not have a column {MATCHES!r}; rename it")
    messages = with_problem(messages)
    snapshot = issue_snapshot(messages.sparkSession, subscriptions, namespaces, limits)
    matched = match_snapshot(messages, snapshot)
    return to_pairs(matched) if shape == "pairs" else matched


def to_pairs(matched: DataFrame) -> DataFrame:
    """Turn one row for each message into one for each (message, subscription)."""
    passed = [column(name) for name in matched.columns if name not in RESULT_COLUMNS]
    if "bodies" in matched.columns:
        both = F.inline(F.arrays_zip("subscriptions", "bodies"))
        return matched.select(*passed, both.alias("subscription", "body"))
    nothing_made = F.lit(None).cast("string").alias("body")
    return matched.select(*passed, F.explode("subscriptions").alias("subscription"), nothing_made)


def column(name: str) -> Column:
    """Return the column of exactly that name, whatever characters are in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def with_problem(messages: DataFrame) -> DataFrame:
    """Rename the column with the problems that `read_messages` makes to `PROBLEM`."""
    found = [field.name for field in messages.schema.fields if field.metadata == IS_PROBLEM]
    return messages.withColumnRenamed(found[0], PROBLEM) if found else messages


def match_snapshot(messages: DataFrame, snapshot: IndexSnapshot, profile: bool = False) -> DataFrame:
    """Match messages with the subscriptions of a snapshot: one row for each message; with `profile`, also
    `costs`."""
    return match_stage(WorkerStage.of(messages), snapshot, profile).to_frame()


def match_stage(
    messages: WorkerStage, snapshot: IndexSnapshot, profile: bool = False, numbered: bool = False
) -> WorkerStage:
    """Add matching to a stage: one row for each message. With `numbered`, subscriptions are the numbers that
    workers give them at the snapshot's version, and not ids."""
    _check_columns(messages.schema)
    consumed = ("body", PROBLEM, MATCHES)
    passed = [field for field in messages.schema.fields if field.name not in consumed]
    id_type = LongType() if snapshot.numeric or numbered else StringType()
    found = [StructField("subscriptions", ArrayType(id_type, containsNull=False))]
    if snapshot.transforming:
        found.append(StructField("bodies", BODIES))
    found.append(StructField("error", ERROR))
    found.append(StructField("undecided", UNDECIDED))
    if profile:
        found.append(StructField("costs", COSTS))
    names = messages.columns
    partition = MatchPartition(
        snapshot,
        "body",
        PROBLEM if PROBLEM in names else None,
        profile,
        MATCHES if MATCHES in names else None,
        numbered,
    )
    return messages.then(partition, StructType(passed + found))


def issue_snapshot(
    spark: SparkSession,
    subscriptions: Subscriptions,
    namespaces: Namespaces | None,
    limits: Limits | None,
) -> IndexSnapshot:
    """Compile subscriptions that do not change, and issue a snapshot of them to the workers."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ArgumentError(
            "Spark Connect has no broadcast variables, which the compiled index needs; use a classic session"
        )
    broker = _compile(subscriptions, namespaces, limits)
    if broker.joins:
        raise ArgumentError(
            "joins have a state from batch to batch, so only a pipeline has them: sapwood run"
        )
    return BrokerSnapshots(broker, numeric=_has_numeric_ids(broker)).issue(spark.sparkContext)


def _has_numeric_ids(broker: Broker) -> bool:
    """Whether all ids are whole numbers that Spark has a type for, which cost much less than strings."""
    ids, _ = broker.numbered()
    return bool(ids) and all(type(id) is int and -(1 << 63) <= id < 1 << 63 for id in ids)


def check_shape(shape: str) -> None:
    """Raise ValueError for an unknown shape."""
    if shape not in get_args(Shape):
        raise ArgumentError(f"shape must be one of {', '.join(map(repr, get_args(Shape)))}, not {shape!r}")


def check_messages(messages: DataFrame) -> None:
    """Raise ValueError if messages lack a column, or have one that the result has."""
    _check_columns(messages.schema)


def _check_columns(schema: StructType) -> None:
    types = {field.name: field.dataType for field in schema.fields}
    if len(types) < len(schema.names):
        twice = next(name for name in types if schema.names.count(name) > 1)
        raise ArgumentError(f"messages have the column {twice!r} twice; rename one")
    for name in ("message_id", "body"):
        if name not in types:
            raise ArgumentError(f"messages need a column {name!r}; there are {', '.join(types) or 'none'}")
    if not isinstance(types["body"], BinaryType | StringType):
        raise ArgumentError(f"the column 'body' must be binary or string, not {types['body'].simpleString()}")
    for name in types:
        if name in RESULT_COLUMNS or name == "subscription":
            raise ArgumentError(f"messages must not have a column {name!r}, which the result has; rename it")


def _compile(subscriptions: Subscriptions, namespaces: Namespaces | None, limits: Limits | None) -> Broker:
    if isinstance(subscriptions, Matcher | Broker):
        if namespaces is not None or limits is not None:
            raise ArgumentError(f"a {type(subscriptions).__name__} has its namespaces and limits already")
        return Broker.around(subscriptions) if isinstance(subscriptions, Matcher) else subscriptions
    broker = Broker(namespaces, limits)
    broker.subscribe_many(_iter_pairs(subscriptions))
    return broker


def _iter_pairs(subscriptions: DataFrame | Pairs) -> Iterable[tuple[Id, str]]:
    if isinstance(subscriptions, Mapping):
        return subscriptions.items()
    if not isinstance(subscriptions, DataFrame):
        return subscriptions
    if subscriptions.isStreaming:
        raise ArgumentError(
            "subscriptions must not be a streaming DataFrame; a store changes while a stream runs"
        )
    missing = [name for name in ("id", "query") if name not in subscriptions.columns]
    if missing:
        have = ", ".join(subscriptions.columns)
        raise ArgumentError(f"subscriptions need a column {missing[0]!r}; there are {have}")
    whole = isinstance(subscriptions.schema["id"].dataType, IntegralType)
    rows = subscriptions.select(
        F.col("id").cast("long" if whole else "string"), F.col("query").cast("string")
    )
    return (_check_not_null(row["id"], row["query"]) for row in rows.toLocalIterator())


def _check_not_null(id: Id | None, query: str | None) -> tuple[Id, str]:
    if id is None or query is None:
        raise ArgumentError(f"neither 'id' nor 'query' of a subscription may be null: {id!r}, {query!r}")
    return id, query
