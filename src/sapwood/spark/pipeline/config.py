"""A pipeline as people describe it in a TOML file: what is read, for whom, where it goes, and how it runs."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import fields
from difflib import get_close_matches
from importlib.util import find_spec
from io import BytesIO
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from sapwood.engine import Limits
from sapwood.errors import QueryError, SapwoodError
from sapwood.lang.literals.durations import parse_duration
from sapwood.lang.namespaces import to_prefixes
from sapwood.records import RecordScanner
from sapwood.spark.dataframe_match import Shape
from sapwood.spark.io.sinks import FILE_FORMATS

AVAILABLE_NOW, BATCH = "available-now", "batch"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # but not C:/
_SQLITE = re.compile(r"sqlite(?:\+pysqlite)?:///")
_SIZE = re.compile(r"\d+(?:\.\d+)? ?[KMGT]i?B", re.IGNORECASE)
BUCKETS = 16
_ALIAS = re.compile(r"\sas\s+`?([^`\s]+)`?\s*$", re.IGNORECASE)
_TAKEN = {
    "body": ": the message itself is delivered with deliveries.body = true, or as 'body AS message'",
    "message_id": "",
    "published_at": "",
    "stream": "",
    "subscription": ": give yours another name with AS",
    "subscriber": ": give yours another name with AS",
    "version": ": give yours another name with AS",
    "batch": ": give yours another name with AS",
}
"""Columns that what is kept must not be called, and what to do instead."""


class ConfigError(SapwoodError):
    """A pipeline file that cannot be run; names every key that is wrong, and what would be right."""


def _trigger(text: str) -> str:
    if text not in (AVAILABLE_NOW, BATCH):
        try:
            parse_duration(text)
        except ValueError:
            raise ValueError(
                f"'{AVAILABLE_NOW}', '{BATCH}', or an interval such as '5 seconds' is expected, not {text!r}"
            ) from None
    return text


def to_seconds_of_text(text: str) -> float:
    """A length of time, written as windows are; ValueError says what is wrong with it."""
    try:
        return parse_duration(text)
    except QueryError as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise ValueError(error.reason.replace("a window", "a length of time") + hint) from None


def _length(text: str) -> str:
    to_seconds_of_text(text)
    return text


def _size(text: str) -> str:
    if _SIZE.fullmatch(text.strip()):
        return text.strip()
    raise ValueError(f"a size such as '512MB' or '2GB' is expected, not {text!r}")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Options = dict[str, str | int | float | bool]
Trigger = Annotated[str, AfterValidator(_trigger)]


class SourceConfig(_Table):
    """Where messages come from."""

    path: str | None = None
    """a file or folder of `*.xml` and `*.xmll`, or what `format` reads"""
    record: str | None = None
    """the element that is a message, in files that hold many"""
    format: str = "files"
    """`files`, or any format that Spark reads"""
    options: Options = {}
    schema_: str | None = Field(None, alias="schema")
    """the columns, where Spark cannot find out"""
    body: str = "body"
    """the column or SQL expression that is the message"""
    id: str | None = None
    """the column or SQL expression that identifies it"""
    published_at: str | None = None
    """the column or SQL expression that says when it was published"""
    stream: str | None = None
    """a name for the stream, to tell it from others in the deliveries, and in joins"""
    time: str | None = None
    """where in a message it says when it happened, for joins: a path of XPath"""
    keep: tuple[str, ...] = ()
    """columns or SQL expressions that deliveries shall carry"""
    files_per_batch: Annotated[int, Field(gt=0)] = 1_000
    bytes_per_batch: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for kept in self.keep:
            alias = _ALIAS.search(kept)
            if (name := alias[1] if alias else kept.strip("` ")) in _TAKEN:
                raise ValueError(f"'keep': deliveries have a column {name!r} already{_TAKEN[name]}")
        if self.format == "files":
            if self.path is None:
                raise ValueError("'path' is missing: the file or folder to read")
            for key in ("id", "schema_", "published_at", "body", "options"):
                if key in self.model_fields_set or key.rstrip("_") in self.model_fields_set:
                    raise ValueError(f"'{key.rstrip('_')}' is for other formats than files")
            if self.record is not None:
                RecordScanner(self.record, BytesIO())  # says what is wrong with a name
        else:
            if self.record is not None:
                raise ValueError("'record' is for format = \"files\"")
            if self.id is None and self.format != "kafka":
                raise ValueError("'id' is missing: a column or SQL expression that identifies a message")
            if self.path is None and self.format in FILE_FORMATS:
                raise ValueError("'path' is missing: the file or folder to read")
            for key in ("files_per_batch", "bytes_per_batch"):
                if self.path is None and key in self.model_fields_set:
                    raise ValueError(f"'{key}' is for files; for {self.format}, see what its options can do")
        return self


class SubscriptionConfig(_Table):
    """Whose subscriptions are served."""

    store: str | None = None
    """a subscription store: an SQLite file or a database URL; changes take effect while a stream runs"""
    file: str | None = None
    """a file of queries, which stay as they are"""
    namespaces: Annotated[dict[str, str], BeforeValidator(to_prefixes)] = {}
    """prefixes, or "any", for a file; a store has its own"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.store is None and self.file is None:
            raise ValueError("either 'store' or 'file' is needed")
        if self.store is not None and self.file is not None:
            raise ValueError(
                "'store' and 'file' are both given, and only one is served: remove one, or put the queries "
                "into the store with 'sapwood subscriptions import'"
            )
        if self.store is not None and self.namespaces:
            raise ValueError("'namespaces' are kept in the store: sapwood subscriptions namespaces")
        return self


