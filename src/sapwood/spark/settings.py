"""A pipeline as people describe it in a TOML file: what is read, for whom, where it goes, and how it runs."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from difflib import get_close_matches
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from sapwood.engine import Limits
from sapwood.errors import SapwoodError
from sapwood.records import RecordScanner
from sapwood.spark.matching import Shape
from sapwood.spark.sinks import FILE_FORMATS

AVAILABLE_NOW, BATCH = "available-now", "batch"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # but not C:/
_SQLITE = re.compile(r"sqlite(?:\+pysqlite)?:///")
_INTERVAL = re.compile(r"\d+ (?:milliseconds?|seconds?|minutes?|hours?)")


class SettingsError(SapwoodError):
    """A pipeline file that cannot be run; names every key that is wrong, and what would be right."""


def _trigger(text: str) -> str:
    if text in (AVAILABLE_NOW, BATCH) or _INTERVAL.fullmatch(text):
        return text
    raise ValueError(
        f"'{AVAILABLE_NOW}', '{BATCH}', or an interval such as '5 seconds' is expected, not {text!r}"
    )


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Options = dict[str, str | int | float | bool]
Trigger = Annotated[str, AfterValidator(_trigger)]


class SourceSettings(_Table):
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
    """a name for the stream, to tell it from others in the deliveries"""
    keep: tuple[str, ...] = ()
    """columns or SQL expressions that deliveries shall carry"""
    files_per_batch: Annotated[int, Field(gt=0)] = 1_000
    bytes_per_batch: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.format == "files":
            if self.path is None:
                raise ValueError("'path' is missing: the file or folder to read")
            for key in ("id", "schema_", "published_at"):
                if getattr(self, key) is not None:
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
        return self


class SubscriptionSettings(_Table):
    """Whose subscriptions are served."""

    store: str | None = None
    """a subscription store: an SQLite file or a database URL; changes take effect while a stream runs"""
    file: str | None = None
    """a file of queries, which stay as they are"""
    namespaces: dict[str, str] = {}
    """prefixes, for a file; a store has its own"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.store is None) == (self.file is None):
            raise ValueError("either 'store' or 'file' is needed")
        if self.store is not None and self.namespaces:
            raise ValueError("'namespaces' are kept in the store: sapwood subscriptions namespaces")
        return self


class SinkSettings(_Table):
    """Where rows go: a folder, or whatever the format's options say."""

    path: str | None = None
    format: str = "parquet"
    options: Options = {}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.path is None and self.format in FILE_FORMATS:
            raise ValueError("'path' is missing: the folder to write to")
        return self


class DeliverySettings(SinkSettings):
    shape: Shape = "pairs"


class RunSettings(_Table):
    """How it runs."""

    checkpoint: str
    trigger: Trigger = AVAILABLE_NOW
    master: str = "local[*]"
    partitions: Annotated[int, Field(gt=0)] | None = None
    """tasks in a batch; by default twice the cores"""


class Settings(_Table):
    name: str = "sapwood"
    source: SourceSettings
    subscriptions: SubscriptionSettings
    deliveries: DeliverySettings
    rejects: SinkSettings
    run: RunSettings
    limits: dict[str, int] = {}
    spark: Options = {}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.matcher_limits()
        if self.rejects.path is not None and self.rejects.path == self.deliveries.path:
            raise ValueError("'rejects.path' is that of the deliveries, which would overwrite each other")
        return self

    def matcher_limits(self) -> Limits:
        known = [field.name for field in fields(Limits)]
        for key in self.limits:
            if key not in known:
                raise ValueError(f"'limits.{key}': there is no such limit; there are {', '.join(known)}")
        return Limits(**self.limits)


def read_settings(path: str | Path) -> Settings:
    """The settings in a TOML file; paths in it are relative to its folder."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
    return settings(content, str(path), path.parent)


def settings(content: dict[str, Any], origin: str = "settings", folder: Path | None = None) -> Settings:
    """The settings in a nested mapping."""
    try:
        checked = Settings.model_validate(content)
    except ValidationError as error:
        problems = [_problem(entry["loc"], entry["type"], entry["msg"]) for entry in error.errors()]
        raise SettingsError("\n".join([f"{origin} cannot be run:", *(f"  {p}" for p in problems)])) from None
    return _resolved(checked, (folder or Path()).absolute())


def _problem(location: tuple[str | int, ...], kind: str, text: str) -> str:
    key = ".".join(map(str, location))
    if kind == "extra_forbidden":
        known = _known_keys(location[:-1])
        close = get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
        return f"{key}: there is no such key; {hint}"
    if kind == "missing":
        return f"{key}: is missing"
    return f"{key}: {text.removeprefix('Value error, ')}" if key else text.removeprefix("Value error, ")


def _known_keys(location: tuple[str | int, ...]) -> list[str]:
    model: type[BaseModel] = Settings
    for key in location:
        annotation = model.model_fields[str(key)].annotation
        assert isinstance(annotation, type)
        model = annotation
    return [field.alias or name for name, field in model.model_fields.items()]


def _resolved(given: Settings, folder: Path) -> Settings:
    """With the paths made absolute."""

    def at(path: str | None) -> str | None:
        return str(folder / path) if path is not None and not _URI.match(path) else path

    source = given.source.model_copy(update={"path": at(given.source.path)})
    store = given.subscriptions.store
    if store is not None:
        sqlite = _SQLITE.match(store)
        store = f"{sqlite[0]}{folder / store[sqlite.end() :]}" if sqlite else at(store)
    return given.model_copy(
        update={
            "source": source,
            "subscriptions": given.subscriptions.model_copy(
                update={"store": store, "file": at(given.subscriptions.file)}
            ),
            "deliveries": given.deliveries.model_copy(update={"path": at(given.deliveries.path)}),
            "rejects": given.rejects.model_copy(update={"path": at(given.rejects.path)}),
            "run": given.run.model_copy(update={"checkpoint": at(given.run.checkpoint)}),
        }
    )
