"""The join plan of the kernel, which is made after some messages: nobody may see when it is used."""

from __future__ import annotations

import random

import pytest

from sapwood import Tuning
from tests.support.automata import is_empty
from tests.support.compiled_kernel import compiled_kernel
from tests.support.matcher_pair import MatcherPair
from tests.support.oracles import lxml_oracle

compiled_kernel()  # skips all of it where there is none


@pytest.mark.parametrize("cache", [100, 1000, 1_000_000])
@pytest.mark.parametrize("seed", range(6))
def test_messages_match_the_same_before_with_and_after_a_plan(cache: int, seed: int) -> None:
    rng = random.Random(seed)
    pair = MatcherPair(Tuning(cache=cache))
    for i in range(150):
        pair.add(i, lxml_oracle.random_query(rng))
    documents = [lxml_oracle.random_document(rng, budget=25) for _ in range(12)]
    for _ in range(25):
        for document in rng.choices(documents, k=10):  # few enough that most of them bring nothing new
            pair.compare(document)
        documents[rng.randrange(len(documents))] = lxml_oracle.random_document(rng, budget=25)


@pytest.mark.parametrize("seed", range(8))
def test_edits_and_unread_results_between_plans(seed: int) -> None:
    rng = random.Random(seed)
    pair = MatcherPair()
    for i in range(60):
        pair.add(i, lxml_oracle.random_query(rng))
    documents = [lxml_oracle.random_document(rng, budget=20) for _ in range(5)]
    for i in range(60, 120):
        for document in rng.choices(documents, k=rng.randint(1, 8)):
            pair.compare(document)
            pair.leave_unread(document)
        kind = rng.random()
        if kind < 0.4:
            pair.remove(rng.choice(list(pair.queries)))
        elif kind < 0.7:  # another subscription to a query that there is: it weighs more
            pair.add(i, rng.choice(list(pair.queries.values())))
        elif kind < 0.9:
            pair.add(i, lxml_oracle.random_query(rng))
        else:
            documents[rng.randrange(5)] = lxml_oracle.random_document(rng, budget=20)
        if rng.random() < 0.3:
            pair.read()
    pair.read()
    for id in list(pair.queries):
        pair.remove(id)
    assert is_empty(pair.compiled.index)


def test_queries_found_together_are_counted_by_their_subscriptions() -> None:
    pair = MatcherPair()
    message = "<r><a x='1'><b/><c/></a><a x='2'><b/></a></r>"
    shapes = ["//a[@x={}]", "/r/a[@x={}]", "/*/a[@x={}]", "//a[b][@x={}]", "/r/a[@x={}]/b", "/r/*[@x={}]/c"]
    for value in (1, 2, 3):
        for number, shape in enumerate(shapes):
            pair.add((value, number), shape.format(value))
    for _ in range(10):
        pair.compare(message)
    for copy in range(3):
        for value in (1, 3):
            pair.add((value, "copy", copy), shapes[copy].format(value))
            pair.compare(message)
            pair.leave_unread(message)
    for copy in range(3):
        pair.remove((1, "copy", copy))
        pair.compare(message)
    pair.read()


def test_a_query_found_in_several_ways_is_counted_once() -> None:
    pair = MatcherPair()
    for number, query in enumerate(
        ["//a[@x=1] | //b[@y=1]", "//a[@x=1][c] | //b[@y=1][c]", "//a[@x=1 or @y=1]", "//a[c] | //a[@x=1]"]
        * 2
    ):
        pair.add(number, query)
    messages = [
        "<r><a x='1' y='1'><c/></a><b y='1'><c/></b></r>",
        "<r><a x='1'/></r>",
        "<r><b y='1'><c/></b></r>",
    ]
    for _ in range(8):
        for message in messages:
            pair.compare(message)
