"""Questions about what the engine holds: explanations, failures and sizes."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sapwood.lang.languages import FOR_WHERE_RETURN, XPATH, XSCL
from sapwood.serve.tenants.tenant_engines import TenantEngines

_STATM = Path("/proc/self/statm")
_PAGE = resource.getpagesize()


class Inspection:
    """Answers questions of a server about the engines of its tenants."""

    def __init__(self, engines: TenantEngines, failures: Sequence[dict[str, Any]]) -> None:
        self._engines = engines
        self._failures = failures

    def run(self, tenant: str, what: str, arguments: dict[str, Any]) -> Any:
        """Answer a question by its name."""
        questions: dict[str, Callable[..., Any]] = {
            "explain": self._explain,
            "failures": self._list_failures,
            "state": self._state,
        }
        return questions[what](tenant, **arguments)

    def _explain(self, tenant: str, place: int) -> Any:
        """Return the explanation of a subscription; None if it is not evaluated, or the reason as text."""
        engine = self._engines.of(tenant)
        if place in engine.refused:
            return engine.refused[place]
        return engine.broker.explain(place) if place in engine.broker else None

    def _list_failures(self, tenant: str) -> dict[str, Any]:
        """Return the last failures of queries on messages, and how many each subscription had."""
        engine = self._engines.of(tenant)
        counts = {
            int(str(place)): {str(kind): number for kind, number in kinds.items()}
            for place, kinds in engine.broker.failure_counts().items()
        }
        return {
            "failures": [failure for failure in self._failures if failure["tenant"] == tenant],
            "counts": counts,
            "refused": dict(engine.refused),
        }

    def _state(self, tenant: str) -> Any:
        return self._engines.of(tenant).broker.state()

    def count_subscriptions(self) -> dict[str, dict[str, int]]:
        """Return how many subscriptions are evaluated, by tenant and language."""
        return {
            tenant: {
                XPATH: len(engine.broker.filters),
                FOR_WHERE_RETURN: engine.broker.transformations,
                XSCL: engine.broker.joins,
            }
            for tenant, engine in self._engines
        }

    def count_join_messages(self) -> int:
        """Return how many messages joins hold."""
        return sum(engine.broker.network_of_joins.stored_messages for _, engine in self._engines)


def read_memory() -> int:
    """Return the resident memory of this process in bytes."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * _PAGE
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
