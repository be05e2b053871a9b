"""Errors as answers: problem details (RFC 9457), with the position and the hint that an error has."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from sapwood.errors import (
    ArgumentError,
    DatabaseError,
    ExistingIdError,
    MessageError,
    QueryError,
    SapwoodError,
    StoreError,
)
from sapwood.serve.engine.engine_client import EngineUnavailable
from sapwood.serve.engine.frames import MessageProblem
from sapwood.serve.engine.message_engine import InboxInUse
from sapwood.serve.engine.subscription_changes import (
    ChangedSubscription,
    QuotaExceeded,
)
from sapwood.serve.mesh.mesh_errors import MeshOverloaded
from sapwood.serve.publish_request import NotDurable, RateExceeded
from sapwood.serve.query_cost import CostlyQuery
from sapwood.serve.service import Overloaded

_log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
_TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "Request timeout",
    409: "Conflict",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    422: "Invalid",
    429: "Too many requests",
    503: "Unavailable",
}


class ProblemDetails(BaseModel):
    """What is wrong, where, and what to do."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                "type": "urn:sapwood:problem:query",
                "title": "Invalid",
                "status": 422,
                "detail": "a step is missing after '/'\n  /order/\n         ^",
                "reason": "a step is missing after '/'",
                "position": 7,
                "line": 1,
                "column": 8,
                "caret": "/order/\n       ^",
                "hint": "remove the last '/'",
            }
        },
    )

    type: str = Field(description="`urn:sapwood:problem:…`, which tells programs what kind of problem it is")
    title: str
    status: int
    detail: str = Field(description="a text for people")


class Problem(Exception):
    """An error answer."""

    def __init__(
        self,
        status: int,
        slug: str,
        detail: str,
        *,
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.retry_after = retry_after
        self.headers = headers or {}
        self.fields = fields

    def as_fields(self) -> dict[str, Any]:
        """Return the problem as fields of JSON."""
        return {
            "type": f"urn:sapwood:problem:{self.slug}",
            "title": _TITLES.get(self.status, "Error"),
            "status": self.status,
            "detail": self.detail,
            **{name: value for name, value in self.fields.items() if value is not None},
        }

    def as_response(self) -> JSONResponse:
        """Return the problem as an answer."""
        headers = dict(self.headers)
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after)))
        return JSONResponse(self.as_fields(), self.status, headers, MEDIA_TYPE)


def document_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of problems that a route may answer with, for OpenAPI."""
    schema = {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
    return {status: {"description": _TITLES[status], "content": {MEDIA_TYPE: schema}} for status in statuses}


def query_problem(error: QueryError) -> Problem:
    """Return the problem of a query that is not valid."""
    before = error.query[: error.position]
    return Problem(
        422,
        "query",
        str(error),
        reason=error.reason,
        position=error.position,
        line=before.count("\n") + 1,
        column=error.position - (before.rfind("\n") + 1) + 1,
        caret=_caret(error),
        hint=error.hint,
    )


def _caret(error: QueryError) -> str:
    """Return the line of the query with a caret below the position."""
    lines = str(error).splitlines()
    found = [i for i, line in enumerate(lines) if line.strip() == "^"]
    if not found:
        return ""
    return "\n".join(line[2:] for line in lines[found[0] - 1 : found[0] + 1])


def message_problem(problem: MessageProblem, stream: str) -> Problem:
    """Return the problem of a message that is refused."""
    if problem.conflict:
        return Problem(409, "conflict", problem.reason, stream=stream, id=problem.id)
    if problem.backlog:
        return Problem(429, "backlog", problem.reason, retry_after=2, stream=stream, id=problem.id)
    error = MessageError(problem.reason, problem.line, problem.column)
    return Problem(
        422,
        "message",
        str(error),
        reason=problem.reason,
        line=problem.line,
        column=problem.column,
        stream=stream,
        id=problem.id,
    )


def to_problem(error: Exception) -> Problem | None:
    """Return an error as a problem; None if it is none of the user's."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, QueryError):
        return query_problem(error)
    if isinstance(error, MessageError):
        return Problem(422, "message", str(error), reason=error.reason, line=error.line, column=error.column)
    if isinstance(error, EngineUnavailable | DatabaseError):
        return Problem(503, "unavailable", f"{error}; try again", retry_after=1)
    if isinstance(error, Overloaded):
        return Problem(429, "overloaded", str(error), retry_after=1)
    if isinstance(error, MeshOverloaded):
        return Problem(429, "overloaded", str(error), retry_after=error.seconds)
    if isinstance(error, RateExceeded):
        return Problem(429, "rate", str(error), retry_after=error.seconds)
    if isinstance(error, NotDurable):
        return Problem(503, "unavailable", str(error), retry_after=5)
    if isinstance(error, ExistingIdError | InboxInUse):
        return Problem(409, "conflict", str(error))
    if isinstance(error, ChangedSubscription):
        return Problem(412, "precondition-failed", str(error))
    if isinstance(error, QuotaExceeded | CostlyQuery):
        return Problem(403, "quota", str(error))
    if isinstance(error, StoreError | ArgumentError | SapwoodError):
        return Problem(422, "invalid", str(error))
    return None


def install_handlers(app: FastAPI) -> None:
    """Answer with problems wherever something goes wrong."""

    @app.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> JSONResponse:
        return error.as_response()

    @app.exception_handler(SapwoodError)
    async def sapwood_error(request: Request, error: SapwoodError) -> JSONResponse:
        found = to_problem(error)
        assert found is not None
        return found.as_response()

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return invalid_problem(error.errors()).as_response()

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        slug = _TITLES.get(error.status_code, "error").lower().replace(" ", "-")
        detail = str(error.detail)
        if error.status_code == 404:
            detail = f"there is nothing at {request.url.path}; the API is described at /docs"
        headers = dict(error.headers or {})
        return Problem(error.status_code, slug, detail, headers=headers).as_response()

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        _log.error("a request to %s failed", request.url.path, exc_info=error)
        text = "an error of the server, which is in its log; please report it"
        return Problem(500, "internal", text).as_response()


def invalid_problem(errors: Sequence[Any]) -> Problem:
    """Return the problem of a request whose parameters or body have wrong values."""
    found = [{"where": list(error["loc"]), "what": error["msg"]} for error in errors]
    first = found[0] if found else {"where": [], "what": "it is not valid"}
    where = ".".join(str(part) for part in first["where"])
    return Problem(422, "invalid", f"{where}: {first['what']}", errors=found)
