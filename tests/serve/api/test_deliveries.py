"""Deliveries: pulled, acknowledged, as server-sent events, and over a WebSocket."""

from __future__ import annotations

import base64
import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.serve.api.calls import (
    acknowledge,
    bodies,
    check_problem,
    listen,
    open_client,
    publish,
    pull,
    segment,
    subscribe,
    unique,
)
from tests.support.service.running_server import RunningServer

XMLL = {"Content-Type": "application/x-xmll"}


@pytest.fixture
def name(client: httpx.Client) -> str:
    """A subscriber that gets all messages of the stream of the same name."""
    found = unique("desk")
    subscribe(client, found, streams=(found,), id=f"all-{found}")
    return found


def publish_many(client: httpx.Client, stream: str, count: int, first: int = 1) -> None:
    lines = "\n".join(f"<a>{number}</a>" for number in range(first, first + count))
    assert publish(client, stream, lines, headers=XMLL).json()["published"] == count


def expected(*numbers: int) -> list[str]:
    return [f"<a>{number}</a>" for number in numbers]


# -- pull and acknowledge ----------------------------------------------------------------------------------


def test_pages(client: httpx.Client, name: str) -> None:
    publish_many(client, name, 5)
    first = pull(client, name, limit=2)
    assert [delivery["number"] for delivery in first["deliveries"]] == [1, 2]
    assert first["cursor"] == 2 and first["backlog"] == 5 and first["gaps"] == []
    second = pull(client, name, limit=2, after=first["cursor"])
    assert [delivery["body"] for delivery in second["deliveries"]] == expected(3, 4)
    assert bodies(client, name, after=4) == expected(5)
    end = pull(client, name, after=5)
    assert end["deliveries"] == [] and end["cursor"] == 5
    assert pull(client, name, after=2**62)["deliveries"] == []
    assert bodies(client, name, limit=2) == expected(1, 2)  # pulling acknowledges nothing


def test_a_delivery(client: httpx.Client, name: str) -> None:
    headers = {"Sapwood-Message-Id": "m", "Sapwood-Time": "5"}
    before = time.time()
    publish(client, name, "<a>ü</a>".encode(), headers=headers)
    [delivery] = pull(client, name)["deliveries"]
    inbox, number = delivery["id"].split("-")
    assert inbox.isdigit() and number == "1"
    assert before - 1 <= delivery.pop("published") <= time.time() + 1
    del delivery["id"]
    assert delivery == {
        "number": 1,
        "subscriptions": [f"all-{name}"],
        "message": "m",
        "stream": name,
        "time": 5.0,
        "body": "<a>ü</a>",
    }


def test_acknowledging_by_number_and_id(client: httpx.Client, name: str) -> None:
    publish_many(client, name, 4)
    found = pull(client, name)["deliveries"]
    assert acknowledge(client, name, 1) == {"acknowledged": 1, "backlog": 3}
    assert acknowledge(client, name, found[2]["id"]) == {"acknowledged": 3, "backlog": 1}
    assert acknowledge(client, name, "2") == {"acknowledged": 3, "backlog": 1}  # never back
    assert acknowledge(client, name, 0) == {"acknowledged": 3, "backlog": 1}
    assert bodies(client, name) == expected(4)
    assert acknowledge(client, name, 1_000_000) == {"acknowledged": 4, "backlog": 0}  # what is not there yet
    publish_many(client, name, 1, first=5)
    assert bodies(client, name) == expected(5)


@pytest.mark.parametrize(
    "upto", ["x", "", "-1", -1, "999999-1", "1-", 1.5, None, [], "१", 10**30, True, "1-1-1"]
)
def test_what_is_no_delivery_of_the_subscriber(client: httpx.Client, name: str, upto: Any) -> None:
    publish_many(client, name, 2)
    check_problem(client.post(f"/v1/subscribers/{name}/ack", json={"upto": upto}), 422, "invalid")
    assert pull(client, name)["backlog"] == 2


def test_ids_of_others_are_refused(client: httpx.Client, name: str) -> None:
    other = unique("other")
    subscribe(client, other, streams=(name,))
    publish_many(client, name, 1)
    foreign = pull(client, other)["deliveries"][0]["id"]
    check_problem(client.post(f"/v1/subscribers/{name}/ack", json={"upto": foreign}), 422, "invalid")
    assert pull(client, name)["backlog"] == pull(client, other)["backlog"] == 1


def test_a_long_poll_wakes_at_once(server: RunningServer, client: httpx.Client, name: str) -> None:
    def wait() -> tuple[list[str], float]:
        with open_client(server) as own:
            return bodies(own, name, wait=20), time.monotonic()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(wait)
        time.sleep(0.3)
        assert not future.done()
        published = time.monotonic()
        publish_many(client, name, 1)
        found, woken = future.result(10)
    assert found == expected(1)
    assert woken - published < 2


def test_a_long_poll_ends(client: httpx.Client, name: str) -> None:
    started = time.monotonic()
    assert pull(client, name, wait=0.3)["deliveries"] == []
    assert 0.25 < time.monotonic() - started < 5


