"""`match`: messages in a DataFrame against subscriptions, batch or streaming alike."""

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
from sapwood.lang.namespaces import Namespaces
from sapwood.spark.distribution import match_result
from sapwood.spark.distribution.index_snapshot import IndexSnapshot, SubscriptionSource
from sapwood.spark.distribution.match_worker import MatchPartition

Shape = Literal["pairs", "messages"]
Id = str | int
Pairs = Mapping[str, str] | Mapping[int, str] | Iterable[tuple[Id, str]]
Subscriptions = DataFrame | Pairs | Matcher | Broker

PROBLEM = "_problem"
"""A column with which a source says why it rejects a message that it could not read."""
IS_PROBLEM = {"sapwood": "problem"}
"""The metadata of that column where people see it, under a name of theirs."""

MATCHES = "_matches"
"""A column with a `MatchResult` for messages that an earlier stage has matched, null for others."""

ERROR = from_arrow_type(match_result.ERROR)
UNDECIDED = from_arrow_type(match_result.FAILURES)
COSTS = from_arrow_type(match_result.COSTS)
BODIES = from_arrow_type(match_result.BODIES)
RESULT_COLUMNS = frozenset({"subscriptions", "bodies", "error", "undecided", "costs"})
"""The columns that matching adds to a message's own."""


def match(
    messages: DataFrame,
    subscriptions: Subscriptions,
    *,
    shape: Shape = "pairs",
    namespaces: Namespaces | None = None,
    limits: Limits | None = None,
) -> DataFrame:
    """Which subscriptions each message matches, and what those that are transformations make of it.

    `messages` has the columns `message_id` and `body` (binary or string), and may be streaming; all its other
    columns are kept. `subscriptions` has the columns `id` and `query`, a filter or a transformation, or is a
    mapping, pairs, a Matcher or a Broker. Ids that are whole numbers stay numbers; all others become strings.

    shape="pairs"     one row for each (message, subscription): the message's columns, `subscription`, and
                      `body`: the XML that the transformation made, null for a filter, which gets the message
                      as it is. Messages that match nothing, and those that are refused, have no row.
    shape="messages"  one row for each message: its columns, `subscriptions`, ids in any order, and `error`,
                      null or a struct of `reason`, `line`, `column` and the `body` that was refused. If there
                      are transformations, also `bodies`: what each of them made, null for filters. And
                      `undecided`, null or a list of structs of `subscription`, `kind` and `reason`: those
                      that have no answer on this message, and why.
    """
    check_shape(shape)
    messages = with_problem(messages)
    snapshot = issue_snapshot(messages.sparkSession, subscriptions, namespaces, limits)
    matched = match_snapshot(messages, snapshot)
    return to_pairs(matched) if shape == "pairs" else matched


def to_pairs(matched: DataFrame) -> DataFrame:
    """Of one row a message, one row for each (message, subscription)."""
    kept = [column(name) for name in matched.columns if name not in RESULT_COLUMNS]
    if "bodies" in matched.columns:
        both = F.inline(F.arrays_zip("subscriptions", "bodies"))
        return matched.select(*kept, both.alias("subscription", "body"))
    nothing_made = F.lit(None).cast("string").alias("body")
    return matched.select(*kept, F.explode("subscriptions").alias("subscription"), nothing_made)


