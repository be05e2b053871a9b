"""The demo of a mesh: subscriptions with local interests at three sites, and messages at all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from threading import Event

from sapwood.client import Client, NewSubscription
from sapwood.errors import MessageError, SapwoodError
from sapwood.serve.demo.demo_messages import SYMBOLS, TOPICS, DemoMessage, MessageSource

SITES: Mapping[str, str | None] = {"zurich": None, "basel": "zurich", "paris": "basel"}
"""the brokers, each with its parent"""
_AREAS = {"zurich": ("Bergen", "Leeds"), "basel": ("Basel", "Turin"), "paris": ("Lyon", "Porto")}
"""areas of the news that a site wants"""
READER = "desk"
"""the subscriber at each site"""
_PAUSE = 0.03
"""seconds from one message to the next"""


def make_site_subscriptions(site: str, seed: int = 1) -> Iterator[NewSubscription]:
    """Yield what a site wants: news of some areas, some quotes, and large orders at one of them."""
    choice = random.Random(f"{site}{seed}")
    near, other = _AREAS[site]
    yield NewSubscription(f"{site}-news", f"/news[head/area = '{near}']", READER, ("news",))
    for topic in choice.sample(TOPICS, 3):
        query = (
            f"for $n in /news where $n/head/topic = '{topic}' and $n/head/area = '{other}'"
            " return <line>{$n//title}</line>"
        )
        yield NewSubscription(f"{site}-{topic}", query, READER, ("news",))
    for symbol in choice.sample(SYMBOLS, 4):
        yield NewSubscription(f"{site}-{symbol}", f"/quote[@symbol = '{symbol}']", READER, ("quotes",))
    if SITES[site] is None:
        yield NewSubscription(f"{site}-orders", "/order[total > 300]", READER, ("orders",))


def fill(urls: Mapping[str, str]) -> int:
    """Subscribe at all sites; returns how many subscriptions there are."""
    count = 0
    for site, url in urls.items():
        with Client(url) as client:
            client.configure_subscriber(READER, limit=10_000, policy="drop-oldest")
            count += client.import_many(make_site_subscriptions(site), replace=True).added
    return count


def publish_until(stopped: Event, urls: Mapping[str, str], seed: int = 1) -> None:
    """Publish made-up messages, each at some site, until the event is set."""
    choice = random.Random(seed)
    clients = [Client(url, retries=0) for url in urls.values()]
    try:
        for message in MessageSource(seed):
            if stopped.wait(_PAUSE):
                return
            _publish(choice.choice(clients), message)
    finally:
        for client in clients:
            client.close()


def _publish(client: Client, message: DemoMessage) -> None:
    try:
        client.publish(message.stream, message.body)
    except (MessageError, SapwoodError):  # malformed ones are part of the demo, and brokers may be drained
        return
