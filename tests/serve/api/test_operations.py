"""Operations: health, metrics, statistics, rejects, failures, messages, backups, logs, and the end."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from sapwood.store import SubscriptionStore
from tests.serve.api.calls import (
    acknowledge,
    bodies,
    check_problem,
    listen,
    open_client,
    publish,
    pull,
    subscribe,
    unique,
)
from tests.support.service.running_server import RunningServer

XMLL = {"Content-Type": "application/x-xmll"}


def wait_for(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- health ------------------------------------------------------------------------------------------------


def test_health(client: httpx.Client) -> None:
    for path in ("/healthz", "/readyz"):
        assert client.get(path).json() == {"status": "ok", "problem": None}


def test_not_ready_while_the_engine_starts_again(spare: RunningServer) -> None:
    name = unique("killed")
    with open_client(spare) as client:
        subscribe(client, name, streams=(name,))
        publish(client, name, "<a>1</a>")
        with listen(client, name) as events:
            assert events.delivery()["data"]["body"] == "<a>1</a>"
            os.kill(spare.engine_id, signal.SIGKILL)
            wait_for(lambda: client.get("/readyz").status_code == 503)
            answer = client.get("/readyz")
            if answer.status_code == 503:
                assert answer.json()["status"] == "unavailable" and answer.json()["problem"]
            assert client.get("/healthz").status_code == 200
            refused = publish(client, name, "<a>2</a>", headers={"Idempotency-Key": "2"})
            if refused.status_code != 201:
                check_problem(refused, 503, "unavailable")
                assert int(refused.headers["retry-after"]) >= 1
            wait_for(lambda: client.get("/readyz").status_code == 200)
            assert publish(client, name, "<a>2</a>", headers={"Idempotency-Key": "2"}).status_code in (
                200,
                201,
            )
            assert events.delivery()["data"]["body"] == "<a>2</a>"  # the listener noticed nothing
        assert bodies(client, name) == ["<a>1</a>", "<a>2</a>"]
        assert client.get("/v1/stats").json()["engine"]["restarts"] == 1
        assert read_metrics(client)["sapwood_engine_restarts_total"] == 1


# -- metrics and statistics --------------------------------------------------------------------------------


def read_metrics(client: httpx.Client) -> dict[str, float]:
    """Return the metrics; those with labels are summed up."""
    answer = client.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_metrics_move(client: httpx.Client) -> None:
    name = unique("metrics")
    subscribe(client, name, streams=(name,))
    before, stats = read_metrics(client), client.get("/v1/stats").json()
    publish(client, name, "<a>1</a>", headers={"Idempotency-Key": "1"})
    publish(client, name, "<a>1</a>", headers={"Idempotency-Key": "1"})
    publish(client, name, "<a>2</a>\n<broken\n", headers=XMLL)
    pull(client, name)
    after, now = read_metrics(client), client.get("/v1/stats").json()

    def moved(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert moved("sapwood_messages_published_total") == 2
    assert moved("sapwood_published_bytes_total") == 16
    assert moved("sapwood_messages_duplicate_total") == 1
    assert moved("sapwood_messages_rejected_total") == 1
    assert moved("sapwood_deliveries_total") == 2
    assert moved("sapwood_delivered_total") == 2
    assert moved("sapwood_backlog") == 2
    assert moved("sapwood_publish_seconds_count") == 3
    assert after["sapwood_pending_bytes"] == 0
    assert {key: now[key] - stats[key] for key in ("published", "deliveries", "rejected", "backlog")} == {
        "published": 2,
        "deliveries": 2,
        "rejected": 1,
        "backlog": 2,
    }
    acknowledge(client, name, 2)
    assert client.get("/v1/stats").json()["backlog"] == stats["backlog"]


def test_listeners_are_counted(client: httpx.Client) -> None:
    name = unique("counted")
    subscribe(client, name, streams=(name,))

    def count() -> float:
        found: float = client.get("/v1/stats").json()["listeners"]["sse"]
        return found

    before = count()
    with listen(client, name) as events:
        events.next()
        assert count() == before + 1
    wait_for(lambda: count() == before)


# -- what happened -----------------------------------------------------------------------------------------


def test_rejects(client: httpx.Client) -> None:
    stream = unique("rejects")
    for number in range(5):
        publish(client, stream, f"<a>{number}<", headers={"Sapwood-Message-Id": f"m{number}"})
    found: list[dict[str, Any]] = []
    before: dict[str, str] = {}
    while True:
        page = client.get("/v1/rejects", params={"stream": stream, "limit": "2"} | before).json()
        found += page["rejects"]
        if page["next"] is None:
            break
        before = {"before": str(page["next"])}
    assert [reject["id"] for reject in found] == ["m4", "m3", "m2", "m1", "m0"]
    assert found[0]["body"] == "<a>4<" and found[0]["line"] == 1 and found[0]["reason"]
    assert found[0]["stream"] == stream and abs(found[0]["received"] - time.time()) < 60


def test_failures(spare: RunningServer) -> None:
    name = unique("failing")
    with open_client(spare) as client:
        slow = "//a[count(//a[count(//a[count(//a) > 1]) > 1]) > 1]"  # more than its time, in lxml
        subscribe(client, name, slow, streams=(name,), id=f"{name}-slow")
        subscribe(client, name, "/r", streams=(name,), id=f"{name}-good")
        body = "<r>" + "<a/>" * 3_000 + "</r>"
        receipt = publish(client, name, body, headers={"Sapwood-Message-Id": "heavy"}).json()
        assert receipt["failures"] == 1 and receipt["deliveries"] == 1  # the other gets it
        answer = client.get("/v1/failures").json()
        [failure] = [each for each in answer["failures"] if each["subscription"] == f"{name}-slow"]
        assert failure["message"] == "heavy" and failure["stream"] == name and failure["reason"]
        assert sum(answer["counts"][f"{name}-slow"].values()) == 1
        assert read_metrics(client)["sapwood_query_failures_total"] >= 1
        assert publish(client, name, "<r/>").json()["deliveries"] == 1


def test_messages(client: httpx.Client) -> None:
    stream = unique("kept")
    receipts = [publish(client, stream, f"<a>{number}</a>").json() for number in range(5)]
    page = client.get("/v1/messages", params={"stream": stream, "limit": 3}).json()
    assert [message["seq"] for message in page["messages"]] == [r["seq"] for r in receipts[:1:-1]]
    rest = client.get("/v1/messages", params={"stream": stream, "before": page["next"]}).json()
    assert [message["id"] for message in rest["messages"]] == [receipts[1]["id"], receipts[0]["id"]]
    assert rest["next"] is None
    answer = client.get(f"/v1/messages/{receipts[2]['seq']}")
    assert answer.text == "<a>2</a>" and answer.headers["content-type"] == "application/xml"
    for wrong in ("999999999", "0", "x", "-1"):
        assert client.get(f"/v1/messages/{wrong}").status_code in (404, 422)


# -- backup ------------------------------------------------------------------------------------------------


def test_a_backup_is_a_store_and_a_log(spare: RunningServer, tmp_path: Path) -> None:
    name = unique("saved")
    with open_client(spare) as client:
        subscribe(client, name, streams=(name,), id=f"{name}-id")
        publish(client, name, "<a>saved</a>")
        answer = client.post("/v1/backup", json={"name": f"{name}.db"})
        assert answer.status_code == 200 and answer.json()["file"] == f"{name}.db"
        copy = spare.folder / f"{name}.db"
        assert answer.json()["bytes"] == copy.stat().st_size
        again = client.post("/v1/backup", json={"name": f"{name}.db"})
        assert again.status_code in (409, 422)
        check_problem(again, again.status_code)
        for wrong in ("../x.db", "/tmp/x.db", "", ".hidden", "a/b", "sapwood.db"):
            assert client.post("/v1/backup", json={"name": wrong}).status_code in (409, 422)
        publish(client, name, "<a>later</a>")
    store = SubscriptionStore(str(copy))
    assert store.get(f"{name}-id") is not None
    store.close()
    with sqlite3.connect(copy) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    (tmp_path / "sapwood.db").write_bytes(copy.read_bytes())
    with RunningServer(tmp_path) as restored, open_client(restored) as client:
        assert bodies(client, name) == ["<a>saved</a>"]
        assert publish(client, name, "<a>on</a>").json()["deliveries"] == 1


# -- the end -----------------------------------------------------------------------------------------------


def test_a_graceful_stop(tmp_path: Path) -> None:
    server = RunningServer(tmp_path).start()
    socket = server.url.replace("http", "ws", 1) + "/v1/subscribers/desk/socket?credit=1"
    accepted: list[str] = []

    def publish_until_the_end() -> None:
        with open_client(server) as client:
            try:
                while True:
                    answer = publish(client, "s", f"<a>{len(accepted)}</a>")
                    if answer.status_code != 201:
                        check_problem(answer, 503, "unavailable")
                        return
                    accepted.append(f"<a>{len(accepted)}</a>")
            except httpx.HTTPError:
                return

    with open_client(server) as client, ThreadPoolExecutor(2) as pool:
        subscribe(client, "desk", streams=("s",))
        subscribe(client, "quiet", streams=("none",))
        with listen(client, "quiet") as events, connect(socket) as websocket:
            events.next()
            waiting = pool.submit(open_client(server).get, "/v1/subscribers/quiet/deliveries?wait=100")
            publishing = pool.submit(publish_until_the_end)
            wait_for(lambda: len(accepted) >= 20)
            assert json.loads(websocket.recv(10))["type"] == "delivery"
            started = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - started < 15
            with pytest.raises(EOFError):
                events.next()
            with pytest.raises(ConnectionClosed):
                websocket.recv(5)
        assert waiting.result(5).status_code == 200
        publishing.result(10)
    with server, open_client(server) as client:
        found: list[str] = []
        while page := pull(client, "desk", after=len(found), limit=1_000)["deliveries"]:
            found += [delivery["body"] for delivery in page]
        assert found[: len(accepted)] == accepted
        assert len(found) <= len(accepted) + 1  # one whose answer was lost


# -- log lines ---------------------------------------------------------------------------------------------


def test_log_lines_are_json(spare: RunningServer) -> None:
    with open_client(spare) as client:
        publish(client, "logged", "<broken")
    lines = spare.output.read_text().splitlines()
    parsed: list[dict[str, Any]] = []
    for line in lines:
        if line.startswith(("Sapwood serves at", "messages and subscriptions are in")):
            continue  # for people who start it by hand
        parsed.append(json.loads(line))
    assert parsed
    for entry in parsed:
        assert {"time", "level", "logger", "text", "process"} <= entry.keys()
        assert entry["time"].endswith("Z") and entry["level"] in ("debug", "info", "warning", "error")
    assert len({entry["process"] for entry in parsed}) >= 2  # the server and its engine
