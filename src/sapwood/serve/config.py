"""The configuration of the service, read from a TOML file."""

from __future__ import annotations

from dataclasses import fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ByteSize, Field, ValidationError, model_validator

from sapwood.config_file import ConfigError, ConfigTable, Duration, describe_errors, read_toml
from sapwood.engine.limits import Limits
from sapwood.lang.literals.durations import parse_duration
from sapwood.serve.engine.engine_settings import EngineSettings, TenantQuota
from sapwood.serve.log.retention import Retention
from sapwood.serve.mesh.mesh_config import MeshConfig
from sapwood.serve.mesh.mesh_settings import MeshSettings
from sapwood.serve.mesh.tables_config import TablesConfig

DEFAULT_LOG = "sapwood.db"


class ListenConfig(ConfigTable):
    """Where the server listens, and how."""

    host: str = "127.0.0.1"
    """the address to listen at; `0.0.0.0` is all, which needs a key"""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """0: a free one"""
    tls_certificate: str | None = None
    """a file with the certificate and its chain"""
    tls_key: str | None = None
    """a file with its private key"""
    drain: Duration = "10 s"
    """how long connections may end by themselves when the server stops"""
    connections: Annotated[int, Field(ge=1)] = 10_000
    """open at once; further ones are answered with 503"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("'tls_certificate' and 'tls_key' belong together: give both, or none")
        return self

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


class LogConfig(ConfigTable):
    """The message log: where it is, and how long messages are kept."""

    location: str = DEFAULT_LOG
    """an SQLite file, or postgresql://user@host/database"""
    snapshot: str | None = None
    """the file of compiled subscriptions and join state; by default beside an SQLite file"""
    keep: Duration = "7 days"
    """messages that subscribers have not acknowledged"""
    keep_acknowledged: Duration = "1 hour"
    """messages that all have acknowledged"""
    keep_ids: Duration = "30 days"
    """ids, by which a message that is published again is recognised"""


class StoreConfig(ConfigTable):
    """The store of subscriptions."""

    location: str | None = None
    """by default the database of the log"""


class InboxConfig(ConfigTable):
    """The inboxes of subscribers that have no settings of their own."""

    limit: Annotated[int, Field(ge=1)] = 1_000_000
    """deliveries that are not acknowledged"""
    policy: Literal["wait", "drop-oldest", "suspend"] = "drop-oldest"
    """what happens at the limit"""


class JoinsConfig(ConfigTable):
    """The event time of joins."""

    lateness: Duration = "0 s"
    """how much older than the newest message a message may be"""


class StreamConfig(ConfigTable):
    """A stream of messages."""

    time: str | None = None
    """the path of the event time in messages, where publishers give none"""


class QuotaConfig(ConfigTable):
    """What a tenant may use; what is absent has no bound."""

    subscriptions: Annotated[int, Field(ge=0)] | None = None
    """how many it may have"""
    message_size: ByteSize | None = None
    """bytes of a message"""
    publish_rate: Annotated[float, Field(gt=0)] | None = None
    """messages a second"""
    backlog: Annotated[int, Field(ge=1)] | None = None
    """the highest limit of an inbox"""
    query_cost: Annotated[float, Field(ge=1)] | None = None
    """the highest cost of a query, as `explain` shows it"""


class OverloadConfig(ConfigTable):
    """Bounds on what is in progress; a publisher is told to try again later where they are reached."""

    pending_bytes: ByteSize = ByteSize(64 * 2**20)
    """of messages that are not in the log yet"""
    body: ByteSize = ByteSize(64 * 2**20)
    """the largest body of a request, before and after inflation; `pending_bytes`, if that is less"""
    messages: Annotated[int, Field(ge=1)] = 10_000
    """in one request"""
    cache: ByteSize = ByteSize(64 * 2**20)
    """messages in memory, for subscribers that keep up"""
    publish_wait: Duration = "30 s"
    """how long a publisher waits for the log"""

    @property
    def largest_body(self) -> int:
        """The bytes of the largest body that can come in."""
        return min(self.body, self.pending_bytes)


class WebhookConfig(ConfigTable):
    """Webhooks of all subscribers."""

    allow_private: bool = False
    """whether targets may have private and loopback addresses"""
    allowed: tuple[str, ...] = ()
    """hosts, addresses and networks that are allowed in any case"""


