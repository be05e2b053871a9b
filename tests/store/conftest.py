"""Every test of the store runs on SQLite and on PostgreSQL, where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from sapwood.store import SubscriptionStore
from tests.support import postgres
from tests.support.requirements import missing


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    found = postgres.programs()
    if found is None:
        missing("there are no PostgreSQL server programs on this machine")
    with postgres.running(found) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Gives locations where no store has been yet."""
    if request.param == "postgresql":
        server: postgres.Server = request.getfixturevalue("server")
        return server.fresh
    numbers = count(1)
    return lambda: f"sqlite:///{tmp_path / f'{next(numbers)}.db'}"


@pytest.fixture
def location(fresh: Callable[[], str]) -> str:
    return fresh()


@pytest.fixture
def store(location: str) -> Iterator[SubscriptionStore]:
    with SubscriptionStore(location) as store:
        yield store
