"""A stub of the broker service, and both clients behind one face."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.service.face import AsyncFace, Face, SyncFace
from tests.support.service.stub_server import StubServer


@pytest.fixture
def stub() -> Iterator[StubServer]:
    """A service that is running."""
    server = StubServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest, stub: StubServer) -> Iterator[Face]:
    """Each client in turn, connected to the stub."""
    kind = SyncFace if request.param == "sync" else AsyncFace
    with kind(stub.url) as face:
        yield face
