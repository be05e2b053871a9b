"""Options of the relational engine, the location of its tables, and their synchronisation with a store."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood import Limits
from sapwood.cli.common.console import fail, make_progress, note
from sapwood.cli.common.extras import require_extra
from sapwood.cli.common.interruption import InterruptHandler
from sapwood.cli.common.stored_filters import make_refusal_output
from sapwood.errors import TablesError
from sapwood.lang.literals.memory_sizes import DEFAULT_MEMORY, MIN_MEMORY, check_memory, parse_memory

if TYPE_CHECKING:
    from sapwood.relational import RelationalMatcher
    from sapwood.store import SubscriptionStore

BATCH = 1_000
"""messages that are matched at once"""


class Engine(StrEnum):
    """The engine that matches messages."""

    AUTOMATON = "automaton"
    RELATIONAL = "relational"


class PlanName(StrEnum):
    """The values of `sapwood.relational.Plan`, which needs DuckDB to be imported."""

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
        help="The file of tables; by default beside an SQLite store, with .duckdb appended.",
    ),
]
PlanOption = Annotated[
    PlanName | None,
    typer.Option(
        help="How the tables are organised; by default the present plan, or the best one for a new file."
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help=f"Memory for DuckDB, such as 2GB, at least {MIN_MEMORY}; by default {DEFAULT_MEMORY}.",
    ),
]


@contextmanager
def require_duckdb(command: str) -> Iterator[None]:
    """Exit with an install line where DuckDB is missing, and with one line for errors of DuckDB."""
    with require_extra("relational", command):
        import duckdb
        import pyarrow  # noqa: F401
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        fail(f"DuckDB ran out of memory, give it more with --memory: {_first_line(error)}")
    except duckdb.Error as error:
        fail(f"DuckDB: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# -- where they are ------------------------------------------------------------------------------------------


def tables_path(store: str, tables: Path | None, tenant: str = "") -> Path:
    """Return the given file of tables, or the default one beside the store."""
    if tables is not None:
        return tables
    if tenant:
        fail("tenants have no default path for tables: give one with --tables FILE, another for each tenant")
    with require_extra("store", "--store"):  # here, because other commands need no database
        from sapwood.store.store_location import locate, mask_password

    url = locate(store)
    if url.get_backend_name() != "sqlite":
        fail(
            f"{mask_password(url)} is not a local file, so there is no default path for tables: "
            "give one with --tables FILE"
        )
    return Path(f"{url.database}.duckdb")


def open_tables(
    tables: Path, plan: PlanName | None, memory: str | None, limits: Limits | None = None
) -> RelationalMatcher:
    """Return a matcher on a file of tables, which is created if it is absent."""
    from sapwood.relational import RelationalMatcher

    if memory is not None:
        try:
            check_memory(parse_memory(memory), repr(memory))
        except TablesError as error:
            fail(f"--memory: {error}")
    return RelationalMatcher(
        tables, limits=limits, plan=None if plan is None else plan.value, memory=memory or DEFAULT_MEMORY
    )


def reopen_tables(tables: Path, memory: str | None = None) -> RelationalMatcher:
    """Return a matcher on an existing file of tables."""
    if not tables.is_file():
        fail(f"there is no file {str(tables)!r}; 'sapwood relational load' creates it from a store")
    return open_tables(tables, None, memory)


def format_size(tables: Path) -> str:
    """Format the size of a file."""
    size = float(tables.stat().st_size)
    for unit in ("bytes", "kB", "MB"):
        if size < 1_000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1_000
    return f"{size:,.1f} GB"


# -- from a store --------------------------------------------------------------------------------------------


def synchronize_tables(
    matcher: RelationalMatcher, store: SubscriptionStore, interruption: InterruptHandler
) -> tuple[int, int]:
    """Synchronise the tables with the store's newest version; return the version and the number of refused
    queries.

    Ctrl-C keeps what is loaded, and the next run continues from there.
    """
    from sapwood.relational.storage.store_sync import UnsupportedLanguage, synchronize

    refusals = make_refusal_output()

    def refused(id: Hashable, error: ValueError) -> None:
        if not isinstance(error, UnsupportedLanguage):
            refusals.add(id, error)

    def progressed(done: int) -> None:
        progress.update(task, completed=done)
        interruption.check()

    with make_progress(rate=True) as progress:
        task = progress.add_task("loading subscriptions", total=None)
        try:
            version = synchronize(matcher, store, on_error=refused, on_progress=progressed)
        except KeyboardInterrupt:
            note(f"{len(matcher):,} subscriptions are in the tables; the next run continues from there")
            raise
    return version, refusals.finish()