class MonitoringConfig(ConfigTable):
    """Log lines and metrics."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """which lines are logged: these and worse ones"""
    log_format: Literal["text", "json"] = "text"
    """of log lines, on standard error"""
    public_metrics: bool = False
    """whether /metrics needs no key"""
    traces: bool = True
    """whether traces are sent, if OpenTelemetry is installed and configured"""


class ServerConfig(ConfigTable):
    """The configuration of a server."""

    listen: ListenConfig = ListenConfig()
    log: LogConfig = LogConfig()
    store: StoreConfig = StoreConfig()
    inboxes: InboxConfig = InboxConfig()
    joins: JoinsConfig = JoinsConfig()
    streams: dict[str, StreamConfig] = Field(default={})
    limits: dict[str, int | float] = Field(default={})
    """bounds on messages and queries: the fields of sapwood.Limits"""
    quota: QuotaConfig = QuotaConfig()
    """of tenants that have none of their own"""
    tenants: dict[str, QuotaConfig] = Field(default={})
    overload: OverloadConfig = OverloadConfig()
    webhooks: WebhookConfig = WebhookConfig()
    monitoring: MonitoringConfig = MonitoringConfig()
    mesh: MeshConfig | None = None
    """of a server that is a broker of a mesh"""
    tables: TablesConfig = TablesConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.message_limits()
        return self

    def message_limits(self) -> Limits:
        """Return the limits of messages and queries; raise ValueError for one that is unknown."""
        known = [field.name for field in fields(Limits)]
        for key in self.limits:
            if key not in known:
                raise ValueError(f"'limits.{key}': there is no such limit; there are {', '.join(known)}")
        given: dict[str, Any] = {
            key: value if key == "query_seconds" else int(value) for key, value in self.limits.items()
        }
        return Limits(**given)

    def quota_of(self, tenant: str) -> QuotaConfig:
        """Return what a tenant may use."""
        return self.tenants.get(tenant, self.quota)

    @property
    def snapshot(self) -> str:
        """The file of the engine's snapshot."""
        if self.log.snapshot is not None:
            return self.log.snapshot
        location = self.log.location.removeprefix("sqlite:///")
        return f"{location}-snapshot" if "://" not in location else "sapwood.snapshot"

    def engine_settings(self) -> EngineSettings:
        """Return the settings of the engine."""
        return EngineSettings(
            log=self.log.location,
            store=self.store.location or self.log.location,
            snapshot=self.snapshot,
            limits=self.message_limits(),
            time_paths={name: stream.time for name, stream in self.streams.items() if stream.time},
            lateness=parse_duration(self.joins.lateness),
            retention=Retention(
                parse_duration(self.log.keep),
                parse_duration(self.log.keep_acknowledged),
                parse_duration(self.log.keep_ids),
            ),
            inbox_limit=self.inboxes.limit,
            inbox_policy=self.inboxes.policy,
            quota=_engine_quota(self.quota),
            tenant_quotas={name: _engine_quota(quota) for name, quota in self.tenants.items()},
            log_level=self.monitoring.log_level,
            log_format=self.monitoring.log_format,
            separate_results=self.mesh is not None,
            mesh=self._mesh_settings(),
        )

    def _mesh_settings(self) -> MeshSettings | None:
        """Return the settings of the node of a mesh, if the server is a broker of one."""
        if self.mesh is None:
            return None
        return replace(self.mesh.engine_settings(), table_budget=self.tables.most_bytes)


def _engine_quota(quota: QuotaConfig) -> TenantQuota:
    return TenantQuota(quota.subscriptions, quota.query_cost)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def read_config(path: str | Path) -> ServerConfig:
    """Read a server's configuration from a TOML file; paths in it are relative to its folder."""
    path = Path(path)
    checked = parse_config(read_toml(path, "served"), str(path))
    return _resolve_paths(checked, path.parent.absolute())


def parse_config(content: dict[str, Any], origin: str = "configuration") -> ServerConfig:
    """Check a server's configuration in a nested mapping."""
    try:
        return ServerConfig.model_validate(content)
    except ValidationError as error:
        problems = describe_errors(error, ServerConfig)
        raise ConfigError("\n".join([f"{origin} cannot be served:", *(f"  {p}" for p in problems)])) from None


def _resolve_paths(given: ServerConfig, folder: Path) -> ServerConfig:
    def at(path: str | None) -> str | None:
        return str(folder / path) if path is not None and "://" not in path else path

    log = given.log.model_copy(
        update={"location": at(given.log.location), "snapshot": at(given.log.snapshot)}
    )
    listen = given.listen.model_copy(
        update={"tls_certificate": at(given.listen.tls_certificate), "tls_key": at(given.listen.tls_key)}
    )
    store = given.store.model_copy(update={"location": at(given.store.location)})
    changed = {"log": log, "listen": listen, "store": store}
    if given.mesh is not None:
        files = ("credentials", "tls_ca", "tls_certificate", "tls_key")
        paths = {name: at(getattr(given.mesh, name)) for name in files}
        return given.model_copy(update=changed | {"mesh": given.mesh.model_copy(update=paths)})
    return given.model_copy(update=changed)
