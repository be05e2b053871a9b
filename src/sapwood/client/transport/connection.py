"""What both clients share: the address, the key, timeouts, and the translation of answers and failures."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, TypeVar

import httpx

from sapwood.client.calls.api_call import Call
from sapwood.client.calls.problem_details import error_from_answer
from sapwood.client.client_errors import ProtocolError, Unavailable
from sapwood.client.transport.retry_policy import Attempts, RetryPolicy
from sapwood.errors import ArgumentError, SapwoodError

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE, KEY_VARIABLE = "SAPWOOD_URL", "SAPWOOD_KEY"
TIMEOUT = 30.0
"""seconds that an answer may take, beyond those that the broker is asked to wait"""
_CONNECT_TIMEOUT = 10.0
SILENCE = 45.0
"""seconds without a byte after which an event stream counts as lost: brokers send a heartbeat every 15"""


class ConnectionSettings:
    """The address of a broker and how to speak to it, without I/O."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        timeout: float = TIMEOUT,
        retries: int | RetryPolicy = 5,
    ) -> None:
        self.url = _check_url(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL)
        self._key = key or os.environ.get(KEY_VARIABLE) or None
        if self._key is not None and not (self._key.isascii() and self._key.isprintable()):
            raise ArgumentError("the key has characters that no key has: copy it again")
        if timeout <= 0:
            raise ArgumentError(f"the timeout must be a positive number of seconds, not {timeout!r}")
        self.timeout = timeout
        self.policy = RetryPolicy(retries) if isinstance(retries, int) else retries

    def http_options(self) -> dict[str, Any]:
        """Return the arguments of the HTTP client."""
        headers = {"Accept": "application/json", "User-Agent": "sapwood"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        # A proxy of the environment cannot reach the loopback interface of this machine.
        return {"base_url": self.url, "headers": headers, "trust_env": not _is_loopback(self.url)}

    def start(self) -> Attempts:
        """Return the count of attempts for a new request."""
        return Attempts(self.policy)

    def request_options(self, call: Call[Any], *, stream: bool = False) -> dict[str, Any]:
        """Return the arguments with which the HTTP client builds the request of a call."""
        read = SILENCE if stream else self.timeout + call.patience
        return {
            "method": call.method,
            "url": call.path,
            "params": dict(call.params) or None,
            "headers": dict(call.headers),
            "content": call.content,
            "timeout": httpx.Timeout(read, connect=_CONNECT_TIMEOUT),
        }

    def describe(self, call: Call[Any]) -> str:
        """Return the method and the address of a call, for errors."""
        return f"{call.method} {self.url}{call.path}"

    def read_answer(self, call: Call[T], status: int, headers: Mapping[str, str], body: bytes) -> T:
        """Return the result of a call, or raise the error that the broker answered with."""
        if status >= 300:
            raise self.error(call, status, headers, body)
        try:
            return call.read(json.loads(body) if body else {})
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ProtocolError(
                f"the answer cannot be read: {type(error).__name__}: {error}", request=self.describe(call)
            ) from error

    def error(self, call: Call[Any], status: int, headers: Mapping[str, str], body: bytes) -> SapwoodError:
        """Return the error that the broker answered with."""
        return error_from_answer(status, headers, body, self.describe(call), call.query)

    def check_event_stream(self, call: Call[Any], headers: Mapping[str, str]) -> None:
        """Raise an error for an answer that is not an event stream."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            raise ProtocolError(f"the answer is no event stream but {kind!r}", request=self.describe(call))

    def transport_error(self, call: Call[Any], error: Exception) -> SapwoodError:
        """Return the error for a request that failed without an answer."""
        what = self.describe(call)
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
            return Unavailable(f"the broker cannot be reached ({_cause(error)})", request=what)
        reason = "no answer in time" if isinstance(error, httpx.TimeoutException) else _cause(error)
        if call.repeatable:
            return Unavailable(f"the connection was lost ({reason})", request=what)
        unknown = Unavailable(
            f"the connection was lost ({reason}); it is unknown whether the broker has done it",
            request=what,
            hint="look what the broker has, and repeat the request if it is not there",
        )
        unknown.may_repeat = False
        return unknown

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"  # without the key


def _cause(error: Exception) -> str:
    return str(error) or type(error).__name__


def _check_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ArgumentError(f"the address {url!r} of the broker is not valid: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > 65_535:
        raise ArgumentError(f"the address {url!r} of the broker must be such as {DEFAULT_URL}")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise ArgumentError("the address of the broker must have no user, query or fragment: use the key")
    return url.rstrip("/")


def _is_loopback(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
