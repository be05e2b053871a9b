"""Sizes at which all experiments together take a few seconds, and a folder like the published one."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from sapwood.bench import sources
from sapwood.bench.join_setting import JoinScale
from sapwood.bench.report import Report
from sapwood.bench.scale import Scale
from sapwood.bench.setting import Experiment
from sapwood.bench.tables import tables
from sapwood.bench.transform_setting import TransformScale
from sapwood.workload import load_dtd

TINY = Scale(
    messages=4,
    few=10,
    distinct=60,
    repeated=80,
    predicates=30,
    nested=20,
    churned=50,
    loads=2,
    growth_messages=3,
    growth_distinct=(10, 40),
    growth_repeated=(10, 60),
    growth_queries=30,
    growth_deep_queries=20,
    growth_branching=15,
    depths=(6, 7),
    wildcards=(0.0, 0.5),
    descendants=(0.0, 1.0),
    predicate_counts=(0, 2),
    twin_predicate_counts=(2,),
    ranges=(10, 20),
    twin_ranges=10,
    nested_counts=(0, 1),
    inserted=5,
    insert_populations=(10, 30),
    nestings=(5, 10),
    recursive_queries=6,
    rounds=2,
    seconds=0.0,
    sampled_queries=5,
    sampled_messages=2,
)

TINY_TRANSFORM = TransformScale(
    messages=2,
    rounds=2,
    sharing_sizes=(20, 40),
    shared_alone=60,
    cost_queries=50,
    cost_messages=3,
    cost_rounds=2,
    adding_sizes=(5, 40),
    arriving=6,
    bibliography_queries=30,
    book_queries=40,
    predicate_counts=(1, 3),
    return_counts=(1, 4),
    descendants=(0.05, 0.4),
    growth_sizes=(10, 30),
)

TINY_JOIN = JoinScale(
    rounds=2,
    pass_seconds=0.0,
    sizes=(5, 40),
    queries=20,
    leaf_counts=(4, 6),
    equality_counts=(2, 3),
    skews=(0.0, 1.6),
    feed_sizes=(5, 20, 40),
    feed_items=80,
    feed_first_items=30,
    feed_compared_items=20,
)


def assert_written(out: Path, name: str, charts: set[str], report: Report) -> None:
    """The folder has the figures, a picture of each chart, and one of all; nothing else."""
    drawn = {f"{name}-{chart}.png" for chart in charts | {"bars"}}
    assert {path.name for path in out.iterdir()} == {f"{name}.json", f"{name}.png"} | drawn
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in out.glob("*.png"))
    assert json.loads((out / f"{name}.json").read_text(encoding="utf-8")) == json.loads(report.to_json())


def shown(report: Report) -> str:
    """What is printed of a report: each chart and listing with its title, in one line."""
    console = Console(file=StringIO(), width=260)
    for table in tables(report):
        console.print(table)
    assert isinstance(console.file, StringIO)
    text = " ".join(console.file.getvalue().split())
    titles = [chart.title for chart in report.charts] + [listing.title for listing in report.listings]
    assert all(title in text for title in titles)
    return text


def assert_helps(name: str, experiments: Sequence[Experiment[Any]]) -> None:
    """`sapwood bench NAME --help` says what can be chosen."""
    command = [sys.executable, "-m", "sapwood.cli", "bench", name, "--help"]
    wide = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    helped = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False, env=wide)
    assert helped.returncode == 0
    assert all(option in helped.stdout for option in ("--quick", "--only", "--out", "--json"))
    text = " ".join(helped.stdout.replace("│", " ").split())
    assert all(experiment.name in text for experiment in experiments)


def nitf_folder(folder: Path) -> Path:
    """A folder with all files of the published workload, filled from the news DTD."""
    made = sources.Generated(load_dtd("news"))
    (folder / sources.MESSAGES).mkdir()
    for number, message in enumerate(made.messages(6)):
        (folder / sources.MESSAGES / f"{number}.xml").write_bytes(message)
    for name, lines in (
        (sources.DISTINCT, made.distinct(60)),
        (sources.REPEATED, made.repeated(80)),
        (sources.PREDICATES, made.predicates(30)),
        (sources.NESTED, made.nested(20)),
    ):
        with gzip.open(folder / name, "wt", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    return folder
