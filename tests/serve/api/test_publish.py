"""Publishing: one message and many, ids and retries, times, codings, limits, and waiting for deliveries."""

from __future__ import annotations

import gzip
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import zstandard

from tests.serve.api.calls import (
    acknowledge,
    bodies,
    check_problem,
    open_client,
    publish,
    pull,
    subscribe,
    unique,
)
from tests.support.service.running_server import RunningServer

XMLL = {"Content-Type": "application/x-xmll"}


def multipart(*parts: tuple[dict[str, str], str], kind: str = "mixed") -> dict[str, Any]:
    """Return the options of a request with parts, each with headers and a body."""
    lines = []
    for headers, body in parts:
        lines += ["--limit", *(f"{name}: {value}" for name, value in headers.items()), "", body]
    content = "\r\n".join([*lines, "--limit--", ""]).encode()
    return {"content": content, "headers": {"Content-Type": f"multipart/{kind}; boundary=limit"}}


def publish_parts(client: httpx.Client, stream: str, *parts: tuple[dict[str, str], str]) -> httpx.Response:
    return client.post(f"/v1/streams/{stream}/messages", **multipart(*parts))


@pytest.fixture
def stream(client: httpx.Client) -> str:
    """A stream, whose messages a subscriber of the same name gets."""
    name = unique("stream")
    subscribe(client, name, streams=(name,))
    return name


# -- one message, and many ---------------------------------------------------------------------------------


def test_one_message(client: httpx.Client, stream: str) -> None:
    answer = publish(client, stream, "<a>1</a>", headers={"Sapwood-Message-Id": "one"})
    assert answer.status_code == 201
    found = answer.json()
    assert found["seq"] > 0 and found["version"] > 0
    assert {
        k: found[k] for k in ("id", "stream", "deliveries", "duplicate", "failures", "late", "delivered")
    } == {
        "id": "one",
        "stream": stream,
        "deliveries": 1,
        "duplicate": False,
        "failures": 0,
        "late": None,
        "delivered": None,
    }
    [delivery] = pull(client, stream)["deliveries"]
    assert (delivery["message"], delivery["stream"], delivery["body"]) == ("one", stream, "<a>1</a>")


def test_an_id_is_made(client: httpx.Client, stream: str) -> None:
    ids = [publish(client, stream).json()["id"] for _ in range(3)]
    assert len(set(ids)) == 3 and ids == sorted(ids)


@pytest.mark.parametrize("kind", ["application/xml", "text/plain", "application/json", "x", ""])
def test_any_other_type_is_one_message(client: httpx.Client, stream: str, kind: str) -> None:
    assert publish(client, stream, "<a>\n</a>", headers={"Content-Type": kind}).status_code == 201
    assert bodies(client, stream) == ["<a>\n</a>"]


def test_a_refused_message(client: httpx.Client, stream: str) -> None:
    found = check_problem(publish(client, stream, "<a>\n <b></a>"), 422, "message")
    assert found["line"] == 2 and found["column"] >= 1
    assert found["stream"] == stream and found["id"] and found["reason"] in found["detail"]
    assert bodies(client, stream) == []


@pytest.mark.parametrize("body", ["", " ", "text", "<a/><b/>", "<a>&x;</a>", "\0", "<a"])
def test_what_is_no_message(client: httpx.Client, stream: str, body: str) -> None:
    check_problem(publish(client, stream, body), 422, "message")


def test_many_by_lines(client: httpx.Client, stream: str) -> None:
    lines = "<a>1</a>\n\n  \r\n<broken>\n<a>2</a>\r\n<a>3</a>"
    found = publish(client, stream, lines, headers=XMLL)
    assert found.status_code == 200
    answer = found.json()
    assert {k: answer[k] for k in ("published", "duplicates", "refused", "deliveries")} == {
        "published": 3,
        "duplicates": 0,
        "refused": 1,
        "deliveries": 3,
    }
    assert ["error" in message for message in answer["messages"]] == [False, True, False, False]
    error = answer["messages"][1]["error"]
    assert error["type"] == "urn:sapwood:problem:message" and error["line"] == 1 and error["column"] > 0
    assert bodies(client, stream) == ["<a>1</a>", "<a>2</a>", "<a>3</a>"]


