"""Rows of deliveries and rejects, as Arrow batches made of matched messages.

A matched message is a row of `MatchPartition`, or of the relational engine. Its subscriptions are numbers of
a broker in the worker, or ids; both become codes of a `SubscriptionDictionary`, so that they are counted and
looked up by array operations:

    subscriptions [[7, 3], [7]]  ──►  codes [7, 3, 7]  ──►  ids.take(codes), names.take(codes)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from sapwood.spark.dataframe_match import Shape
from sapwood.spark.deliveries.batch_summary import BatchSummary
from sapwood.spark.distribution.match_result import BODIES

LATENESS = "_late"
"""The column with the reason why a message is too late for joins; null if it is not."""
FAILURE = "_failure"
"""The column with the reason why a join has no result; null if it has one."""
LATE_BODY = "_late_body"
"""The column with the body of a message that is too late for joins; null for others."""
Codes = NDArray[np.int64]
_BYTES_PER_BATCH = 32 << 20
"""Bytes of the messages' columns, which are repeated for each delivery, in an Arrow batch of deliveries."""


@dataclass(frozen=True, slots=True)
class SubscriptionDictionary:
    """The ids of subscriptions and the names of their subscribers, by code."""

    ids: pa.Array
    names: pa.Array


@dataclass(frozen=True, slots=True)
class _Matches:
    """Accepted messages, and the subscriptions of all of them, one message after another."""

    messages: pa.RecordBatch
    sizes: Codes
    """the number of subscriptions of each message"""
    codes: Codes
    known: SubscriptionDictionary
    bodies: pa.Array | None
    """the output of each message's queries; None if all are filters"""


@dataclass(frozen=True, slots=True)
class DeliverySchema:
    """The columns of deliveries and rejects."""

    message: pa.Schema
    """the columns of messages that both have"""
    shape: Shape = "pairs"
    text: str | None = None
    """the column with a message as text, which is the body of filters' deliveries; None without one"""
    joins: bool = False
    """whether deliveries have the column `messages`"""

    @property
    def deliveries(self) -> pa.Schema:
        """The columns of deliveries."""
        fields = [*self.message, pa.field("version", pa.int64())]
        if self.shape == "messages":
            fields += [pa.field("subscriptions", pa.list_(pa.string())), pa.field("bodies", BODIES)]
            if self.text is not None:
                fields.append(pa.field("message", pa.string()))
            return pa.schema(fields)
        fields += [pa.field(name, pa.string()) for name in ("subscription", "subscriber", "body")]
        if self.joins:
            fields.append(pa.field("messages", pa.list_(pa.string())))
        return pa.schema(fields)

    @property
    def rejects(self) -> pa.Schema:
        """The columns of rejects."""
        own = [
            ("version", pa.int64()),
            ("reason", pa.string()),
            ("line", pa.int32()),
            ("column", pa.int32()),
            ("body", pa.binary()),
            ("subscription", pa.string()),
        ]
        return pa.schema([*self.message, *(pa.field(name, kind) for name, kind in own)])


