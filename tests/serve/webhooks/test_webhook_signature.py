"""Signatures of webhooks, which the published implementation of Standard Webhooks verifies."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from sapwood.errors import ArgumentError
from sapwood.serve.webhooks.webhook_signature import decode_secret, make_secret, sign


def headers(delivery_id: str, timestamp: int, signature: str) -> dict[str, str]:
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature,
    }


@given(
    body=st.text(st.characters(exclude_categories=["Cs"])),
    delivery_id=st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1),
    key=st.binary(min_size=24, max_size=64),
)
def test_the_published_implementation_accepts_a_signature(body: str, delivery_id: str, key: bytes) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    now = int(time.time())
    signature = sign([decode_secret(secret)], delivery_id, now, body.encode())
    Webhook(secret).verify(body, headers(delivery_id, now, signature), json_parse=False)


def test_another_body_id_or_time_is_not_accepted() -> None:
    secret, now = make_secret(), int(time.time())
    signature = sign([decode_secret(secret)], "d-1", now, b"{}")
    webhook = Webhook(secret)
    webhook.verify(b"{}", headers("d-1", now, signature))
    for body, delivery_id, timestamp in [(b"{ }", "d-1", now), (b"{}", "d-2", now), (b"{}", "d-1", now - 1)]:
        with pytest.raises(WebhookVerificationError):
            webhook.verify(body, headers(delivery_id, timestamp, signature))


def test_during_rotation_receivers_with_either_secret_accept() -> None:
    new, old, now = make_secret(), make_secret(), int(time.time())
    signature = sign([decode_secret(new), decode_secret(old)], "d-1", now, b"{}")
    for secret in (new, old):
        Webhook(secret).verify(b"{}", headers("d-1", now, signature))
    with pytest.raises(WebhookVerificationError):
        Webhook(make_secret()).verify(b"{}", headers("d-1", now, signature))


def test_secrets_are_random_and_long() -> None:
    made = {make_secret() for _ in range(100)}
    assert len(made) == 100
    assert all(len(decode_secret(secret)) == 32 for secret in made)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "hunter2-hunter2-hunter2",
        "whsec_",
        "whsec_c2hvcnQ=",
        "whsec_" + "*" * 44,
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        base64.b64encode(bytes(32)).decode(),
        "whsec_é",
    ],
)
def test_a_wrong_secret_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ArgumentError, match="leave it out, and one is made") as caught:
        decode_secret(secret)
    if len(secret) > 8:
        assert secret.removeprefix("whsec_") not in str(caught.value)
