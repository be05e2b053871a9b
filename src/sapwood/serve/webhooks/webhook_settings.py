"""The settings of one subscriber's webhook."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from sapwood.serve.webhooks.target_address import parse_target
from sapwood.serve.webhooks.webhook_signature import decode_secret, make_secret

_DAY = 24 * 3600


def _check_url(url: str) -> str:
    parse_target(url)
    return url


def _check_secret(secret: str) -> str:
    decode_secret(secret)
    return secret


Secret = Annotated[str, AfterValidator(_check_secret)]


class WebhookSettings(BaseModel):
    """Where the deliveries of a subscriber are sent, how they are signed, and how long sending is tried.

    Deliveries are sent in order, so one that fails holds up those behind it: it is a dead letter after
    `attempts` attempts, or `retry_for` seconds after the first, whichever comes first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: Annotated[str, AfterValidator(_check_url)]
    secret: Secret = Field(default_factory=make_secret, repr=False)
    """signs requests; made if it is not given"""
    previous_secrets: Annotated[tuple[Secret, ...], Field(max_length=3)] = Field(default=(), repr=False)
    """sign requests as well, while receivers change to a new secret"""
    timeout: float = Field(default=20.0, ge=0.1, le=120)
    """seconds that an attempt may take until the status is received"""
    connect_timeout: float = Field(default=5.0, ge=0.1, le=120)
    """seconds of them until the connection is made, name and TLS included"""
    attempts: int = Field(default=12, ge=1, le=1000)
    retry_for: float = Field(default=3600.0, ge=0, le=7 * _DAY)
    """seconds"""
    first_delay: float = Field(default=1.0, ge=0.01, le=3600)
    """seconds that the first retry waits at most; every further one waits up to twice as long"""
    max_delay: float = Field(default=300.0, ge=0.01, le=_DAY)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.first_delay > self.max_delay:
            raise ValueError(
                f"first_delay ({self.first_delay:g} s) is above max_delay ({self.max_delay:g} s): "
                "lower it, or raise max_delay"
            )
        return self

    def keys(self) -> list[bytes]:
        """Return the keys that sign requests, the current one first."""
        return [decode_secret(secret) for secret in (self.secret, *self.previous_secrets)]

    def host(self) -> str:
        """Return the host of the URL; the rest of a URL may hold a token, and is not for the log."""
        return parse_target(self.url).host
