"""Faults that the simulator must find out: a check that finds nothing wrong with them would prove nothing."""

from __future__ import annotations

import pytest

from sapwood.mesh.sim.scenario import run_scenario
from tests.mesh.sim.mutants import FURTHER, REQUIRED, Mutant

MOST = 500
"""seeds, within which a fault has to be found out"""


def find_out(mutant: Mutant) -> str | None:
    """Return the first problem that scenarios have with a fault."""
    workload = mutant.workload()
    for seed in range(mutant.first, mutant.first + MOST):
        try:
            problems = run_scenario(seed, workload).problems
        except (AssertionError, KeyError) as error:  # of the simulated broker, which nodes must not cause
            problems = [repr(error)]
        if problems:
            return problems[0]
    return None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", REQUIRED, ids=str)
def test_faults_that_must_be_found_out(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert find_out(mutant) is not None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", FURTHER, ids=str)
def test_further_faults(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert find_out(mutant) is not None
