"""Simulated scenarios from the command line: python -m sapwood.mesh.sim --seed 17"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from sapwood.mesh.sim.broker_workload import broker_workload
from sapwood.mesh.sim.scenario import Outcome, run_scenario
from sapwood.mesh.sim.sim_wire import run_on_wire
from sapwood.mesh.sim.table_budget import run_with_budget


def main(arguments: Sequence[str] | None = None) -> int:
    """Run scenarios, print what came of them, and return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m sapwood.mesh.sim", description=__doc__)
    seeds = parser.add_mutually_exclusive_group(required=True)
    seeds.add_argument("--seed", type=int, help="one scenario")
    seeds.add_argument("--seeds", type=_to_range, metavar="A-B", help="scenarios from A to B")
    parser.add_argument("--largest", type=int, default=30, metavar="N", help="brokers at most (30)")
    parser.add_argument("--budget", action="store_true", help="with tables that exceed a small budget")
    parser.add_argument("--wire", action="store_true", help="with frames as bytes, some of them cut")
    options = parser.parse_args(arguments)
    chosen = [options.seed] if options.seeds is None else options.seeds
    counts: Counter[str] = Counter()
    failed = 0
    for seed in chosen:
        if options.budget:
            outcome = run_with_budget(seed, options.largest)
        elif options.wire:
            outcome = run_on_wire(seed, largest=options.largest)
        else:
            outcome = run_scenario(seed, broker_workload(), largest=options.largest)
        counts += outcome.counts
        failed += bool(outcome.problems)
        if outcome.problems or options.seeds is None:
            _print(outcome)
    if options.seeds is not None:
        print(f"{len(chosen)} scenarios, {failed} with problems")
        _print_counts(counts)
    return 1 if failed else 0


def _to_range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _print(outcome: Outcome) -> None:
    print(
        f"seed {outcome.seed}: {outcome.brokers} brokers, {outcome.messages} messages, {outcome.deliveries}"
        f" deliveries, {outcome.due} of them due, {outcome.seconds:.0f} s, {outcome.steps} steps,"
        f" trace {outcome.trace}"
    )
    for problem in outcome.problems:
        print(f"  {problem}")
    if not outcome.problems:
        _print_counts(outcome.counts)


def _print_counts(counts: Counter[str]) -> None:
    print("  " + ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))


if __name__ == "__main__":
    sys.exit(main())
