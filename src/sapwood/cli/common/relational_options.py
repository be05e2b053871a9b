"""What commands share that use the relational engine: its options, where its tables are, filling them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood import Limits
from sapwood.cli.common.console import counting, fail, note
from sapwood.cli.common.interruption import Interruption
from sapwood.cli.common.stored_filters import Refusals

if TYPE_CHECKING:
    from sapwood.relational import RelationalMatcher
    from sapwood.store import SubscriptionStore

MEMORY = "512MB"
BATCH = 1_000
"""messages that are matched at once"""
_NEEDED = frozenset({"duckdb", "pyarrow"})
"""what `sapwood[relational]` installs"""


class Engine(StrEnum):
    """What messages are matched with."""

    AUTOMATON = "automaton"
    RELATIONAL = "relational"


class PlanName(StrEnum):
    """As `sapwood.relational.Plan`, which is only there where DuckDB is."""

    SHARED = "shared"
    BUCKETS = "buckets"
    UNROLLED = "unrolled"


EngineOption = Annotated[
    Engine,
    typer.Option(help="In memory, or with tables on disk, for more subscriptions than fit into memory."),
]
TablesOption = Annotated[
    Path | None,
    typer.Option(
        "--tables",
        metavar="FILE",
        help="Where the tables are kept; by default beside an SQLite store, with .duckdb appended.",
    ),
]
PlanOption = Annotated[
    PlanName | None,
    typer.Option(help="How subscriptions are filed; by default as they are, or as seems best at first."),
]
MemoryOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help=f"What DuckDB may use, such as 2GB; by default {MEMORY}.")
]


@contextmanager
def duckdb_needed(command: str) -> Iterator[None]:
    """Says what to install where DuckDB is missing, and tells in one line what DuckDB cannot do."""
    try:
        import duckdb
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        fail(
            f"'{command}' needs {error.name}, which is missing: "
            "in a clone of Sapwood, pip install '.[relational]'"
        )
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        fail(f"DuckDB ran out of memory, give it more with --memory: {_first_line(error)}")
    except duckdb.Error as error:
        fail(f"DuckDB: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# -- where they are ------------------------------------------------------------------------------------------


def tables_of(store: str, tables: Path | None) -> Path:
    """The file given, or else the one beside the store."""
    from sapwood.store.store_location import (  # here, because other commands need no database
        locate,
        mask_password,
    )

    if tables is not None:
        return tables
    url = locate(store)
    if url.get_backend_name() != "sqlite":
        fail(
            f"{mask_password(url)} is no file that tables could be kept beside: say where with --tables FILE"
        )
    return Path(f"{url.database}.duckdb")


def opened(
    tables: Path, plan: PlanName | None, memory: str | None, limits: Limits | None = None
) -> RelationalMatcher:
    """A matcher with the tables of a file, which is made if it is absent."""
    from sapwood.relational import RelationalMatcher

    return RelationalMatcher(
        tables, limits=limits, plan=None if plan is None else plan.value, memory=memory or MEMORY
    )


def reopened(tables: Path, memory: str | None = None) -> RelationalMatcher:
    """A matcher with the tables of a file that must be there."""
    if not tables.is_file():
        fail(f"there is no file {str(tables)!r}; 'sapwood relational load' makes it from a store")
    return opened(tables, None, memory)


def size_of(tables: Path) -> str:
    """How large a file is, for people."""
    size = float(tables.stat().st_size)
    for unit in ("bytes", "kB", "MB"):
        if size < 1_000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1_000
    return f"{size:,.1f} GB"


# -- from a store --------------------------------------------------------------------------------------------


def bring_up_to_date(
    matcher: RelationalMatcher, store: SubscriptionStore, interruption: Interruption
) -> tuple[int, int]:
    """Brings the tables to the store's newest version: which that is, and how many queries were refused.

    Ctrl-C keeps what is in, and the next one goes on from there.
    """
    from sapwood.relational.storage.store_sync import UnsupportedLanguage, synchronize

    refusals = Refusals()

    def refused(id: Hashable, error: ValueError) -> None:
        if not isinstance(error, UnsupportedLanguage):
            refusals.add(id, error)

    def progressed(done: int) -> None:
        progress.update(task, completed=done)
        interruption.check()

    with counting(rate=True) as progress:
        task = progress.add_task("loading subscriptions", total=None)
        try:
            version = synchronize(matcher, store, on_error=refused, on_progress=progressed)
        except KeyboardInterrupt:
            note(f"{len(matcher):,} subscriptions are in the tables; the next run goes on from there")
            raise
    return version, refusals.finish()
