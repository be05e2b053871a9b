"""Spark SQL against DuckDB on the same tables."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from sapwood.bench.relational_findings import Matched, check_agreed
from sapwood.bench.relational_run import measure
from sapwood.bench.relational_setting import RelationalSetting
from sapwood.bench.relational_stocks import WALL
from sapwood.bench.relational_work import match_by_plans
from sapwood.bench.report import Listing
from sapwood.bench.setting import Experiment
from sapwood.relational import Plan

_LABELS = {"spark": "Spark SQL at local[2]", "duckdb": "read on Spark at local[2], matched in DuckDB"}


def spark(setting: RelationalSetting) -> Iterator[str]:
    """All messages, matched by DuckDB in one process, and on Spark."""
    scale = setting.scale
    if not scale.spark_subscriptions:
        return
    if find_spec("pyspark") is None:
        yield "left out: Spark is missing, in a clone of Sapwood, pip install '.[spark]'"
        return
    from sapwood.bench.relational_spark_run import match_on_spark

    size = scale.spark_subscriptions
    workload = f"stocks, {size:,} subscriptions, {scale.messages:,} messages"
    listing = setting.listing(
        Listing(
            "spark",
            f"Spark against DuckDB: {workload}",
            ("first pass s", "seconds", "notifications", "MB at most"),
            note=f"{WALL}; of Spark, the memory is that of the driver's Python alone",
        )
    )
    loaded = yield from setting.selective_file(size)
    found: dict[str, Matched] = {}
    alone = [(Plan.UNROLLED.value, scale.messages)]
    for said in measure(match_by_plans, [loaded.file], alone, scale.symbols, scale.messages, scale.rounds):
        if isinstance(said, str):
            yield f"DuckDB: {said}"
        else:
            found[""] = said
            listing.add("DuckDB in one process", None, said.best, said.notifications, said.peak)
    folder = setting.folder / "spark"
    folder.mkdir()
    for said in measure(
        match_on_spark, str(folder), loaded.file, list(_LABELS), scale.symbols, scale.messages, scale.rounds
    ):
        if isinstance(said, str):
            yield said
        else:
            check_agreed(f"{workload}, {said.plan} on Spark", found[""], said)
            found[said.plan] = said
            listing.add(_LABELS[said.plan], said.filing, said.best, said.notifications, said.peak)
            _report(setting, workload, found[""], said)


def _report(setting: RelationalSetting, workload: str, alone: Matched, on_spark: Matched) -> None:
    setting.figure(
        f"{_LABELS[on_spark.plan]}, against DuckDB in one process",
        workload,
        on_spark.best / alone.best,
        "times",
        seconds=round(on_spark.best, 2),
        duckdb_seconds=round(alone.best, 2),
        first_seconds=round(on_spark.filing, 1),
        notifications=on_spark.notifications,
    )


EXPERIMENTS = (Experiment("spark", "Spark SQL against DuckDB on the same tables", spark),)
