"""`sapwood relational`: manage the tables of the relational engine."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sapwood.cli.common.console import write_line
from sapwood.cli.common.interruption import InterruptHandler
from sapwood.cli.common.options import DEFAULT_STORE, JsonOption, StoreOption, TenantOption
from sapwood.cli.common.relational_options import (
    MemoryOption,
    PlanOption,
    TablesOption,
    format_size,
    open_tables,
    reopen_tables,
    require_duckdb,
    synchronize_tables,
    tables_path,
)
from sapwood.cli.common.stored_filters import open_store, report_skipped

relational = typer.Typer(
    help="Keep the filters of a store in tables on disk, to match messages with more of them than fit into "
    "memory.",
    no_args_is_help=True,
)


@relational.command("load")
def load(
    store: StoreOption = DEFAULT_STORE,
    tenant: TenantOption = "",
    tables: TablesOption = None,
    plan: PlanOption = None,
    memory: MemoryOption = None,
) -> None:
    """Synchronise the tables with the newest version of a store.

    From an earlier version, only the changes are applied. Ctrl-C keeps what is loaded, and the next load
    continues from there.
    """
    start = time.monotonic()
    with require_duckdb("sapwood relational load"), open_store(store, tenant=tenant) as source:
        file = tables_path(store, tables, tenant)
        with InterruptHandler() as interruption, open_tables(file, plan, memory) as matcher:
            version, refused = synchronize_tables(matcher, source, interruption)
            count = len(matcher)
        report_skipped(source)
    took = time.monotonic() - start
    print(
        f"version {version}: {count:,} subscriptions, loaded in {took:.1f} s; {file} has {format_size(file)}"
    )
    if refused:
        raise typer.Exit(1)


@relational.command("gc")
def gc(
    store: StoreOption = DEFAULT_STORE,
    tables: TablesOption = None,
    plan: PlanOption = None,
    memory: MemoryOption = None,
) -> None:
    """Delete what no subscription uses any more, and reorganise the rest by the plan that is best now."""
    with (
        require_duckdb("sapwood relational gc"),
        InterruptHandler(),
        reopen_tables(tables_path(store, tables), memory) as matcher,
    ):
        before = matcher.plan
        garbage = matcher.collect_garbage(None if plan is None else plan.value)
        after = matcher.plan
    print(garbage)
    if before is not None and after is not None and before is not after:
        print(f"the plan was {before.value} and is {after.value} now")


@relational.command("explain")
def explain(
    store: StoreOption = DEFAULT_STORE, tables: TablesOption = None, as_json: JsonOption = False
) -> None:
    """Show the plan of the tables and the estimated cost of each plan."""
    with require_duckdb("sapwood relational explain"), reopen_tables(tables_path(store, tables)) as matcher:
        choice = matcher.explain()
    if not as_json:
        print(choice)
        return
    write_line(
        {
            "plan": choice.plan.value,
            "in_use": choice.in_use and choice.in_use.value,
            "best": choice.best.value,
            "costs": {plan.value: cost for plan, cost in choice.costs.items()},
            "statistics": asdict(choice.statistics),
        }
    )


@relational.command("show")
def show(
    store: StoreOption = DEFAULT_STORE, tables: TablesOption = None, as_json: JsonOption = False
) -> None:
    """Show what a file of tables holds: which store, which version, how many rows."""
    with require_duckdb("sapwood relational show"):
        record = _record(tables_path(store, tables))
    if as_json or not sys.stdout.isatty():
        write_line(record)
        sys.stdout.flush()
        return
    table = Table("table", title=_title(record), title_justify="left")
    table.add_column("rows", justify="right")
    for name, count in record["rows"].items():
        table.add_row(name, f"{count:,}")
    Console(highlight=False).print(table)


def _record(file: Path) -> dict[str, Any]:
    with reopen_tables(file) as matcher:
        from sapwood.relational.storage.store_sync import read_sync_state
        from sapwood.relational.storage.table_schema import TABLES

        rows = {name: matcher.connection.value(f"SELECT count(*) FROM {name}") for name in TABLES}
        return {
            "file": str(file),
            "bytes": file.stat().st_size,
            **asdict(read_sync_state(matcher)),
            "plan": matcher.plan and matcher.plan.value,
            "rows": rows,
        }


def _title(record: dict[str, Any]) -> str:
    parts = [f"{record['file']}, {record['bytes']:,} bytes"]
    if record["store"] is not None:
        far = f"version {record['version']} of " if record["version"] is not None else ""
        parts.append(("loaded in part from " if record["unfinished"] else far) + record["store"])
    if record["plan"] is not None:
        parts.append(f"plan {record['plan']}")
    return escape("\n".join(parts))
