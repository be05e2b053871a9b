"""Errors of the service as exceptions, retries, and the settings of a client."""

from __future__ import annotations

import inspect
import pickle
import socket
from typing import Any

import httpx
import pytest

import sapwood.client
from sapwood.client import (
    AsyncClient,
    AsyncDeliveries,
    Client,
    ClientError,
    Conflict,
    Deliveries,
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    ProtocolError,
    RetryPolicy,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from sapwood.client.calls.problem_details import error_from_problem, parse_retry_after
from sapwood.errors import ArgumentError, MessageError, QueryError, SapwoodError
from tests.support.service.face import AsyncFace, Face, SyncFace
from tests.support.service.stub_server import StubServer

pytestmark = pytest.mark.slow

FACES: list[type[Any]] = [SyncFace, AsyncFace]


def answering(kind: type[Any], *answers: httpx.Response | Exception) -> tuple[Any, list[httpx.Request]]:
    """A client whose requests are answered so, one after the other, and the requests that it sends."""
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        found = answers[min(len(sent), len(answers) - 1)]
        sent.append(request)
        if isinstance(found, Exception):
            raise found
        return httpx.Response(found.status_code, headers=found.headers, content=found.content)

    return kind("http://broker", transport=httpx.MockTransport(answer)), sent


# -- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "slug", "kind"),
    [
        (400, "invalid", InvalidRequest),
        (401, "unauthorized", Unauthorized),
        (403, "quota", Forbidden),
        (404, "not-found", NotFound),
        (409, "conflict", Conflict),
        (413, "too-large", TooLarge),
        (415, "unsupported-media-type", InvalidRequest),
        (418, "teapot", ClientError),
        (500, "internal", ClientError),
    ],
)
@pytest.mark.parametrize("face", FACES)
def test_each_problem_is_an_exception_that_says_where(
    face: type[Any], status: int, slug: str, kind: type[ClientError]
) -> None:
    problem = {"type": f"urn:sapwood:problem:{slug}", "title": "T", "status": status, "detail": "D", "x": 1}
    client, sent = answering(face, httpx.Response(status, json=problem))
    with client, pytest.raises(ClientError) as caught:
        client.call("stats")
    assert type(caught.value) is kind
    assert str(caught.value).startswith("GET http://broker/v1/stats: D")
    assert (caught.value.status, caught.value.slug, caught.value.problem["x"]) == (status, slug, 1)
    assert len(sent) == 1


def test_the_fields_that_are_refused_are_named(face: Face) -> None:
    with pytest.raises(InvalidRequest, match=r"body\.query: must not be empty"):
        face.call("subscribe", "q", "")


def test_a_key_is_sent_and_not_shown(stub: StubServer) -> None:
    stub.state.required_key = "sw_a_secret"
    with SyncFace(stub.url) as face, pytest.raises(Unauthorized, match="SAPWOOD_KEY"):
        face.call("stats")
    for kind in FACES:
        with kind(stub.url, key="sw_a_secret") as face:
            assert face.call("stats") == {"messages": 0}
            assert "secret" not in repr(face.client) + repr(face.client.settings)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>hello</html>"),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"id": "x"}),
    ],
)
@pytest.mark.parametrize("face", FACES)
def test_an_answer_of_another_service_is_an_error(face: type[Any], answer: httpx.Response) -> None:
    client, _ = answering(face, answer)
    with client, pytest.raises(ProtocolError, match="address is that of a Sapwood broker"):
        client.call("subscription", "x")


@pytest.mark.parametrize("face", FACES)
def test_events_of_another_service_are_errors(face: type[Any]) -> None:
    client, _ = answering(face, httpx.Response(200, json={}))
    with client, pytest.raises(ProtocolError, match="no event stream but 'application/json'"):
        client.deliveries("desk").take()
    event = b"event: delivery\ndata: {}\n\n"
    stream = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=event)
    client, _ = answering(face, stream)
    with client, pytest.raises(ProtocolError, match="an event of type 'delivery' cannot be read: KeyError"):
        client.deliveries("desk").take()


@pytest.mark.parametrize("face", FACES)
def test_an_error_event_is_raised(face: type[Any]) -> None:
    event = b'event: new\ndata: 1\n\nevent: error\ndata: {"status": 403, "detail": "revoked"}\n\n'
    stream = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=event)
    client, _ = answering(face, stream)
    with client, pytest.raises(Forbidden, match="events of subscriber 'desk': revoked"):
        client.deliveries("desk").take()


def test_an_answer_that_is_no_problem_is_quoted() -> None:
    client, _ = answering(SyncFace, httpx.Response(404, text="nginx: nothing here"))
    with client, pytest.raises(NotFound, match="nginx: nothing here"):
        client.call("stats")
    client, _ = answering(SyncFace, httpx.Response(302, headers={"location": "/login"}))
    with client, pytest.raises(ProtocolError, match="status 302"):
        client.call("stats")


def test_problems_without_details() -> None:
    assert isinstance(error_from_problem({}), ProtocolError)
    assert (
        str(error_from_problem({"type": "urn:sapwood:problem:message"})) == "the broker refuses the message"
    )
    query = error_from_problem({"type": "urn:sapwood:problem:query", "position": 9, "hint": "h"}, query="//a")
    assert isinstance(query, QueryError)
    assert (query.query, query.position, query.hint) == ("//a", 3, "h")
    late = error_from_problem({"type": "urn:sapwood:problem:message", "reason": "r", "line": 2, "column": 3})
    assert isinstance(late, MessageError)
    assert str(late) == "line 2, column 3: r"
    assert str(error_from_problem({"type": "urn:sapwood:problem:invalid", "status": 422, "errors": [1]}))


