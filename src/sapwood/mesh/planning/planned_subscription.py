"""Subscriptions of a mesh that is being planned, with their routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sapwood.lang.languages import XPATH, XSCL, detect_language
from sapwood.mesh.routing.condition_templates import share_encoder
from sapwood.mesh.routing.route import Route, routes_of


@dataclass(frozen=True, slots=True)
class PlannedSubscription:
    """A subscription, what neighbours would be told of it, and whether that is all there is to know."""

    id: str
    query: str
    routes: tuple[Route, ...]
    is_decided_by_routes: bool
    """whether a message that meets a route has to come to its broker: it matches, or a join may need it"""
    subscriber: str = ""
    streams: tuple[str, ...] = ()
    """the streams that it is restricted to; all, if there are none"""
    namespaces: Mapping[str, str] = field(default_factory=dict)


def plan_subscription(
    id: str,
    query: str,
    subscriber: str = "",
    streams: tuple[str, ...] = (),
    namespaces: Mapping[str, str] | None = None,
    language: str | None = None,
    tenant: str = "",
) -> PlannedSubscription:
    """Return a subscription with its routes; raises QueryError or ArgumentError if it is not valid."""
    declared = namespaces if namespaces is not None else {}
    routes = routes_of(query, declared, tenant, streams, language)
    language = language or detect_language(query)
    # A shape that has a template is exact. Others may be, too; evaluating them costs time, and no precision.
    decided = language == XSCL or (
        language == XPATH and share_encoder(frozenset(declared.items())).encode(query) is not None
    )
    return PlannedSubscription(id, query, routes, decided, subscriber, streams, declared)
