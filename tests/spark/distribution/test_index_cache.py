"""A restart loads the packed index if it is of use, and serves the same subscriptions as by compiling."""

from __future__ import annotations

import logging
from pathlib import Path
from unittest import mock

import pytest

from sapwood.engine import Limits
from sapwood.spark.distribution.match_worker import LiveBroker
from sapwood.spark.distribution.pipeline_subscriptions import StoreSubscriptions
from sapwood.store import NewSubscription, SubscriptionStore
from tests.spark.distribution.test_index_snapshot import Context

MESSAGE = b"<news><head/><body><p>oil</p></body></news>"


@pytest.fixture
def store(tmp_path: Path) -> str:
    location = str(tmp_path / "subscriptions.db")
    with SubscriptionStore(location) as opened:
        rows = [("a", "//p", "desk"), ("b", "/news/head", ""), ("c", "for $p in //p return <x>{$p}</x>", "")]
        opened.import_many(NewSubscription(id, query, subscriber) for id, query, subscriber in rows)
    return location


def serve(
    store: str,
    folder: Path,
    compiles: bool,
    version: int | None = None,
    limits: Limits | None = None,
    tenant: str = "",
) -> tuple[set[str], dict[str, str], dict[str, str]]:
    """The ids that a run delivers to, the subscribers and what is left out; fails if it compiles or not
    against expectation."""
    subscriptions = StoreSubscriptions(store, limits or Limits(), cache_folder=str(folder), tenant=tenant)
    try:
        with mock.patch.object(subscriptions, "_compile", wraps=subscriptions._compile) as compile:
            snapshot = subscriptions.snapshot(Context(), version or subscriptions.newest())
        assert compile.called == compiles
        live = LiveBroker(snapshot)
        live.advance(snapshot)
        return (
            {str(delivery.subscription) for delivery in live.broker.publish(MESSAGE)},
            dict(subscriptions.subscribers),
            dict(subscriptions.left_out),
        )
    finally:
        subscriptions.close()


def test_a_restart_loads_what_a_run_before_has_packed(store: str, tmp_path: Path) -> None:
    first = serve(store, tmp_path / "index", compiles=True)
    assert first == ({"a", "b", "c"}, {"a": "desk"}, {})
    assert serve(store, tmp_path / "index", compiles=False) == first


def test_changes_since_then_are_applied(store: str, tmp_path: Path) -> None:
    serve(store, tmp_path / "index", compiles=True)
    with SubscriptionStore(store) as opened:
        opened.remove("b")
        opened.add("d", "//body", subscriber="night")
        opened.add("joins", "s/a[@id->i] FOLLOWED BY{i = j, 1 day} s/b[@id->j]")
    found, subscribers, left_out = serve(store, tmp_path / "index", compiles=False)
    assert (found, subscribers) == ({"a", "c", "d"}, {"a": "desk", "d": "night"})
    assert list(left_out) == ["joins"]
    (tmp_path / "index/packed").unlink()
    assert serve(store, tmp_path / "index", compiles=True) == (found, subscribers, left_out)
    assert serve(store, tmp_path / "index", compiles=False) == (found, subscribers, left_out)


def test_another_tenant_of_the_store_has_its_own_subscriptions(store: str, tmp_path: Path) -> None:
    with SubscriptionStore(store, tenant="acme") as opened:
        opened.add("a", "//none")
        opened.add("z", "//body", subscriber="acme")
        opened.add("restricted", "//body", streams=["news"])
    serve(store, tmp_path / "index", compiles=True)
    acme = serve(store, tmp_path / "index", compiles=True, tenant="acme")
    assert acme == ({"z"}, {"z": "acme"}, {})
    assert serve(store, tmp_path / "index", compiles=False, tenant="acme") == acme


def test_another_store_other_settings_or_an_older_version_compile(store: str, tmp_path: Path) -> None:
    serve(store, tmp_path / "index", compiles=True)
    with SubscriptionStore(store) as opened:
        opened.add("d", "//body")
    serve(store, tmp_path / "index", compiles=True, limits=Limits(depth=7))
    serve(store, tmp_path / "index", compiles=False, limits=Limits(depth=7))
    serve(store, tmp_path / "index", compiles=True, limits=Limits(depth=7), version=1)
    Path(store).unlink()
    with SubscriptionStore(store) as opened:
        opened.import_many(NewSubscription(id, "//p") for id in "xyz")
    assert serve(store, tmp_path / "index", compiles=True, limits=Limits(depth=7))[0] == {"x", "y", "z"}


@pytest.mark.parametrize("damage", [b"", b"not a pickle", b"\x80\x05K\x01."])
def test_a_damaged_file_is_reported_and_replaced(
    store: str, tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    serve(store, tmp_path / "index", compiles=True)
    (tmp_path / "index/packed").write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert serve(store, tmp_path / "index", compiles=True)[0] == {"a", "b", "c"}
    assert "cannot be loaded" in caplog.text
    serve(store, tmp_path / "index", compiles=False)


def test_a_cut_file_is_not_used(store: str, tmp_path: Path) -> None:
    serve(store, tmp_path / "index", compiles=True)
    packed = tmp_path / "index/packed"
    packed.write_bytes(packed.read_bytes()[:-100])
    serve(store, tmp_path / "index", compiles=True)
