"""Calls that ask brokers of a mesh about it, and change it."""

from __future__ import annotations

from typing import Any

from sapwood.client.calls.api_call import Call, as_is, json_call, params, path


def read_mesh(*names: str, **filters: object) -> Call[dict[str, Any]]:
    """Return the call for what is below /v1/mesh, such as `brokers`, or `explain` and an id."""
    return Call("GET", path("mesh", *names), as_is, params(**filters))


def change_mesh(*names: str, body: dict[str, Any], patience: float = 0.0) -> Call[dict[str, Any]]:
    """Return the call that changes something below /v1/mesh; which may take `patience` seconds."""
    call: Call[dict[str, Any]] = json_call("POST", path("mesh", *names), body, as_is, repeatable=False)
    return Call(
        call.method,
        call.path,
        call.read,
        headers=call.headers,
        content=call.content,
        repeatable=False,
        patience=patience,
    )
