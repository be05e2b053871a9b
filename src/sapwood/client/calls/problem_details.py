"""Problem details of a broker (RFC 9457, `application/problem+json`) → exceptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sapwood.client.client_errors import (
    ClientError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    PreconditionFailed,
    ProtocolError,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from sapwood.errors import MessageError, QueryError, SapwoodError

_PREFIX = "urn:sapwood:problem:"
_BY_STATUS: dict[int, type[ClientError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: TooLarge,
    415: InvalidRequest,
    422: InvalidRequest,
    429: Overloaded,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}
_MOST_SHOWN = 200
"""characters that are quoted of an answer that is not JSON"""


def error_from_answer(
    status: int, headers: Mapping[str, str], body: bytes, request: str, query: str | None = None
) -> SapwoodError:
    """Return the exception for an answer with an error status; `query` is the one that was sent, if any."""
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        problem = None
    if not isinstance(problem, dict):
        shown = body[:_MOST_SHOWN].decode("utf-8", "replace").strip()
        problem = {"detail": shown} if shown else {}
    after = parse_retry_after(headers.get("retry-after"))
    return error_from_problem({"status": status, **problem}, request, query, after)


def error_from_problem(
    problem: Mapping[str, Any], request: str = "", query: str | None = None, retry_after: float | None = None
) -> SapwoodError:
    """Return the exception for problem details, be they an answer or a part of one."""
    details = dict(problem)
    slug = str(details.get("type", "")).removeprefix(_PREFIX)
    reason = _text(details.get("reason")) or _text(details.get("detail")) or _text(details.get("title"))
    status = details.get("status")
    status = status if isinstance(status, int) else None
    if slug == "query":
        return _query_error(details, reason, query)
    if slug == "message":
        line, column = (_whole_number(details.get(name)) for name in ("line", "column"))
        return MessageError(reason or "the broker refuses the message", line, column)
    if slug == "invalid":
        reason = _name_fields(details.get("errors")) or reason
    kind = _BY_STATUS.get(status or 0, ClientError if (status or 0) >= 400 else ProtocolError)
    return kind(
        reason or f"the broker answers with status {status}",
        request=request,
        status=status,
        slug=slug if slug and slug != "about:blank" else None,
        retry_after=retry_after,
        problem=details,
        hint=_text(details.get("hint")) or None,
    )


def parse_retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header; None for none, or for a date, which brokers do not send."""
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _query_error(details: Mapping[str, Any], reason: str, query: str | None) -> QueryError:
    sent = details.get("query")
    text = query if query is not None else sent if isinstance(sent, str) else ""
    position = _whole_number(details.get("position")) or 0
    return QueryError(
        reason or "the broker refuses the query", text, position, _text(details.get("hint")) or None
    )


def _name_fields(errors: object) -> str:
    """Return the fields that a broker refuses, and why, on one line."""
    if not isinstance(errors, list):
        return ""
    found = []
    for error in errors:
        if isinstance(error, dict):
            where = error.get("where")
            place = ".".join(str(part) for part in where) if isinstance(where, list) else ""
            found.append(": ".join(part for part in (place, _text(error.get("what"))) if part))
    return "; ".join(part for part in found if part)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