class DeliveryRows:
    """Makes rows of matched messages, and counts them in a summary."""

    def __init__(self, schema: DeliverySchema, version: int, summary: BatchSummary) -> None:
        self._schema = schema
        self._version = version
        self._summary = summary

    # -- messages --------------------------------------------------------------------------------------

    def deliveries(
        self, matched: pa.RecordBatch, known: SubscriptionDictionary | None, names: Mapping[str, str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the deliveries of accepted messages.

        `known` has the subscriptions by number; if it is None, messages have ids, and `names` the subscribers
        of these.
        """
        summary = self._summary
        summary.messages += matched.num_rows
        self._add_costs(matched.column("costs"))
        rejected = matched.column("error").is_valid()
        if rejected.true_count:
            matched = matched.filter(compute.invert(rejected))
        lists = matched.column("subscriptions")
        sizes = compute.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        summary.count_matches(sizes)
        total = int(sizes.sum())
        if not total:
            return
        codes, known = _encode(lists.flatten(), known, names)
        self._count_subscriptions(codes, known.ids)
        bodies = matched.column("bodies") if "bodies" in matched.schema.names else None
        build = self._build_pairs if self._schema.shape == "pairs" else self._build_messages
        yield from build(_Matches(matched, sizes, codes, known, bodies))

    def _build_pairs(self, found: _Matches) -> Iterator[pa.RecordBatch]:
        messages, known = found.messages, found.known
        owners = np.repeat(np.arange(len(found.sizes)), found.sizes)
        made = found.bodies.flatten() if found.bodies is not None else pa.nulls(len(found.codes), pa.string())
        text = messages.column(self._schema.text) if self._schema.text is not None else None
        repeated = [messages.column(name) for name in self._schema.message.names]
        for part in _parts_of(owners, [*repeated, *([text] if text is not None else [])]):
            owner, code = pa.array(owners[part]), pa.array(found.codes[part])
            body = made[part.start : part.stop]
            if text is not None:
                body = compute.coalesce(body, text.take(owner))
            own = [known.ids.take(code), known.names.take(code), body]
            if self._schema.joins:
                own.append(pa.nulls(len(owner), pa.list_(pa.string())))
            yield self._to_batch([column.take(owner) for column in repeated], own, self._schema.deliveries)

    def _build_messages(self, found: _Matches) -> Iterator[pa.RecordBatch]:
        sizes, bodies = found.sizes, found.bodies
        served = pa.array(sizes > 0)
        offsets = np.zeros(int(np.count_nonzero(sizes)) + 1, np.int32)
        np.cumsum(sizes[sizes > 0], out=offsets[1:])
        own = [pa.ListArray.from_arrays(pa.array(offsets), found.known.ids.take(pa.array(found.codes)))]
        own.append(bodies.filter(served) if bodies is not None else pa.nulls(len(own[0]), BODIES))
        rows = found.messages.filter(served)
        if self._schema.text is not None:
            own.append(rows.column(self._schema.text))
        columns = [rows.column(name) for name in self._schema.message.names]
        yield self._to_batch(columns, own, self._schema.deliveries)

    def rejects(self, matched: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the messages that are malformed or over a limit, and the failures of single subscriptions."""
        names = self._schema.message.names
        errors = matched.column("error")
        if errors.null_count < len(errors):
            rows = matched.filter(errors.is_valid())
            found = rows.column("error")
            own = [found.field(name) for name in ("reason", "line", "column", "body")]
            self._summary.count_rejects(rows.column("message_id").to_pylist(), own[0].to_pylist())
            own.append(pa.nulls(len(rows), pa.string()))
            yield self._to_batch([rows.column(name) for name in names], own, self._schema.rejects)
        failed = matched.column("undecided")
        if failed.null_count < len(failed):
            sizes = compute.list_value_length(failed).fill_null(0).to_numpy(zero_copy_only=False)
            owner = pa.array(np.repeat(np.arange(len(sizes)), sizes))
            failures = failed.flatten()
            ids = failures.field("subscription")
            reasons = compute.binary_join_element_wise(failures.field("kind"), failures.field("reason"), ": ")
            columns = [matched.column(name).take(owner) for name in names]
            yield self.failures(columns, ids, reasons)

    def _add_costs(self, costs: pa.Array) -> None:
        if costs.null_count < len(costs):
            for each in costs.flatten().to_pylist():
                self._summary.costs[each["subscription"]] += each["seconds"]

    # -- joins -----------------------------------------------------------------------------------------

    def join_deliveries(self, joined: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch | None:
        """Return the deliveries of joins: rows without the reason why there is none."""
        rows = joined.filter(joined.column(FAILURE).is_null())
        if not rows.num_rows:
            return None
        codes, known = _encode(rows.column("subscription"), None, names)
        self._count_subscriptions(codes, known.ids)
        self._summary.joined += rows.num_rows
        code = pa.array(codes)
        own = [known.ids.take(code), known.names.take(code), rows.column("body"), rows.column("messages")]
        columns = [rows.column(name) for name in self._schema.message.names]
        return self._to_batch(columns, own, self._schema.deliveries)

    def join_failures(self, joined: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return a reject for each row with the reason why a join has no result."""
        rows = joined.filter(joined.column(FAILURE).is_valid())
        if not rows.num_rows:
            return None
        columns = [rows.column(name) for name in self._schema.message.names]
        return self.failures(columns, rows.column("subscription"), rows.column(FAILURE))

    def failures(self, columns: Sequence[pa.Array], ids: pa.Array, reasons: pa.Array) -> pa.RecordBatch:
        """Return a reject for each failure of a subscription; without a body: others got the message."""
        self._summary.count_failures(ids.to_pylist(), reasons.to_pylist())
        absent = [pa.nulls(len(ids), kind) for kind in (pa.int32(), pa.int32(), pa.binary())]
        return self._to_batch(columns, [reasons, *absent, ids], self._schema.rejects)

    def late(self, matched: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return a reject for each message that is too late for joins; all other subscriptions got it."""
        if LATENESS not in matched.schema.names or not matched.num_rows:
            return None
        messages = matched.filter(matched.column(LATENESS).is_valid())
        reasons = messages.column(LATENESS)
        self._summary.count_rejects(messages.column("message_id").to_pylist(), reasons.to_pylist())
        count = messages.num_rows
        own = [reasons, pa.nulls(count, pa.int32()), pa.nulls(count, pa.int32())]
        own += [messages.column(LATE_BODY), pa.nulls(count, pa.string())]
        columns = [messages.column(name) for name in self._schema.message.names]
        return self._to_batch(columns, own, self._schema.rejects)

    # --------------------------------------------------------------------------------------------------

    def _count_subscriptions(self, codes: Codes, ids: pa.Array) -> None:
        counts = np.bincount(codes)
        found = np.flatnonzero(counts)
        self._summary.deliveries += len(codes)
        by_id = zip(ids.take(pa.array(found)).to_pylist(), counts[found].tolist(), strict=True)
        self._summary.by_subscription.update(dict(by_id))

    def _to_batch(
        self, columns: Sequence[pa.Array], own: Sequence[pa.Array], schema: pa.Schema
    ) -> pa.RecordBatch:
        """Return a batch of the messages' columns, the version, and further columns."""
        count = len(own[0])
        version = pa.array(np.full(count, self._version, np.int64))
        arrays = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip((*columns, version, *own), schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _encode(
    flat: pa.Array, known: SubscriptionDictionary | None, names: Mapping[str, str]
) -> tuple[Codes, SubscriptionDictionary]:
    """Return the codes of subscriptions, and what they stand for."""
    if known is not None:
        return flat.to_numpy(zero_copy_only=False), known
    encoded = flat.dictionary_encode()
    ids = encoded.dictionary
    subscribers = pa.array([names.get(id) for id in ids.to_pylist()], pa.string())
    return encoded.indices.to_numpy().astype(np.int64), SubscriptionDictionary(ids, subscribers)


def _parts_of(owners: Codes, repeated: Sequence[pa.Array]) -> Iterator[slice]:
    """Yield ranges of deliveries whose messages' columns take a bounded number of bytes."""
    sizes = sum((_value_bytes(column) for column in repeated), np.zeros(1, np.int64))
    each = np.broadcast_to(sizes, max(len(sizes), int(owners[-1]) + 1))[owners]
    parts = np.cumsum(each) // _BYTES_PER_BATCH
    bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(owners)]
    yield from (slice(start, end) for start, end in pairwise(bounds))


def _value_bytes(column: pa.Array) -> Any:
    """Return the bytes of each value, of columns whose values can be large."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths = compute.binary_length(column).fill_null(0)
        return lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.full(1, column.nbytes // max(1, len(column)), np.int64)


def keep_late_bodies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the column LATE_BODY to messages before they are matched, which drops their bodies."""
    for batch in batches:
        is_late = batch.column(LATENESS).is_valid()
        body = batch.column("body").cast(pa.binary())
        late = compute.if_else(is_late, body, pa.scalar(None, pa.binary()))
        yield pa.RecordBatch.from_arrays([*batch.columns, late], [*batch.schema.names, LATE_BODY])


def count_by_subscriber(by_subscription: Mapping[str, int], names: Mapping[str, str]) -> Counter[str]:
    """Sum deliveries by subscription to deliveries by subscriber; the key "" is for no subscriber."""
    total: Counter[str] = Counter()
    for id, count in by_subscription.items():
        total[names.get(id, "")] += count
    return total
