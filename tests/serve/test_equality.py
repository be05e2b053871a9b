"""The deliveries of a server are those of a broker in one process, whichever way they come."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from sapwood.errors import MessageError
from tests.support.requirements import FULL
from tests.support.service.broker_oracle import BrokerOracle, Row, check_inbox
from tests.support.service.listeners import (
    EventListener,
    Listener,
    PullListener,
    SocketListener,
    WebhookListener,
)
from tests.support.service.random_load import NAMESPACES, RandomLoad, RandomMessage
from tests.support.service.running_server import RunningServer

pytestmark = pytest.mark.slow
LISTENERS = {
    "pull": PullListener,
    "events": EventListener,
    "socket": SocketListener,
    "webhook": WebhookListener,
}
NAMES = [f"{way}-{kind}" for way in LISTENERS for kind in ("plain", "merged")]


class Comparison:
    """A server and an oracle that are given the same changes and messages."""

    def __init__(self, client: httpx.Client, load: RandomLoad, oracle: BrokerOracle) -> None:
        self._client, self._load, self._oracle = client, load, oracle
        self.rows: dict[str, Row] = {}
        self.version = 0
        self.published = self.deliveries = 0

    def import_many(self, count: int, odd: float) -> None:
        rows = [self._load.subscription(f"s{number}", odd) for number in range(count)]
        lines = "\n".join(json.dumps({"id": row.id, **_fields(row)}) for row in rows)
        answer = self._client.post("/v1/imports", content=lines, timeout=600).json()
        assert answer["added"] == count, answer["errors"][:3]
        self.version = answer["version"]
        for row in rows:
            self.rows[row.id] = row
            self._oracle.put(row)

    def change(self, odd: float) -> None:
        """Make a random change, and keep its version."""
        id, row = self._load.change(self.rows, odd)
        path = f"/v1/subscriptions/{quote(id, safe='')}"
        if row is None:
            answer = self._client.delete(path)
            self._oracle.remove(id)
            del self.rows[id]
        else:
            old = self.rows.get(id)
            if old is not None and old.active != row.active and old.query == row.query:
                answer = self._client.patch(path, json={"active": row.active})
            else:
                answer = self._client.put(path, json=_fields(row))
            self._oracle.put(row)
            self.rows[id] = row
        assert answer.status_code in (200, 201), answer.text
        self.version = int(answer.headers["Sapwood-Version"])

    def publish(self, message: RandomMessage) -> None:
        headers = {"Sapwood-Message-Id": message.id, "Sapwood-Time": repr(message.time)}
        path = f"/v1/streams/{message.stream}/messages"
        answer = self._client.post(path, content=message.body, headers=headers)
        self._compare(message, answer.json(), answer.status_code == 422)
        if answer.status_code == 201 and self.published % 20 == 0:  # once more, which changes nothing
            again = self._client.post(path, content=message.body, headers=headers)
            assert again.status_code == 200 and again.json()["duplicate"]
            assert again.json()["seq"] == answer.json()["seq"]

    def publish_many(self, messages: list[RandomMessage]) -> None:
        """Publish messages of one stream in one request."""
        parts = [
            (
                "m",
                (message.id, message.body, "application/xml", {"Sapwood-Time": repr(message.time)}),
            )
            for message in messages
        ]
        path = f"/v1/streams/{messages[0].stream}/messages"
        answer = self._client.post(path, files=parts).json()
        for message, result in zip(messages, answer["messages"], strict=True):
            self._compare(message, result.get("error", result), "error" in result)

    def _compare(self, message: RandomMessage, result: dict[str, Any], refused: bool) -> None:
        seq = self.published + 1
        try:
            count = self._oracle.publish(seq, message.id, message.stream, message.body, message.time)
        except MessageError:
            assert refused, f"{message} has to be refused: {result}"
            return
        assert not refused, f"{message} is refused: {result}"
        assert (result["seq"], result["version"]) == (seq, self.version)
        assert result["deliveries"] == count, message
        assert not result["failures"]
        self.published = seq
        self.deliveries += count


def _fields(row: Row) -> dict[str, Any]:
    return {
        "query": row.query,
        "subscriber": row.subscriber,
        "streams": list(row.streams),
        "active": row.active,
    }


def _listeners(server: RunningServer, client: httpx.Client) -> Iterator[tuple[str, Listener]]:
    for name in NAMES:
        way, _, kind = name.partition("-")
        listener = LISTENERS[way](server.url, name)
        settings: dict[str, Any] = {"merge": kind == "merged"}
        if isinstance(listener, WebhookListener):
            settings["webhook"] = listener.settings
        answer = client.put(f"/v1/subscribers/{name}", json=settings)
        assert answer.status_code == 200, answer.text
        yield name, listener


def check_equality(
    folder: Path, config: str, seed: int, subscriptions: int, messages: int, odd: float, spread: int
) -> None:
    """Give a server and a broker the same random sequence, and compare what each subscriber gets."""
    config += "\n[webhooks]\nallow_private = true\n"
    # A webhook takes one delivery at a time, so it gets the fewest.
    names = [name for name in NAMES for _ in range(1 if name.startswith("webhook") else 4)]
    with ExitStack() as stack:
        server = stack.enter_context(RunningServer(folder, config))
        client = stack.enter_context(server.client())
        oracle = stack.enter_context(BrokerOracle(NAMESPACES))
        load = RandomLoad(seed, names, spread)
        stack.callback(load.close)
        client.put("/v1/namespaces", json={"namespaces": NAMESPACES}).raise_for_status()
        listeners = dict(_listeners(server, client))
        for listener in listeners.values():
            stack.enter_context(listener)
        comparison = Comparison(client, load, oracle)
        started = time.monotonic()
        comparison.import_many(subscriptions, odd)
        imported = time.monotonic()
        done = 0
        while done < messages:
            if done % 3 == 0:
                comparison.change(odd)
            if done % 7 == 0:
                several = [load.message() for _ in range(8)]
                stream = several[0].stream
                several = [each for each in several if each.stream == stream]
                comparison.publish_many(several)
                done += len(several)
            else:
                comparison.publish(load.message())
                done += 1
        published = time.monotonic()
        for name, listener in listeners.items():
            listener.wait_for(client.get(f"/v1/subscribers/{name}").json()["last"], 600)
        delivered = time.monotonic()
        for name, listener in listeners.items():
            expected = oracle.expected.get(name, [])
            check_inbox(listener.deliveries.values(), expected, merged=name.endswith("merged"))
            assert not listener.repeated and not listener.gaps
        assert comparison.deliveries == sum(map(len, oracle.expected.values()))
        seconds = [f"{end - start:.1f}" for start, end in pairwise([started, imported, published, delivered])]
        print(
            f"{len(comparison.rows):,} subscriptions, {done:,} messages, {comparison.deliveries:,} deliveries"
        )
        print(f"import {seconds[0]} s, publish {seconds[1]} s, then {seconds[2]} s until all is delivered")


def test_deliveries_are_those_of_a_broker(tmp_path: Path) -> None:
    if FULL:
        check_equality(tmp_path, "", 1, subscriptions=10_000, messages=5_000, odd=0.005, spread=2_000)
    else:
        check_equality(tmp_path, "", 1, subscriptions=500, messages=300, odd=0.15, spread=40)
