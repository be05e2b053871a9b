"""The cost of a query: what it takes per message, by how it is evaluated."""

from __future__ import annotations

from collections.abc import Mapping

from sapwood.broker import Broker
from sapwood.errors import SapwoodError


class CostlyQuery(SapwoodError):
    """Raised for a query that costs more than its tenant may spend."""


def check_cost(query: str, namespaces: Mapping[str, str], highest: float | None) -> None:
    """Raise CostlyQuery for a query whose cost is above the highest allowed; None allows any."""
    if highest is None:
        return
    cost, reasons = estimate_cost(query, namespaces)
    if cost > highest:
        why = f": {'; '.join(reasons)}" if reasons else ""
        raise CostlyQuery(f"the query costs {cost:g}, and the quota allows {highest:g}{why}")


def estimate_cost(query: str, namespaces: Mapping[str, str]) -> tuple[float, list[str]]:
    """Return the cost of a query, and what makes it high.

    1 for each path by which the index finds messages, 100 for each part that only lxml can evaluate, and 10
    for a query that makes output or keeps messages.
    """
    with Broker(dict(namespaces)) as broker:
        broker.subscribe("query", query)
        explained = broker.explain("query")
    paths = getattr(explained, "paths", ())
    refined = [str(part) for part in getattr(explained, "refined", ())]
    made = 0 if hasattr(explained, "decided_by") else 10
    return float(max(1, sum(map(len, paths))) + 100 * len(refined) + made), refined
