"""`sapwood relational`: the tables that the relational engine matches with."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sapwood.cli.common.console import write_line
from sapwood.cli.common.interruption import Interruption
from sapwood.cli.common.relational_options import (
    MemoryOption,
    PlanOption,
    TablesOption,
    bring_up_to_date,
    duckdb_needed,
    opened,
    reopened,
    size_of,
    tables_of,
)
from sapwood.cli.common.stored_filters import opened_store, tell_left_out
from sapwood.cli.subscriptions import HERE, StoreOption

relational = typer.Typer(
    help="Keep the filters of a store in tables on disk, to match messages with more of them than fit into "
    "memory.",
    no_args_is_help=True,
)

JsonOption = Annotated[bool, typer.Option("--json", help="For machines.")]


@relational.command("load")
def load(
    store: StoreOption = HERE,
    tables: TablesOption = None,
    plan: PlanOption = None,
    memory: MemoryOption = None,
) -> None:
    """Bring the tables to the newest version of a store.

    If they hold an earlier version, only what has changed since is changed. Ctrl-C keeps what is in, and the
    next load goes on from there.
    """
    start = time.monotonic()
    with duckdb_needed("sapwood relational load"), opened_store(store) as source:
        file = tables_of(store, tables)
        with Interruption() as interruption, opened(file, plan, memory) as matcher:
            version, refused = bring_up_to_date(matcher, source, interruption)
            count = len(matcher)
        tell_left_out(source)
    took = time.monotonic() - start
    print(f"version {version}: {count:,} subscriptions, loaded in {took:.1f} s; {file} has {size_of(file)}")
    if refused:
        raise typer.Exit(1)


@relational.command("gc")
def gc(
    store: StoreOption = HERE,
    tables: TablesOption = None,
    plan: PlanOption = None,
    memory: MemoryOption = None,
) -> None:
    """Drop what no subscription uses any more, and file the others by the plan that seems best by now."""
    with (
        duckdb_needed("sapwood relational gc"),
        Interruption(),
        reopened(tables_of(store, tables), memory) as matcher,
    ):
        before = matcher.plan
        garbage = matcher.collect_garbage(None if plan is None else plan.value)
        after = matcher.plan
    print(garbage)
    if before is not None and after is not None and before is not after:
        print(f"the plan was {before.value} and is {after.value} now")


@relational.command("explain")
def explain(store: StoreOption = HERE, tables: TablesOption = None, as_json: JsonOption = False) -> None:
    """Show how subscriptions are filed, and what each way would cost."""
    with duckdb_needed("sapwood relational explain"), reopened(tables_of(store, tables)) as matcher:
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
def show(store: StoreOption = HERE, tables: TablesOption = None, as_json: JsonOption = False) -> None:
    """Show what a file of tables holds: whose subscriptions, which version, how many rows."""
    with duckdb_needed("sapwood relational show"):
        record = _record(tables_of(store, tables))
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
    with reopened(file) as matcher:
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
