"""Calls that publish messages, and that read the figures of a broker."""

from __future__ import annotations

from typing import Any

from sapwood.client.calls.api_call import Call, as_is, params, path
from sapwood.client.calls.problem_details import error_from_problem
from sapwood.client.model.messages import (
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
from sapwood.errors import ArgumentError

_DELIVERY_SECONDS = 30.0
"""how long a broker waits for acknowledgements if it is not told"""


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


def read_stats() -> Call[dict[str, Any]]:
    """Return the call for the figures of the broker."""
    return Call("GET", path("stats"), as_is)
