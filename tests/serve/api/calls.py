"""Requests that tests of the API make again and again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from urllib.parse import quote

import httpx

from tests.support.service.running_server import RunningServer

_numbers = count(1)
PROBLEM = "application/problem+json"


def open_client(server: RunningServer, key: str | None = None) -> httpx.Client:
    """Return a client; without TLS, whose certificates would take longer to load than most tests."""
    return server.client(key, verify=False)


def unique(prefix: str = "n") -> str:
    """Return a name that no other test uses, since tests share a server."""
    return f"{prefix}{next(_numbers)}"


def segment(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")


def publish(client: httpx.Client, stream: str, body: str | bytes = "<a/>", **options: Any) -> httpx.Response:
    """Publish a message."""
    return client.post(f"/v1/streams/{segment(stream)}/messages", content=body, **options)


def subscribe(
    client: httpx.Client, subscriber: str, query: str = "/*", streams: tuple[str, ...] = (), **fields: Any
) -> dict[str, Any]:
    """Create a subscription; returns it."""
    given = {"query": query, "subscriber": subscriber, "streams": list(streams), **fields}
    response = client.post("/v1/subscriptions", json=given)
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()
    return found


def pull(client: httpx.Client, subscriber: str, **parameters: Any) -> dict[str, Any]:
    """Pull the deliveries of a subscriber."""
    response = client.get(f"/v1/subscribers/{segment(subscriber)}/deliveries", params=parameters)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def bodies(client: httpx.Client, subscriber: str, **parameters: Any) -> list[str]:
    """Pull deliveries; returns their bodies."""
    return [delivery["body"] for delivery in pull(client, subscriber, **parameters)["deliveries"]]


def acknowledge(client: httpx.Client, subscriber: str, upto: int | str) -> dict[str, Any]:
    """Acknowledge deliveries."""
    response = client.post(f"/v1/subscribers/{segment(subscriber)}/ack", json={"upto": upto})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def check_problem(response: httpx.Response, status: int, slug: str | None = None) -> dict[str, Any]:
    """Check that an answer is a problem with a status; returns its fields."""
    assert response.status_code == status, response.text[:1_000]
    assert response.headers["content-type"] == PROBLEM
    found: dict[str, Any] = response.json()
    assert found["status"] == status and found["detail"] and found["title"]
    if slug is not None:
        assert found["type"] == f"urn:sapwood:problem:{slug}"
    return found


class Events:
    """The events of a stream of server-sent events, one after the other."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def next(self) -> dict[str, Any]:
        """Return the next event: its fields, with `data` parsed; comments are the field `comment`."""
        event: dict[str, Any] = {}
        for line in self._lines:
            if not line:
                return event
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            event[name or "comment"] = json.loads(value) if name == "data" else value
        raise EOFError

    def delivery(self) -> dict[str, Any]:
        """Return the next event that carries data."""
        while "data" not in (event := self.next()):
            pass
        return event


@contextmanager
def listen(client: httpx.Client, subscriber: str, **options: Any) -> Iterator[Events]:
    """Listen to the events of a subscriber."""
    with client.stream("GET", f"/v1/subscribers/{segment(subscriber)}/events", **options) as response:
        yield Events(response)
