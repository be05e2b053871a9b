"""Calls about subscribers: their settings, deliveries, acknowledgements and dead letters; and about keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sapwood.client.calls.api_call import Call, Page, as_is, json_call, list_call, params, path
from sapwood.client.model.delivery import (
    Acknowledgement,
    Delivery,
    DeliveryPage,
    Gap,
    gap_from_json,
    page_from_json,
)
from sapwood.client.model.resources import (
    DeadLetter,
    Key,
    Policy,
    ReplayReport,
    Scope,
    Subscriber,
    dead_letter_from_json,
    key_from_json,
    replay_from_json,
    subscriber_from_json,
)
from sapwood.errors import ArgumentError

PAGE = 100
"""subscribers or dead letters per request of a list"""


def list_subscribers(cursor: str | None, text: str | None) -> Call[Page[Subscriber]]:
    """Return the call for a page of subscribers."""
    return list_call(path("subscribers"), "subscribers", subscriber_from_json, cursor, limit=PAGE, text=text)


def read_subscriber(name: str) -> Call[Subscriber]:
    """Return the call for one subscriber."""
    return Call("GET", path("subscribers", name), subscriber_from_json)


def configure(
    name: str,
    limit: int | None,
    policy: Policy | None,
    merge: bool,
    webhook: Mapping[str, Any] | None,
) -> Call[Subscriber]:
    """Return the call that sets all settings of a subscriber."""
    given = {"limit": limit, "policy": policy, "merge": merge, "webhook": webhook}
    settings = {key: value for key, value in given.items() if value is not None}
    return json_call("PUT", path("subscribers", name), settings, subscriber_from_json)


def delete_subscriber(name: str) -> Call[Any]:
    """Return the call that deletes a subscriber with its inbox."""
    return Call("DELETE", path("subscribers", name), as_is, repeatable=False)


def resume_subscriber(name: str) -> Call[Any]:
    """Return the call that ends a suspension."""
    return Call("POST", path("subscribers", name, "resume"), as_is)


def pull(name: str, limit: int, wait: float, after: int | None) -> Call[DeliveryPage]:
    """Return the call for deliveries that waits for the first of them."""
    return Call(
        "GET",
        path("subscribers", name, "deliveries"),
        page_from_json,
        params(after=after, limit=limit, wait=wait),
        patience=wait,
    )


def open_events(name: str, after: int | None) -> Call[None]:
    """Return the call that opens the event stream of deliveries after a position."""
    # Not Last-Event-ID, which would acknowledge what has been received, but perhaps not been processed.
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    return Call("GET", path("subscribers", name, "events"), as_is, params(after=after), headers)


def ack(name: str, upto: int | str | Delivery) -> Call[Acknowledgement]:
    """Return the call that acknowledges all deliveries up to one."""
    position = upto.number if isinstance(upto, Delivery) else upto
    return json_call(
        "POST",
        path("subscribers", name, "ack"),
        {"upto": position},
        lambda data: Acknowledgement(data["acknowledged"], data["backlog"]),
    )


def list_gaps(name: str) -> Call[list[Gap]]:
    """Return the call for the gaps of an inbox."""
    return Call(
        "GET", path("subscribers", name, "gaps"), lambda data: [gap_from_json(one) for one in data["gaps"]]
    )


def list_dead_letters(name: str, cursor: str | None) -> Call[Page[DeadLetter]]:
    """Return the call for a page of dead letters."""
    where = path("subscribers", name, "dead-letters")
    return list_call(where, "dead_letters", dead_letter_from_json, cursor, limit=PAGE)


def replay(name: str, numbers: Iterable[int] | None) -> Call[ReplayReport]:
    """Return the call that delivers dead letters again: those with these numbers, or all."""
    body = {} if numbers is None else {"numbers": list(numbers)}
    where = path("subscribers", name, "dead-letters", "replay")
    return json_call("POST", where, body, replay_from_json, repeatable=False)


def delete_dead_letter(name: str, number: int) -> Call[Any]:
    """Return the call that deletes a dead letter."""
    where = path("subscribers", name, "dead-letters", str(number))
    return Call("DELETE", where, as_is, repeatable=False)


def list_keys() -> Call[list[Key]]:
    """Return the call for the keys of the tenant."""
    return Call("GET", path("keys"), lambda data: [key_from_json(one) for one in data["keys"]])


def create_key(scopes: Iterable[Scope], name: str | None, tenant: str | None) -> Call[Key]:
    """Return the call that makes a key."""
    given = list(scopes)
    if not given:
        raise ArgumentError("a key needs a scope: 'publish', 'subscribe' or 'admin'")
    fields = {"scopes": given, "name": name, "tenant": tenant}
    body = {key: value for key, value in fields.items() if value is not None}
    return json_call("POST", path("keys"), body, key_from_json, repeatable=False)


def delete_key(id: str) -> Call[Any]:
    """Return the call that revokes a key."""
    return Call("DELETE", path("keys", id), as_is, repeatable=False)
