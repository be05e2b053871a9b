"""The page at /docs: made from the OpenAPI document, with nothing of another host."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.support.service.running_server import RunningServer

pytestmark = pytest.mark.slow
ASSETS = ("/docs", "/docs/docs.css", "/docs/docs.js")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with RunningServer(tmp_path_factory.mktemp("docs")) as server, server.client() as client:
        yield client


@pytest.mark.parametrize("path", ASSETS)
def test_nothing_is_loaded_from_another_host(client: httpx.Client, path: str) -> None:
    answer = client.get(path).raise_for_status()
    assert not re.findall(r"(?:https?:|wss?:|[\"'(=])//\w|@import|\bimport\(", answer.text)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert not re.search(r"unsafe|https?:|\*", policy)


def test_what_the_page_refers_to_is_there(client: httpx.Client) -> None:
    page = client.get("/docs").text
    references = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert {"docs/docs.css", "docs/docs.js", "openapi.json"} <= set(references)
    for reference in references:
        if not reference.startswith("data:"):
            client.get(f"/{reference}").raise_for_status()
    ids = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'getElementById\("([^"]+)"\)', client.get("/docs/docs.js").text)) <= ids


def test_the_pages_of_the_framework_are_gone(client: httpx.Client) -> None:
    assert client.get("/redoc").status_code == 404
    assert "swagger" not in client.get("/docs").text.lower()


def test_every_endpoint_is_under_a_heading_of_the_page(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    headings = {tag["name"] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert set(operation["tags"]) <= headings, f"{method} {path}"
            assert operation["summary"], f"{method} {path}"
            assert operation["description"], f"{method} {path}"
    assert not any(path.startswith("/docs") for path in document["paths"])
