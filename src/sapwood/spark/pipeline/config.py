"""The configuration of a pipeline, read from a TOML file: sources, subscriptions, sinks and the run."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    ValidationError,
    model_validator,
)

from sapwood.config_file import ConfigError, ConfigTable, Duration, Location, describe_errors, read_toml
from sapwood.engine import Limits
from sapwood.errors import TablesError
from sapwood.lang.literals.durations import parse_duration
from sapwood.lang.literals.memory_sizes import check_memory
from sapwood.lang.namespaces import check_prefix, to_prefixes
from sapwood.spark.io.connectors import expand_packages
from sapwood.spark.io.delta_table import DELTA
from sapwood.spark.io.file_system import is_uri, local_path
from sapwood.spark.pipeline.endpoint_config import (
    DeliveryConfig,
    Options,
    SinkConfig,
    SourceConfig,
)
from sapwood.spark.pipeline.path_conflicts import find_path_conflicts
from sapwood.spark.pipeline.real_time_rules import (
    DEFAULT_CHECKPOINT_INTERVAL,
    REAL_TIME,
    find_real_time_conflicts,
)

AVAILABLE_NOW, BATCH = "available-now", "batch"
_SQLITE = re.compile(r"sqlite(?:\+pysqlite)?:///")


def _check_trigger(text: str) -> str:
    if text not in (AVAILABLE_NOW, BATCH, REAL_TIME):
        try:
            parse_duration(text)
        except ValueError:
            raise ValueError(
                f"'{AVAILABLE_NOW}', '{BATCH}', '{REAL_TIME}', or an interval such as '5 seconds' is "
                f"expected, not {text!r}"
            ) from None
    return text


def _check_prefixes(namespaces: dict[str, str]) -> dict[str, str]:
    for prefix, uri in namespaces.items():
        check_prefix(prefix, uri)
    return namespaces


def _check_memory(memory: ByteSize) -> ByteSize:
    try:
        check_memory(memory, f"of {memory:,} bytes")
    except TablesError as error:
        raise ValueError(str(error)) from None
    return memory


Trigger = Annotated[str, AfterValidator(_check_trigger)]
Memory = Annotated[ByteSize, AfterValidator(_check_memory)]


class SubscriptionConfig(ConfigTable):
    """The subscriptions of a pipeline: a store, or a file of queries."""

    store: str | None = None
    """a subscription store: an SQLite file or a database URL; changes take effect with the next batch"""
    tenant: str = ""
    """the tenant of the store"""
    file: str | None = None
    """a file of queries, which is read once"""
    namespaces: Annotated[dict[str, str], BeforeValidator(to_prefixes), AfterValidator(_check_prefixes)] = (
        Field({})
    )
    """prefixes, or "any", for a file; those of a store are in the store"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.store is None and self.file is None:
            raise ValueError("either 'store' or 'file' is needed")
        if self.store is not None and self.file is not None:
            raise ValueError(
                "'store' and 'file' exclude each other: remove one, or add the queries to the store with "
                "'sapwood subscriptions import'"
            )
        if self.store is None and self.tenant:
            raise ValueError("'tenant' is one of a store: remove it, or give 'store' instead of 'file'")
        if self.store is not None and self.namespaces:
            raise ValueError(
                "'namespaces' belong to the store: declare them with 'sapwood subscriptions namespaces'"
            )
        return self


class JoinConfig(ConfigTable):
    """The event-time settings and state layout of joins."""

    lateness: Duration = "0 s"
    """the delay of the watermark behind the newest event time of earlier batches"""
    wait_for: Literal["slowest", "fastest"] = "slowest"
    """of several sources, the one that determines the watermark"""
    buckets: Annotated[int, Field(gt=0, le=1_000)] | None = None
    """the number of partitions of the join state; by default one for each core, and 8 at most"""

    @property
    def lateness_seconds(self) -> float:
        """The lateness in seconds."""
        return parse_duration(self.lateness)


