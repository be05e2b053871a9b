"""`sapwood bench spark`: what the pipeline costs on top of the matcher, and what it is compared with.

Every measurement runs in a process of its own (see `spark_run`); figures are ratios of what was measured in
the same run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from sapwood import Matcher
from sapwood.bench import session
from sapwood.bench.report import Chart, Detail, Report, Role
from sapwood.bench.setting import Bar, Experiment, Notebook
from sapwood.bench.sources import Source, source
from sapwood.bench.spark_run import measure
from sapwood.spark.spark_session import check_java
from sapwood.store import NewSubscription, SubscriptionStore
from sapwood.workload import MessageGenerator, load_dtd

_READY = """
import gc, json, sys, time
from sapwood import Matcher
import pyarrow
data = open(sys.argv[1], "rb").read()
started = time.perf_counter()
matcher = Matcher.unpack(data)
gc.freeze()
ids = pyarrow.array([str(id) for id in matcher])
print(json.dumps(time.perf_counter() - started))
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the experiments are; the bars are promises about FULL on the published workload."""

    messages: int
    queries: int
    rounds: int
    compared_queries: int
    compared_messages: int
    batches: int
    churning: int
    """subscriptions of the stream in which they come and go"""
    changes: int
    """of them, before each batch"""


FULL = Sizes(20_000, 153_928, 4, 100, 500, 200, 10_000, 10)
QUICK = Sizes(1_000, 5_000, 1, 20, 50, 20, 500, 5)


Options = session.Options[Sizes]


class _Bench(Notebook):
    """The surroundings of the experiments: files that they share, and the report."""

    def __init__(self, workload: Source, sizes: Sizes, report: Report, judged: bool, folder: Path) -> None:
        super().__init__(report, judged)
        self.workload = workload
        self.sizes = sizes
        self.folder = folder
        self.log = str(folder / "spark.log")
        self.messages = str(folder / "messages")
        self.index = str(folder / "index")
        self.queries = workload.distinct(sizes.queries)
        self.name = f"{sizes.messages:,} messages, {len(self.queries):,} paths"
        self._write_messages()
        self.named_index = str(folder / "named-index")
        started = perf_counter()
        matcher = Matcher()
        matcher.add_many(enumerate(self.queries, 1))  # called by their lines, as in a file of queries
        self.compiling = perf_counter() - started
        matcher.save(self.index)
        named = Matcher()
        named.add_many((f"subscription-{number}", query) for number, query in enumerate(self.queries, 1))
        named.save(self.named_index)

    def _write_messages(self) -> None:
        """A table in as many files as keep two cores busy."""
        Path(self.messages).mkdir()
        some = self.workload.messages(500)
        rows = list(enumerate(islice(cycle(some), self.sizes.messages)))
        for part in range(8):
            mine = rows[part::8]
            table = pa.table({"message_id": [f"m{n}" for n, _ in mine], "body": [body for _, body in mine]})
            pq.write_table(table, f"{self.messages}/{part}.parquet")

    def times(
        self, measure: str, workload: str, times: float, bar: float | None = None, **details: Detail
    ) -> None:
        """Reports a figure that is to be at least so many times something."""
        least = None if bar is None else Bar(bar, at_least=True)
        self.figure(measure, workload, times, "times", least, **details)


def _loading(bench: _Bench) -> Iterator[str]:
    """How much sooner a worker is ready than it would be if it compiled the queries."""
    yield f"{len(bench.queries):,} paths"
    run = [sys.executable, "-c", _READY, bench.index]
    ready = min(json.loads(subprocess.run(run, stdout=subprocess.PIPE, check=True).stdout) for _ in range(3))
    size = Path(bench.index).stat().st_size
    bench.times(
        "a worker ready sooner than by compiling",
        f"{len(bench.queries):,} paths",
        bench.compiling / ready,
        compile_seconds=round(bench.compiling, 2),
        ready_seconds=round(ready, 3),
        index_megabytes=round(size / 1e6, 1),
    )


def _throughput(bench: _Bench) -> Iterator[str]:
    """The matcher alone, local[1] and local[2], on the same messages."""
    common = {"messages": bench.messages, "rounds": bench.sizes.rounds}
    yield "the matcher alone"
    alone = measure("single", index=bench.index, **common)
    cases = (
        ("an array of numbers", bench.index, "messages", True),
        ("an array of strings", bench.named_index, "messages", False),
        ("rows of numbers", bench.index, "pairs", False),
    )
    for label, index, shape, promised in cases:
        yield label
        one, two = (
            measure("matching", master=master, shape=shape, index=index, log=bench.log, **common)
            for master in ("local[1]", "local[2]")
        )
        workload = f"{bench.name}; {label}"
        bench.times(
            "local[1] against the matcher alone",
            workload,
            one["rate"] / alone["counting"],
            0.5 if promised else None,
            messages_per_second=round(one["rate"]),
            alone_per_second=round(alone["counting"]),
            alone_listing_ids_per_second=round(alone["listing"]),
            first_pass_per_second=round(one["first"]),
        )
        bench.times(
            "local[2] against local[1]",
            workload,
            two["rate"] / one["rate"],
            1.6 if promised else None,
            messages_per_second=round(two["rate"]),
        )


def _xpath_boolean(bench: _Bench) -> Iterator[str]:
    """Spark's own way: one column for each query."""
    sizes = bench.sizes
    wanted = sizes.compared_queries
    yield f"{wanted:,} queries"
    found = measure(
        "xpath_boolean",
        master="local[2]",
        queries=bench.queries[:: max(1, len(bench.queries) // wanted)][:wanted],
        messages=bench.messages,
        rounds=sizes.rounds,
        limit=sizes.compared_messages,
        log=bench.log,
    )
    bench.times(
        "against xpath_boolean, a column for each query",
        f"{sizes.compared_messages:,} messages, {sizes.compared_queries:,} paths, local[2]",
        found["ours"] / found["theirs"],
        100.0,
        ours_per_second=round(found["ours"]),
        theirs_per_second=round(found["theirs"], 1),
        same_answers="yes" if found["agreed"] else "no",
    )


def _memory(bench: _Bench) -> Iterator[str]:
    """A stream of small batches, during which subscriptions come and go."""
    sizes = bench.sizes
    folder = bench.folder / "stream"
    yield f"{sizes.batches:,} batches"
    (folder / "inbox").mkdir(parents=True)
    generator = MessageGenerator(load_dtd("news"), seed=7)
    for number in range(sizes.batches):
        (folder / f"inbox/{number:05}.xmll").write_bytes(b"".join(b + b"\n" for b in generator.take(50)))
    queries = source(None).predicates(sizes.churning)
    with SubscriptionStore(str(folder / "subscriptions.db")) as store:
        store.import_many(NewSubscription(f"s{number}", query) for number, query in enumerate(queries))
    found = measure("churn", folder=str(folder), changes=sizes.changes)["memory"]
    chart = bench.chart(
        Chart(
            "memory",
            "Memory over the batches of a stream, subscriptions changing before each",
            "batch",
            "megabytes",
            unit=" MB",
        )
    )
    for key, label, role in (
        ("driver", "driver, Python", Role.SAPWOOD),
        ("worker", "largest worker, Python", Role.OTHER),
        ("heap", "driver, JVM heap after collection", Role.BASELINE),
    ):
        series = chart.curve(label, role)
        for number in range(9, len(found), 10):  # where the heap is known, too
            series.add(number, found[number][key])
        points = [entry[key] for entry in found if entry[key] == entry[key]]
        early, late = points[len(points) // 4 : len(points) // 2], points[-len(points) // 4 :]
        if early and late:
            bench.figure(
                f"memory, {label}",
                f"{len(found)} batches: last quarter against second",
                (sum(late) / len(late)) / (sum(early) / len(early)),
                "times",
                1.1,
                megabytes=round(sum(late) / len(late)),
            )


EXPERIMENTS = (
    Experiment("loading", "a worker ready with an index, against compiling it", _loading),
    Experiment("throughput", "messages a second, against the matcher alone", _throughput),
    Experiment("xpath_boolean", "against Spark's own way, a column for each query", _xpath_boolean),
    Experiment("memory", "memory of a stream over its batches", _memory),
)


def run(options: Options, console: Console | None = None) -> Report:
    """Measures, and writes the results; what was measured before Ctrl-C is kept."""
    experiments = session.chosen(EXPERIMENTS, options.only)
    check_java()
    workload = source(options.nitf)
    sizes = options.scale or (QUICK if options.quick else FULL)
    report = Report(workload.label, options.quick)
    judged = sizes is FULL and options.nitf is not None
    with TemporaryDirectory(prefix="sapwood-bench-") as folder:
        return session.run(
            "spark",
            experiments,
            lambda: _Bench(workload, sizes, report, judged, Path(folder)),
            report,
            options,
            console,
        )
