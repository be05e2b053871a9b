"""The harness of all experiments: runner, isolation in processes, timing, result model and output formats.

Experiments run in the process that is measured, so the modules they import stay light: only `runner`,
`terminal_tables` and `plots` load rich or matplotlib.
"""

from sapwood.bench.harness.benchmark_report import RAW, Chart, ChartAxis, Listing, Role
from sapwood.bench.harness.experiments import Bench, BenchError, at_least, at_most, experiment, scale
from sapwood.bench.harness.isolation import collect_isolated, run_isolated, stream_isolated

__all__ = [
    "RAW",
    "Bench",
    "BenchError",
    "Chart",
    "ChartAxis",
    "Listing",
    "Role",
    "at_least",
    "at_most",
    "collect_isolated",
    "experiment",
    "run_isolated",
    "scale",
    "stream_isolated",
]
