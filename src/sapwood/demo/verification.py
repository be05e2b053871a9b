"""Whether the demo's deliveries are right: a broker in one process decides again for some messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds

from sapwood import Broker, MessageError
from sapwood.store import SubscriptionStore

_Delivered = tuple[str, str]
"""a subscription, and what was made for it"""


def find_differences(
    out: Path, store: SubscriptionStore, sample: int, first: int, last: int
) -> tuple[int, list[str]]:
    """How many messages were looked at, and the ids of those that did not go to exactly the right ones.

    The messages of a file are served in one batch, hence with one version of the subscriptions. Those of the
    `first` and the `last` version are looked at, since each version has to be compiled from scratch. A file
    of which nothing was delivered counts as one of the first: that is wrong unless nobody wants its messages.
    """
    deliveries = ds.dataset(out / "deliveries", format="parquet")
    versions = _versions(deliveries)
    messages = _messages(out / "inbox")
    chosen = [entry for entry in messages if versions.setdefault(entry[0], first) in (first, last)]
    chosen = chosen[:: max(1, len(chosen) // sample)]
    delivered = _delivered(deliveries, [id for _, id, _ in chosen])
    wrong = []
    for version in sorted({first, last}):
        with Broker(store.namespaces) as broker:
            broker.subscribe_many(store.at(version))
            wrong += [
                id
                for file, id, body in chosen
                if versions[file] == version and delivered[id] != _answer(broker, body)
            ]
    return len(chosen), wrong


def _versions(deliveries: ds.Dataset) -> dict[str, int]:
    """With which version each file was served, as far as anything was delivered of it."""
    served = deliveries.to_table(["message_id", "version"]).group_by(["message_id", "version"]).aggregate([])
    return {row["message_id"].partition("@")[0]: row["version"] for row in served.to_pylist()}


def _messages(inbox: Path) -> Iterator[tuple[str, str, bytes]]:
    """File, id and body of every message; the id is the file's name and the offset of the line."""
    for file in sorted(inbox.iterdir()):
        offset = 0
        for line in file.read_bytes().splitlines(keepends=True):
            yield file.name, f"{file.name}@{offset}", line.rstrip()
            offset += len(line)


def _delivered(deliveries: ds.Dataset, ids: list[str]) -> dict[str, list[_Delivered]]:
    """To whom some messages went and as what, sorted; one who got a message twice is there twice."""
    columns = ["message_id", "subscription", "body"]
    table = deliveries.to_table(columns, filter=ds.field("message_id").isin(ids))
    found: dict[str, list[_Delivered]] = defaultdict(list)
    for id, subscription, body in zip(*(column.to_pylist() for column in table.columns), strict=True):
        found[id].append((subscription, body or ""))
    return defaultdict(list, {id: sorted(subscriptions) for id, subscriptions in found.items()})


def _answer(broker: Broker, body: bytes) -> list[_Delivered]:
    """Filters deliver the message as it is, which the pipeline does not repeat for each."""
    try:
        deliveries = broker.publish(body)
    except MessageError:
        return []
    return sorted(
        (str(d.subscription), "" if d.subscription in broker.filters else d.body.decode()) for d in deliveries
    )
