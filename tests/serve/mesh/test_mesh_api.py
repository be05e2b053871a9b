"""The endpoints of a mesh and `sapwood mesh`, with three brokers as processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from sapwood.serve.mesh.local_mesh import LocalMesh
from tests.support.in_process import sapwood
from tests.support.mesh.trees import need_nats

pytestmark = [pytest.mark.server, pytest.mark.slow]
TREE = {"zurich": None, "basel": "zurich", "paris": "basel"}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMesh]:
    need_nats()
    with LocalMesh(tmp_path_factory.mktemp("mesh"), TREE) as running:
        yield running


def call(mesh: LocalMesh, broker: str, method: str, path: str, **options: Any) -> httpx.Response:
    return httpx.request(method, f"{mesh.url(broker)}{path}", timeout=60, **options)


def get(mesh: LocalMesh, path: str, broker: str = "zurich") -> Any:
    answer = call(mesh, broker, "GET", path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def wait_until(is_so: Callable[[], bool], wait: float = 30.0) -> None:
    deadline = time.monotonic() + wait
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def publish(mesh: LocalMesh, broker: str, body: str, id: str) -> None:
    headers = {"Sapwood-Message-Id": id}
    call(mesh, broker, "POST", "/v1/streams/s/messages", content=body, headers=headers)


def test_changes_are_confirmed(mesh: LocalMesh) -> None:
    path = "/v1/subscriptions/confirmed"
    made = call(mesh, "paris", "PUT", path, json={"query": "/c[@n = 1]", "subscriber": "desk"})
    assert (made.status_code, made.headers["sapwood-confirmed"], made.json()["confirmed"]) == (
        201,
        "true",
        True,
    )
    for change in ({"query": "/c[@n = 2]"}, {"streams": ["s"]}, {"active": False}, {"active": True}):
        changed = call(mesh, "paris", "PATCH", path, json=change)
        assert (changed.status_code, changed.headers["sapwood-confirmed"]) == (200, "true"), change
    at_once = call(mesh, "paris", "PATCH", f"{path}?wait=false", json={"query": "/c[@n = 3]"})
    assert at_once.json()["confirmed"] in (True, False)
    rows = '{"id": "confirmed", "query": "/c[@n = 4]"}\n{"id": "more", "query": "/more"}\n'
    headers = {"content-type": "application/x-ndjson"}
    report = call(mesh, "paris", "POST", "/v1/imports?replace=true", content=rows, headers=headers)
    assert report.headers["sapwood-confirmed"] == "true" and report.json()["confirmed"] is True
    (host,) = get(mesh, "/v1/mesh/explain/confirmed")["hosts"]
    assert [route["condition"] for route in host["routes"]] == ["c[@n = 4]"]
    assert all(each["has"] for each in host["brokers"])
    # what was prepared is forgotten everywhere, and so are former queries
    conditions = {"c[@n = 4]", "more"}
    wait_until(lambda: _list_conditions(mesh, "zurich", "basel") == conditions)
    gone = call(mesh, "paris", "DELETE", path)
    assert gone.status_code == 200


def _list_conditions(mesh: LocalMesh, broker: str, link: str) -> set[str]:
    page = get(mesh, f"/v1/mesh/tables?broker={broker}&link={link}")
    return {route["condition"] for route in page["routes"]}


def test_explain_tells_what_is_cut(mesh: LocalMesh) -> None:
    """On the way to zurich, where nobody has a filter."""
    query = "for $o in /cut/o where $o/@n > 1 return <o>{$o/@n}{$o/a}</o>"
    row = {"query": query, "subscriber": "desk", "streams": ["cut"]}
    call(mesh, "zurich", "PUT", "/v1/subscriptions/cutting", json=row)
    body = "<cut><o n='1'/><o n='2'><a/><b>" + 500 * "x" + "</b></o></cut>"
    for number in range(20):
        headers = {"Sapwood-Message-Id": f"cut-{number}"}
        call(mesh, "paris", "POST", "/v1/streams/cut/messages", content=body, headers=headers)
    (host,) = get(mesh, "/v1/mesh/explain/cutting")["hosts"]
    reads = ["/cut/o[@n > 1]", "/cut/o[@n > 1]/a//node()"]
    assert [route["reads"] for route in host["routes"]] == [reads]
    by_broker = {each["broker"]: each["projection"] for each in host["brokers"]}
    (sent,) = by_broker["paris"]
    assert sent["is_cut"] and sent["saved"] > 0.8 and sent["stream"] == "cut"
    assert sent["reads"] == ["/cut/o", "/cut/o/a//node()"], "bindings save little here"
    assert by_broker["zurich"] == []
    done = sapwood("mesh", "explain", "cutting", "--url", mesh.url("zurich"))
    assert f"reads {', '.join(reads)}" in done.stdout
    assert "paris → basel, stream cut: cut to /cut/o, /cut/o/a//node()" in done.stdout
    shown = sapwood("mesh", "topology", "--url", mesh.url("zurich"))
    assert " cut " in shown.stdout


@pytest.mark.parametrize("body", [{"query": "/c["}, {"query": "for $x in /c"}])
def test_a_wrong_query_is_refused_as_without_a_mesh(mesh: LocalMesh, body: dict[str, Any]) -> None:
    path = "/v1/subscriptions/refused"
    call(mesh, "paris", "PUT", path, json={"query": "/r", "subscriber": "desk"})
    refused = call(mesh, "paris", "PUT", path, json=body)
    assert refused.status_code == 422
    assert refused.json()["type"].endswith(":query")
    (host,) = get(mesh, "/v1/mesh/explain/refused")["hosts"]
    assert host["query"] == "/r"


def test_replacing_a_query_misses_nothing(mesh: LocalMesh) -> None:
    """While the query of a subscription alternates, all messages match one of the two, and all arrive."""
    path = "/v1/subscriptions/alternating"
    call(mesh, "paris", "PUT", path, json={"query": "/a[@n >= 0]", "subscriber": "alternating"})
    count = 60
    for number in range(count):
        if number % 10 == 5:
            wanted = "/a[@n]" if number % 20 == 5 else "/a[@n >= 0]"
            changed = call(mesh, "paris", "PATCH", path, json={"query": wanted})
            assert changed.json()["confirmed"] is True
        publish(mesh, "zurich", f'<a n="{number}"/>', f"alternating-{number}")

    def has_all() -> bool:
        found = call(mesh, "paris", "GET", "/v1/subscribers/alternating/deliveries?after=0&limit=1000").json()
        return [each["body"] for each in found["deliveries"]] == [f'<a n="{n}"/>' for n in range(count)]

    wait_until(has_all)


def test_a_message_is_traced(mesh: LocalMesh) -> None:
    body = {"query": "/t[x > 2]", "subscriber": "desk"}
    assert call(mesh, "zurich", "PUT", "/v1/subscriptions/traced", json=body).json()["confirmed"]
    publish(mesh, "paris", "<t><x>5</x></t>", "wanted")
    publish(mesh, "paris", "<t><x>1</x></t>", "unwanted")
    publish(mesh, "basel", "<t><x>", "broken")
    wait_until(lambda: len(get(mesh, "/v1/mesh/trace/wanted")["messages"][0]["hops"]) == 3)
    (message,) = get(mesh, "/v1/mesh/trace/wanted", "basel")["messages"]
    paris, basel, zurich = message["hops"]
    assert [hop["broker"] for hop in message["hops"]] == ["paris", "basel", "zurich"]
    assert [hop["came_by"] for hop in message["hops"]] == [None, "paris", "basel"]
    assert (
        basel["chosen"][0]["link"] == "zurich" and basel["chosen"][0]["routes"][0]["condition"] == "t[x > 2]"
    )
    assert (paris["deliveries"], basel["deliveries"], zurich["deliveries"]) == (0, 0, 1)
    (message,) = get(mesh, "/v1/mesh/trace/unwanted")["messages"]
    (hop,) = message["hops"]
    assert (hop["chosen"], hop["not_chosen"]) == ([], ["basel"])
    found = get(mesh, "/v1/mesh/trace/broken")
    assert found["messages"] == [] and found["refused"][0]["broker"] == "basel"
    assert call(mesh, "paris", "GET", "/v1/mesh/trace/absent").status_code == 404


def test_the_command_shows_it(mesh: LocalMesh) -> None:
    for arguments, told in (
        (("status",), "ok"),
        (("topology",), "└── basel"),
        (("tables", "basel"), "wanted on the side of zurich at basel"),
        (("check",), "is consistent"),
    ):
        done = sapwood("mesh", *arguments, SAPWOOD_URL=mesh.url("paris"), COLUMNS="200")
        assert done.returncode == 0 and told in done.stdout, (arguments, done)


def test_metrics_of_links(mesh: LocalMesh) -> None:
    text = call(mesh, "basel", "GET", "/metrics").text
    for name in ("zurich", "paris"):
        assert f'sapwood_mesh_link_open{{link="{name}"}} 1.0' in text
    assert "sapwood_mesh_late_total 0.0" in text and "sapwood_mesh_topology_version" in text


def test_the_tree_is_changed_and_a_broker_drained(mesh: LocalMesh) -> None:
    move = {"broker": "paris", "parent": "zurich"}
    assert call(mesh, "basel", "POST", "/v1/mesh/topology/move", json=move).status_code == 200
    wait_until(lambda: get(mesh, "/v1/mesh/check")["consistent"])
    refused = call(
        mesh, "basel", "POST", "/v1/mesh/topology/move", json={"broker": "zurich", "parent": "paris"}
    )
    assert refused.status_code == 409 and "is the root" in refused.json()["detail"]
    call(mesh, "basel", "PUT", "/v1/subscriptions/here", json={"query": "/h", "subscriber": "desk"})
    time.sleep(1.5)  # until the server knows how many subscriptions there are
    drain = {"broker": "basel", "wait": 20}
    kept = call(mesh, "zurich", "POST", "/v1/mesh/drain", json=drain).json()
    assert not kept["removed"] and kept["settled"] and "move them, or remove it with force" in kept["reason"]
    moved = call(mesh, "paris", "POST", "/v1/mesh/subscriptions/move", json={"ids": ["here"], "to": "paris"})
    assert moved.status_code == 200, moved.text
    time.sleep(1.5)
    assert call(mesh, "zurich", "POST", "/v1/mesh/drain", json=drain).json()["removed"]
    answer = call(mesh, "basel", "POST", "/v1/streams/s/messages", content="<h/>")
    assert answer.status_code == 503 and "publish at another one" in answer.json()["detail"]
    wait_until(lambda: get(mesh, "/v1/mesh/topology")["parents"] == {"zurich": None, "paris": "zurich"})
    publish(mesh, "zurich", "<h/>", "after")
    wait_until(lambda: len(get(mesh, "/v1/mesh/trace/after")["messages"][0]["hops"]) == 2)


def test_a_broker_that_was_killed_is_listed_with_the_reason(mesh: LocalMesh) -> None:
    mesh.brokers["paris"].kill()
    found = {each["broker"]: each for each in get(mesh, "/v1/mesh/brokers")["brokers"]}
    assert "has not answered" in found["paris"]["error"] and found["zurich"]["error"] is None
    assert found["paris"]["process"] and found["zurich"]["url"] == mesh.url("zurich")
    check = get(mesh, "/v1/mesh/check")
    assert not check["consistent"] and any(each["where"] == "paris" for each in check["findings"])