class RelationalConfig(ConfigTable):
    """The relational engine."""

    on: Literal["duckdb", "spark"] = "duckdb"
    """the backend that joins messages with the tables: DuckDB on the driver, or Spark SQL"""
    plan: Literal["shared", "buckets", "unrolled"] | None = None
    """the physical plan; by default that of existing tables, or one chosen for new ones"""
    memory: Memory | None = None
    """the memory limit of DuckDB; by default that of the engine"""
    tables: str | None = None
    """the file of tables; by default in the checkpoint"""

    def matcher_options(self) -> dict[str, Any]:
        """Return the arguments of a RelationalMatcher that are configured."""
        memory = {} if self.memory is None else {"memory": f"{self.memory // 1000}KB"}
        return {"plan": self.plan, **memory}


class RunConfig(ConfigTable):
    """The run of a pipeline: checkpoint, trigger and Spark master."""

    checkpoint: str
    trigger: Trigger = AVAILABLE_NOW
    master: str = "local[*]"
    partitions: Annotated[int, Field(gt=0)] | None = None
    """tasks of a batch; by default twice the cores"""
    log: str | None = None
    """the log file of Spark and Sapwood; by default in the checkpoint"""
    checkpoint_interval: Duration | None = None
    """for the trigger "real-time": the time from one commit to the next; by default five minutes"""

    @property
    def batch_duration(self) -> str:
        """The duration of a batch with the trigger "real-time", as Spark takes it."""
        given = self.checkpoint_interval or DEFAULT_CHECKPOINT_INTERVAL
        return f"{round(parse_duration(given) * 1000)} milliseconds"

    @property
    def interval(self) -> str | None:
        """The trigger as an interval of Spark, where 0 means as fast as possible; None for other triggers."""
        if self.trigger in (AVAILABLE_NOW, BATCH, REAL_TIME):
            return None
        return f"{round(parse_duration(self.trigger) * 1000)} milliseconds"


def _as_list(source: Any) -> Any:
    return [source] if isinstance(source, dict) else source


class PipelineConfig(ConfigTable):
    """A whole pipeline."""

    name: str = "sapwood"
    engine: Literal["automaton", "relational"] = "automaton"
    """the engine that matches filters: an automaton in memory, or tables on disk"""
    sources: Annotated[tuple[SourceConfig, ...], BeforeValidator(_as_list)] = Field(alias="source")
    """one or several, each of which is a stream"""
    subscriptions: SubscriptionConfig
    deliveries: DeliveryConfig
    rejects: SinkConfig
    run: RunConfig
    joins: JoinConfig | None = None
    relational: RelationalConfig | None = None
    limits: dict[str, int | float] = Field({})
    spark: Annotated[Options, BeforeValidator(expand_packages)] = Field({})

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.matcher_limits()
        self._check_streams()
        if conflicts := list(find_real_time_conflicts(self)):
            raise ValueError("\n  ".join(conflicts))
        if self.joins is not None and (problem := self.find_join_conflict()):
            raise ValueError(problem)
        self._check_engine()
        return self

    def _check_engine(self) -> None:
        if self.engine != "relational":
            if self.relational is not None:
                raise ValueError("'relational': this table is for engine = \"relational\"")
            return
        if find_spec("duckdb") is None:
            raise ValueError(
                "'engine': the relational engine needs duckdb, which is missing: "
                "in a clone of Sapwood, pip install '.[relational]'"
            )
        given = self.relational.tables if self.relational is not None else None
        if given is not None and local_path(given) is None:
            raise ValueError(f"'relational.tables': a local file is expected, not {given!r}")
        if given is None and local_path(self.run.checkpoint) is None:
            raise ValueError(
                "'relational.tables' is missing: the tables need a local file, and the "
                "checkpoint is not local"
            )

    @property
    def tables(self) -> Path:
        """The file of the relational engine's tables."""
        given = self.relational.tables if self.relational is not None else None
        found = local_path(given or self.run.checkpoint)
        assert found is not None
        return found if given is not None else found / "relational.duckdb"

    def _check_streams(self) -> None:
        if not self.sources:
            raise ValueError("'source' is empty: at least one is needed")
        if len(self.sources) == 1:
            return
        names = [source.stream for source in self.sources]
        for number, name in enumerate(names, 1):
            if name is None:
                raise ValueError(
                    f"source #{number}: 'stream' is missing: each of several sources needs a name"
                )
            first = names.index(name) + 1
            if first < number:
                raise ValueError(
                    f"source #{number}: 'stream' is {name!r}, which is also that of source #{first}"
                )

    def find_join_conflict(self) -> str | None:
        """Return the reason why this configuration excludes joins, or None."""
        if self.run.trigger == REAL_TIME:
            return f"'run.trigger': joins need micro-batches, and so an interval or '{AVAILABLE_NOW}'"
        if self.run.trigger == BATCH:
            return f"'run.trigger': joins need a stream; '{AVAILABLE_NOW}' ends after the available messages"
        if self.deliveries.shape != "pairs":
            return "'deliveries.shape': joins need 'pairs', because their deliveries have several messages"
        return None

    @property
    def uses_delta(self) -> bool:
        """Whether a source or a sink is a Delta table."""
        return DELTA in {each.format for each in (*self.sources, self.deliveries, self.rejects)}

    @property
    def source(self) -> SourceConfig:
        """The first source, which usually is the only one."""
        return self.sources[0]

    def matcher_limits(self) -> Limits:
        """Return the limits of the matcher; raise ValueError for a limit that is unknown or not a number."""
        known = [field.name for field in fields(Limits)]
        for key in self.limits:
            if key not in known:
                raise ValueError(f"'limits.{key}': there is no such limit; there are {', '.join(known)}")
        given: dict[str, Any] = dict(self.limits)
        for key, value in given.items():
            if key != "query_seconds" and not isinstance(value, int):
                raise ValueError(f"'limits.{key}': a whole number is expected, not {value!r}")
        return Limits(**given)


