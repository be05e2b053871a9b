"""Calls of a server that have to succeed."""

from __future__ import annotations

import httpx


def publish(client: httpx.Client, body: str, id: str, stream: str = "s", time: float = 0) -> httpx.Response:
    """Publish a message with an id and an event time."""
    headers = {"Sapwood-Message-Id": id, "Sapwood-Time": str(1_800_000_000 + time)}
    answer = client.post(f"/v1/streams/{stream}/messages", content=body, headers=headers)
    assert answer.status_code in (200, 201), answer.text
    return answer


def subscribe(client: httpx.Client, id: str, query: str, subscriber: str) -> None:
    """Put a subscription."""
    answer = client.put(f"/v1/subscriptions/{id}", json={"query": query, "subscriber": subscriber})
    assert answer.status_code in (200, 201), answer.text


def pull(client: httpx.Client, subscriber: str) -> list[str]:
    """Return the bodies of the first deliveries of a subscriber."""
    page = client.get(f"/v1/subscribers/{subscriber}/deliveries", params={"after": 0, "limit": 1_000}).json()
    return [delivery["body"] for delivery in page["deliveries"]]