def test_wrong_parameters(client: httpx.Client, name: str) -> None:
    for parameter in ("limit=0", "limit=1001", "after=-1", "after=x", "wait=-1", "wait=301", "wait=nan"):
        check_problem(client.get(f"/v1/subscribers/{name}/deliveries?{parameter}"), 422, "invalid")


def test_nobody(client: httpx.Client) -> None:
    for path in ("deliveries", "events", "gaps", "dead-letters"):
        check_problem(client.get(f"/v1/subscribers/nobody/{path}"), 404, "not-found")
    check_problem(client.post("/v1/subscribers/nobody/ack", json={"upto": 1}), 404, "not-found")


@pytest.mark.parametrize(
    "odd", ["a/b", "../x", "a b", "ü😀", "a\nb", "x" * 400, "a%2Fb", "a?b#c", "deliveries", "."]
)
def test_odd_names(client: httpx.Client, odd: str) -> None:
    name = odd if odd in (".", "../x") else unique(odd)
    subscribe(client, name, streams=(f"of-{len(name)}",))
    publish(client, f"of-{len(name)}")
    path = segment(name).replace(".", "%2E")
    answer = client.get(f"/v1/subscribers/{path}/deliveries")
    assert answer.status_code == 200, answer.text
    assert answer.json()["deliveries"]
    assert client.get(f"/v1/subscribers/{path}").json()["name"] == name


def test_a_body_that_is_no_utf8(client: httpx.Client, name: str) -> None:
    body = '<?xml version="1.0" encoding="iso-8859-1"?><a>ü</a>'.encode("latin-1")
    assert publish(client, name, body).status_code == 201
    [delivery] = pull(client, name)["deliveries"]
    assert base64.b64decode(delivery["body_base64"]) == body and "body" not in delivery
    with listen(client, name) as events:
        assert base64.b64decode(events.delivery()["data"]["body_base64"]) == body


def test_subscribers_do_not_disturb_one_another(client: httpx.Client, name: str) -> None:
    other = unique("other")
    subscribe(client, other, "/a[. > 2]", streams=(name,))
    publish_many(client, name, 4)
    assert bodies(client, other) == expected(3, 4)
    acknowledge(client, name, 4)
    assert bodies(client, other) == expected(3, 4) and bodies(client, name) == []
    client.put(f"/v1/subscribers/{other}", json={"limit": 1, "policy": "suspend"})
    publish_many(client, name, 2, first=5)
    assert bodies(client, name) == expected(5, 6)


# -- server-sent events ------------------------------------------------------------------------------------


def test_events(client: httpx.Client, name: str) -> None:
    publish_many(client, name, 2)
    with listen(client, name) as events:
        assert events.response.headers["content-type"].startswith("text/event-stream")
        assert events.response.headers["cache-control"] == "no-store"
        assert events.next() == {"retry": "1000"}
        for number in (1, 2):
            event = events.next()
            assert (event["id"], event["event"]) == (str(number), "delivery")
            assert event["data"] == pull(client, name)["deliveries"][number - 1]
        publish_many(client, name, 1, first=3)
        assert events.delivery()["data"]["body"] == "<a>3</a>"
    assert pull(client, name)["backlog"] == 3  # to be sent is not to be acknowledged


def test_a_listener_without_deliveries_is_sent_comments(heartbeat: Future[dict[str, str]]) -> None:
    assert heartbeat.result(25) == {"comment": "still here"}


def test_the_last_event_id_resumes_and_acknowledges(client: httpx.Client, name: str) -> None:
    publish_many(client, name, 4)
    with listen(client, name, headers={"Last-Event-ID": "2"}) as events:
        assert events.delivery()["id"] == "3"
    assert pull(client, name)["backlog"] == 2
    with listen(client, name, params={"after": 3}) as events:
        assert events.delivery()["id"] == "4"
    assert pull(client, name)["backlog"] == 2  # a position alone acknowledges nothing
    with listen(client, name) as events:
        assert events.delivery()["id"] == "3"
    for wrong in ("x", "9999-1", "-1"):
        answer = client.get(f"/v1/subscribers/{name}/events", headers={"Last-Event-ID": wrong})
        check_problem(answer, 422, "invalid")


def test_several_listeners_of_one_subscriber(client: httpx.Client, name: str) -> None:
    with listen(client, name) as one, listen(client, name) as two:
        publish_many(client, name, 1)
        assert one.delivery()["data"] == two.delivery()["data"]
        acknowledge(client, name, 1)
        publish_many(client, name, 1, first=2)
        assert one.delivery()["id"] == two.delivery()["id"] == "2"


