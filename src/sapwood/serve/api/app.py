"""The application: all routes, and errors as problems."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

import sapwood
from sapwood.serve.api.problems import ProblemDetails, document_problems, install_handlers
from sapwood.serve.api.request_body import BodyLimit
from sapwood.serve.api.routes import (
    admin_routes,
    delivery_routes,
    docs_routes,
    import_routes,
    mesh_routes,
    operation_routes,
    publish_routes,
    query_routes,
    subscriber_routes,
    subscription_routes,
)
from sapwood.serve.service import Service

_DESCRIPTION = """
Publishers push XML messages, subscribers leave standing queries, and every message is matched, reshaped,
joined with earlier ones and delivered. All changes name the version from which on they hold.

Errors are problem details (RFC 9457): `type` tells what kind, `detail` what is wrong and what to do.
"""

_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
"""Newer versions of FastAPI make spans of all requests, with their addresses, in which keys may be; those of
the service are made by `sapwood.serve.tracing`."""


def create_app(service: Service) -> FastAPI:
    """Return the application of a service."""
    app = FastAPI(
        title="Sapwood",
        summary="An XML message broker",
        description=_DESCRIPTION,
        version=sapwood.__version__,
        license_info={"name": "Apache-2.0"},
        redirect_slashes=False,
        docs_url=None,  # FastAPI's pages load scripts of other hosts
        redoc_url=None,
        telemetry=_TELEMETRY,
        openapi_tags=[
            {"name": "publish", "description": "Messages come in."},
            {"name": "subscriptions", "description": "Who wants what."},
            {
                "name": "deliveries",
                "description": "Messages go out: pulled, as events, by `/v1/subscribers/{name}/socket`, "
                "which is a WebSocket, or by the webhook of a subscriber.",
            },
            {"name": "subscribers", "description": "Inboxes, webhooks, gaps and dead letters."},
            {"name": "queries", "description": "How a query is evaluated, and what it makes of a message."},
            {"name": "administration", "description": "Keys, refused messages, failures, statistics."},
            {"name": "mesh", "description": "Brokers on other sites."},
            {"name": "operations", "description": "Health and metrics."},
        ],
    )
    app.state.service = service
    for routes in (
        publish_routes,
        subscription_routes,
        import_routes,
        delivery_routes,
        subscriber_routes,
        query_routes,
        admin_routes,
        operation_routes,
        docs_routes,
        mesh_routes,
    ):
        app.include_router(routes.router)
    install_handlers(app)
    app.add_middleware(BodyLimit, most=service.config.overload.largest_body)
    _document_problems(app)
    return app


def _document_problems(app: FastAPI) -> None:
    """Add the schema of problems to the OpenAPI document, which routes refer to."""
    build = app.openapi

    def openapi() -> dict[str, object]:
        document = build()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault("ProblemDetails", ProblemDetails.model_json_schema())
        for operation in (each for methods in document["paths"].values() for each in methods.values()):
            if "requestBody" in operation:
                operation["responses"] |= {"413": document_problems(413)[413]}
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        return document

    app.openapi = openapi  # type: ignore[method-assign]
