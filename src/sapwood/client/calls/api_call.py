"""A call of the HTTP API: a request and the function that reads its answer, without I/O.

Both clients send the same calls; they differ in how they wait only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

T = TypeVar("T")
U = TypeVar("U")


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
