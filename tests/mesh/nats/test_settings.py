"""Settings of the NATS side: what is refused, and the names that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import ArgumentError
from sapwood.mesh.nats.jetstream import parse_delivery
from sapwood.mesh.nats.settings import TransportSettings

_SERVERS = ["nats://127.0.0.1:4222"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"mesh": "a.b"}, "'a.b' cannot be the name of a mesh"),
        ({"broker": "ä"}, "cannot be the name of a broker"),
        ({"broker": ""}, "cannot be the name of a broker"),
        ({"broker": "a\n"}, "cannot be the name of a broker"),
        ({"domain": "*"}, "cannot be the name of a domain"),
        ({"servers": []}, "no NATS server is given"),
        ({"window": 0}, "window is 0"),
        ({"ack_timeout": 0}, "ack_timeout"),
        ({"tls_key": Path("key.pem")}, "belong together"),
        ({"credentials_file": Path("missing.creds")}, "missing.creds is not a file"),
    ],
)
def test_what_cannot_be_used_is_refused(values: dict[str, Any], reason: str) -> None:
    arguments = {"mesh": "m", "broker": "b", "servers": _SERVERS} | values
    with pytest.raises(ArgumentError, match=reason):
        TransportSettings(**arguments)


def test_tls_files_that_cannot_be_read_are_refused() -> None:
    settings = TransportSettings("m", "b", _SERVERS, tls_ca=Path("missing.pem"))
    with pytest.raises(ArgumentError, match="TLS files"):
        settings.tls_context()
    assert TransportSettings("m", "b", _SERVERS).tls_context() is None


def test_streams_of_different_links_have_different_names() -> None:
    settings = TransportSettings("news", "b", _SERVERS)
    assert settings.stream("a", "b") == "SAPWOOD_news_LINK_a_b"
    assert settings.stream("a_b", "c") != settings.stream("a", "b_c")
    assert settings.inbound_subject("a") == "sapwood.news.link.a.b"
    assert settings.outbound_subject("a") == "sapwood.news.link.b.a"


def test_passwords_are_not_shown() -> None:
    shown = repr(TransportSettings("m", "b", _SERVERS, user="u", password="hush", token="secret"))
    assert "hush" not in shown and "secret" not in shown


def test_both_forms_of_acknowledgement_subjects_are_read() -> None:
    short = parse_delivery("$JS.ACK.S.d.2.17.5.1794960343315173588.9")
    long = parse_delivery("$JS.ACK.site.hash.S.d.2.17.5.1794960343315173588.9.token")
    assert short == long == (2, 17, 5, 9)
