"""Settings and fixtures of all tests.

A run gives the same verdict twice: hypothesis draws from fixed seeds. `make fuzz` explores with fresh ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from sapwood.engine.fallback.process_pool import POOL
from tests.support.requirements import FULL

settings.register_profile("fixed", derandomize=True, database=None, print_blob=True)
settings.load_profile("fixed")

_TESTS = Path(__file__).parent
_MARK_OF_FOLDER = {"bench": "slow", "demo": "spark", "spark": "spark"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that need Spark or a server, and those of slow folders, for `make test-fast`.

    Several processes begin with Spark, whose files take longest, so that none waits long for the last one.
    """
    for item in items:
        mark = _MARK_OF_FOLDER.get(item.path.relative_to(_TESTS).parts[0])
        if mark is not None:
            item.add_marker(mark)
        parameters = getattr(item, "callspec", None)
        if parameters is not None and "postgresql" in parameters.params.values():
            item.add_marker("server")
        if not FULL and item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.skip("takes half a minute or more: make test-full"))
    if hasattr(config, "workerinput"):  # of pytest-xdist
        items.sort(key=lambda item: item.get_closest_marker("spark") is None)


_QUICK_JAVA = [
    # quick to start, and never gets fast
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # plans of a few rows are not worth a second thought, nor compiling
    "-Dspark.sql.adaptive.enabled=false",
    "-Dspark.sql.codegen.wholeStage=false",
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
]


class _User:
    """An object that keeps the processes that evaluate with lxml until the tests end."""


@pytest.fixture(scope="session", autouse=True)
def standing_pool() -> Iterator[None]:
    """Keeps a process that evaluates with lxml from one test's matcher to the next one's."""
    leave = POOL.enter(user := _User())
    yield
    leave()
    del user


@pytest.fixture(scope="session", autouse=True)
def plain_log(pytestconfig: pytest.Config) -> Iterator[None]:
    """Keeps the format of the log in `caplog`.

    pytest adds its handlers to every logger that does not propagate, and those that PySpark makes at its
    first error turn each handler that they are given into one that writes JSON.
    """
    plugin = pytestconfig.pluginmanager.get_plugin("logging-plugin")
    assert plugin is not None
    with pytest.MonkeyPatch.context() as patch:
        for handler in (plugin.caplog_handler, plugin.report_handler):
            patch.setattr(handler, "setFormatter", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """A Java for a few rows, also in processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", " ".join(_QUICK_JAVA))
        yield