def test_many_of_nothing(client: httpx.Client, stream: str) -> None:
    answer = publish(client, stream, "\n\n", headers=XMLL)
    assert answer.status_code == 200 and answer.json()["messages"] == []


def test_many_by_parts(client: httpx.Client, stream: str) -> None:
    answer = publish_parts(
        client,
        stream,
        ({"Sapwood-Message-Id": "first"}, "<a>1</a>"),
        ({"Content-Type": "application/xml"}, "<broken"),
        ({"Content-Disposition": 'attachment; filename="second.xml"'}, "<a>\r\n2</a>"),
        ({"Sapwood-Message-Id": "dürer", "Sapwood-Time": "1800000000"}, "<a>3</a>"),
    ).json()
    assert [message["id"] for message in answer["messages"]][::2] == ["first", "second.xml"]
    assert answer["messages"][1]["error"]["line"] == 1
    assert answer["refused"] == 1 and answer["published"] == 3
    found = pull(client, stream)["deliveries"]
    assert [delivery["body"] for delivery in found] == ["<a>1</a>", "<a>\r\n2</a>", "<a>3</a>"]
    assert found[2]["message"] == "dürer" and found[2]["time"] == 1_800_000_000


def test_many_by_a_form(client: httpx.Client, stream: str) -> None:
    files = [
        ("file", ("one.xml", b"<a>1</a>")),
        ("file", ("two.xml", b"<a>2</a>")),
        ("x", (None, b"<a>3</a>")),
    ]
    answer = client.post(f"/v1/streams/{stream}/messages", files=files)
    assert answer.status_code == 200
    assert [message["id"] for message in answer.json()["messages"]][:2] == ["one.xml", "two.xml"]
    assert bodies(client, stream) == ["<a>1</a>", "<a>2</a>", "<a>3</a>"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/mixed", b"--x\r\n\r\n<a/>\r\n--x--\r\n"),
        ("multipart/mixed; boundary=", b"--\r\n"),
        ("multipart/mixed; boundary=x", b""),
        ("multipart/mixed; boundary=x", b"--x\r\n\r\n<a/>"),
        ("multipart/mixed; boundary=x", b"--x\r\n\r\n<a/>\r\n"),
        ("multipart/mixed; boundary=x", b"nonsense"),
        ("multipart/mixed; boundary=x", b"--x\r\n: y\r\n\r\n<a/>\r\n--x--\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\nA: " + b"b" * 20_000 + b"\r\n\r\n<a/>\r\n--x--\r\n"),
        ("multipart/mixed; boundary=" + "x" * 300, b"--" + b"x" * 300 + b"\r\n"),
    ],
)
def test_malformed_parts(client: httpx.Client, stream: str, kind: str, body: bytes) -> None:
    check_problem(publish(client, stream, body, headers={"Content-Type": kind}), 400, "bad-request")
    assert bodies(client, stream) == []


