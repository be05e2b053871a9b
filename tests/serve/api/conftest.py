"""Servers that all tests of a module, or of all modules, share."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from threading import Thread

import httpx
import pytest

from tests.serve.api.calls import listen, open_client
from tests.support.service.running_server import RunningServer

CONFIG = """
[overload]
body = "4 MB"
pending_bytes = "4 MB"
messages = 200
"""
SPARE_CONFIG = """
[monitoring]
log_format = "json"
[limits]
query_seconds = 0.2
"""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of this folder, which need a server each, or share one."""
    item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server without keys, in which each test uses names of its own."""
    with RunningServer(tmp_path_factory.mktemp("open"), CONFIG) as running:
        yield running


@pytest.fixture(scope="session")
def spare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that tests may disturb, as long as it works afterwards."""
    with RunningServer(tmp_path_factory.mktemp("spare"), SPARE_CONFIG) as running:
        yield running


@pytest.fixture(scope="session")
def heartbeat(server: RunningServer) -> Future[dict[str, str]]:
    """What a listener without deliveries is sent, which takes 15 seconds, during which other tests run."""
    found: Future[dict[str, str]] = Future()

    def wait() -> None:
        try:
            with open_client(server) as client:
                client.put("/v1/subscribers/quiet", json={})
                with listen(client, "quiet") as events:
                    assert events.next() == {"retry": "1000"}
                    found.set_result(events.next())
        except (AssertionError, EOFError, httpx.HTTPError) as error:  # also if the tests end before
            found.set_exception(error)

    Thread(target=wait, daemon=True).start()
    return found


@pytest.fixture
def client(server: RunningServer, heartbeat: Future[dict[str, str]]) -> Iterator[httpx.Client]:
    """A client of the server without keys."""
    with open_client(server) as client:
        yield client
