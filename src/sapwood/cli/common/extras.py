"""Libraries of optional extras: a missing one ends the command with the line that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sapwood.cli.common.console import fail

_LIBRARIES = {
    "client": frozenset({"httpx"}),
    "serve": frozenset(
        {
            "cachetools",
            "fastapi",
            "httptools",
            "httpx",
            "prometheus_client",
            "pydantic",
            "python_multipart",
            "sqlalchemy",
            "starlette",
            "uvicorn",
            "websockets",
            "zstandard",
        }
    ),
    "mesh": frozenset({"httpx", "msgpack", "nats", "sqlalchemy", "zstandard"}),
    "store": frozenset({"sqlalchemy"}),
    "relational": frozenset({"duckdb", "pyarrow"}),
    "spark": frozenset(
        {"google", "jinja2", "pandas", "py4j", "pyarrow", "pydantic", "pyspark", "sqlalchemy"}
    ),
}
"""The libraries that each extra installs, by import name."""


@contextmanager
def require_extra(extra: str, command: str) -> Iterator[None]:
    """Exit with the install line if a library of the extra cannot be imported in this block."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES[extra]:
            raise  # a bug, not an optional library
        fail(
            f"'{command}' needs {error.name}, which is missing: "
            f"in a clone of Sapwood, pip install '.[{extra}]'"
        )
