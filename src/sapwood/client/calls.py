"""Calls of the HTTP API: each is a request and the function that reads its answer, without I/O.

Both clients send the same calls; they differ in how they wait only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from sapwood.client.messages import (
    Message,
    PublishReceipt,
    PublishResult,
    Refusal,
    Time,
    Wait,
    as_message,
    encode_body,
    encode_multipart,
    format_time,
    receipt_from_json,
)
from sapwood.client.problem_details import error_from_problem
from sapwood.errors import ArgumentError

T = TypeVar("T")
U = TypeVar("U")

_DELIVERY_SECONDS = 30.0
"""how long a broker waits for acknowledgements if it is not told"""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how to read the JSON of its answer."""

    method: str
    path: str
    read: Callable[[Any], T]
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    repeatable: bool = True
    """whether it may be sent again when it is unknown if the broker has received it"""
    patience: float = 0.0
    """seconds that the broker is asked to wait before it answers"""
    query: str | None = None
    """the query that it sends, which an error then shows"""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and the cursor of the part after it."""

    items: list[T]
    next: str | None


def path(*segments: str) -> str:
    """Return the path of an endpoint; names are encoded, also slashes in them."""
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)


def params(**values: object) -> dict[str, str]:
    """Return the query parameters that are given, as text."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None
    }


def json_call(
    method: str,
    where: str,
    body: object,
    read: Callable[[Any], T],
    *,
    query: str | None = None,
    repeatable: bool = True,
    headers: Mapping[str, str] | None = None,
) -> Call[T]:
    """Return a call that sends JSON."""
    sent = {"Content-Type": "application/json", **(headers or {})}
    content = json.dumps(body, ensure_ascii=False).encode()
    return Call(method, where, read, headers=sent, content=content, repeatable=repeatable, query=query)


def list_call(
    where: str, name: str, read: Callable[[dict[str, Any]], U], cursor: str | None, **filters: object
) -> Call[Page[U]]:
    """Return a call for one page of a list, which the answer holds under a name."""

    def read_page(data: Any) -> Page[U]:
        following = data.get("next")
        return Page([read(item) for item in data[name]], None if following is None else str(following))

    return Call("GET", where, read_page, params(after=cursor, **filters))


def as_is(data: Any) -> Any:
    """Return the JSON of an answer as it is."""
    return data


# -- publishing --------------------------------------------------------------------------------------------


def publish(
    stream: str, message: Message, wait: Wait = "durable", timeout: float | None = None
) -> Call[PublishReceipt]:
    """Return the call that publishes one message."""
    headers = {"Content-Type": "application/xml", "Sapwood-Message-Id": as_message(message).id}
    if message.time is not None:
        headers["Sapwood-Time"] = format_time(message.time)
    return Call(
        "POST",
        path("streams", stream, "messages"),
        receipt_from_json,
        _wait_params(wait, timeout),
        headers,
        encode_body(message.body),
        patience=_patience(wait, timeout),
    )


def publish_batch(
    stream: str, messages: list[Message], wait: Wait = "durable", timeout: float | None = None
) -> Call[list[PublishResult]]:
    """Return the call that publishes many messages, whose ids make it safe to repeat."""
    content_type, content = encode_multipart(messages)

    def read(data: Any) -> list[PublishResult]:
        results = data["messages"]
        if len(results) != len(messages):
            raise ValueError(f"{len(results)} results for {len(messages)} messages")
        return [_result(message, found) for message, found in zip(messages, results, strict=True)]

    return Call(
        "POST",
        path("streams", stream, "messages"),
        read,
        _wait_params(wait, timeout),
        {"Content-Type": content_type},
        content,
        patience=_patience(wait, timeout),
    )


def _result(message: Message, found: dict[str, Any]) -> PublishResult:
    if "error" in found:
        return Refusal(message.id, error_from_problem(found["error"]))
    return receipt_from_json(found)


def _wait_params(wait: Wait, timeout: float | None) -> dict[str, str]:
    if wait not in ("durable", "delivered"):
        raise ArgumentError(f"wait must be 'durable' or 'delivered', not {wait!r}")
    if timeout is not None and wait != "delivered":
        raise ArgumentError("timeout goes with wait='delivered': how long the broker waits for deliveries")
    return params(wait=wait, timeout=timeout)


def _patience(wait: Wait, timeout: float | None) -> float:
    return 0.0 if wait == "durable" else _DELIVERY_SECONDS if timeout is None else timeout


def make_message(body: bytes | str, id: str | None, time: Time | None) -> Message:
    """Return the message of the arguments of publish()."""
    return Message(body, time=time) if id is None else Message(body, id, time)


# -- operations --------------------------------------------------------------------------------------------


def read_stats() -> Call[dict[str, Any]]:
    """Return the call for the figures of the broker."""
    return Call("GET", path("stats"), as_is)
