"""The locations of stores, and errors that never contain a password."""

from __future__ import annotations

import sqlite3
import sys
import traceback
from pathlib import Path

import pytest

from sapwood.errors import StoreError
from sapwood.store import SubscriptionStore
from sapwood.store.store_location import locate, mask_password
from tests.support.postgres import Server


def refusal(location: str, create: bool = True) -> str:
    with pytest.raises(StoreError) as caught:
        SubscriptionStore(location, create=create)
    told = str(caught.value)
    assert "\n" not in told
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    return told


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("subs.db", "sqlite:///subs.db"),
        ("/var/subs.db", "sqlite:////var/subs.db"),
        ("sqlite:///subs.db", "sqlite:///subs.db"),
        ("with space?and#more.db", "sqlite:///with space%3Fand%23more.db"),
        ("postgresql://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgres://u@h:5433/d", "postgresql+psycopg://u@h:5433/d"),
        ("postgresql+psycopg://h/d", "postgresql+psycopg://h/d"),
    ],
)
def test_a_path_or_a_url(text: str, url: str) -> None:
    assert locate(text).render_as_string(hide_password=False) == url


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mysql://u:hush@h/d", "no store can be kept at mysql://"),
        ("postgresql+psycopg2://u:hush@h/d", "no store can be kept at postgresql+psycopg2://"),
        ("postgresql://u:hush", "malformed"),
        ("postgresql://h:hush/d", "malformed"),
        ("postgresql:hush", "lacks its slashes"),
        ("sqlite:subs.db", "lacks its slashes"),
        ("sqlite://subs.db", "three slashes"),
        ("sqlite:///subs.db?mode=ro", "no options"),
        ("sqlite://", "needs a file"),
        (":memory:", "needs a file"),
        ("sqlite:///file::memory:?cache=shared", "no options"),
        ("file:subs.db", "needs a file"),
        ("", "needs a file"),
        ("a\0b", "NUL"),
        ("://", "no store can be kept"),
    ],
)
def test_other_locations_are_refused(text: str, says: str) -> None:
    assert says in refusal(text)


def test_passwords_are_never_shown() -> None:
    for text in (
        "postgresql://u:hush@h/d",
        "postgresql://u@h/d?password=hush&sslpassword=hush&sslmode=require",
    ):
        assert "hush" not in mask_password(locate(text))
        assert "u" in mask_password(locate(text))
    assert "sslmode=require" in mask_password(locate(text))


def test_a_server_that_cannot_be_reached_is_one_line() -> None:
    told = refusal("postgresql://u:hush@127.0.0.1:1/d?password=hush")
    assert told.startswith("'postgresql://u:***@127.0.0.1:1/d': connection failed")
    assert "refused" in told
    assert "nowhere.invalid" in refusal("postgresql://u:hush@nowhere.invalid/d")
    assert "invalid" in refusal("postgresql://u:hush@127.0.0.1/d?nonsense=1")


def test_a_database_that_is_not_there_is_one_line(server: Server) -> None:
    assert "does not exist" in refusal(server.url().replace("/postgres?", "/nothing?"))


def test_without_psycopg_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert (
        refusal("postgresql://u:hush@h/d")
        == "PostgreSQL needs psycopg: in a clone of Sapwood, pip install '.[postgres]'"
    )


def test_a_store_is_made_only_where_it_may_be(location: str, tmp_path: Path) -> None:
    assert "there is no store" in refusal(location, create=False)
    assert list(tmp_path.iterdir()) == []
    with SubscriptionStore(location) as store:
        store.add("s", "//a")
    with SubscriptionStore(location, create=False) as store:
        assert len(store) == 1
        assert "hush" not in repr(store) + store.name
    with SubscriptionStore(location) as store:
        assert store.version == 1


def test_an_empty_database_holds_no_store(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    assert "there is no store in" in refusal(str(tmp_path / "empty.db"), create=False)


def test_files_that_are_no_store_are_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("dear diary, " * 500)
    assert "file is not a database" in refusal(str(text))
    assert text.read_text().startswith("dear diary")
    assert "unable to open" in refusal(str(tmp_path / "no" / "folder.db"))
    assert "unable to open" in refusal(str(tmp_path))


def test_a_store_of_another_layout_is_not_touched(tmp_path: Path) -> None:
    path = str(tmp_path / "subs.db")
    SubscriptionStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sapwood_state SET layout = 99")
    connection.close()
    assert "another version of Sapwood" in refusal(path)


def test_readers_do_not_stop_a_writer(tmp_path: Path) -> None:
    path = str(tmp_path / "subs.db")
    with SubscriptionStore(path) as store:
        store.add("s", "//a")
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
