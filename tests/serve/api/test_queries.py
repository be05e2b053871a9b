"""Queries explained, and tried on messages."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.serve.api.calls import check_problem, subscribe, unique

JOIN = "orders/order[@id->i] FOLLOWED BY{i = j, 1 day} payments/payment[@for->j]"


def explain(client: httpx.Client, query: str) -> dict[str, Any]:
    answer = client.post("/v1/explain", json={"query": query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["query"] == query and found["text"]
    return found


def attempt(client: httpx.Client, query: str, message: str) -> dict[str, Any]:
    answer = client.post("/v1/try", json={"query": query, "message": message})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


# -- explain -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "language", "native"),
    [
        ("/order[total > 100]", "xpath", True),
        ("count(//a) > 3", "xpath", False),
        ("for $o in /order where $o/total > 100 return <r>{$o/id}</r>", "for-where-return", True),
        (JOIN, "xscl", True),
    ],
)
def test_explain_a_query(client: httpx.Client, query: str, language: str, native: bool) -> None:
    found = explain(client, query)
    assert (found["language"], found["native"]) == (language, native)
    assert found["cost"] >= (1 if native else 100)
    assert bool(found["refined"]) is not native


def test_costs_grow_with_what_is_evaluated(client: httpx.Client) -> None:
    costs = [explain(client, query)["cost"] for query in ("/a", JOIN, "/a[count(b) > 1]")]
    assert costs == sorted(costs) and len(set(costs)) == 3


def test_explain_a_subscription(client: httpx.Client) -> None:
    name = unique("explained")
    for letter in "ab":
        subscribe(client, name, f"/{name}/b[c = 1]", id=f"{name}/{letter}", streams=(name,))
    found = client.get("/v1/explain", params={"subscription": f"{name}/a"}).json()
    assert found["query"] == f"/{name}/b[c = 1]" and found["native"] is True
    check_problem(client.get("/v1/explain", params={"subscription": "absent"}), 404, "not-found")
    check_problem(client.get("/v1/explain"), 422, "invalid")
    client.patch(f"/v1/subscriptions/{name}%2Fa", json={"active": False})
    paused = client.get("/v1/explain", params={"subscription": f"{name}/a"})
    assert "paused" in check_problem(paused, 409, "conflict")["detail"]


# -- try ---------------------------------------------------------------------------------------------------

MESSAGE = '<order id="7"><total>250</total><line>x</line><line>y</line></order>'


def test_try_a_filter(client: httpx.Client) -> None:
    found = attempt(client, "/order/line", MESSAGE)
    assert found["language"] == "xpath" and found["matches"] is True and found["results"] == []
    assert [(node["kind"], node["value"], node["xml"]) for node in found["nodes"]] == [
        ("element", "x", "<line>x</line>"),
        ("element", "y", "<line>y</line>"),
    ]
    assert "yes" in found["why"]
    [attribute] = attempt(client, "/order/@id", MESSAGE)["nodes"]
    assert (attribute["kind"], attribute["value"]) == ("attribute", "7")


def test_try_a_filter_that_does_not_match(client: httpx.Client) -> None:
    found = attempt(client, "/order[total > 1000]", MESSAGE)
    assert found["matches"] is False and found["nodes"] == []
    assert "total" in found["why"] and "250" in found["why"]
    assert "customer" in attempt(client, "/order/customer", MESSAGE)["why"]


def test_try_a_filter_of_lxml(client: httpx.Client) -> None:
    assert attempt(client, "count(//line) = 2", MESSAGE)["matches"] is True
    assert attempt(client, "count(//line) = 3", MESSAGE)["matches"] is False


def test_try_a_transformation(client: httpx.Client) -> None:
    query = "for $l in /order/line return <made>{$l/text()}</made>"
    found = attempt(client, query, MESSAGE)
    assert found["language"] == "for-where-return" and found["matches"] is True and found["why"]
    assert "".join(found["results"]) == "<made>x</made><made>y</made>"
    other = attempt(client, query, "<order/>")
    assert other["matches"] is False and other["results"] == [] and other["why"]


def test_try_a_join(client: httpx.Client) -> None:
    order = {"body": '<order id="7"/>', "stream": "orders", "time": 100}

    def join(*messages: dict[str, Any]) -> dict[str, Any]:
        answer = client.post("/v1/try", json={"query": JOIN, "messages": messages})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    found = join(order, {"body": '<payment for="7"/>', "stream": "payments", "time": 200})
    assert found["language"] == "xscl" and found["matches"] is True
    assert found["results"] == ['<joined><order id="7"/><payment for="7"/></joined>']
    for other in (
        {"body": '<payment for="8"/>', "stream": "payments", "time": 200},
        {"body": '<payment for="7"/>', "stream": "elsewhere", "time": 200},
        {"body": '<payment for="7"/>', "stream": "payments", "time": 100_000},
    ):
        found = join(order, other)
        assert found["matches"] is False and found["results"] == [] and found["why"]


def test_trying_changes_nothing(client: httpx.Client) -> None:
    before = client.get("/v1/stats").json()
    attempt(client, "/order", MESSAGE)
    after = client.get("/v1/stats").json()
    assert (after["published"], after["subscribers"]) == (before["published"], before["subscribers"])


@pytest.mark.parametrize("query", ["/order", "for $o in /order return <a/>", JOIN])
def test_a_broken_message(client: httpx.Client, query: str) -> None:
    answer = client.post("/v1/try", json={"query": query, "message": "<order>\n<a></order>"})
    found = check_problem(answer, 422, "message")
    assert found["line"] == 2 and found["column"] >= 1 and found["reason"]


@pytest.mark.parametrize(
    "body",
    [
        {"query": "/a"},
        {"query": "/a", "messages": []},
        {"query": "/a", "messages": [{"body": "<a/>"}] * 21},
        {"query": "/a", "messages": [{"stream": "s"}]},
        {"query": JOIN, "messages": [{"body": "<a/>", "time": "soon"}]},
        {"query": JOIN, "messages": [{"body": "<a/>", "stream": "orders", "time": 1e300}]},
        {"query": "/a", "message": 1},
        {"message": "<a/>"},
    ],
    ids=range(8),
)
def test_what_cannot_be_tried(client: httpx.Client, body: object) -> None:
    check_problem(client.post("/v1/try", json=body), 422)


def test_a_time_that_is_no_number(client: httpx.Client) -> None:
    query = "a/x[@i->i] FOLLOWED BY{i = j, 1 day} b/y[@j->j]"
    content = f'{{"query": "{query}", "messages": [{{"body": "<x/>", "time": NaN}}]}}'
    answer = client.post("/v1/try", content=content, headers={"Content-Type": "application/json"})
    check_problem(answer, 422)


def test_costly_trials_end(client: httpx.Client) -> None:
    deep = "<a>" * 40 + "</a>" * 40
    answer = client.post("/v1/try", json={"query": "//a//a//a//a[count(//a//a) > 9999999]", "message": deep})
    assert answer.status_code in (200, 422)
    entities = '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx">]><a>&x;</a>'
    assert client.post("/v1/try", json={"query": "/a", "message": entities}).status_code in (200, 422)
