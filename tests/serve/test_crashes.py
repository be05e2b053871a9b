"""Crashes of the server and of its engine: nothing acknowledged is lost, doubled, or delivered to others."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from urllib.parse import quote

import httpx
import pytest

from tests.support.requirements import FULL
from tests.support.service import calls
from tests.support.service.broker_oracle import Row, check_inbox, replay_log
from tests.support.service.listeners import (
    EventListener,
    Listener,
    PullListener,
    SocketListener,
    WebhookListener,
)
from tests.support.service.publishers import RetryingPublisher
from tests.support.service.random_load import NAMESPACES, RandomLoad
from tests.support.service.running_server import RunningServer

pytestmark = pytest.mark.slow


def test_one_message_that_many_publish_at_once_is_one(tmp_path: Path) -> None:
    found: list[tuple[str, int, int, int]] = []

    def publish() -> None:
        with server.client() as client:
            for number in range(20):
                answer = calls.publish(client, f"<a>{number}</a>", f"m{number}")
                fields = answer.json()
                found.append((fields["id"], fields["seq"], answer.status_code, fields["deliveries"]))

    with RunningServer(tmp_path) as server, server.client() as client:
        calls.subscribe(client, "a", "/a", "desk")
        threads = [threading.Thread(target=publish) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({(id, seq) for id, seq, _, _ in found}) == 20
        assert Counter(status for _, _, status, _ in found) == {201: 20, 200: 100}
        assert {count for *_, count in found} == {1}
        assert calls.pull(client, "desk") == [f"<a>{number}</a>" for number in range(20)]


def test_a_join_that_was_paused_between_messages_stays_empty_after_a_crash(tmp_path: Path) -> None:
    """The state of joins is made again from the log, with the changes in between one by one."""
    join = "s/a[@k->x] JOIN{x = y, 1 hour} s/b[@k->y]"
    with RunningServer(tmp_path) as server:
        with server.client() as client:
            calls.subscribe(client, "kept", f"{join} ", "kept")
            calls.subscribe(client, "paused", join, "paused")
            calls.publish(client, '<a k="1"/>', "m1", time=0)
            for active in (False, True):
                answer = client.patch("/v1/subscriptions/paused", json={"active": active})
                assert answer.status_code == 200
            calls.publish(client, '<a k="2"/>', "m2", time=1)
        server.kill()
        server.start()
        with server.client() as client:
            calls.publish(client, '<b k="1"/>', "m3", time=2)
            calls.publish(client, '<b k="2"/>', "m4", time=3)
            both = ['<joined><a k="1"/><b k="1"/></joined>', '<joined><a k="2"/><b k="2"/></joined>']
            assert calls.pull(client, "kept") == both
            assert calls.pull(client, "paused") == both[1:]


# -- kills at random moments -------------------------------------------------------------------------------

_SUBSCRIBERS = ["events-1", "events-2", "reader", "hook", "merged"]
_CONFIG = '[joins]\nlateness = "5 s"\n[webhooks]\nallow_private = true\n'


class _Changer(threading.Thread):
    """Changes subscriptions all the time; whether a change without an answer was made, the store tells."""

    def __init__(self, url: str, load: RandomLoad, rows: dict[str, Row]) -> None:
        super().__init__(daemon=True)
        self._url, self._load, self._rows = url, load, rows
        self.stopping = threading.Event()
        self.made = 0

    def run(self) -> None:
        with httpx.Client(timeout=15) as client:
            while not self.stopping.wait(0.1):
                id, row = self._load.change(self._rows)
                with suppress(httpx.HTTPError):
                    self._change(client, id, row)

    def _change(self, client: httpx.Client, id: str, row: Row | None) -> None:
        path = f"{self._url}/v1/subscriptions/{quote(id, safe='')}"
        answer = client.delete(path) if row is None else client.put(path, json=_fields(row))
        if answer.status_code in (200, 201):
            self.made += 1
            if row is not None:
                self._rows[id] = row
        if row is None and answer.status_code in (200, 404):
            self._rows.pop(id, None)


def _fields(row: Row) -> dict[str, object]:
    streams = list(row.streams)
    return {"query": row.query, "subscriber": row.subscriber, "streams": streams, "active": row.active}


def _kill(server: RunningServer, what: str) -> None:
    engine = None
    with suppress(IndexError, FileNotFoundError):  # there may be none, just after another kill
        engine = server.engine_id
    if what != "engine":
        server.kill()
    if what != "server" and engine is not None:
        with suppress(ProcessLookupError):
            os.kill(engine, signal.SIGKILL)
    if what != "engine":
        server.start()


def _listen(server: RunningServer, client: httpx.Client) -> dict[str, Listener]:
    hook = WebhookListener(server.url, "hook")
    client.put("/v1/subscribers/hook", json={"webhook": hook.settings}).raise_for_status()
    client.put("/v1/subscribers/merged", json={"merge": True}).raise_for_status()
    for name in ("events-1", "events-2", "reader"):
        client.put(f"/v1/subscribers/{name}", json={}).raise_for_status()
    return {
        "events-1": EventListener(server.url, "events-1"),
        "events-2": EventListener(server.url, "events-2"),
        "reader": PullListener(server.url, "reader", acknowledges=False),
        "hook": hook,
        "merged": SocketListener(server.url, "merged"),
    }


def _wait_until_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + 60
    while True:
        with suppress(httpx.HTTPError):
            if client.get("/readyz").status_code == 200:
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    rng = Random(7)
    with ExitStack() as stack:
        server = stack.enter_context(RunningServer(tmp_path, _CONFIG))
        load = RandomLoad(3, _SUBSCRIBERS, spread=20)
        stack.callback(load.close)
        client = stack.enter_context(server.client())
        client.put("/v1/namespaces", json={"namespaces": NAMESPACES}).raise_for_status()
        listeners = _listen(server, client)
        rows = {f"s{number}": load.subscription(f"s{number}") for number in range(100)}
        lines = "\n".join(json.dumps({"id": row.id, **_fields(row)}) for row in rows.values())
        assert client.post("/v1/imports", content=lines).json()["added"] == len(rows)
        for listener in listeners.values():
            stack.enter_context(listener)
        changer = _Changer(server.url, load, rows)
        changer.start()
        publishers = [RetryingPublisher(server.url, f"p{n}", 10 + n) for n in range(3)]
        for publisher in publishers:
            stack.enter_context(publisher)
        for moment in range(30 if FULL else 6):
            time.sleep(rng.uniform(0.2, 1.5))
            _kill(server, ("engine", "server", "both")[moment % 3])
        time.sleep(1)
        changer.stopping.set()
        changer.join(30)
        for publisher in publishers:
            publisher.stop()
        _wait_until_ready(client)
        for name, listener in listeners.items():
            listener.wait_for(client.get(f"/v1/subscribers/{name}").json()["last"])
        assert server.stop() == 0
    _check_log(tmp_path, publishers, listeners)
    accepted = sum(len(publisher.accepted) for publisher in publishers)
    repeated = sum(publisher.repeated for publisher in publishers)
    received = sum(len(listener.deliveries) for listener in listeners.values())
    again = sum(listener.repeated for listener in listeners.values())
    print(f"{accepted} messages, {repeated} requests repeated, {changer.made} changes,")
    print(f"{received} deliveries, {again} of them again with the same id and content")


def _check_log(folder: Path, publishers: list[RetryingPublisher], listeners: dict[str, Listener]) -> None:
    """Compare the log with what publishers were told, and what subscribers got with a broker's replay."""
    location = str(folder / "sapwood.db")
    database = sqlite3.connect(location)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
    oracle, published = replay_log(location, lateness=5)
    with oracle:
        by_id = {message["id"]: message for message in published}
        assert len(by_id) == len(published), "a message is in the log twice"
        for publisher in publishers:
            assert publisher.accepted
            seqs = [seq for _, seq in publisher.accepted]
            assert seqs == sorted(seqs), "the messages of a publisher are out of order"
            for id, seq in publisher.accepted:
                assert (by_id[id]["seq"], by_id[id]["body"]) == (seq, publisher.bodies[id])
        assert len(published) == sum(len(publisher.accepted) for publisher in publishers)
        assert any(b"<joined>" in made.body for inbox in oracle.expected.values() for made in inbox)
        for name, listener in listeners.items():
            check_inbox(listener.deliveries.values(), oracle.expected.get(name, []), name == "merged")
            assert not listener.gaps
