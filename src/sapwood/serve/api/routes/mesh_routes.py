"""The mesh: what this broker and the others know, and changes of the tree."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query

from sapwood.errors import DatabaseError, SapwoodError
from sapwood.mesh.nats.errors import MeshUnavailable
from sapwood.serve.api.access import Administrator, ServiceDependency
from sapwood.serve.api.mesh_models import (
    BrokerList,
    BrokerState,
    CheckAnswer,
    DrainAnswer,
    DrainRequest,
    ExplainAnswer,
    MoveBrokerRequest,
    MovedSubscription,
    MoveSubscriptionsAnswer,
    MoveSubscriptionsRequest,
    RoutePage,
    TopologyAnswer,
    TraceAnswer,
    TreeAnswer,
)
from sapwood.serve.api.problems import Problem, document_problems
from sapwood.serve.auth.api_keys import ApiKey
from sapwood.serve.engine.engine_client import EngineUnavailable
from sapwood.serve.mesh.mesh_errors import BrokerSilent, UnknownBroker, UnknownSubscription
from sapwood.serve.service import Service

if TYPE_CHECKING:
    from sapwood.serve.mesh.administration.mesh_administration import MeshAdministration

router = APIRouter(tags=["mesh"])
_log = logging.getLogger(__name__)
_PROBLEMS = document_problems(400, 401, 403, 404, 409, 422, 429, 503)
Tenant = Annotated[str, Query(description="whose subscription or message it is", max_length=500)]


def _check_access(key: ApiKey, service: Service) -> None:
    if key.tenant:
        raise Problem(403, "forbidden", "the mesh is that of all tenants: this needs a key of the first one")
    if service.mesh is None:
        raise Problem(404, "not-found", "this server is no broker of a mesh: its configuration has no [mesh]")


@contextmanager
def _administer(key: ApiKey, service: Service) -> Iterator[MeshAdministration]:
    """Yield what administers the mesh; its errors become problems."""
    _check_access(key, service)
    from sapwood.serve.mesh.administration.mesh_administration import (
        MeshAdministration,  # which takes libraries of the mesh
    )

    assert service.mesh is not None
    try:
        yield MeshAdministration(service.mesh)
    except (UnknownBroker, UnknownSubscription) as error:
        raise Problem(404, "not-found", str(error)) from None
    except (BrokerSilent, MeshUnavailable) as error:
        raise Problem(503, "unavailable", str(error), retry_after=2) from None
    except (EngineUnavailable, DatabaseError):
        raise
    except SapwoodError as error:
        raise Problem(409, "conflict", str(error)) from None


# -- the state ---------------------------------------------------------------------------------------------


@router.get("/v1/mesh", summary="Describe this broker", response_model=BrokerState, responses=_PROBLEMS)
async def describe_broker(key: Administrator, service: ServiceDependency) -> dict[str, Any]:
    """Return the state of this broker: its links, their tables and queues, and counters."""
    _check_access(key, service)
    assert service.mesh is not None
    return await service.mesh.describe()


@router.get(
    "/v1/mesh/brokers", summary="Describe all brokers", response_model=BrokerList, responses=_PROBLEMS
)
async def list_brokers(key: Administrator, service: ServiceDependency) -> dict[str, Any]:
    """Return the state of all brokers, by asking them; of one that does not answer, the reason."""
    with _administer(key, service) as mesh:
        assert service.mesh is not None
        return {"version": service.mesh.membership.topology.version, "brokers": await mesh.list_brokers()}


@router.get(
    "/v1/mesh/topology", summary="Describe the tree", response_model=TopologyAnswer, responses=_PROBLEMS
)
async def describe_topology(key: Administrator, service: ServiceDependency) -> dict[str, Any]:
    """Return the tree with rates, queues and tables of all links, in both directions."""
    with _administer(key, service) as mesh:
        return await mesh.describe_topology()


@router.get(
    "/v1/mesh/tables", summary="List what is wanted on a side", response_model=RoutePage, responses=_PROBLEMS
)
async def list_routes(
    key: Administrator,
    service: ServiceDependency,
    broker: Annotated[
        str | None, Query(description="whose table; by default this broker's", max_length=60)
    ] = None,
    link: Annotated[
        str | None,
        Query(
            description="the neighbour; by default what the broker's own subscriptions want", max_length=60
        ),
    ] = None,
    after: Annotated[int, Query(ge=0, le=2**62, description="`next` of the page before")] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> dict[str, Any]:
    """Return the routes that are wanted on the side of a neighbour, or by a broker's own subscriptions."""
    with _administer(key, service) as mesh:
        assert service.mesh is not None
        return await mesh.list_routes(broker or service.mesh.config.broker, link or None, after, limit)


