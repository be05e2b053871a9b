"""A thousand simulated brokers: how long the simulation takes, and what crosses links."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.bench.harness import Bench, at_most, experiment, run_isolated, scale
from sapwood.mesh.sim.scale import ScaleReport, run_scale


@experiment("scale", "a thousand simulated brokers with local interests")
def measure_scale(
    bench: Bench,
    brokers: int = scale(1_000, 1_000, 200, 20),
    subscriptions: int = scale(100_000, 100_000, 10_000, 200),
    messages: int = scale(1_000, 1_000, 200, 20),
) -> Iterator[str]:
    """Measure one simulation, in which every delivery is checked."""
    size = f"{brokers:,} brokers, {subscriptions:,} subscriptions, {messages:,} messages"
    yield f"simulating {size}"
    report = yield from run_isolated(simulate, brokers, subscriptions, messages)
    bench.figure(
        "simulation of a mesh",
        size,
        report.wall_seconds,
        "s",
        at_most(600),
        deliveries=report.deliveries,
        megabytes=report.megabytes,
        frames=report.frames,
        optimum=report.optimum,
        flooding=report.flooding,
        trace=report.trace,
    )


def simulate(brokers: int, subscriptions: int, messages: int) -> Iterator[str | ScaleReport]:
    """Simulate a mesh in a process of its own, whose memory is measured."""
    yield "simulating"
    yield run_scale(brokers, subscriptions, messages)
