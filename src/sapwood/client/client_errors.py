"""The errors of requests to a broker service.

ClientError
├── Unauthorized     no key, or one that the broker does not know
├── Forbidden        a key without the scope, or a tenant whose quota is used up
├── NotFound         a subscription, subscriber or other thing that does not exist
├── Conflict         an id that is taken
│   └── PreconditionFailed  a subscription that has changed in the meantime
├── TooLarge         a request that exceeds a limit of the broker
├── InvalidRequest   arguments that the broker refuses
├── Overloaded       a broker that accepts no more for now
├── Unavailable      a broker that cannot be reached, or cannot answer now
└── ProtocolError    an answer that is not one of a Sapwood broker
"""

from __future__ import annotations

from typing import Any, ClassVar

from sapwood.errors import SapwoodError


class ClientError(SapwoodError):
    """Raised for a request that a broker refuses, or that does not reach it: what, where and what to do."""

    advice: ClassVar[str] = ""
    """what to do, in general"""

    def __init__(
        self,
        reason: str,
        *,
        request: str = "",
        status: int | None = None,
        slug: str | None = None,
        retry_after: float | None = None,
        problem: dict[str, Any] | None = None,
        hint: str | None = None,
    ) -> None:
        self.reason = reason
        self.request = request
        """the method and the address"""
        self.status = status
        """the HTTP status; None if there was no answer"""
        self.slug = slug
        """the kind of problem, as the broker names it"""
        self.retry_after = retry_after
        """seconds after which the broker asks to try again; None if it does not say"""
        self.problem = problem or {}
        """the problem details that the broker sent (RFC 9457)"""
        self.hint = self.advice if hint is None else hint
        text = f"{request}: {reason}" if request else reason
        super().__init__(f"{text}\n  hint: {self.hint}" if self.hint else text)

    def __reduce__(self) -> tuple[Any, ...]:
        details = {
            name: getattr(self, name)
            for name in ("request", "status", "slug", "retry_after", "problem", "hint")
        }
        return _rebuild, (type(self), self.reason, details)


def _rebuild(kind: type[ClientError], reason: str, details: dict[str, Any]) -> ClientError:
    return kind(reason, **details)


class Unauthorized(ClientError):
    """Raised for a request without a key, or with one that the broker does not know."""

    advice = "give a key that is valid: Client(key=…), --key, or the environment variable SAPWOOD_KEY"


class Forbidden(ClientError):
    """Raised for a request that the key does not permit, or that exceeds a quota of its tenant."""

    advice = "use a key with the scope that is needed, or ask the administrator of the broker"


class NotFound(ClientError):
    """Raised for a subscription, subscriber or other thing that does not exist."""

    advice = "check the name, and that the key is one of the right tenant"


class Conflict(ClientError):
    """Raised for an id that is taken, or for something that others still depend on; says what to do."""


class PreconditionFailed(Conflict):
    """Raised for a change of a subscription that has changed in the meantime."""

    advice = "read the subscription again, and repeat the change with its version"


class TooLarge(ClientError):
    """Raised for a request or a message that exceeds a limit of the broker."""

    advice = "send less at once, or raise the limit in the configuration of the broker"


class InvalidRequest(ClientError):
    """Raised for arguments that the broker refuses; says which."""


class Overloaded(ClientError):
    """Raised if a broker still accepts no more after all retries; `retry_after` says when it may."""

    advice = "send more slowly, or allow more retries: Client(retries=…)"


class Unavailable(ClientError):
    """Raised if a broker cannot be reached, or cannot answer now, after all retries."""

    may_repeat = True
    """whether the request can be repeated: False if it may have been carried out, and must not be twice"""
    advice = "check that the broker runs ('sapwood serve'), and its address: url, --url or SAPWOOD_URL"


class ProtocolError(ClientError):
    """Raised for an answer that is not one of a Sapwood broker of this version."""

    advice = "check that the address is that of a Sapwood broker, and not of a proxy or another service"
