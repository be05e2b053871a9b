"""Random scenarios of a simulated mesh (acceptance test 2): exactly once, in order, whatever goes wrong.

A scenario that fails is printed as the command that runs it again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from sapwood.mesh.core.links import link_state
from sapwood.mesh.core.tables import route_table
from sapwood.mesh.sim import __main__ as command
from sapwood.mesh.sim.broker_workload import broker_workload
from sapwood.mesh.sim.scenario import Outcome, run_scenario
from tests.support.requirements import FULL

CHUNK = 25
QUICK, USUAL = 25, 500
SEEDS = 10_000 if FULL else USUAL

FAULTS = (
    "loss",
    "repetition",
    "reordering",
    "delay",
    "crash",
    "restart",
    "partition",
    "tree change",
    "stream loss",
    "repair",
    "join",
    "leave",
)
"""kinds, each of which must be there 1,000 times in 10,000 seeds"""
LEAST = 1_000 / 10_000


def run_seeds(first: int, last: int, largest: int = 30) -> Counter[str]:
    """Run scenarios, and return how often what has happened."""
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        outcome = run_scenario(seed, broker_workload(), largest=largest)
        assert not outcome.problems, describe(outcome, largest)
        assert outcome.counts["report late"] == 0
        assert outcome.counts["report healed"] == 0, f"{describe(outcome, largest)}: a table has drifted"
        counts += outcome.counts
        counts["due"] += outcome.due
    return counts


def describe(outcome: Outcome, largest: int) -> str:
    size = f" --largest {largest}" if largest != 30 else ""
    problems = "\n".join(outcome.problems[:5])
    return f"python -m sapwood.mesh.sim --seed {outcome.seed}{size}\n{problems}"


_counts: Counter[str] = Counter()
_seeds = 0


def _chunks() -> list[object]:
    return [
        pytest.param(first, marks=[] if first < QUICK else [pytest.mark.slow])
        for first in range(0, SEEDS, CHUNK)
    ]


@pytest.mark.parametrize("first", _chunks())
def test_exactly_once_and_in_order(first: int) -> None:
    global _counts, _seeds
    counts = run_seeds(first, first + CHUNK)
    assert counts["due"] > CHUNK * 10
    _counts += counts
    _seeds += CHUNK


@pytest.mark.slow
def test_every_kind_of_fault_has_happened_often() -> None:
    """Counted over the scenarios that this process has run."""
    if _seeds < USUAL:
        pytest.skip("the scenarios were run by other processes, or not all")
    rare = {
        kind: _counts[kind]
        for kind in FAULTS
        if _counts[kind] < LEAST * _seeds * (0.5 if _seeds < 1_000 else 1)
    }
    assert not rare


@pytest.mark.slow
def test_large_trees() -> None:
    counts = run_seeds(100_000, 100_012, largest=120)
    assert counts["due"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("first", [200_000, 200_040])
def test_small_limits(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables in several parts, windows that are full, and backlogs, which scenarios are too small for."""
    monkeypatch.setattr(route_table, "PART", 2)
    monkeypatch.setattr(link_state, "WINDOW", 3)
    monkeypatch.setattr(link_state, "KEPT", 6)
    monkeypatch.setattr(link_state, "_TURN", 2)
    run_seeds(first, first + 20)


# -- determinism -----------------------------------------------------------------------------------------

SEEDS_TWICE = range(7, 12)
SCRIPT = """
from sapwood.mesh.sim.broker_workload import broker_workload
from sapwood.mesh.sim.scenario import run_scenario
for seed in range({}, {}):
    print(run_scenario(seed, broker_workload()).trace)
"""


@pytest.mark.slow
def test_a_seed_is_the_same_run_in_every_process() -> None:
    """With other hashes of strings, and so another order of sets."""
    here = [run_scenario(seed, broker_workload()).trace for seed in SEEDS_TWICE]
    assert len(set(here)) == len(here)
    for hash_seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(SEEDS_TWICE.start, SEEDS_TWICE.stop)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.split() == here


# -- the command -----------------------------------------------------------------------------------------


def test_the_command_prints_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seed", "7", "--largest", "5"]) == 0
    printed = capsys.readouterr().out
    outcome = run_scenario(7, broker_workload(), largest=5)
    assert printed.startswith("seed 7: ")
    assert f"trace {outcome.trace}" in printed
    assert f"message frames {outcome.counts['message frames']}" in printed


def test_the_command_fails_with_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(seed: int, *_: object, **__: object) -> Outcome:
        return Outcome(seed, 3, ["twice: something"] if seed == 8 else [])

    monkeypatch.setattr(command, "run_scenario", run)
    assert command.main(["--seeds", "7-9"]) == 1
    printed = capsys.readouterr().out
    assert "seed 8: " in printed
    assert "twice: something" in printed
    assert "seed 7: " not in printed
    assert "3 scenarios, 1 with problems" in printed
