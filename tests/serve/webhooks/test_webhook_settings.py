"""The settings of a webhook: what is refused, and with which words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sapwood.serve.webhooks.webhook_settings import WebhookSettings
from sapwood.serve.webhooks.webhook_signature import decode_secret, make_secret

URL = "https://hooks.example/in"


def test_a_url_suffices() -> None:
    settings = WebhookSettings.model_validate({"url": URL})
    assert settings.keys() == [decode_secret(settings.secret)]
    assert settings.host() == "hooks.example"


def test_settings_survive_being_stored() -> None:
    settings = WebhookSettings(url=URL, previous_secrets=(make_secret(),))
    assert WebhookSettings.model_validate_json(settings.model_dump_json()) == settings
    assert len(settings.keys()) == 2


def test_secrets_are_not_in_a_representation() -> None:
    settings = WebhookSettings(url=URL, previous_secrets=(make_secret(),))
    for secret in (settings.secret, *settings.previous_secrets):
        assert secret not in repr(settings)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "url"),
        ({"url": "ftp://host/"}, "begins with https:// or http://"),
        ({"url": "hooks.example/in"}, "begins with https:// or http://"),
        ({"url": "https:///path"}, "names a host"),
        ({"url": "https://a:b@host/"}, "no user or password"),
        ({"url": "https://host/#x"}, "no fragment"),
        ({"url": "https://host:99999/"}, "from 1 to 65535, not 99999"),
        ({"url": "https://host:port/"}, "not valid"),
        ({"url": "https://host:0/"}, "from 1 to 65535"),
        ({"url": "https://ho st/"}, "names a host"),
        ({"url": "https://host/" + 3000 * "x"}, "at most 2,000 characters"),
        ({"url": URL, "secret": "hunter2"}, "leave it out, and one is made"),
        ({"url": URL, "previous_secrets": ["hunter2"]}, "leave it out"),
        ({"url": URL, "attempts": 0}, "greater than or equal to 1"),
        ({"url": URL, "timeout": 1e9}, "less than or equal to 120"),
        ({"url": URL, "first_delay": 60, "max_delay": 10}, "first_delay (60 s) is above max_delay (10 s)"),
        ({"url": URL, "headers": {}}, "Extra inputs are not permitted"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        WebhookSettings.model_validate(given)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)
