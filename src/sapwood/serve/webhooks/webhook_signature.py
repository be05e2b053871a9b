"""Signatures of webhooks as Standard Webhooks defines them: HMAC-SHA256 of id, time and body.

The signed text is `{id}.{timestamp}.{body}`; a secret is `whsec_` and the base64 of its bytes. While a secret
is replaced, a request carries signatures by the new one and the old one, so that receivers can change over.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable

from sapwood.errors import ArgumentError

_PREFIX = "whsec_"
_MADE_BYTES = 32
_LEAST_BYTES, _MOST_BYTES = 24, 64
"""the sizes of secrets that Standard Webhooks allows"""


def make_secret() -> str:
    """Return a new random secret."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_MADE_BYTES)).decode()


def decode_secret(secret: str) -> bytes:
    """Return the key of a secret; raises `ArgumentError`, which does not show the secret."""
    try:
        if not secret.startswith(_PREFIX):
            raise ValueError
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        raise ArgumentError(
            f"the secret of a webhook is {_PREFIX!r} and the base64 of {_LEAST_BYTES} to {_MOST_BYTES} "
            "random bytes; leave it out, and one is made"
        )
    return key


def sign(keys: Iterable[bytes], delivery_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`: one signature for each key."""
    signed = b"%s.%d.%s" % (delivery_id.encode(), timestamp, body)
    digests = (hmac.digest(key, signed, hashlib.sha256) for key in keys)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