def column(name: str) -> Column:
    """The column of exactly that name, whatever characters are in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def with_problem(messages: DataFrame) -> DataFrame:
    """Messages as `read_messages` has them, with the problem under the name that matching knows it by."""
    found = [field.name for field in messages.schema.fields if field.metadata == IS_PROBLEM]
    return messages.withColumnRenamed(found[0], PROBLEM) if found else messages


def match_snapshot(messages: DataFrame, snapshot: IndexSnapshot, profile: bool = False) -> DataFrame:
    """Match messages with the subscriptions of a snapshot: one row for each message; with `profile`, also
    `costs`."""
    check_messages(messages)
    consumed = ("body", PROBLEM, MATCHES)
    passed = [field for field in messages.schema.fields if field.name not in consumed]
    id_type = LongType() if snapshot.numeric else StringType()
    found = [StructField("subscriptions", ArrayType(id_type, containsNull=False))]
    if snapshot.transforming:
        found.append(StructField("bodies", BODIES))
    found.append(StructField("error", ERROR))
    found.append(StructField("undecided", UNDECIDED))
    if profile:
        found.append(StructField("costs", COSTS))
    # mapInArrow takes a name with a dot for a path, so it gets numbers
    numbered = {name: f"_{number}" for number, name in enumerate(messages.columns)}
    partition = MatchPartition(
        snapshot, numbered["body"], numbered.get(PROBLEM), profile, numbered.get(MATCHES)
    )
    return messages.toDF(*numbered.values()).mapInArrow(partition, StructType(passed + found))


def issue_snapshot(
    spark: SparkSession,
    subscriptions: Subscriptions,
    namespaces: Namespaces | None,
    limits: Limits | None,
) -> IndexSnapshot:
    """Subscriptions that stay as they are, compiled and on their way to the workers."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ValueError("Spark Connect has no broadcasts, with which the compiled index travels")
    broker = _compiled(subscriptions, namespaces, limits)
    if broker.joins:
        raise ValueError("joins keep messages from batch to batch, so only a pipeline has them: sapwood run")
    return SubscriptionSource(broker, numeric=_numeric(broker)).issue(spark.sparkContext)


def _numeric(broker: Broker) -> bool:
    """Whether all ids are whole numbers that Spark has a type for, which cost much less than strings."""
    ids, _ = broker.numbered()
    return bool(ids) and all(type(id) is int and -(1 << 63) <= id < 1 << 63 for id in ids)


def check_shape(shape: str) -> None:
    """ValueError for a shape that there is not."""
    if shape not in get_args(Shape):
        raise ValueError(f"shape must be one of {', '.join(map(repr, get_args(Shape)))}, not {shape!r}")


def check_messages(messages: DataFrame) -> None:
    """ValueError if messages lack a column, or have one that they must not have."""
    types = {field.name: field.dataType for field in messages.schema.fields}
    if len(types) < len(messages.columns):
        twice = next(name for name in types if messages.columns.count(name) > 1)
        raise ValueError(f"messages have the column {twice!r} twice; rename one")
    for name in ("message_id", "body"):
        if name not in types:
            raise ValueError(f"messages need a column {name!r}; there are {', '.join(types) or 'none'}")
    if not isinstance(types["body"], BinaryType | StringType):
        raise ValueError(f"the column 'body' must be binary or string, not {types['body'].simpleString()}")
    for name in types:
        if name in RESULT_COLUMNS or name == "subscription":
            raise ValueError(f"messages must not have a column {name!r}, which the result has; rename it")


def _compiled(subscriptions: Subscriptions, namespaces: Namespaces | None, limits: Limits | None) -> Broker:
    if isinstance(subscriptions, Matcher | Broker):
        if namespaces is not None or limits is not None:
            raise ValueError(f"a {type(subscriptions).__name__} has its namespaces and limits already")
        return Broker.around(subscriptions) if isinstance(subscriptions, Matcher) else subscriptions
    broker = Broker(namespaces, limits)
    broker.subscribe_many(_listed(subscriptions))
    return broker


def _listed(
    subscriptions: DataFrame | Pairs,
) -> Iterable[tuple[Id, str]]:
    if isinstance(subscriptions, Mapping):
        return subscriptions.items()
    if not isinstance(subscriptions, DataFrame):
        return subscriptions
    if subscriptions.isStreaming:
        raise ValueError(
            "subscriptions must not be a streaming DataFrame; a store changes while a stream runs"
        )
    missing = [name for name in ("id", "query") if name not in subscriptions.columns]
    if missing:
        have = ", ".join(subscriptions.columns)
        raise ValueError(f"subscriptions need a column {missing[0]!r}; there are {have}")
    whole = isinstance(subscriptions.schema["id"].dataType, IntegralType)
    rows = subscriptions.select(
        F.col("id").cast("long" if whole else "string"), F.col("query").cast("string")
    )
    return (_not_null(row["id"], row["query"]) for row in rows.toLocalIterator())


def _not_null(id: Id | None, query: str | None) -> tuple[Id, str]:
    if id is None or query is None:
        raise ValueError(f"neither 'id' nor 'query' of a subscription may be null: {id!r}, {query!r}")
    return id, query
