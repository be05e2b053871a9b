"""The settings of an engine, which the server gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sapwood.engine.limits import Limits
from sapwood.serve.log.retention import Retention
from sapwood.serve.mesh.mesh_settings import MeshSettings


@dataclass(frozen=True, slots=True)
class TenantQuota:
    """What a tenant may use; None is no bound."""

    subscriptions: int | None = None
    query_cost: float | None = None
    """the highest cost of a query, see `estimate_cost`"""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Where an engine keeps its data, and what it allows."""

    log: str
    store: str
    snapshot: str
    """the file of the snapshot"""
    limits: Limits = field(default_factory=Limits)
    time_paths: Mapping[str, str] = field(default_factory=dict)
    """by stream, the path of the event time in messages"""
    lateness: float = 0.0
    separate_results: bool = False
    """whether what join queries publish is returned, to be published as messages: see `TenantEngine`"""
    retention: Retention = field(default_factory=Retention)
    inbox_limit: int = 1_000_000
    inbox_policy: str = "drop-oldest"
    quota: TenantQuota = field(default_factory=TenantQuota)
    tenant_quotas: Mapping[str, TenantQuota] = field(default_factory=dict)
    log_level: str = "INFO"
    log_format: str = "text"
    mesh: MeshSettings | None = None
    """if the server is a broker of a mesh"""
    lock_wait: float = 15.0
    """seconds to wait for the engine of a server that has just ended"""

    def quota_of(self, tenant: str) -> TenantQuota:
        """Return what a tenant may use."""
        return self.tenant_quotas.get(tenant, self.quota)
