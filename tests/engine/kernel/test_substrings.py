"""Tests with contains(), which the kernel searches for all at once, and in nested string-values only once."""

from __future__ import annotations

import random

import pytest

from tests.support.automata import is_empty
from tests.support.compiled_kernel import compiled_kernel
from tests.support.matcher_pair import MatcherPair

compiled_kernel()  # skips all of it where there is none

TARGETS = ["//a[contains(., '{}')]", "//a[contains(@x, '{}')]", "//b[contains(text(), '{}')]"]
TARGETS += ["/r//a[contains(., '{}')][b]", "//*[contains(., '{}')]/b", "/r[contains(., '{}')]"]


def random_string(rng: random.Random, most: int) -> str:
    """A string over few letters, so that patterns overlap and are parts of each other."""
    return "".join(rng.choices("xyé", k=rng.randint(0, most)))


def random_message(rng: random.Random, depth: int = 5) -> str:
    """Elements that nest, so that one string-value ends with another."""
    inside = "".join(
        random_message(rng, depth - 1) if depth and rng.random() < 0.4 else random_string(rng, 4)
        for _ in range(rng.randint(0, 3))
    )
    name = rng.choice("aab") if depth < 5 else "r"
    return f"<{name} x='{random_string(rng, 5)}'>{inside}</{name}>"


@pytest.mark.parametrize("seed", range(8))
def test_many_substrings_come_and_go(seed: int) -> None:
    rng = random.Random(seed)
    pair = MatcherPair()
    for i in range(250):
        if pair.queries and rng.random() < 0.35:
            pair.remove(rng.choice(list(pair.queries)))
        else:
            pair.add(i, rng.choice(TARGETS).format(random_string(rng, 4)))
        if i % 3 == 0:
            pair.compare(random_message(rng))
    for _ in range(40):
        pair.compare(random_message(rng))
    for id in list(pair.queries):
        pair.remove(id)
    assert is_empty(pair.compiled.index)


def test_an_occurrence_across_the_start_of_an_element_is_not_in_it() -> None:
    pair = MatcherPair()
    for number in range(40):  # enough for a search of all at once
        pair.add(number, f"//a[contains(., 'pad{number}')]")
    pair.add("across", "//a[contains(., 'one two')]")
    pair.add("outer", "//r[contains(., 'one two')]")
    pair.add("again", "//a[contains(., 'two')]")
    for message in [
        "<r>one <a>two</a></r>",
        "<r><a>one </a><a>two</a></r>",
        "<r><a>one <a>two</a></a><a>three</a></r>",
        "<r><a>one two</a><a>x<a>pad7</a></a><a>pad</a>39</r>",
    ]:
        pair.compare(message)
    assert set(pair.compiled.match("<r>one <a>two</a></r>")) == {"outer", "again"}