# -- ids and retries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Sapwood-Message-Id", "Idempotency-Key"])
def test_a_retry_is_a_duplicate(client: httpx.Client, stream: str, name: str) -> None:
    first = publish(client, stream, "<a>1</a>", headers={name: "x"})
    again = publish(client, stream, "<a>1</a>", headers={name: "x"})
    other = publish(client, stream, "<a>2</a>", headers={name: "x"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["duplicate"] is True
    assert {k: again.json()[k] for k in ("seq", "version", "deliveries")} == {
        k: first.json()[k] for k in ("seq", "version", "deliveries")
    }
    found = check_problem(other, 409, "conflict")
    assert found["id"] == "x" and found["stream"] == stream
    assert bodies(client, stream) == ["<a>1</a>"]


def test_ids_of_streams_are_independent(client: httpx.Client) -> None:
    for body in ("<a>1</a>", "<a>2</a>"):
        assert publish(client, unique("own"), body, headers={"Idempotency-Key": "x"}).status_code == 201


def test_a_refused_message_may_be_corrected_under_its_id(client: httpx.Client, stream: str) -> None:
    check_problem(publish(client, stream, "<a", headers={"Idempotency-Key": "x"}), 422)
    assert publish(client, stream, "<a/>", headers={"Idempotency-Key": "x"}).status_code == 201


def test_a_key_for_many_numbers_the_messages(client: httpx.Client, stream: str) -> None:
    key = XMLL | {"Idempotency-Key": "k"}
    lines = "<a>1</a>\n\n<broken>\n<a>3</a>\n"
    first = publish(client, stream, lines, headers=key).json()
    assert [message["id"] for message in first["messages"]] == ["k-1", "k-2", "k-3"]
    again = publish(client, stream, lines + "<a>4</a>", headers=key).json()
    assert [message.get("duplicate") for message in again["messages"]] == [True, None, True, False]
    assert (again["published"], again["duplicates"], again["refused"]) == (1, 2, 1)
    changed = publish(client, stream, "<a>other</a>", headers=key).json()
    assert changed["messages"][0]["error"]["status"] == 409
    assert bodies(client, stream) == ["<a>1</a>", "<a>3</a>", "<a>4</a>"]


def test_one_id_twice_in_a_request(client: httpx.Client, stream: str) -> None:
    id = {"Sapwood-Message-Id": "x"}
    answer = publish_parts(client, stream, (id, "<a>1</a>"), (id, "<a>1</a>"), (id, "<a>2</a>")).json()
    first, again, other = answer["messages"]
    assert not first["duplicate"] and again["duplicate"] and again["seq"] == first["seq"]
    assert again["deliveries"] == first["deliveries"] == 1
    assert other["error"]["status"] == 409
    assert (answer["published"], answer["duplicates"], answer["refused"]) == (1, 1, 1)
    assert bodies(client, stream) == ["<a>1</a>"]


def test_the_id_of_a_refused_message_is_free(client: httpx.Client, stream: str) -> None:
    parts = [("part", ("same", body)) for body in (b"<a>", b"<a/>", b"<a/>", b"<b/>")]
    answer = client.post(f"/v1/streams/{stream}/messages", files=parts).json()
    assert [message.get("duplicate") for message in answer["messages"]] == [None, False, True, None]
    assert [message["error"]["status"] for message in answer["messages"] if "error" in message] == [422, 409]


def test_one_id_in_requests_at_the_same_time(
    server: RunningServer, client: httpx.Client, stream: str
) -> None:
    writers, rounds = 8, 15
    together = threading.Barrier(writers)

    def write(number: int) -> list[tuple[int, int]]:
        with open_client(server) as own:
            found = []
            for round in range(rounds):
                together.wait(30)
                answer = publish(own, stream, f"<a>{round}</a>", headers={"Sapwood-Message-Id": f"r{round}"})
                found.append((answer.status_code, answer.json()["seq"]))
            return found

    with ThreadPoolExecutor(writers) as pool:
        answers = list(pool.map(write, range(writers)))
    for round in zip(*answers, strict=True):
        assert sorted(status for status, _ in round) == [200] * (writers - 1) + [201]
        assert len({seq for _, seq in round}) == 1
    assert bodies(client, stream) == [f"<a>{round}</a>" for round in range(rounds)]


@pytest.mark.parametrize("id", ["a b", "../x", "a/b", "ü→😀", "x" * 500, "%2e", '"', "0"])
def test_odd_ids(client: httpx.Client, stream: str, id: str) -> None:
    answer = publish(client, stream, headers={b"Sapwood-Message-Id": id.encode()})
    assert answer.status_code == 201 and answer.json()["id"] == id
    assert publish(client, stream, headers={b"Sapwood-Message-Id": id.encode()}).status_code == 200
    assert pull(client, stream)["deliveries"][0]["message"] == id


@pytest.mark.parametrize("id", ["x" * 501, "x" * 8_000, "a\tb", "a\u0085b", "\u200b"])
def test_ids_that_are_refused(client: httpx.Client, stream: str, id: str) -> None:
    answer = publish(client, stream, headers={b"Idempotency-Key": id.encode()})
    assert len(check_problem(answer, 422)["id"]) <= 500
    assert bodies(client, stream) == []


def test_an_id_that_is_no_utf8_is_latin_1(client: httpx.Client, stream: str) -> None:
    answer = publish(client, stream, headers={b"Sapwood-Message-Id": b"d\xfcrer"})
    assert answer.status_code == 201 and answer.json()["id"] == "dürer"


# -- times -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1800000000", 1_800_000_000),
        ("1800000000.25", 1_800_000_000.25),
        ("2027-01-15T08:00:00Z", 1_800_000_000),
        ("2027-01-15T10:00:00+02:00", 1_800_000_000),
        ("2027-01-15T08:00:00", 1_800_000_000),
    ],
)
def test_times(client: httpx.Client, stream: str, text: str, seconds: float) -> None:
    assert publish(client, stream, headers={"Sapwood-Time": text}).status_code == 201
    answer = client.post(f"/v1/streams/{stream}/messages", content="<a/>", params={"time": text})
    assert answer.status_code == 201
    assert [delivery["time"] for delivery in pull(client, stream)["deliveries"]] == [seconds, seconds]


