"""Time until a worker is ready with a packed index, against compiling the queries."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from sapwood.bench.harness import Bench, experiment, run_isolated
from sapwood.bench.spark.spark_inputs import prepare_inputs

_ATTEMPTS = 3


@experiment("loading", "a worker ready with an index, against compiling it")
def measure_startup(bench: Bench) -> Iterator[str]:
    """Measure how much sooner a worker is ready than by compiling."""
    inputs = yield from prepare_inputs(bench)
    yield inputs.paths
    seconds = []
    for _ in range(_ATTEMPTS):
        seconds.append((yield from run_isolated(load_index, inputs.index)))
    bench.ratio(
        "a worker ready sooner than by compiling",
        inputs.paths,
        compile_seconds=inputs.compile_seconds,
        ready_seconds=min(seconds),
        index_megabytes=Path(inputs.index).stat().st_size / 1e6,
    )


def load_index(index: str) -> Iterator[str | float]:
    """Load an index as a worker does, in a process that has imported everything it needs."""
    import pyarrow

    from sapwood import Matcher

    data = Path(index).read_bytes()
    started = perf_counter()
    matcher = Matcher.unpack(data)
    gc.freeze()
    pyarrow.array([str(id) for id in matcher])
    yield perf_counter() - started
