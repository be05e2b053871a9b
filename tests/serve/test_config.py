"""The errors of a server's file name the key and what is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood import Limits
from sapwood.config_file import ConfigError
from sapwood.serve.config import ServerConfig, parse_config, read_config


def refusal(text: str, folder: Path) -> str:
    path = folder / "server.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_config(path)
    return str(error.value)


def test_nothing_has_to_be_given(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text("")
    config = read_config(path)
    assert config.listen.port == 8080
    assert config.listen.is_loopback
    assert config.log.location == str(tmp_path / "sapwood.db")
    assert config.snapshot == f"{tmp_path / 'sapwood.db'}-snapshot"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[listen]\nprot = 1", "listen.prot: there is no such key; did you mean 'port'?"),
        ("[listen]\nport = 70000", "listen.port"),
        ("[listen]\ntls_key = 'k'", "belong together"),
        ("[log]\nkeep = 'soon'", "log.keep"),
        ("[tenants.a]\nsubscription = 1", "tenants.a.subscription: there is no such key; did you mean"),
        ("[inboxes]\npolicy = 'drop'", "inboxes.policy"),
        ("[quota]\nmessage_size = 'big'", "a size such as '512MB' or '2GB' is expected, not 'big'"),
        ("[limits]\nbits = 3", "'limits.bits': there is no such limit"),
        ("[overlaod]", "overlaod: there is no such key; did you mean 'overload'?"),
        ("[listen", "is not TOML"),
    ],
)
def test_wrong_keys_are_named(text: str, expected: str, tmp_path: Path) -> None:
    assert expected in refusal(text, tmp_path)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "none.toml")


def test_the_engine_gets_its_settings() -> None:
    config = parse_config(
        {
            "log": {"location": "postgresql://user@host/db", "keep": "2 days"},
            "limits": {"depth": 10},
            "streams": {"news": {"time": "/news/@time"}, "other": {}},
            "joins": {"lateness": "5 s"},
            "quota": {"subscriptions": 5},
            "tenants": {"a": {"query_cost": 7}},
        }
    )
    settings = config.engine_settings()
    assert settings.store == settings.log == "postgresql://user@host/db"
    assert settings.snapshot == "sapwood.snapshot"
    assert settings.limits == Limits(depth=10)
    assert settings.time_paths == {"news": "/news/@time"}
    assert (settings.lateness, settings.retention.unacknowledged) == (5.0, 2 * 86_400.0)
    assert settings.quota_of("a").query_cost == 7
    assert settings.quota_of("a").subscriptions is None  # a tenant's own quota is all it has
    assert settings.quota_of("b").subscriptions == 5


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_loopback(host: str) -> None:
    assert parse_config({"listen": {"host": host}}).listen.is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org"])
def test_not_loopback(host: str) -> None:
    assert not parse_config({"listen": {"host": host}}).listen.is_loopback


def test_defaults_are_valid() -> None:
    assert ServerConfig().engine_settings().log == "sapwood.db"
