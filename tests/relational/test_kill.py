"""A process is killed while it changes subscriptions: the file is consistent, and matches correctly."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sapwood.relational import RelationalMatcher
from tests.support.concurrent_changes import MESSAGES, SIZES, group
from tests.support.oracles.relational_agreement import answers, automaton
from tests.support.oracles.table_structures import assert_consistent

pytestmark = pytest.mark.slow

KILLS = 2


def test_a_process_that_is_killed_leaves_whole_transactions(tmp_path: Path) -> None:
    rng = random.Random(6)
    path = tmp_path / "tables"
    for _ in range(KILLS):
        seed, patience = rng.randrange(2**32), rng.uniform(0.05, 1.2)
        about = f"killed_after({seed}, {patience})"
        killed_after(path, seed, patience)
        with RelationalMatcher(path) as matcher:
            assert_consistent(matcher)
            pairs = subscribed(matcher)
            assert_whole_groups(pairs, about)
            assert answers(matcher, MESSAGES) == automaton(pairs, MESSAGES), about


def killed_after(path: Path, seed: int, patience: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.concurrent_changes", str(path), str(seed)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() == "ready\n"
        time.sleep(patience)
        assert process.poll() is None
        process.kill()


def subscribed(matcher: RelationalMatcher) -> list[tuple[str, str]]:
    """Ids and queries, in the order added."""
    return [
        (id, query)
        for id, query in matcher.connection.rows(
            "SELECT s.id, q.text FROM subscription s JOIN query q ON q.id = s.query ORDER BY s.number"
        )
    ]


def assert_whole_groups(pairs: list[tuple[str, str]], about: str) -> None:
    """Each group is there in full, and in one version."""
    groups: dict[int, list[tuple[str, str]]] = {}
    for id, query in pairs:
        groups.setdefault(int(id.removeprefix("g").partition("-")[0]), []).append((id, query))
    for number, found in groups.items():
        assert len(found) in SIZES, about
        assert found in [group(number, len(found), version) for version in (1, 2)], about
