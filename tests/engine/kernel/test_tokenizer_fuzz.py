"""Mutated messages: the readers of the compiled kernel take what pyexpat takes, and report the same."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.generators.message_mutations import (
    mutants,
    random_message,
    real_messages,
    truncations,
)
from tests.support.oracles.expat_events import (
    ReaderLimits,
    assert_alike,
    expat_events,
    random_limits,
)
from tests.support.requirements import FULL

ROUNDS = 500 if FULL else 10
MUTANTS = 2_000
"""in a round: a million in all, or 20,000"""


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_mutants_are_read_as_by_pyexpat(seed: int) -> None:
    rng = Random(seed)
    messages = mutants(rng, MUTANTS, real_messages(largest=100_000 if seed % 10 == 0 else 8_000))
    read = sum(assert_alike(message, random_limits(rng)) for message in messages)
    assert read > MUTANTS / 10  # or nothing is compared but refusals


def test_every_truncation_is_read_as_by_pyexpat() -> None:
    rng = Random(2026)
    documents = [random_message(rng) for _ in range(200)]
    real = real_messages(largest=4_000)
    documents += rng.sample(real, min(len(real), 200 if FULL else 5))
    for document in documents:
        for message in truncations(document):
            assert_alike(message)


def test_whole_documents_are_read() -> None:
    """The tokeniser gives up at few of the generated messages that pyexpat takes."""
    rng = Random(7)
    messages = [random_message(rng) for _ in range(1_000)]
    taken = [message for message in messages if isinstance(expat_events(message), list)]
    assert len(taken) > 800
    assert sum(assert_alike(message, ReaderLimits()) for message in taken) > 0.8 * len(taken)