def read_config(path: str | Path) -> PipelineConfig:
    """Read a pipeline's configuration from a TOML file; paths in it are relative to its folder."""
    path = Path(path)
    content = read_toml(path, "run")
    return parse_config(content, str(path), path.parent)


def parse_config(
    content: dict[str, Any], origin: str = "configuration", folder: Path | None = None
) -> PipelineConfig:
    """Check a pipeline's configuration in a nested mapping; relative paths are below `folder`."""
    try:
        checked = PipelineConfig.model_validate(content)
    except ValidationError as error:
        alone = isinstance(content.get("source"), dict)
        problems = describe_errors(error, PipelineConfig, partial(_format_key, alone=alone))
        raise ConfigError("\n".join([f"{origin} cannot be run:", *(f"  {p}" for p in problems)])) from None
    resolved = _resolve_paths(checked, (folder or Path()).absolute())
    if problems := find_path_conflicts(resolved):
        raise ConfigError("\n".join([f"{origin} cannot be run:", *(f"  {p}" for p in problems)]))
    return resolved


def _format_key(location: Location, alone: bool) -> str:
    """Return the key that an error is about; a source has a number only if there are several."""
    if location[:1] == ("source",) and len(location) > 1 and isinstance(location[1], int):
        first = "source" if alone else f"source #{location[1] + 1}"
        location = (first, *location[2:])
    return ".".join(map(str, location))


def _resolve_paths(given: PipelineConfig, folder: Path) -> PipelineConfig:
    """Return the configuration with absolute paths."""

    def at(path: str | None) -> str | None:
        return str(folder / path) if path is not None and not is_uri(path) else path

    sources = tuple(source.model_copy(update={"path": at(source.path)}) for source in given.sources)
    store = given.subscriptions.store
    if store is not None:
        sqlite = _SQLITE.match(store)
        store = f"{sqlite[0]}{folder / store[sqlite.end() :]}" if sqlite else at(store)
    relational = given.relational
    if relational is not None:
        relational = relational.model_copy(update={"tables": at(relational.tables)})
    return given.model_copy(
        update={
            "sources": sources,
            "relational": relational,
            "subscriptions": given.subscriptions.model_copy(
                update={"store": store, "file": at(given.subscriptions.file)}
            ),
            "deliveries": given.deliveries.model_copy(update={"path": at(given.deliveries.path)}),
            "rejects": given.rejects.model_copy(update={"path": at(given.rejects.path)}),
            "run": given.run.model_copy(
                update={"checkpoint": at(given.run.checkpoint), "log": at(given.run.log)}
            ),
        }
    )
