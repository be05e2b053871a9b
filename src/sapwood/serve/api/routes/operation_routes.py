"""Health and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from sapwood.serve.api.access import ServiceDependency, authorize
from sapwood.serve.api.models import Health
from sapwood.serve.api.problems import Problem, document_problems
from sapwood.serve.auth.api_keys import Scope

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Whether the server runs", response_model=Health)
async def healthz() -> Health:
    """Return 200 as long as the server answers."""
    return Health(status="ok")


@router.get(
    "/readyz",
    summary="Whether messages can be published",
    response_model=Health,
    responses={503: {"description": "Not at present", "model": Health}},
)
async def readyz(service: ServiceDependency) -> Response:
    """Return 200 if messages can be published, and 503 with the reason if not."""
    problem = service.problem
    health = Health(status="ok" if problem is None else "unavailable", problem=problem)
    return JSONResponse(health.model_dump(), 200 if problem is None else 503)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {"description": "Metrics", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **document_problems(401, 403),
    },
)
async def metrics(request: Request, service: ServiceDependency) -> Response:
    """Return the metrics of all tenants; for a key of the first tenant with scope admin, unless public."""
    if not service.config.monitoring.public_metrics:
        key = await authorize(request, Scope.ADMIN)
        if key.tenant:
            raise Problem(403, "forbidden", "metrics are those of all tenants")
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)
