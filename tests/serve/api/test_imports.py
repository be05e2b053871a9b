"""Imports of subscriptions: a report for each line."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

from tests.serve.api.calls import bodies, check_problem, publish, unique


def import_lines(client: httpx.Client, *lines: object, **options: Any) -> dict[str, Any]:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    answer = client.post("/v1/imports", content=text.encode(), **options)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert answer.headers["sapwood-version"] == str(found["version"])
    return found


def counts(report: dict[str, Any]) -> tuple[int, int, int, int]:
    return report["added"], report["replaced"], report["unchanged"], report["refused"]


def refused(report: dict[str, Any]) -> list[tuple[int, int]]:
    return [(error["line"], error["error"]["status"]) for error in report["errors"]]


def test_an_import(client: httpx.Client) -> None:
    name = unique("import")
    rows: list[dict[str, Any]] = [
        {"id": f"{name}-{n}", "query": f"/a[. = {n}]", "subscriber": name, "streams": [name]}
        for n in range(1_200)
    ]
    report = import_lines(client, *rows)
    assert counts(report) == (1_200, 0, 0, 0) and report["errors"] == []
    publish(client, name, "<a>1100</a>")
    assert bodies(client, name) == ["<a>1100</a>"]
    again = import_lines(client, *rows[:3])
    assert again["refused"] + again["unchanged"] == 3
    for row in rows[:2]:
        row["query"] = "/b"
    replaced = import_lines(client, *rows[:3], params={"replace": "true"})
    assert counts(replaced) == (0, 2, 1, 0)


def test_lines_that_are_refused(client: httpx.Client) -> None:
    name = unique("lines")
    report = import_lines(
        client,
        {"id": f"{name}-1", "query": "/a"},
        "",
        "not json",
        {"id": f"{name}-4", "query": "/order/"},
        {"id": f"{name}-5", "query": "/a", "unknown": 1},
        {"query": "/a"},
        {"id": f"{name}-7"},
        [],
        "   ",
        {"id": "", "query": "/a"},
        {"id": f"{name}-11", "query": "/a", "streams": ["s"], "active": False, "language": "xpath"},
        '{"id": "\\ud800", "query": "/a"}',
        {"id": "a\0", "query": "/a"},
        {"id": f"{name}-14", "query": "/a", "language": "for-where-return"},
    )
    assert counts(report) == (2, 0, 0, 10)
    assert refused(report) == [(line, 422) for line in (3, 4, 5, 6, 7, 8, 10, 12, 13, 14)]
    by_line = {error["line"]: error for error in report["errors"]}
    assert by_line[4]["id"] == f"{name}-4"
    assert by_line[4]["error"]["type"] == "urn:sapwood:problem:query"
    assert by_line[4]["error"]["caret"] == "/order/\n       ^" and by_line[4]["error"]["column"] == 8
    assert "unknown" in by_line[5]["error"]["detail"]


def test_equal_ids_in_one_import(client: httpx.Client) -> None:
    name = unique("equal")
    first, second, third = (f"{name}-{letter}" for letter in "xyz")
    report = import_lines(
        client,
        {"id": first, "query": "/a"},
        {"id": first, "query": "/b"},
        {"id": first, "query": "/c["},
        {"id": second, "query": "/a["},
        {"id": second, "query": "/b"},
        {"id": third, "query": "/a"},
        {"id": third, "query": "/a["},
        {"id": third, "query": "/b"},
    )
    assert counts(report) == (3, 0, 0, 5)
    assert refused(report) == [(2, 409), (3, 422), (4, 422), (7, 422), (8, 409)]
    queries = [client.get(f"/v1/subscriptions/{id}").json()["query"] for id in (first, second, third)]
    assert queries == ["/a", "/b", "/a"]


def test_equal_ids_replace_each_other(client: httpx.Client) -> None:
    id = unique("last")
    rows = [{"id": id, "query": query} for query in ("/a", "/b[", "/c")]
    report = import_lines(client, *rows, params={"replace": "true"})
    assert refused(report) == [(2, 422)]
    assert client.get(f"/v1/subscriptions/{id}").json()["query"] == "/c"


def test_a_compressed_import(client: httpx.Client) -> None:
    id = unique("compressed")
    body = gzip.compress(json.dumps({"id": id, "query": "/a"}).encode())
    answer = client.post("/v1/imports", content=body, headers={"Content-Encoding": "gzip"})
    assert counts(answer.json()) == (1, 0, 0, 0)
    check_problem(client.post("/v1/imports", content=body[:-4], headers={"Content-Encoding": "gzip"}), 400)
    check_problem(client.post("/v1/imports", content=b"", headers={"Content-Encoding": "br"}), 415)


@pytest.mark.parametrize("body", [b"", b"\n\n", b"\r\n \r\n"])
def test_an_import_of_nothing(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/v1/imports", content=body)
    assert answer.status_code == 200 and counts(answer.json()) == (0, 0, 0, 0)