class SinkConfig(_Table):
    """Where rows go: a folder, or whatever the format's options say."""

    path: str | None = None
    format: str = "parquet"
    options: Options = {}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.path is None and self.format in FILE_FORMATS:
            raise ValueError("'path' is missing: the folder to write to")
        return self


class DeliveryConfig(SinkConfig):
    shape: Shape = "pairs"
    body: bool = False
    """whether filters, too, get a body: the message itself"""


class JoinConfig(_Table):
    """How messages are joined."""

    lateness: Annotated[str, AfterValidator(_length)] = "0 s"
    """how much older than the newest message of earlier batches a message may be"""
    wait_for: Literal["slowest", "fastest"] = "slowest"
    """of several sources, the one whose newest message counts"""
    buckets: Annotated[int, Field(gt=0, le=10_000)] = BUCKETS
    """into how many parts that are kept together the state is cut; stays as it is"""

    @property
    def lateness_seconds(self) -> float:
        return to_seconds_of_text(self.lateness)


class RelationalConfig(_Table):
    """How the relational engine works."""

    on: Literal["duckdb", "spark"] = "duckdb"
    """where messages are joined with the tables: in DuckDB on the driver, or with Spark SQL"""
    plan: Literal["shared", "buckets", "unrolled"] | None = None
    """how subscriptions are filed; by default as they are, or as seems best at first"""
    memory: Annotated[str, AfterValidator(_size)] = "512MB"
    """what DuckDB may use"""
    tables: str | None = None
    """the file of tables; by default in the checkpoint"""


class RunConfig(_Table):
    """How it runs."""

    checkpoint: str
    trigger: Trigger = AVAILABLE_NOW
    master: str = "local[*]"
    partitions: Annotated[int, Field(gt=0)] | None = None
    """tasks in a batch; by default twice the cores"""
    log: str | None = None
    """the file for what Spark prints; by default beside the checkpoint"""

    @property
    def interval(self) -> str | None:
        """The trigger as an interval for Spark, in which 0 is as fast as possible; None if it is none."""
        if self.trigger in (AVAILABLE_NOW, BATCH):
            return None
        return f"{round(parse_duration(self.trigger) * 1000)} milliseconds"


def local_path(path: str) -> Path | None:
    """The path, if it is one of this machine's."""
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    return None if _URI.match(path) else Path(path)


def _listed(source: Any) -> Any:
    return [source] if isinstance(source, dict) else source