@pytest.mark.parametrize("text", ["yesterday", "nan", "inf", "-inf", "1e400", "2027-13-01", "0x10"])
def test_what_is_no_time(client: httpx.Client, stream: str, text: str) -> None:
    answer = client.post(f"/v1/streams/{stream}/messages", content="<a/>", params={"time": text})
    found = check_problem(answer, 422)
    assert "time" in found["detail"]
    assert bodies(client, stream) == []


def test_no_time_is_null(client: httpx.Client, stream: str) -> None:
    publish(client, stream)
    [delivery] = pull(client, stream)["deliveries"]
    assert delivery["time"] is None and abs(delivery["published"] - time.time()) < 60


# -- streams -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a b", "ü😀", "a.b", "a;b", "a?b", "a#b", "a%b", "x" * 200, "%2e%2e", "*"])
def test_odd_streams(client: httpx.Client, name: str) -> None:
    subscriber = unique("odd")
    subscribe(client, subscriber, streams=(name,))
    answer = publish(client, name)
    assert answer.status_code == 201 and answer.json()["stream"] == name
    assert pull(client, subscriber)["deliveries"][0]["stream"] == name


@pytest.mark.parametrize(
    "name",
    ["x" * 201, "x" * 300, "%00", "%0a", "a%0d%0ab", "%7f", "%e2%80%8b", "", ".", "..%2f..%2fv1%2fkeys"],
)
def test_streams_that_are_refused(client: httpx.Client, name: str) -> None:
    answer = client.post(f"/v1/streams/{name}/messages", content="<a/>")
    assert answer.status_code in (404, 405, 422) or answer.json()["stream"] == name
    if answer.status_code >= 400:
        check_problem(answer, answer.status_code)


def test_what_is_not_there(client: httpx.Client) -> None:
    check_problem(client.get("/v1/streams/s/messages"), 405)
    check_problem(client.post("/v1/streams/s/messages/"), 404)
    check_problem(client.post("/v1/streams//messages"), 404)


def test_wrong_parameters(client: httpx.Client) -> None:
    for parameters in ({"wait": "for ever"}, {"timeout": "-1"}, {"timeout": "nan"}, {"time": "x" * 101}):
        answer = client.post("/v1/streams/s/messages", content="<a/>", params=parameters)
        found = check_problem(answer, 422, "invalid")
        assert found["errors"][0]["where"] == ["query", *parameters]


# -- codings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"<a>1</a>", mtime=0)),
        ("GZIP", gzip.compress(b"<a>1</a>", mtime=0)),
        ("x-gzip", gzip.compress(b"<a>1", mtime=0) + gzip.compress(b"</a>", mtime=0)),
        ("gzip", gzip.compress(b"<a>1</a>", mtime=0) + bytes(100)),
        ("zstd", zstandard.compress(b"<a>1</a>")),
        ("zstd", zstandard.compress(b"<a>1") + zstandard.compress(b"</a>")),
        ("identity", b"<a>1</a>"),
    ],
)
def test_codings(client: httpx.Client, stream: str, coding: str, body: bytes) -> None:
    assert publish(client, stream, body, headers={"Content-Encoding": coding}).status_code == 201
    assert bodies(client, stream) == ["<a>1</a>"]