def test_a_subscriber_is_deleted_while_it_is_listened_to(
    server: RunningServer, client: httpx.Client, name: str
) -> None:
    path = f"/v1/subscribers/{name}"
    check_problem(client.delete(path), 409, "conflict")
    with (
        listen(client, name) as events,
        connect(socket_url(server, name, credit=1)) as websocket,
        ThreadPoolExecutor(1) as pool,
    ):
        assert events.next() == {"retry": "1000"}
        waiting = pool.submit(client.get, f"{path}/deliveries", params={"wait": 20})
        time.sleep(0.2)
        client.delete(f"/v1/subscriptions/all-{name}")
        assert client.delete(path).status_code == 204
        event = events.delivery()
        assert event["event"] == "error" and event["data"]["status"] == 404
        with pytest.raises(EOFError):
            events.next()
        error = receive(websocket)
        assert error["type"] == "error" and error["status"] == 404
        with pytest.raises(ConnectionClosed):
            websocket.recv(10)
        check_problem(waiting.result(10), 404, "not-found")
    check_problem(client.get(path), 404)
    subscribe(client, name, streams=(name,))
    publish_many(client, name, 1)
    assert pull(client, name)["backlog"] == 1


# -- WebSocket ---------------------------------------------------------------------------------------------


def socket_url(server: RunningServer, name: str, **parameters: Any) -> str:
    url = server.url.replace("http", "ws", 1)
    return f"{url}/v1/subscribers/{segment(name)}/socket?{httpx.QueryParams(parameters)}"


def receive(websocket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(websocket.recv(10))
    return found


def check_silent(websocket: ClientConnection, seconds: float = 0.3) -> None:
    with pytest.raises(TimeoutError):
        websocket.recv(seconds)


def test_never_more_than_the_credit(server: RunningServer, client: httpx.Client, name: str) -> None:
    publish_many(client, name, 10)
    with connect(socket_url(server, name)) as websocket:
        check_silent(websocket)
        websocket.send('{"credit": 2}')
        assert [receive(websocket)["number"] for _ in range(2)] == [1, 2]
        check_silent(websocket)
        publish_many(client, name, 1, first=11)
        check_silent(websocket)
        websocket.send(b'{"credit": 3}')
        websocket.send('{"credit": 1}')
        assert [receive(websocket)["number"] for _ in range(4)] == [3, 4, 5, 6]
        check_silent(websocket)
        websocket.send('{"credit": 100}')
        assert [receive(websocket)["number"] for _ in range(5)] == [7, 8, 9, 10, 11]
        check_silent(websocket)
        publish_many(client, name, 1, first=12)
        delivery = receive(websocket)
    assert delivery.pop("type") == "delivery"
    assert delivery == pull(client, name, after=11)["deliveries"][0]


def test_acknowledging_over_a_socket(server: RunningServer, client: httpx.Client, name: str) -> None:
    publish_many(client, name, 4)
    with connect(socket_url(server, name, credit=4)) as websocket:
        found = [receive(websocket) for _ in range(4)]
        websocket.send('{"ack": 1}')
        websocket.send(json.dumps({"ack": found[2]["id"], "credit": 1}))
        deadline = time.monotonic() + 10
        while pull(client, name)["backlog"] != 1:
            assert time.monotonic() < deadline
    with connect(socket_url(server, name, credit=1)) as websocket:
        assert receive(websocket)["number"] == 4
    with connect(socket_url(server, name, credit=1, after=1)) as websocket:
        assert receive(websocket)["number"] == 2


@pytest.mark.parametrize(
    "garbage",
    [
        "garbage",
        "",
        "[]",
        "{}",
        "1",
        "null",
        '{"credit": -1}',
        '{"credit": 1.5}',
        '{"credit": true}',
        '{"credit": null}',
        '{"credit": 10000000000}',
        '{"ack": "9999-1"}',
        '{"ack": []}',
        '{"ack": true}',
        '{"ack": 1e400}',
        b"\xff\xfe",
        "[" * 60_000,
    ],
    ids=range(17),
)
def test_garbage_from_the_client(
    server: RunningServer, client: httpx.Client, name: str, garbage: str | bytes
) -> None:
    publish_many(client, name, 1)
    with connect(socket_url(server, name)) as websocket:
        websocket.send(garbage)
        error = receive(websocket)
        assert (error["type"], error["status"]) == ("urn:sapwood:problem:invalid", 422) or error[
            "status"
        ] == 422
        with pytest.raises(ConnectionClosed):
            websocket.recv(10)
        assert websocket.close_code == 1008
    assert pull(client, name)["backlog"] == 1


def test_a_message_that_is_too_long_closes_the_socket(
    server: RunningServer, client: httpx.Client, name: str
) -> None:
    with connect(socket_url(server, name)) as websocket:
        websocket.send(" " * 100_000)
        with pytest.raises(ConnectionClosed):
            websocket.recv(10)
        assert websocket.close_code == 1009
    publish_many(client, name, 1)
    assert bodies(client, name) == expected(1)


def test_wrong_parameters_of_a_socket(server: RunningServer, name: str) -> None:
    for parameters in ({"credit": "x"}, {"credit": "-1"}, {"after": "x"}, {"credit": "1.5"}):
        with connect(socket_url(server, name, **parameters)) as websocket:
            assert receive(websocket)["status"] == 422
            with pytest.raises(ConnectionClosed):
                websocket.recv(10)
    with connect(socket_url(server, "nobody")) as websocket:
        assert receive(websocket)["status"] == 404
