"""Simulated meshes whose frames are bytes: formats, dictionaries, damage, skeletons and projection change no
delivery.

Decisions on skeletons count: mutants that decide too much must be found out.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sapwood.mesh.sim.broker_workload import broker_workload
from sapwood.mesh.sim.sim_wire import SimWire, run_on_wire
from sapwood.mesh.wire.skeletons import skeleton_index
from sapwood.mesh.wire.skeletons.skeleton_index import Masks, SkeletonIndex
from sapwood.mesh.wire.skeletons.skeleton_router import LOCAL
from tests.support.requirements import FULL

COMMAND = "python -m sapwood.mesh.sim --wire --seed"
CHUNK = 10
QUICK = 10
USUAL = 60
SEEDS = 2_000 if FULL else USUAL
MUTANT_SEEDS = 200
_find_hits = SimWire.find_hits


def run_seeds(first: int, last: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        outcome = run_on_wire(seed)
        assert not outcome.problems, f"{COMMAND} {seed}: {outcome.problems[:5]}"
        assert outcome.counts["report late"] == 0
        counts += outcome.counts
    return counts


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[] if first < QUICK else [pytest.mark.slow])
        for first in range(0, SEEDS, CHUNK)
    ],
)
def test_deliveries_are_those_of_one_broker(first: int) -> None:
    counts = run_seeds(first, first + CHUNK)
    if first < USUAL:  # among thousands, some ten scenarios are too short for a dictionary that all have
        assert counts["decided by skeleton"] > 0
        assert counts["cut message"] > 0
    assert counts["refused frame"] >= counts["damage"] // 2


def test_the_same_seed_is_the_same_run() -> None:
    one, other = run_on_wire(4), run_on_wire(4)
    assert one.counts["cut message"] > 0
    assert (one.trace, one.counts) == (other.trace, other.counts)


def find_problem() -> list[str]:
    for seed in range(MUTANT_SEEDS):
        problems = run_on_wire(seed, broker_workload(), largest=6).problems
        if problems:
            return problems
    return []


@pytest.mark.slow
def test_a_necessary_condition_that_is_taken_for_enough_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = SkeletonIndex.decide

    def take_all(self: SkeletonIndex, *arguments: object) -> Masks | None:
        masks = decide(self, *arguments)  # type: ignore[arg-type]
        return masks and Masks(masks.possible, masks.possible)

    monkeypatch.setattr(SkeletonIndex, "decide", take_all)
    assert find_problem()


@pytest.mark.slow
def test_conditions_that_skeletons_cannot_tell_and_are_left_out_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SkeletonIndex, "_find_always", lambda self, stream: (Masks(0, 0), 0))
    assert find_problem()


@pytest.mark.slow
def test_local_subscriptions_that_are_forgotten_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = skeleton_index._bits
    monkeypatch.setattr(skeleton_index, "_bits", lambda entry, stream: bits(entry, stream) & ~(1 << LOCAL))
    assert find_problem()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "replacement"),
    [
        pytest.param("_excludes_local", lambda self, sides, hits: True, id="local subscriptions"),
        pytest.param(
            "find_hits",
            lambda self, holding, came_by: {
                link: hits._replace(is_complete=True)
                for link, hits in _find_hits(self, holding, came_by).items()
            },
            id="some hits for all",
        ),
    ],
)
def test_hits_that_are_taken_for_what_they_are_not_are_found_out(
    name: str, replacement: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a former table are safe here: what came to it since is not confirmed yet."""
    monkeypatch.setattr(SimWire, name, replacement)
    assert find_problem()
