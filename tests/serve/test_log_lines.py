"""The log lines of a server, as JSON: what an operator looks for, with ids to find it by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.service.running_server import RunningServer
from tests.support.service.service_command import wait_until

pytestmark = pytest.mark.slow
CONFIG = '[monitoring]\nlog_format = "json"\n[webhooks]\nallowed = ["127.0.0.1"]'


class _Logged:
    """A server, its client, and the lines that it has logged."""

    def __init__(self, server: RunningServer, client: httpx.Client) -> None:
        self.server = server
        self.client = client

    @property
    def lines(self) -> list[dict[str, Any]]:
        text = self.server.output.read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]

    def find(self, text: str) -> dict[str, Any]:
        """Return the last line with a text, which may come a moment later."""
        wait_until(lambda: any(text in line["text"] for line in self.lines), 10)
        return [line for line in self.lines if text in line["text"]][-1]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Logged]:
    with RunningServer(tmp_path_factory.mktemp("log"), CONFIG) as server, server.client() as client:
        yield _Logged(server, client)


def test_changes_of_subscriptions_are_logged_with_their_version(logged: _Logged) -> None:
    path = "/v1/subscriptions/large"
    new = {"query": "/order", "subscriber": "desk"}
    version = int(logged.client.put(path, json=new).raise_for_status().headers["Sapwood-Version"])
    line = logged.find("'large' was created")
    assert (line["level"], line["subscription"], line["version"]) == ("info", "large", version)
    logged.client.patch(path, json={"active": False}).raise_for_status()
    assert logged.find("'large' was changed")["version"] == version + 1
    logged.client.delete(path).raise_for_status()
    assert logged.find("'large' was deleted")["version"] == version + 2
    row = json.dumps({"id": "many", **new})
    logged.client.post("/v1/imports", content=row).raise_for_status()
    assert logged.find("subscriptions were imported")["version"] == version + 3


def test_a_refused_message_is_logged_with_its_id(logged: _Logged) -> None:
    headers = {"Sapwood-Message-Id": "broken-1"}
    assert logged.client.post("/v1/streams/orders/messages", content="<a>", headers=headers).is_error
    line = logged.find("1 of 1 messages for stream 'orders' are refused")
    assert (line["message_id"], line["stream"], line["tenant"]) == ("broken-1", "orders", "")


def test_listeners_are_logged_when_they_come_and_go(logged: _Logged) -> None:
    logged.client.put("/v1/subscribers/reader", json={}).raise_for_status()
    assert logged.find("'reader' was set")["subscriber"] == "reader"
    with logged.client.stream("GET", "/v1/subscribers/reader/events") as events:
        next(events.iter_lines())
        assert logged.find("a listener of 'reader' is connected by sse")["subscriber"] == "reader"
    assert logged.find("a listener of 'reader' has left")["way"] == "sse"


def test_a_dead_letter_is_logged_with_its_subscriber(logged: _Logged) -> None:
    webhook = {"url": "http://127.0.0.1:1/", "attempts": 1}
    logged.client.put("/v1/subscribers/hook", json={"webhook": webhook}).raise_for_status()
    new = {"id": "hook", "query": "/payment", "subscriber": "hook"}
    logged.client.post("/v1/subscriptions", json=new).raise_for_status()
    logged.client.post("/v1/streams/payments/messages", content="<payment/>").raise_for_status()
    line = logged.find("has a dead letter")
    [letter] = logged.client.get("/v1/subscribers/hook/dead-letters").json()["dead_letters"]
    assert (line["subscriber"], line["delivery_id"]) == ("hook", letter["delivery"]["id"])


def test_the_web_server_says_nothing_of_its_own(logged: _Logged) -> None:
    assert not [line for line in logged.lines if line["logger"].startswith("uvicorn")]
