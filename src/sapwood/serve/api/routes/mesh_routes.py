"""The mesh: what this broker and the others know, and changes of the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from sapwood.serve.api.access import Administrator, ServiceDependency
from sapwood.serve.api.problems import Problem, document_problems
from sapwood.serve.service import Service

if TYPE_CHECKING:
    from sapwood.serve.mesh.mesh_service import MeshService

router = APIRouter(tags=["mesh"])
_PROBLEMS = document_problems(400, 401, 403, 404, 422, 429, 503)


def _mesh(service: Service) -> MeshService:
    if service.mesh is None:
        raise Problem(404, "not-found", "this server is no broker of a mesh: its configuration has no [mesh]")
    return service.mesh


@router.get("/v1/mesh", summary="Describe this broker", responses=_PROBLEMS)
async def describe_broker(key: Administrator, service: ServiceDependency) -> dict[str, Any]:
    """Return the state of this broker: its links, their tables and queues, and counters."""
    return await _mesh(service).describe()
