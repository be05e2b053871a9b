"""Publishers are asked to wait when a link is far behind."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.serve.api.problems import to_problem
from sapwood.serve.mesh.mesh_errors import MeshOverloaded
from sapwood.serve.mesh.mesh_frames import MeshStatus
from sapwood.serve.mesh.mesh_service import MeshService
from sapwood.serve.metrics import Metrics
from sapwood.serve.publish_request import publish
from sapwood.serve.tenants.evaluation import Publication


def service_with(outbox: int, is_open: bool = True) -> Any:
    """A service whose link to b has so many frames to send, and an engine that takes all."""
    links = {"b": {"open": is_open, "outbox": outbox}}
    mesh: Any = SimpleNamespace(status=MeshStatus(b"", 1, links, {}, 0, 0, 0, 0, 0, {}, {}))
    mesh.check_load = lambda: MeshService.check_load(mesh)

    async def request(build: Any) -> list[Any]:
        build(1)
        return []

    return SimpleNamespace(
        mesh=mesh,
        metrics=Metrics(),
        rates=SimpleNamespace(take=lambda tenant, count: 0.0),
        engine=SimpleNamespace(request=request),
        publish_wait=5.0,
    )


def count_refusals(service: Any) -> float:
    value: float = service.metrics.registry.get_sample_value(
        "sapwood_requests_refused_total", {"reason": "mesh"}
    )
    return value


def test_a_publisher_is_refused_with_the_time_to_wait() -> None:
    service = service_with(10_000_000)
    with pytest.raises(MeshOverloaded, match="10,000,000 messages wait for the link to b") as caught:
        asyncio.run(publish(service, [Publication("", "s", "1", b"<a/>")]))
    problem = to_problem(caught.value)
    assert problem is not None
    answer = problem.as_response()
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert count_refusals(service) == 1.0


@pytest.mark.parametrize(("outbox", "is_open"), [(10, True), (10_000_000, False)])
def test_a_short_queue_or_a_broken_link_refuses_nobody(outbox: int, is_open: bool) -> None:
    """What is for a broker that is away waits in the log, which has room."""
    assert asyncio.run(publish(service_with(outbox, is_open), [])).results == []