class PipelineConfig(_Table):
    name: str = "sapwood"
    engine: Literal["automaton", "relational"] = "automaton"
    """what filters are matched with: an automaton in memory, or tables on disk"""
    sources: Annotated[tuple[SourceConfig, ...], BeforeValidator(_listed)] = Field(alias="source")
    """one, or several, each of which is a stream of its own"""
    subscriptions: SubscriptionConfig
    deliveries: DeliveryConfig
    rejects: SinkConfig
    run: RunConfig
    joins: JoinConfig | None = None
    relational: RelationalConfig | None = None
    limits: dict[str, int | float] = {}
    spark: Options = {}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.matcher_limits()
        self._check_streams()
        if self.joins is not None and (problem := self.against_joins()):
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
            raise ValueError(f"'relational.tables': a file of this machine is expected, not {given!r}")
        if given is None and local_path(self.run.checkpoint) is None:
            raise ValueError(
                "'relational.tables' is missing: the tables are in a file of this machine, and the "
                "checkpoint is not"
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
                raise ValueError(f"source #{number}: 'stream' is missing: of several, each needs a name")
            first = names.index(name) + 1
            if first < number:
                raise ValueError(f"source #{number}: 'stream' is {name!r}, as that of source #{first} is")

    def against_joins(self) -> str | None:
        """Why messages cannot be joined with these settings, if they cannot."""
        if self.run.trigger == BATCH:
            return f"'run.trigger': joins need a stream; '{AVAILABLE_NOW}' serves what is there and ends"
        if self.deliveries.shape != "pairs":
            return "'deliveries.shape': joins need 'pairs', because what they deliver is of several messages"
        return None

    @property
    def source(self) -> SourceConfig:
        """The first of the sources, which usually is the only one."""
        return self.sources[0]

    def matcher_limits(self) -> Limits:
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
    """The settings in a TOML file; paths in it are relative to its folder."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(
            f"{path} cannot be run: it is nested too deeply; tables of tables are enough"
        ) from None
    return parse_config(content, str(path), path.parent)


def parse_config(
    content: dict[str, Any], origin: str = "settings", folder: Path | None = None
) -> PipelineConfig:
    """The settings in a nested mapping."""
    try:
        checked = PipelineConfig.model_validate(content)
    except ValidationError as error:
        alone = isinstance(content.get("source"), dict)
        problems = [
            _problem(_place(entry["loc"], alone), entry["loc"], entry["type"], entry["msg"])
            for entry in error.errors()
        ]
        raise ConfigError("\n".join([f"{origin} cannot be run:", *(f"  {p}" for p in problems)])) from None
    resolved = _resolved(checked, (folder or Path()).absolute())
    if problems := _in_each_others_way(resolved):
        raise ConfigError("\n".join([f"{origin} cannot be run:", *(f"  {p}" for p in problems)]))
    return resolved


def _in_each_others_way(given: PipelineConfig) -> list[str]:
    """Paths of what is written that are the same, or one in the other."""
    places = {
        "run.checkpoint": given.run.checkpoint,
        "deliveries.path": given.deliveries.path,
        "rejects.path": given.rejects.path,
    }
    known = {key: _normal(path) for key, path in places.items() if path is not None}
    found = []
    for (one, path), (other, outer) in permutations(known.items(), 2):
        if path == outer and one < other:
            found.append(f"{one} is also {other}: {path}; each needs a folder of its own")
        elif path != outer and path.startswith(outer.rstrip("/") + "/"):
            found.append(f"{one} is in {other}: {path} in {outer}; give it a folder beside that")
    for number, source in enumerate(given.sources, 1):
        name = "source.path" if len(given.sources) == 1 else f"source #{number}.path"
        for key, path in known.items():
            if source.path is not None and _normal(source.path) == path:
                found.append(f"{key} is also {name}: {path}; each needs a folder of its own")
    return found


def _normal(path: str) -> str:
    """A path by which the same place is always called, as far as that can be told."""
    place = local_path(path)
    return os.path.realpath(place) if place is not None else path.rstrip("/")


def _place(location: tuple[str | int, ...], alone: bool) -> str:
    """The key as people would say it: a source has a number only if there are several."""
    if location[:1] == ("source",) and len(location) > 1 and isinstance(location[1], int):
        first = "source" if alone else f"source #{location[1] + 1}"
        location = (first, *location[2:])
    return ".".join(map(str, location))


def _problem(key: str, location: tuple[str | int, ...], kind: str, text: str) -> str:
    if kind == "extra_forbidden":
        known = _known_keys(location[:-1])
        close = get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
        return f"{key}: there is no such key; {hint}"
    if kind == "missing":
        return f"{key}: is missing"
    return f"{key}: {text.removeprefix('Value error, ')}" if key else text.removeprefix("Value error, ")


def _known_keys(location: tuple[str | int, ...]) -> list[str]:
    tables: dict[str, type[BaseModel]] = {
        "source": SourceConfig,
        "subscriptions": SubscriptionConfig,
        "deliveries": DeliveryConfig,
        "rejects": SinkConfig,
        "run": RunConfig,
        "joins": JoinConfig,
        "relational": RelationalConfig,
    }
    model = tables[str(location[0])] if location else PipelineConfig
    return [field.alias or name for name, field in model.model_fields.items()]


def _resolved(given: PipelineConfig, folder: Path) -> PipelineConfig:
    """With the paths made absolute."""

    def at(path: str | None) -> str | None:
        return str(folder / path) if path is not None and not _URI.match(path) else path

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
