"""Calls that read, change, import, explain and try subscriptions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sapwood.client.calls.api_call import Call, Page, json_call, list_call, params, path
from sapwood.client.calls.problem_details import error_from_problem
from sapwood.client.model.messages import Message, to_seconds
from sapwood.client.model.resources import (
    ImportFailure,
    ImportReport,
    NewSubscription,
    QueryExplanation,
    Subscription,
    Trial,
    explanation_from_json,
    subscription_from_json,
    trial_from_json,
)
from sapwood.errors import ArgumentError

PAGE = 500
"""subscriptions per request of a list"""


def subscribe(subscription: NewSubscription, replace: bool) -> Call[Subscription]:
    """Return the call that creates a subscription; with `replace`, also in place of another."""
    body = subscription.to_json()
    if replace:
        where = path("subscriptions", body.pop("id"))
        return json_call("PUT", where, body, subscription_from_json, query=subscription.query)
    # A repetition of a creation that has succeeded would be refused as a conflict.
    return json_call(
        "POST",
        path("subscriptions"),
        body,
        subscription_from_json,
        query=subscription.query,
        repeatable=False,
    )


def change(id: str, changes: Mapping[str, Any], version: int | None) -> Call[Subscription]:
    """Return the call that changes fields of a subscription, if it still has the version that is given."""
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise ArgumentError(f"nothing to change in subscription {id!r}: give a query or another field")
    return json_call(
        "PATCH",
        path("subscriptions", id),
        given,
        subscription_from_json,
        query=given.get("query"),
        repeatable=version is None,
        headers=_condition(version),
    )


def unsubscribe(id: str, version: int | None) -> Call[int]:
    """Return the call that deletes a subscription; its answer is the version of the store."""
    # A repetition of a deletion that has succeeded would be refused as not found.
    return Call(
        "DELETE",
        path("subscriptions", id),
        lambda data: int(data["version"]),
        headers=_condition(version),
        repeatable=False,
    )


def _condition(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}


def read_subscription(id: str) -> Call[Subscription]:
    """Return the call for one subscription."""
    return Call("GET", path("subscriptions", id), subscription_from_json)


def list_subscriptions(cursor: str | None, **filters: object) -> Call[Page[Subscription]]:
    """Return the call for a page of subscriptions."""
    return list_call(
        path("subscriptions"), "subscriptions", subscription_from_json, cursor, limit=PAGE, **filters
    )


def import_batch(batch: list[NewSubscription], replace: bool, before: int) -> Call[ImportReport]:
    """Return the call that imports subscriptions, `before` of which were imported by earlier calls."""
    lines = (json.dumps(one.to_json(), ensure_ascii=False).encode() for one in batch)

    def read(data: Any) -> ImportReport:
        failures = []
        for found in data.get("errors") or ():
            line = found["line"]
            query = batch[line - 1].query if 0 < line <= len(batch) else None
            error = error_from_problem(found["error"], query=query)
            failures.append(ImportFailure(before + line, found.get("id"), error))
        names = ("added", "replaced", "unchanged", "refused", "version")
        counts = {name: data[name] for name in names}
        return ImportReport(**counts, errors=tuple(failures), confirmed=data.get("confirmed"))

    return Call(
        "POST",
        path("imports"),
        read,
        params(replace=replace),
        {"Content-Type": "application/x-ndjson"},
        b"\n".join(lines) + b"\n",
        repeatable=replace,
    )


class ImportBatcher:
    """Collects subscriptions into batches of limited count and bytes."""

    def __init__(self, count: int, max_bytes: int) -> None:
        self._count = count
        self._max_bytes = max_bytes
        self._batch: list[NewSubscription] = []
        self._bytes = 0

    def add(self, subscription: NewSubscription) -> list[NewSubscription]:
        """Add a subscription; return a batch if one is complete, else an empty one."""
        self._batch.append(subscription)
        self._bytes += len(subscription.query)
        full = len(self._batch) >= self._count or self._bytes >= self._max_bytes
        return self.take() if full else []

    def take(self) -> list[NewSubscription]:
        """Return the subscriptions that are in no batch yet, and begin a new one."""
        taken, self._batch, self._bytes = self._batch, [], 0
        return taken


def as_new_subscription(item: NewSubscription | tuple[str, str]) -> NewSubscription:
    """Return a subscription to import, for one or a pair of id and query."""
    return item if isinstance(item, NewSubscription) else NewSubscription(*item)


def explain(query: str) -> Call[QueryExplanation]:
    """Return the call that explains a query."""
    return json_call("POST", path("explain"), {"query": query}, explanation_from_json, query=query)


def explain_subscription(id: str) -> Call[QueryExplanation]:
    """Return the call that explains the query of a subscription."""
    return Call("GET", path("explain"), explanation_from_json, {"subscription": id})


def try_query(query: str, messages: Sequence[Message | bytes | str], stream: str | None) -> Call[Trial]:
    """Return the call that evaluates a query on sample messages."""
    if not messages:
        raise ArgumentError("a query is tried on sample messages: give at least one")
    samples = [_sample(message) for message in messages]
    body: dict[str, Any] = {"query": query}
    if len(samples) == 1 and "time" not in samples[0] and stream is None:
        body["message"] = samples[0]["body"]
    else:
        place = {} if stream is None else {"stream": stream}
        body["messages"] = [sample | place for sample in samples]
    return json_call("POST", path("try"), body, trial_from_json, query=query)


def _sample(item: Message | bytes | str) -> dict[str, Any]:
    body, time = (item.body, item.time) if isinstance(item, Message) else (item, None)
    try:
        sample: dict[str, Any] = {"body": body.decode() if isinstance(body, bytes) else body}
    except UnicodeDecodeError:
        raise ArgumentError("a sample message must be a text, or bytes in UTF-8") from None
    if time is not None:
        sample["time"] = to_seconds(time)
    return sample


def read_namespaces() -> Call[dict[str, str]]:
    """Return the call for the prefixes that queries may use."""
    return Call("GET", path("namespaces"), lambda data: dict(data["namespaces"]))


def declare(namespaces: Mapping[str, str]) -> Call[int]:
    """Return the call that declares prefixes."""
    body = {"namespaces": dict(namespaces)}
    return json_call("PUT", path("namespaces"), body, lambda data: int(data["version"]))
