"""Verification of the demo's deliveries against a broker in one process, for a sample of the messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds

from sapwood import Broker, MessageError
from sapwood.store import SubscriptionStore

_Delivery = tuple[str, str]
"""subscription and body"""


def find_differences(
    out: Path, store: SubscriptionStore, sample: int, first: int, last: int
) -> tuple[int, list[str]]:
    """Return the number of messages in the sample, and the ids of those whose deliveries are wrong.

    The messages of a file are processed in one batch, hence with one version of the subscriptions. Those of
    the `first` and the `last` version are verified, since each version has to be compiled from scratch. A
    file without deliveries is taken for one of the first version, which is wrong if a message matches.
    """
    deliveries = ds.dataset(out / "deliveries", format="parquet")
    versions = _versions(deliveries)
    messages = _messages(out / "inbox")
    chosen = [entry for entry in messages if versions.setdefault(entry[0], first) in (first, last)]
    chosen = chosen[:: max(1, len(chosen) // sample)]
    delivered = _read_deliveries(deliveries, [id for _, id, _ in chosen])
    wrong = []
    for version in sorted({first, last}):
        with Broker(store.namespaces) as broker:
            broker.subscribe_many(store.at(version))
            wrong += [
                id
                for file, id, body in chosen
                if versions[file] == version and delivered[id] != _publish(broker, body)
            ]
    return len(chosen), wrong


def _versions(deliveries: ds.Dataset) -> dict[str, int]:
    """Return the version that each file was matched with, if it has deliveries."""
    pairs = deliveries.to_table(["message_id", "version"]).group_by(["message_id", "version"]).aggregate([])
    return {row["message_id"].partition("@")[0]: row["version"] for row in pairs.to_pylist()}


def _messages(inbox: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield file, id and body of every message; the id is the file's name and the offset of the line."""
    for file in sorted(inbox.iterdir()):
        offset = 0
        for line in file.read_bytes().splitlines(keepends=True):
            yield file.name, f"{file.name}@{offset}", line.rstrip()
            offset += len(line)


def _read_deliveries(deliveries: ds.Dataset, ids: list[str]) -> dict[str, list[_Delivery]]:
    """Return the sorted deliveries of some messages; a duplicate delivery is there twice."""
    columns = ["message_id", "subscription", "body"]
    table = deliveries.to_table(columns, filter=ds.field("message_id").isin(ids))
    found: dict[str, list[_Delivery]] = defaultdict(list)
    for id, subscription, body in zip(*(column.to_pylist() for column in table.columns), strict=True):
        found[id].append((subscription, body or ""))
    return defaultdict(list, {id: sorted(subscriptions) for id, subscriptions in found.items()})


def _publish(broker: Broker, body: bytes) -> list[_Delivery]:
    """Return the deliveries of a broker; those of filters without a body, as the pipeline has them."""
    try:
        deliveries = broker.publish(body)
    except MessageError:
        return []
    return sorted(
        (str(d.subscription), "" if d.subscription in broker.filters else d.body.decode()) for d in deliveries
    )