def test_errors_survive_pickling() -> None:
    error = Overloaded("full", request="POST /x", status=429, slug="rate", retry_after=2.0, problem={"a": 1})
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (Overloaded, str(error), error.__dict__)


def test_all_errors_are_in_one_tree() -> None:
    kinds = [value for value in vars(sapwood.client).values() if isinstance(value, type)]
    errors = [kind for kind in kinds if issubclass(kind, Exception)]
    assert len(errors) == 11
    assert all(issubclass(kind, ClientError) and issubclass(kind, SapwoodError) for kind in errors)


# -- retries -----------------------------------------------------------------------------------------------


def test_delays_grow_up_to_a_limit_and_vary() -> None:
    policy = RetryPolicy(first=1, longest=8)
    for attempt, most in enumerate([1, 2, 4, 8, 8, 8]):
        found = {policy.delay(attempt) for _ in range(50)}
        assert most / 2 <= min(found) < max(found) <= most
    assert policy.delay(10_000) <= 8
    assert 3 <= policy.delay(0, retry_after=3) <= 3.5


def test_the_delay_that_a_broker_asks_for_is_kept(face: Face, stub: StubServer) -> None:
    waits: list[float] = []
    face.on_sleep(waits.append)
    stub.fail(429, 503, retry_after=2)
    assert face.call("stats") == {"messages": 0}
    assert [int(seconds) for seconds in waits] == [2, 2]


def test_a_delay_beyond_the_bound_is_not_waited_for(face: Face, stub: StubServer) -> None:
    waits: list[float] = []
    face.on_sleep(waits.append)
    stub.fail(429, slug="rate", retry_after=3600)
    with pytest.raises(Overloaded) as caught:
        face.call("stats")
    assert (caught.value.retry_after, waits) == (3600.0, [])


@pytest.mark.parametrize("face", FACES)
def test_a_broker_that_is_not_there_is_named_after_all_retries(face: type[Any]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        waits: list[float] = []
        with face(f"http://127.0.0.1:{unused.getsockname()[1]}", retries=3) as client:
            client.on_sleep(waits.append)
            with pytest.raises(Unavailable, match=r"cannot be reached(?s:.*)sapwood serve"):
                client.call("stats")
    assert len(waits) == 3


@pytest.mark.parametrize(
    ("call", "repeated"),
    [
        (("stats",), True),
        (("publish", "s", "<a/>"), True),
        (("ack", "desk", 1), True),
        (("subscribe", "q", "//a"), False),
        (("unsubscribe", "q"), False),
        (("replay", "desk"), False),
        (("import_many", [("q", "//a")]), False),
    ],
)
@pytest.mark.parametrize("face", FACES)
def test_only_what_is_safe_is_repeated_after_a_lost_answer(
    face: type[Any], call: tuple[Any, ...], repeated: bool
) -> None:
    client, sent = answering(face, httpx.ReadError("reset"))
    with client, pytest.raises(Unavailable, match="reset") as caught:
        client.call(*call)
    assert len(sent) == (6 if repeated else 1)
    assert ("unknown whether" in str(caught.value)) is not repeated


@pytest.mark.parametrize("face", FACES)
def test_what_did_not_leave_is_repeated_always(face: type[Any]) -> None:
    client, sent = answering(face, httpx.ConnectError("refused"))
    with client, pytest.raises(Unavailable):
        client.call("unsubscribe", "q")
    assert len(sent) == 6


def test_retry_after() -> None:
    values = ["3", "0", None, "", "nan", "inf", "-1", "Wed, 21 Oct 2026 07:28:00 GMT"]
    assert [parse_retry_after(value) for value in values] == [3.0, 0.0, *[None] * 6]


# -- settings ----------------------------------------------------------------------------------------------


def test_the_environment_gives_the_address_and_the_key(
    stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.state.required_key = "sw_a_b"
    monkeypatch.setenv("SAPWOOD_URL", stub.url + "/")
    monkeypatch.setenv("SAPWOOD_KEY", "sw_a_b")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # which loopback does not use
    for kind in FACES:
        with kind() as face:
            assert face.call("stats") == {"messages": 0}
    monkeypatch.delenv("SAPWOOD_URL")
    with Client() as client:
        assert repr(client) == "Client('http://127.0.0.1:8080')"


@pytest.mark.parametrize(
    "options",
    [
        {"url": "broker:8080"},
        {"url": "ftp://broker"},
        {"url": "http://"},
        {"url": "http://user:password@broker"},
        {"url": "http://broker:99999999"},
        {"key": "a\nb"},
        {"timeout": 0},
    ],
)
def test_settings_that_are_not_valid(options: dict[str, Any]) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ArgumentError) as caught:
            kind(**options)
        assert "password" not in str(caught.value)


# -- both faces --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sync", "asynchronous"), [(Client, AsyncClient), (Deliveries, AsyncDeliveries)])
def test_both_clients_have_the_same_methods(sync: type[Any], asynchronous: type[Any]) -> None:
    def methods(kind: type[Any]) -> dict[str, list[str]]:
        return {
            name.removeprefix("a") if name == "aclose" else name: list(inspect.signature(value).parameters)
            for name, value in vars(kind).items()
            if inspect.isfunction(value) and not name.startswith("_")
        }

    assert methods(sync) == methods(asynchronous)
    for name in methods(sync):
        own, other = getattr(sync, name), getattr(asynchronous, "aclose" if name == "close" else name)
        assert own.__doc__
        assert own.__doc__ == other.__doc__


def test_all_is_what_is_visible() -> None:
    classes = {name for name, value in vars(sapwood.client).items() if isinstance(value, type)}
    assert classes == set(sapwood.client.__all__)
    assert sorted(sapwood.client.__all__) == sapwood.client.__all__
