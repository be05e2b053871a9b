"""Who may do what: keys, scopes, tenants, and what holds without keys."""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.serve.api.calls import (
    PROBLEM,
    acknowledge,
    check_problem,
    listen,
    open_client,
    publish,
    pull,
    subscribe,
    unique,
)
from tests.support.service.running_server import RunningServer

TENANTS = ("", "acme")
SCOPES = ("publish", "subscribe", "admin")


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `sapwood ARGUMENTS`."""
    return subprocess.run(
        [sys.executable, "-m", "sapwood.cli", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
        timeout=60,
    )


@dataclass(frozen=True)
class Keyed:
    """A server with keys of every scope for two tenants."""

    server: RunningServer
    keys: dict[tuple[str, str], str]
    revoked: str

    def client(self, tenant: str, scope: str = "admin") -> httpx.Client:
        return open_client(self.server, self.keys[tenant, scope])


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with RunningServer(tmp_path_factory.mktemp("keyed"), "[limits]\nquery_seconds = 0.2\n") as server:
        with open_client(server) as client:
            answer = client.post("/v1/keys", json={"scopes": ["admin"], "name": "first"})
        first = answer.json()["key"]
        keys = {}
        with open_client(server, first) as client:
            for tenant in TENANTS:
                for scope in SCOPES:
                    made = client.post("/v1/keys", json={"scopes": [scope], "tenant": tenant, "name": scope})
                    assert made.status_code == 201, made.text
                    keys[tenant, scope] = made.json()["key"]
            gone = client.post("/v1/keys", json={"scopes": ["admin"]}).json()
            assert client.delete(f"/v1/keys/{gone['id']}").status_code == 204
        found = Keyed(server, keys, gone["key"])
        for tenant in TENANTS:
            with found.client(tenant) as client:
                subscribe(client, "desk", id="standing")
        yield found


# -- every endpoint under every key ------------------------------------------------------------------------

PUBLIC = "no key"
FIRST_TENANT = "admin of the first tenant"

Endpoint = tuple[str, str]
NEEDED: dict[Endpoint, str] = {
    ("POST", "/v1/streams/{stream}/messages"): "publish",
    ("GET", "/v1/subscriptions"): "subscribe",
    ("POST", "/v1/subscriptions"): "subscribe",
    ("GET", "/v1/subscriptions/{id}"): "subscribe",
    ("PUT", "/v1/subscriptions/{id}"): "subscribe",
    ("PATCH", "/v1/subscriptions/{id}"): "subscribe",
    ("DELETE", "/v1/subscriptions/{id}"): "subscribe",
    ("POST", "/v1/imports"): "subscribe",
    ("GET", "/v1/namespaces"): "subscribe",
    ("PUT", "/v1/namespaces"): "subscribe",
    ("GET", "/v1/subscribers"): "subscribe",
    ("GET", "/v1/subscribers/{name}"): "subscribe",
    ("PUT", "/v1/subscribers/{name}"): "subscribe",
    ("DELETE", "/v1/subscribers/{name}"): "subscribe",
    ("POST", "/v1/subscribers/{name}/resume"): "subscribe",
    ("GET", "/v1/subscribers/{name}/deliveries"): "subscribe",
    ("POST", "/v1/subscribers/{name}/ack"): "subscribe",
    ("GET", "/v1/subscribers/{name}/events"): "subscribe",
    ("GET", "/v1/subscribers/{name}/gaps"): "subscribe",
    ("GET", "/v1/subscribers/{name}/dead-letters"): "subscribe",
    ("POST", "/v1/subscribers/{name}/dead-letters/replay"): "subscribe",
    ("POST", "/v1/subscribers/{name}/dead-letters/{number}/replay"): "subscribe",
    ("DELETE", "/v1/subscribers/{name}/dead-letters/{number}"): "subscribe",
    ("GET", "/v1/explain"): "subscribe",
    ("POST", "/v1/explain"): "subscribe",
    ("POST", "/v1/try"): "subscribe",
    ("GET", "/v1/keys"): "admin",
    ("POST", "/v1/keys"): "admin",
    ("DELETE", "/v1/keys/{id}"): "admin",
    ("GET", "/v1/rejects"): "admin",
    ("GET", "/v1/failures"): "admin",
    ("GET", "/v1/messages"): "admin",
    ("GET", "/v1/messages/{seq}"): "admin",
    ("GET", "/v1/stats"): "admin",
    ("POST", "/v1/backup"): FIRST_TENANT,
    ("GET", "/v1/mesh"): FIRST_TENANT,
    ("GET", "/v1/mesh/brokers"): FIRST_TENANT,
    ("GET", "/v1/mesh/topology"): FIRST_TENANT,
    ("GET", "/v1/mesh/tables"): FIRST_TENANT,
    ("GET", "/v1/mesh/check"): FIRST_TENANT,
    ("GET", "/v1/mesh/explain/{id}"): FIRST_TENANT,
    ("GET", "/v1/mesh/trace/{id}"): FIRST_TENANT,
    ("POST", "/v1/mesh/topology/move"): FIRST_TENANT,
    ("POST", "/v1/mesh/drain"): FIRST_TENANT,
    ("POST", "/v1/mesh/subscriptions/move"): FIRST_TENANT,
    ("GET", "/metrics"): FIRST_TENANT,
    ("GET", "/healthz"): PUBLIC,
    ("GET", "/readyz"): PUBLIC,
}
# What a request is made with; names are of nothing that is there, so that no request changes anything.
PATH = {"stream": "s", "id": "absent", "name": "absent", "number": "1", "seq": "999999999"}
CONTENT: dict[Endpoint, dict[str, Any]] = {
    ("POST", "/v1/streams/{stream}/messages"): {"content": "<broken"},
    ("POST", "/v1/subscriptions"): {"json": {"query": "/a["}},
    ("PUT", "/v1/subscriptions/{id}"): {"json": {"query": "/a["}},
    ("PATCH", "/v1/subscriptions/{id}"): {"json": {"active": False}},
    ("POST", "/v1/imports"): {"content": ""},
    ("PUT", "/v1/namespaces"): {"json": {"namespaces": {}}},
    ("PUT", "/v1/subscribers/{name}"): {"json": {"limit": 0}},
    ("POST", "/v1/subscribers/{name}/ack"): {"json": {"upto": 1}},
    ("GET", "/v1/explain"): {"params": {"subscription": "absent"}},
    ("POST", "/v1/explain"): {"json": {"query": "/a"}},
    ("POST", "/v1/try"): {"json": {"query": "/a", "message": "<a/>"}},
    ("POST", "/v1/keys"): {"json": {"scopes": []}},
    ("POST", "/v1/backup"): {"json": {"name": "copy.db"}},
    ("POST", "/v1/mesh/topology/move"): {"json": {"broker": "a", "parent": "b"}},
    ("POST", "/v1/mesh/drain"): {"json": {"broker": "a"}},
    ("POST", "/v1/mesh/subscriptions/move"): {"json": {"ids": ["absent"], "to": "b"}},
}


def call(client: httpx.Client, endpoint: Endpoint, **headers: str) -> httpx.Response:
    method, path = endpoint
    url = re.sub(r"{(\w+)}", lambda found: PATH[found[1]], path)
    return client.request(method, url, headers=headers, **CONTENT.get(endpoint, {}))


def test_every_endpoint_has_a_row(keyed: Keyed) -> None:
    with open_client(keyed.server) as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, methods in paths.items() for method in methods} == set(NEEDED)


@pytest.mark.parametrize("endpoint", NEEDED, ids=" ".join)
def test_keys_and_scopes(keyed: Keyed, endpoint: Endpoint) -> None:
    needed = NEEDED[endpoint]
    with open_client(keyed.server) as client:
        wrong = (
            "",
            "Bearer",
            "Bearer sw_0_0",
            f"Bearer {keyed.revoked}",
            f"Bearer {keyed.keys['', 'admin']}0",
            f"Bearer {keyed.keys['', 'admin'][:-1]}",
            "Basic YTpi",
        )
        for header in wrong:
            answer = call(client, endpoint, **({"Authorization": header} if header else {}))
            if needed == PUBLIC:
                assert answer.status_code == 200
            else:
                check_problem(answer, 401, "unauthorized")
                assert answer.headers["www-authenticate"].startswith("Bearer")
        # a key in the address is in the logs of proxies: only listeners, which cannot do else, may have one
        token = {"access_token": keyed.keys["", "admin"]}
        method, path = endpoint
        url = re.sub(r"{(\w+)}", lambda found: PATH[found[1]], path)
        options = {"json": CONTENT[endpoint]["json"]} if "json" in CONTENT.get(endpoint, {}) else {}
        status = client.request(method, url, params=token, **options).status_code
        if needed == PUBLIC:
            assert status == 200
        else:
            assert (status == 401) == (not path.endswith("/events"))
    for tenant in TENANTS:
        for scope in SCOPES:
            with keyed.client(tenant, scope) as client:
                answer = call(client, endpoint)
            allowed = needed in (PUBLIC, scope) or scope == "admin"
            if needed == FIRST_TENANT:
                allowed = scope == "admin" and not tenant
            if allowed:
                assert answer.status_code not in (401, 403), (tenant, scope, answer.text)
                assert answer.status_code < 500
            else:
                check_problem(answer, 403, "forbidden")


# -- tenants -----------------------------------------------------------------------------------------------


@pytest.fixture
def filled(keyed: Keyed) -> Iterator[tuple[Keyed, dict[str, str]]]:
    """Both tenants with the same names, and one marked text each in all that a tenant has."""
    marks = {tenant: unique(f"mark-{tenant or 'first'}-") for tenant in TENANTS}
    for tenant, mark in marks.items():
        with keyed.client(tenant) as client:
            subscribe(client, f"inbox-{mark}", f"/{mark}", id=f"id-{mark}")
            client.put("/v1/namespaces", json={"namespaces": {mark: f"urn:{mark}"}})
            client.put("/v1/subscribers/full", json={"limit": 1, "policy": "drop-oldest"})
            subscribe(client, "full", f"/{mark}", id=f"full-{mark}")
            # more than its time, in lxml: a failure
            slow = f"/{mark}//a[count(//a[count(//a[count(//a) > 1]) > 1]) > 1]"
            subscribe(client, "slow", slow, streams=(f"heavy-{mark}",), id=f"slow-{mark}")
            heavy = f"<{mark}>{'<a/>' * 3_000}</{mark}>"
            assert publish(client, f"heavy-{mark}", heavy).json()["failures"] == 1
            acknowledge(client, f"inbox-{mark}", 1)
            for number in range(3):
                assert publish(client, mark, f"<{mark}>{number}</{mark}>").status_code == 201
            assert publish(client, mark, f"<{mark}>").status_code == 422
            client.post("/v1/keys", json={"scopes": ["publish"], "name": mark})
    yield keyed, marks


READS = (
    "/v1/subscriptions",
    "/v1/subscribers",
    "/v1/subscribers/full",
    "/v1/subscribers/full/deliveries?after=0",
    "/v1/subscribers/full/gaps",
    "/v1/subscribers/full/dead-letters",
    "/v1/namespaces",
    "/v1/rejects",
    "/v1/failures",
    "/v1/messages",
    "/v1/stats",
)


def test_tenants_see_nothing_of_each_other(filled: tuple[Keyed, dict[str, str]]) -> None:
    keyed, marks = filled
    for tenant, other in (("", "acme"), ("acme", "")):
        own, foreign = marks[tenant], marks[other]
        with keyed.client(tenant) as client:
            seen = {path: client.get(path) for path in READS}
            assert all(answer.status_code == 200 for answer in seen.values())
            for path, answer in seen.items():
                assert foreign not in answer.text, path
            for path in (
                "/v1/subscriptions",
                "/v1/subscribers",
                "/v1/rejects",
                "/v1/failures",
                "/v1/messages",
            ):
                assert own in seen[path].text
            for path in (
                f"/v1/subscriptions/id-{foreign}",
                f"/v1/explain?subscription=id-{foreign}",
                f"/v1/subscribers/inbox-{foreign}",
                f"/v1/subscribers/inbox-{foreign}/deliveries",
                f"/v1/subscribers/inbox-{foreign}/events",
                f"/v1/subscribers/inbox-{foreign}/gaps",
                f"/v1/subscribers/inbox-{foreign}/dead-letters",
            ):
                check_problem(client.get(path), 404, "not-found")
            check_problem(client.post(f"/v1/subscribers/inbox-{foreign}/ack", json={"upto": 9}), 404)
            check_problem(client.delete(f"/v1/subscribers/inbox-{foreign}"), 404)
            check_problem(client.delete(f"/v1/subscriptions/id-{foreign}"), 404)
            check_problem(client.patch(f"/v1/subscriptions/id-{foreign}", json={"active": False}), 404)
        with keyed.client(other) as client:
            message = client.get("/v1/messages").json()["messages"][0]
            delivery = pull(client, f"inbox-{foreign}")["deliveries"][0]
        with keyed.client(tenant) as client:
            check_problem(client.get(f"/v1/messages/{message['seq']}"), 404)
            # the id of a foreign delivery acknowledges nothing
            answer = client.post(f"/v1/subscribers/inbox-{own}/ack", json={"upto": delivery["id"]})
            check_problem(answer, 422)
            assert len(pull(client, f"inbox-{own}")["deliveries"]) == 3


def test_a_key_of_the_first_tenant_manages_all_keys_and_others_only_their_own(keyed: Keyed) -> None:
    with keyed.client("") as first, keyed.client("acme") as acme:
        assert {key["tenant"] for key in first.get("/v1/keys").json()["keys"]} == set(TENANTS)
        assert {key["tenant"] for key in acme.get("/v1/keys").json()["keys"]} == {"acme"}
        check_problem(acme.post("/v1/keys", json={"scopes": ["admin"], "tenant": ""}), 403)
        check_problem(acme.post("/v1/keys", json={"scopes": ["admin"], "tenant": "other"}), 403)
        foreign = keyed.keys["", "publish"].split("_")[1]
        check_problem(acme.delete(f"/v1/keys/{foreign}"), 404)
        own = acme.post("/v1/keys", json={"scopes": ["publish"]}).json()
        assert own["tenant"] == "acme"
        assert first.delete(f"/v1/keys/{own['id']}").status_code == 204


def test_tenants_have_streams_and_message_ids_of_their_own(keyed: Keyed) -> None:
    id = {"Sapwood-Message-Id": unique("same")}
    for tenant in TENANTS:
        with keyed.client(tenant) as client:
            assert publish(client, "shared", f"<a>{tenant}</a>", headers=id).status_code == 201


# -- listeners ---------------------------------------------------------------------------------------------


def socket_url(server: RunningServer, subscriber: str, **parameters: str) -> str:
    url = server.url.replace("http", "ws", 1)
    return f"{url}/v1/subscribers/{subscriber}/socket?{httpx.QueryParams(parameters)}"


def refused_by_socket(url: str, **headers: str) -> dict[str, Any]:
    with connect(url, additional_headers=headers) as websocket:
        found: dict[str, Any] = json.loads(websocket.recv(10))
        with pytest.raises(ConnectionClosed):
            websocket.recv(10)
    assert websocket.close_code == 1008
    return found


def test_listeners_give_the_key_in_the_header_or_the_address(keyed: Keyed) -> None:
    name = unique("listener")
    with keyed.client("acme") as client:
        subscribe(client, name, streams=(name,))
        publish(client, name)
    key = keyed.keys["acme", "subscribe"]
    with open_client(keyed.server) as client:
        with listen(client, name, params={"access_token": key}) as events:
            assert events.delivery()["data"]["message"]
        check_problem(client.get(f"/v1/subscribers/{name}/events", params={"access_token": key + "x"}), 401)
        check_problem(client.get(f"/v1/subscribers/{name}/events"), 401)
        token = {"access_token": keyed.keys["acme", "publish"]}
        check_problem(client.get(f"/v1/subscribers/{name}/events", params=token), 403)
    for url, headers in (
        (socket_url(keyed.server, name, credit="1", access_token=key), {}),
        (socket_url(keyed.server, name, credit="1"), {"Authorization": f"Bearer {key}"}),
    ):
        with connect(url, additional_headers=headers) as websocket:
            assert json.loads(websocket.recv(10))["type"] == "delivery"


@pytest.mark.parametrize(
    ("tenant", "scope", "status"),
    [
        (None, None, 401),
        ("acme", "publish", 403),
        ("", "publish", 403),
        ("", "subscribe", 404),
        ("", "admin", 404),
        ("acme", "subscribe", None),
        ("acme", "admin", None),
    ],
)
def test_socket(keyed: Keyed, tenant: str | None, scope: str | None, status: int | None) -> None:
    name = unique("socket")
    with keyed.client("acme") as client:
        subscribe(client, name, streams=(name,))
        publish(client, name)
    key = keyed.keys[tenant, scope] if tenant is not None and scope is not None else ""
    url = socket_url(keyed.server, name, credit="1", **({"access_token": key} if key else {}))
    if status is None:
        with connect(url) as websocket:
            assert json.loads(websocket.recv(10))["type"] == "delivery"
    else:
        assert refused_by_socket(url)["status"] == status
        assert refused_by_socket(socket_url(keyed.server, name, access_token=keyed.revoked))["status"] == 401


# -- without keys ------------------------------------------------------------------------------------------

GUARDED = ("/v1/stats", "/v1/subscribers", "/metrics")


@pytest.mark.parametrize("path", GUARDED)
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "["]
)
def test_without_keys_another_host_is_refused(client: httpx.Client, path: str, host: str) -> None:
    check_problem(client.get(path, headers={"Host": host}), 403, "forbidden")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.2:1", "[::1]:8080", "LOCALHOST"])
def test_without_keys_this_machine_is_served(client: httpx.Client, host: str) -> None:
    assert client.get("/v1/stats", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "http://[", ""])
def test_without_keys_a_foreign_origin_is_refused(
    client: httpx.Client, server: RunningServer, origin: str
) -> None:
    for path in GUARDED:
        check_problem(client.get(path, headers={"Origin": origin}), 403, "forbidden")
    answer = publish(client, "s", headers={"Origin": origin, "Content-Type": "text/plain"})
    check_problem(answer, 403, "forbidden")
    name = unique("origin")
    subscribe(client, name, streams=(name,))
    assert refused_by_socket(socket_url(server, name), Origin=origin)["status"] == 403
    assert client.get("/v1/stats", headers={"Origin": server.url}).status_code == 200


def test_a_server_for_others_needs_keys(tmp_path: Path) -> None:
    log = str(tmp_path / "log.db")
    refused = run_command("serve", "--host", "0.0.0.0", "--port", "0", "--log", log)
    assert refused.returncode == 2
    assert "there are no keys" in refused.stderr and "sapwood keys add" in refused.stderr
    assert "Traceback" not in refused.stderr


# -- commands ----------------------------------------------------------------------------------------------


def wait_for(condition: Callable[[], bool], seconds: float) -> float:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds
        time.sleep(0.05)
    return time.monotonic() - started


def test_keys_by_command_while_the_server_runs(keyed: Keyed) -> None:
    log = str(keyed.server.folder / "sapwood.db")
    added = run_command(
        "keys", "add", "--scope", "subscribe", "--tenant", "acme", "--name", "cli", "--log", log
    )
    assert added.returncode == 0, added.stderr
    key = added.stdout.strip()
    id, secret = key.split("_")[1:]
    with open_client(keyed.server, key) as client:

        def status() -> int:
            return client.get("/v1/subscribers").status_code

        wait_for(lambda: status() == 200, 3)
        check_problem(publish(client, "s"), 403)
        listed = [json.loads(line) for line in run_command("keys", "list", "--log", log).stdout.splitlines()]
        assert next(entry for entry in listed if entry["id"] == id) | {"created": 0} == {
            "id": id,
            "tenant": "acme",
            "name": "cli",
            "scopes": ["subscribe"],
            "created": 0,
        }
        assert secret not in json.dumps(listed)
        assert secret not in client.get("/v1/keys").text
        with keyed.client("") as admin:
            assert secret not in admin.get("/v1/keys").text
        assert status() == 200
        assert run_command("keys", "revoke", id, "--log", log).returncode == 0
        assert wait_for(lambda: status() == 401, 3) < 1.6
    again = run_command("keys", "revoke", id, "--log", log)
    assert again.returncode == 2 and "there is no key" in again.stderr


def test_the_database_holds_hashes_of_keys_only_and_the_log_none(keyed: Keyed) -> None:
    path = keyed.server.folder / "sapwood.db"
    files = [path, *path.parent.glob("sapwood.db-*"), keyed.server.output]
    content = b"".join(file.read_bytes() for file in files if file.is_file())
    for key in keyed.keys.values():
        _, id, secret = key.split("_")
        assert id.encode() in content
        assert secret.encode() not in content
        assert bytes.fromhex(secret) not in content
    with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as connection:
        [(count, shortest)] = connection.execute("SELECT count(*), min(length(hash)) FROM sapwood_keys")
    connection.close()
    assert count >= len(keyed.keys) and shortest == 32


def test_revoking_over_http_takes_effect_at_once(keyed: Keyed) -> None:
    with keyed.client("") as admin:
        made = admin.post("/v1/keys", json={"scopes": ["publish"]}).json()
        with open_client(keyed.server, made["key"]) as client:
            assert publish(client, "s").status_code == 201
            assert admin.delete(f"/v1/keys/{made['id']}").status_code == 204
            check_problem(publish(client, "s"), 401)
        check_problem(admin.delete(f"/v1/keys/{made['id']}"), 404)


def test_a_header_that_is_no_text_is_no_key(keyed: Keyed) -> None:
    host, port = keyed.server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as raw:
        raw.sendall(b"GET /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sw_\xff\xfe_\x80\r\n\r\n")
        answer = raw.recv(4096)
    assert answer.startswith(b"HTTP/1.1 401 ") and PROBLEM.encode() in answer
