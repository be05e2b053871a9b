"""Messages from which parts were cut on the way here, and subscriptions that read these parts.

A message that was sent before all brokers had the routes of a new subscription may lack what it reads. It is
withheld from that subscription, to which nothing is promised before its routes are everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np

from sapwood.mesh.routing.read_paths import ReadPaths, covers, unite_reads
from sapwood.mesh.routing.route import Route, routes_of
from sapwood.serve.tenants.evaluation import Evaluation, Publication
from sapwood.serve.tenants.tenant_engine import TenantEngine

_covers = lru_cache(maxsize=10_000)(covers)
FindReads = Callable[[int], ReadPaths | None]
"""returns what the subscription at a place reads; None: the whole message"""


def withhold_partial(message: Publication, evaluation: Evaluation, find_reads: FindReads) -> int:
    """Take from an evaluation what subscriptions get that read what was cut; return how many these are."""
    if message.projection is None:
        return 0
    kept = message.projection.plan.reads
    places: list[int] = evaluation.places.tolist()
    is_covered = {place: _covers(kept, find_reads(place)) for place in dict.fromkeys(places)}
    withheld = sum(not each for each in is_covered.values())
    if withheld:
        chosen = np.fromiter((is_covered[place] for place in places), bool, len(places))
        evaluation.places = evaluation.places[chosen]
        evaluation.inboxes = evaluation.inboxes[chosen]
        if evaluation.outputs is not None:
            evaluation.outputs = evaluation.outputs[chosen]
    if evaluation.failures:
        evaluation.failures = [
            failure
            for failure in evaluation.failures
            if not isinstance(failure.subscription, int) or _covers(kept, find_reads(failure.subscription))
        ]
    return withheld


def find_query_reads(engine: TenantEngine, tenant: str, place: int) -> ReadPaths | None:
    """Return what the query of a subscription reads, given the engine that has it."""
    query = engine.broker.query(place)
    return unite_route_reads(routes_of(query, engine.namespaces, tenant))


def unite_route_reads(routes: Iterable[Route]) -> ReadPaths | None:
    """Return what any of the routes of a subscription reads."""
    return unite_reads(route.reads for route in routes)
