"""Crashes of the server and of its engine: nothing acknowledged is lost, doubled, or delivered to others."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.support.service.running_server import RunningServer

pytestmark = pytest.mark.slow


def _publish(client: httpx.Client, body: str, id: str, stream: str = "s", time: float = 0) -> httpx.Response:
    headers = {"Sapwood-Message-Id": id, "Sapwood-Time": str(1_800_000_000 + time)}
    answer = client.post(f"/v1/streams/{stream}/messages", content=body, headers=headers)
    assert answer.status_code in (200, 201), answer.text
    return answer


def _subscribe(client: httpx.Client, id: str, query: str, subscriber: str) -> None:
    answer = client.put(f"/v1/subscriptions/{id}", json={"query": query, "subscriber": subscriber})
    assert answer.status_code in (200, 201), answer.text


def _pull(client: httpx.Client, subscriber: str) -> list[str]:
    page = client.get(f"/v1/subscribers/{subscriber}/deliveries", params={"after": 0, "limit": 1_000}).json()
    return [delivery["body"] for delivery in page["deliveries"]]


def test_one_message_that_many_publish_at_once_is_one(tmp_path: Path) -> None:
    found: list[tuple[str, int, int, int]] = []

    def publish() -> None:
        with server.client() as client:
            for number in range(20):
                answer = _publish(client, f"<a>{number}</a>", f"m{number}")
                fields = answer.json()
                found.append((fields["id"], fields["seq"], answer.status_code, fields["deliveries"]))

    with RunningServer(tmp_path) as server, server.client() as client:
        _subscribe(client, "a", "/a", "desk")
        threads = [threading.Thread(target=publish) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({(id, seq) for id, seq, _, _ in found}) == 20
        assert Counter(status for _, _, status, _ in found) == {201: 20, 200: 100}
        assert {count for *_, count in found} == {1}
        assert _pull(client, "desk") == [f"<a>{number}</a>" for number in range(20)]


def test_a_join_that_was_paused_between_messages_stays_empty_after_a_crash(tmp_path: Path) -> None:
    """The state of joins is made again from the log, with the changes in between one by one."""
    join = "s/a[@k->x] JOIN{x = y, 1 hour} s/b[@k->y]"
    with RunningServer(tmp_path) as server:
        with server.client() as client:
            _subscribe(client, "kept", f"{join} ", "kept")
            _subscribe(client, "paused", join, "paused")
            _publish(client, '<a k="1"/>', "m1", time=0)
            for active in (False, True):
                answer = client.patch("/v1/subscriptions/paused", json={"active": active})
                assert answer.status_code == 200
            _publish(client, '<a k="2"/>', "m2", time=1)
        server.kill()
        server.start()
        with server.client() as client:
            _publish(client, '<b k="1"/>', "m3", time=2)
            _publish(client, '<b k="2"/>', "m4", time=3)
            both = ['<joined><a k="1"/><b k="1"/></joined>', '<joined><a k="2"/><b k="2"/></joined>']
            assert _pull(client, "kept") == both
            assert _pull(client, "paused") == both[1:]
