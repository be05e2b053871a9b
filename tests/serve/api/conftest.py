"""Servers that all tests of a module, or of all modules, share."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.serve.api.calls import open_client
from tests.support.service.running_server import RunningServer

CONFIG = """
[overload]
body = "4 MB"
pending_bytes = "4 MB"
messages = 200
[monitoring]
log_format = "json"
"""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server without keys, in which each test uses names of its own."""
    with RunningServer(tmp_path_factory.mktemp("open"), CONFIG) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    """A client of the server without keys."""
    with open_client(server) as client:
        yield client
