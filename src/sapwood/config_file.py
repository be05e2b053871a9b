"""TOML files of settings, checked by pydantic: errors name every wrong key, and what is expected."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from sapwood.errors import SapwoodError
from sapwood.lang.literals.durations import parse_duration

Location = tuple[str | int, ...]


class ConfigError(SapwoodError):
    """Raised for a configuration that cannot be used; names every wrong key, and what is expected."""


class ConfigTable(BaseModel):
    """A table of the TOML file; keys that it does not know are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_duration(text: str) -> str:
    parse_duration(text)
    return text


Duration = Annotated[str, AfterValidator(_check_duration)]


def read_toml(path: Path, purpose: str) -> dict[str, Any]:
    """Read a TOML file; the purpose, such as `run`, is what it cannot be used for if it is wrong."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} cannot be {purpose}: it is nested too deeply") from None


def _format_location(location: Location) -> str:
    return ".".join(map(str, location))


def describe_errors(
    error: ValidationError,
    model: type[BaseModel],
    format_key: Callable[[Location], str] = _format_location,
) -> list[str]:
    """Return the key and the message of each error of pydantic's."""
    return [_describe_error(entry, model, format_key) for entry in error.errors()]


def _describe_error(
    error: ErrorDetails, model: type[BaseModel], format_key: Callable[[Location], str]
) -> str:
    location, kind, text = error["loc"], error["type"], error["msg"]
    key = format_key(location)
    if kind == "extra_forbidden":
        known = _list_keys(model, location[:-1])
        close = get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
        return f"{key}: there is no such key; {hint}"
    if kind == "missing":
        return f"{key}: is missing"
    if kind in ("byte_size", "byte_size_unit"):
        return f"{key}: a size such as '512MB' or '2GB' is expected, not {error['input']!r}"
    return f"{key}: {text.removeprefix('Value error, ')}" if key else text.removeprefix("Value error, ")


def _list_keys(model: type[BaseModel], location: Location) -> list[str]:
    """Return the keys of the table at a location, which may be in lists or in tables with free names."""
    for part in location:
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                found = _find_model(field.annotation)
                model = found if found is not None else model
    return [field.alias or name for name, field in model.model_fields.items()]


def _find_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _find_model(part))), None)