@router.get(
    "/v1/mesh/check", summary="Check the consistency", response_model=CheckAnswer, responses=_PROBLEMS
)
async def check(key: Administrator, service: ServiceDependency) -> dict[str, Any]:
    """Compare the tables of both ends of every link, and look for what is late, lost or unconfirmed."""
    with _administer(key, service) as mesh:
        return await mesh.check()


# -- subscriptions and messages ----------------------------------------------------------------------------


@router.get(
    "/v1/mesh/explain/{id:text}",
    summary="Tell where a subscription stands",
    response_model=ExplainAnswer,
    responses=_PROBLEMS,
)
async def explain(
    id: Annotated[str, Path(description="the id of the subscription", max_length=500)],
    key: Administrator,
    service: ServiceDependency,
    tenant: Tenant = "",
) -> dict[str, Any]:
    """Return the host of a subscription, its routes, and which brokers have them."""
    with _administer(key, service) as mesh:
        _check_text(id, tenant)
        return await mesh.explain(tenant, id)


@router.get(
    "/v1/mesh/trace/{id:text}",
    summary="Tell the way of a message",
    response_model=TraceAnswer,
    responses=_PROBLEMS,
)
async def trace(
    id: Annotated[str, Path(description="the id of the message", max_length=500)],
    key: Administrator,
    service: ServiceDependency,
    tenant: Tenant = "",
) -> dict[str, Any]:
    """Return where a message came by, which links it was sent on and why, and who got it, hop by hop."""
    with _administer(key, service) as mesh:
        _check_text(id, tenant)
        found = await mesh.trace(tenant, id)
    if not found["messages"] and not found["refused"]:
        silent = f"; no answer of {', '.join(sorted(found['silent']))}" if found["silent"] else ""
        raise Problem(
            404, "not-found", f"no broker has a message {id!r}, or it is not kept any longer{silent}"
        )
    return found


def _check_text(*texts: str) -> None:
    if any("\0" in text for text in texts):
        raise Problem(422, "invalid", "the character NUL is in no name")


# -- changes -----------------------------------------------------------------------------------------------


@router.post(
    "/v1/mesh/topology/move", summary="Move a broker", response_model=TreeAnswer, responses=_PROBLEMS
)
async def move_broker(body: MoveBrokerRequest, key: Administrator, service: ServiceDependency) -> TreeAnswer:
    """Give a broker, with all below it, another parent; unsettled messages are sent again, in order."""
    with _administer(key, service) as mesh:
        changed = await mesh.move_broker(body.broker, body.parent)
    return TreeAnswer(version=changed.version, parents=dict(changed.parents))


@router.post("/v1/mesh/drain", summary="Drain a broker", response_model=DrainAnswer, responses=_PROBLEMS)
async def drain(body: DrainRequest, key: Administrator, service: ServiceDependency) -> dict[str, Any]:
    """Refuse publishers at a broker, hand its children to its parent, wait until all has arrived, and take it
    out of the tree. One that stays refuses publishers until it is started again."""
    with _administer(key, service) as mesh:
        return await mesh.drain(body.broker, body.force, body.wait)


@router.post(
    "/v1/mesh/subscriptions/move",
    summary="Move subscriptions",
    response_model=MoveSubscriptionsAnswer,
    responses=_PROBLEMS,
)
async def move_subscriptions(
    body: MoveSubscriptionsRequest, key: Administrator, service: ServiceDependency
) -> MoveSubscriptionsAnswer:
    """Let another broker host subscriptions, without a delivery lost or made twice.

    What is in the inbox of the subscriber stays where it is; the rest goes to the inbox at the new host.
    """
    with _administer(key, service) as mesh:
        _check_text(body.tenant, *body.ids)
        moved = await mesh.move_subscriptions(body.tenant, body.ids, body.to)
    return MoveSubscriptionsAnswer(moved=[MovedSubscription(**asdict(each)) for each in moved])