def test_many_compressed(client: httpx.Client, stream: str) -> None:
    lines = b"".join(b"<a>%d</a>\n" % number for number in range(150))
    headers = XMLL | {"Content-Encoding": "zstd"}
    assert publish(client, stream, zstandard.compress(lines), headers=headers).json()["published"] == 150
    assert len(bodies(client, stream, limit=1_000)) == 150


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, zstd", "nonsense"])
def test_unknown_codings(client: httpx.Client, stream: str, coding: str) -> None:
    answer = publish(client, stream, headers={"Content-Encoding": coding})
    check_problem(answer, 415, "unsupported-media-type")
    assert answer.headers["accept-encoding"] == "gzip, zstd"


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"<a>1</a>" * 10, mtime=0)[:-5]),
        ("gzip", gzip.compress(b"<a/>", mtime=0)[:5]),
        ("gzip", b"<a/>"),
        ("gzip", gzip.compress(b"<a/>", mtime=0) + b"garbage"),
        ("zstd", zstandard.compress(b"<a>1</a>" * 1_000)[:-3]),
        ("zstd", zstandard.compress(b"<a/>")[:6]),
        ("zstd", b"<a/>"),
        ("zstd", zstandard.compress(b"<a/>") + b"garbage"),
    ],
)
def test_damaged_bodies(client: httpx.Client, stream: str, coding: str, body: bytes) -> None:
    check_problem(publish(client, stream, body, headers={"Content-Encoding": coding}), 400, "bad-request")
    assert bodies(client, stream) == []


# -- limits ------------------------------------------------------------------------------------------------


def test_too_many_messages(client: httpx.Client, stream: str) -> None:
    found = check_problem(publish(client, stream, "<a/>\n" * 201, headers=XMLL), 413, "too-large")
    assert "200" in found["detail"]
    parts: list[tuple[dict[str, str], str]] = [({}, "<a/>")] * 201
    check_problem(publish_parts(client, stream, *parts), 413, "too-large")
    assert publish(client, stream, "<a/>\n" * 200, headers=XMLL).json()["published"] == 200


@pytest.mark.parametrize("size", [4_000_001, 20_000_000])
def test_a_body_that_is_too_large(client: httpx.Client, stream: str, size: int) -> None:
    check_problem(publish(client, stream, b"<a>" + b" " * size), 413, "too-large")
    assert publish(client, stream).status_code == 201


def test_a_body_as_large_as_allowed(client: httpx.Client, stream: str) -> None:
    body = b"<a>" + b"x" * (4_000_000 - 7) + b"</a>"
    assert publish(client, stream, body).status_code == 201
    [delivery] = pull(client, stream)["deliveries"]
    assert len(delivery["body"]) == len(body)


@pytest.mark.parametrize("path", ["/v1/subscriptions", "/v1/try", "/v1/imports", "/v1/keys"])
def test_other_bodies_are_bounded_too(client: httpx.Client, path: str) -> None:
    content = json.dumps({"query": "x" * 5_000_000})
    answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
    check_problem(answer, 413, "too-large")


# -- waiting for deliveries --------------------------------------------------------------------------------


def test_waiting_ends_when_all_have_acknowledged(
    server: RunningServer, client: httpx.Client, stream: str
) -> None:
    other = unique("other")
    subscribe(client, other, streams=(stream,))

    def wait() -> tuple[httpx.Response, float]:
        with open_client(server) as own:
            answer = publish(own, stream, params={"wait": "delivered", "timeout": 20})
        return answer, time.monotonic()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(wait)
        for name in (stream, other):
            [delivery] = pull(client, name, wait=10)["deliveries"]
            assert not future.done()
            acknowledged = time.monotonic()
            acknowledge(client, name, delivery["number"])
        answer, ended = future.result(10)
    assert answer.status_code == 201 and answer.json()["delivered"] is True
    assert ended - acknowledged < 5


def test_waiting_ends_after_the_timeout(client: httpx.Client, stream: str) -> None:
    started = time.monotonic()
    answer = publish(client, stream, params={"wait": "delivered", "timeout": 0.2})
    assert answer.status_code == 201 and answer.json()["delivered"] is False
    assert 0.2 <= time.monotonic() - started < 5
    many = publish(client, stream, "<a/>\n<b/>", headers=XMLL, params={"wait": "delivered", "timeout": 0})
    assert many.json()["delivered"] is False and many.json()["deliveries"] == 2


def test_waiting_for_nobody(client: httpx.Client) -> None:
    answer = publish(client, unique("nobody"), params={"wait": "delivered", "timeout": 20})
    assert answer.json()["deliveries"] == 0 and answer.json()["delivered"] is True
