"""Subscriptions: created, replaced, paused, deleted and listed, and from which message on a change holds."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.serve.api.calls import bodies, check_problem, publish, pull, subscribe, unique

JOIN = "orders/order[@id->i] FOLLOWED BY{i = j, 1 day} payments/payment[@for->j]"


def path(id: str) -> str:
    """Return the address of a subscription; dots are escaped, since clients resolve `..`."""
    return f"/v1/subscriptions/{quote(id, safe='').replace('.', '%2E')}"


def put(client: httpx.Client, id: str, query: str = "/a", **fields: Any) -> httpx.Response:
    headers = fields.pop("headers", {})
    return client.put(path(id), json={"query": query, **fields}, headers=headers)


# -- create, read, replace, delete -------------------------------------------------------------------------


def test_create_and_read(client: httpx.Client) -> None:
    id = unique("created")
    given = {"id": id, "query": "/a[b > 1]", "subscriber": "desk", "streams": ["orders", "more"]}
    made = client.post("/v1/subscriptions", json=given)
    assert made.status_code == 201
    found = made.json()
    version = found.pop("version")
    assert found == given | {"language": "xpath", "active": True, "confirmed": None}
    assert made.headers["etag"] == f'"{version}"'
    assert int(made.headers["sapwood-version"]) >= version
    assert made.headers["location"] == f"/v1/subscriptions/{id}"
    read = client.get(path(id))
    assert read.json() == made.json() and read.headers["etag"] == made.headers["etag"]
    check_problem(client.post("/v1/subscriptions", json=given), 409, "conflict")


def test_an_id_is_made(client: httpx.Client) -> None:
    ids = {client.post("/v1/subscriptions", json={"query": "/a"}).json()["id"] for _ in range(3)}
    assert len(ids) == 3 and all(client.get(path(id)).status_code == 200 for id in ids)


@pytest.mark.parametrize(
    ("query", "language"),
    [("//a", "xpath"), ("for $a in /a return <b/>", "for-where-return"), (JOIN, "xscl")],
)
def test_languages(client: httpx.Client, query: str, language: str) -> None:
    made = client.post("/v1/subscriptions", json={"query": query})
    assert made.json()["language"] == language
    given = client.post("/v1/subscriptions", json={"query": query, "language": language})
    assert given.status_code == 201
    others = {"xpath", "for-where-return", "xscl"} - {language}
    if language == "xpath":
        others.remove("xscl")  # in which a path alone is a query, too
    for other in others:
        check_problem(client.post("/v1/subscriptions", json={"query": query, "language": other}), 422)


def test_replace_under_conditions(client: httpx.Client) -> None:
    id = unique("conditions")
    check_problem(put(client, id, headers={"If-Match": '"1"'}), 412, "precondition-failed")
    check_problem(put(client, id, headers={"If-Match": "*"}), 412, "precondition-failed")
    first = put(client, id, headers={"If-None-Match": "*"})
    assert first.status_code == 201
    assert put(client, id, headers={"If-None-Match": "*"}).status_code == 412
    etag = first.headers["etag"]
    second = put(client, id, "/b", headers={"If-Match": etag})
    assert second.status_code == 200 and second.headers["etag"] != etag
    for stale in (etag, '"999999"', "nonsense", '"x"', '""', '"' + "9" * 30 + '"'):
        check_problem(put(client, id, "/c", headers={"If-Match": stale}), 412, "precondition-failed")
        check_problem(client.patch(path(id), json={"active": False}, headers={"If-Match": stale}), 412)
        check_problem(client.delete(path(id), headers={"If-Match": stale}), 412)
    assert client.get(path(id)).json()["query"] == "/b"
    assert put(client, id, "/d", headers={"If-Match": "*"}).status_code == 200
    current = client.get(path(id)).headers["etag"]
    patched = client.patch(path(id), json={"active": False}, headers={"If-Match": current})
    assert patched.status_code == 200
    deleted = client.delete(path(id), headers={"If-Match": patched.headers["etag"]})
    assert deleted.status_code == 200
    assert deleted.headers["sapwood-version"] == str(deleted.json()["version"])
    check_problem(client.get(path(id)), 404, "not-found")
    check_problem(client.delete(path(id)), 404, "not-found")
    check_problem(client.patch(path(id), json={"active": True}), 404, "not-found")


def test_a_replacement_replaces_all_fields_and_a_patch_some(client: httpx.Client) -> None:
    id = unique("fields")
    put(client, id, "/a", subscriber="one", streams=["s"], active=False)
    replaced = put(client, id, "/b").json()
    assert (replaced["subscriber"], replaced["streams"], replaced["active"]) == ("", [], True)
    changes: tuple[dict[str, Any], ...] = (
        {"subscriber": "two"},
        {"streams": ["x", "y"]},
        {"active": False},
        {"query": "for $a in /a return <b/>"},
        {"streams": []},
        {"subscriber": ""},
    )
    for change in changes:
        before = client.get(path(id)).json()
        after = client.patch(path(id), json=change).json()
        changed = {name for name in before if before[name] != after[name]} - {"version", "language"}
        assert changed == set(change), change
    assert client.get(path(id)).json()["language"] == "for-where-return"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": 1},
        {"query": None},
        {"query": "/a", "unknown": 1},
        {"query": "/a", "streams": "orders"},
        {"query": "/a", "streams": [""]},
        {"query": "/a", "streams": ["a", "a"]},
        {"query": "/a", "streams": ["x" * 201]},
        {"query": "/a", "language": "sql"},
        {"query": "/a", "active": "perhaps"},
        {"query": "/a", "id": ""},
        {"query": "/a", "id": "x" * 501},
        {"query": "/a", "id": "a\0b"},
        {"query": "/a", "subscriber": "a\0b"},
        {"query": "/a\0"},
        {"query": ""},
        {"query": JOIN, "streams": ["orders"]},
        [],
        "text",
        None,
    ],
    ids=range(20),
)
def test_what_is_no_subscription(client: httpx.Client, body: object) -> None:
    found = check_problem(client.post("/v1/subscriptions", json=body), 422)
    assert found["type"].rpartition(":")[2] in ("invalid", "query")


@pytest.mark.parametrize("body", ["", "{", "nonsense", b"\xff", "[" * 100_000, '{"query": "\\ud800"}'])
def test_what_is_no_json(client: httpx.Client, body: str | bytes) -> None:
    answer = client.post("/v1/subscriptions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    check_problem(answer, answer.status_code)


# -- errors of queries -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "line", "column"),
    [
        ("/order/", 1, 8),
        ("/a[b = ]", 1, 8),
        ("/ns:a", 1, None),
        ("for $a in /a\nreturn <b>{$c}</b>", 2, None),
        ("orders/order[@id->i] FOLLOWED BY{i = j", 1, None),
    ],
)
def test_errors_of_queries(client: httpx.Client, query: str, line: int, column: int | None) -> None:
    for answer in (
        client.post("/v1/subscriptions", json={"query": query}),
        put(client, unique("wrong"), query),
        client.post("/v1/explain", json={"query": query}),
        client.post("/v1/try", json={"query": query, "message": "<a/>"}),
    ):
        found = check_problem(answer, 422, "query")
        assert found["line"] == line and (column is None or found["column"] == column)
        shown, caret = found["caret"].split("\n")
        assert caret.strip() == "^" and shown.strip() and shown.strip() in query
        assert found["reason"] in found["detail"]
        assert query[found["position"] :].startswith(query.split("\n")[line - 1][found["column"] - 1 :])
    assert any(
        "hint" in check_problem(put(client, "w", wrong), 422) for wrong in ("/order/", "/ns:a", "/a[b == 1]")
    )


# -- ids in addresses --------------------------------------------------------------------------------------

ODD = [
    "a/b",
    "/a",
    "a/",
    "a//b",
    "..",
    "../x",
    "a/../b",
    ".",
    "a b",
    " ",
    "ü→😀",
    "a%2Fb",
    "%",
    "a?b",
    "a#b",
    "a;b",
    "a\nb",
    '"',
    "'; DROP TABLE x; --",
    "explain",
    "x" * 500,
]


@pytest.mark.parametrize("id", ODD, ids=range(len(ODD)))
def test_odd_ids(client: httpx.Client, id: str) -> None:
    made = client.post("/v1/subscriptions", json={"id": id, "query": "/a"})
    assert made.status_code == 201 and made.json()["id"] == id
    assert client.get(made.headers["location"]).json()["id"] == id
    assert client.get(path(id)).json()["id"] == id
    assert put(client, id, "/b").status_code == 200
    assert client.patch(path(id), json={"active": False}).json()["id"] == id
    assert client.patch(path(id), json={"active": True}).json()["active"] is True
    explained = client.get("/v1/explain", params={"subscription": id})
    assert explained.status_code == 200 and explained.json()["query"] == "/b"
    assert client.delete(path(id)).status_code == 200
    check_problem(client.get(path(id)), 404)


def test_ids_that_cannot_be(client: httpx.Client) -> None:
    for id in ("", "x" * 501, "x" * 5_000):
        assert put(client, id).status_code in (404, 405, 422)
        assert client.get(path(id)).status_code in (200, 404, 422)
    for escaped in ("%00", "a%00b", "%ff"):
        check_problem(client.get(f"/v1/subscriptions/{escaped}"), 404)
    check_problem(client.put("/v1/subscriptions/a%00b", json={"query": "/a"}), 422)


# -- lists -------------------------------------------------------------------------------------------------


def ids(client: httpx.Client, **parameters: Any) -> list[str]:
    found, after = [], None
    while True:
        page = client.get("/v1/subscriptions", params=parameters | ({"after": after} if after else {}))
        assert page.status_code == 200, page.text
        found += [subscription["id"] for subscription in page.json()["subscriptions"]]
        after = page.json()["next"]
        if after is None:
            return found


def test_pages_and_filters(client: httpx.Client) -> None:
    mark = unique("filter")
    made = {
        "a": {"query": f"/{mark}", "subscriber": f"{mark}-one", "streams": [f"{mark}-s", "t"]},
        "b": {"query": f"for $x in /{mark} return <x/>", "subscriber": f"{mark}-one", "active": False},
        "c": {"query": f"/{mark}[. = '100%_']", "subscriber": f"{mark}-two", "streams": ["t"]},
        "d": {"query": f"{mark}/a[@x->i] FOLLOWED BY{{i = j, 1 day}} {mark}/b[@y->j]"},
    }
    for letter, fields in made.items():
        put(client, f"{mark}-{letter}", **fields)  # type: ignore[arg-type]
    every = [f"{mark}-{letter}" for letter in made]

    def found(**parameters: Any) -> str:
        return "".join(id[-1] for id in ids(client, **{"text": mark, **parameters}))

    assert ids(client, text=mark) == every
    for limit in (1, 2, 3, 4, 5):
        assert ids(client, text=mark, limit=limit) == every
    assert found(subscriber=f"{mark}-one") == "ab"
    assert found(language="xpath") == "ac" and found(language="xscl") == "d"
    assert found(active="false") == "b" and found(active="true") == "acd"
    assert found(stream="t") == "ac" and found(stream=f"{mark}-s") == "a" and found(stream=f"{mark}-") == ""
    assert found(subscriber=f"{mark}-one", active="true", stream="t", language="xpath") == "a"
    assert found(text=f"{mark.upper()}-C") == "c"
    assert found(text="100%_") == "c" and found(text=f"{mark}_") == "" and found(text=f"{mark}%") == ""
    put(client, f"{mark}-a", f"/{mark}/replaced")
    assert ids(client, text=mark) == every  # a replaced one keeps its place
    client.delete(path(f"{mark}-b"))
    assert found() == "acd"
    page = client.get("/v1/subscriptions", params={"limit": 1}).json()
    assert page["version"] >= page["subscriptions"][0]["version"]


def test_wrong_pages(client: httpx.Client) -> None:
    for query in (
        "limit=0",
        "limit=1001",
        "after=x",
        "after=-1",
        "after=1.5",
        "language=sql",
        "active=perhaps",
    ):
        check_problem(client.get(f"/v1/subscriptions?{query}"), 422, "invalid")
    for name in ("text", "subscriber", "stream"):
        check_problem(client.get("/v1/subscriptions", params={name: "a\0"}), 422, "invalid")


# -- what is delivered -------------------------------------------------------------------------------------


def test_a_change_holds_from_a_definite_message_on(client: httpx.Client) -> None:
    name = unique("definite")
    id = f"{name}-id"
    expected = []
    for number in range(30):
        step = number % 4
        if step == 0:
            changed = put(client, id, "/a", subscriber=name, streams=[name])
        elif step == 1:
            changed = put(
                client, id, "for $a in /a return <b>{$a/text()}</b>", subscriber=name, streams=[name]
            )
        elif step == 2:
            changed = client.patch(path(id), json={"active": False})
        else:
            changed = client.delete(path(id))
        version = int(changed.headers["sapwood-version"])
        receipt = publish(client, name, f"<a>{number}</a>").json()
        assert receipt["version"] >= version
        if step == 0:
            assert receipt["version"] == version  # nobody else changes anything here
        expected += {0: [f"<a>{number}</a>"], 1: [f"<b>{number}</b>"]}.get(step, [])
        assert receipt["deliveries"] == (step < 2)
    assert bodies(client, name) == expected


def test_streams_transformations_and_joins(client: httpx.Client) -> None:
    name = unique("kinds")  # times are later than those of other tests, since joins have one event time
    one, other = f"{name}-one", f"{name}-other"
    subscribe(client, name, "/a", streams=(one,))
    subscribe(client, name, "for $a in /a return <made>{$a/b}</made>", streams=(other,))
    join = f"{name}o/order[@id->i] FOLLOWED BY{{i = j, 1 day}} {name}p/payment[@for->j]"
    subscribe(client, name, join)
    publish(client, one, "<a>1</a>")
    publish(client, other, "<a><b>2</b></a>")
    publish(client, f"{name}o", '<order id="7"/>', headers={"Sapwood-Time": "4000000100"})
    publish(client, f"{name}p", '<payment for="8"/>', headers={"Sapwood-Time": "4000000101"})
    publish(client, f"{name}p", '<payment for="7"/>', headers={"Sapwood-Time": "4000000102"})
    assert bodies(client, name) == [
        "<a>1</a>",
        "<made><b>2</b></made>",
        '<joined><order id="7"/><payment for="7"/></joined>',
    ]


def test_a_subscription_without_subscriber_delivers_to_nobody(client: httpx.Client) -> None:
    name = unique("nobody")
    put(client, name, f"/{name}")
    assert publish(client, name, f"<{name}/>").status_code == 201
    check_problem(client.get("/v1/subscribers/%20"), 404)


def test_namespaces(client: httpx.Client) -> None:
    prefix = unique("p")
    name = f"{prefix}-desk"
    query = f"/{prefix}:a"
    check_problem(client.post("/v1/subscriptions", json={"query": query}), 422, "query")
    declared = client.put("/v1/namespaces", json={"namespaces": {prefix: "urn:x"}})
    assert declared.status_code == 200 and int(declared.headers["sapwood-version"]) > 0
    assert client.get("/v1/namespaces").json()["namespaces"][prefix] == "urn:x"
    subscribe(client, name, query, streams=(name,))
    publish(client, name, "<a xmlns='urn:x'/>")
    publish(client, name, "<a/>")
    assert bodies(client, name) == ["<a xmlns='urn:x'/>"]
    assert client.put("/v1/namespaces", json={"namespaces": {prefix: "urn:x"}}).status_code == 200
    for wrong in (
        {prefix: "urn:other"},
        {"": "urn:y"},
        {"a b": "urn:y"},
        {"xml": "urn:y"},
        {"q": ""},
        {"q": 1},
    ):
        check_problem(client.put("/v1/namespaces", json={"namespaces": wrong}), 422)
    assert pull(client, name)["backlog"] == 1
