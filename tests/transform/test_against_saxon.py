"""Transformations have the results of Saxon: by hand for each feature, then at random.

One difference is meant: a query without a binding delivers nothing, not even its wrapper.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapwood import Broker, Tuning
from tests.support.cases.transform_cases import CASES, Case
from tests.support.generators.transform_strategies import (
    NAMESPACES,
    Query,
    documents,
    queries,
    random_document,
    random_family,
)
from tests.support.oracles import saxon

pytest.importorskip("saxonche")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("<a/>", "<a></a>", True),
        ("x<a/>y<b/>", "x<a/>y<b></b>", True),
        ("<a/><b/>", "<b/><a/>", False),
        ("<a><![CDATA[<]]>x</a>", "<a>&lt;&#120;</a>", True),
        ("<a>&#13;</a>", "<a>\r</a>", False),
        ("<a j=\"1\" k='2'/>", '<a  k="2" j="1"/>', True),
        ('<p:a xmlns:p="urn:p" xmlns:q="urn:q"/>', '<p:a xmlns:p="urn:p"/>', True),
        ('<a xmlns:p="urn:p"><p:b/></a>', '<a><p:b xmlns:p="urn:p"/></a>', True),
        ('<p:a xmlns:p="urn:p"/>', '<p:a xmlns:p="urn:q"/>', False),
        (
            '<a xmlns:p="urn:p" p:k="1" q:k="2" xmlns:q="urn:q"/>',
            '<a xmlns:q="urn:p" q:k="1" p:k="2" xmlns:p="urn:q"/>',
            True,
        ),
        ('<a xmlns="urn:d" k="1"/>', '<d:a xmlns:d="urn:d" k="1"/>', True),
        ('<d:a xmlns:d="urn:d" k="1"/>', '<d:a xmlns:d="urn:d" d:k="1"/>', False),
        ('<a xmlns="urn:d"><b xmlns=""/></a>', '<a xmlns="urn:d"><b/></a>', False),
        ("<a> </a>", "<a/>", False),
        ("<a><!--x--></a>", "<a/>", False),
    ],
)
def test_the_oracle_tells_results_apart(one: str, other: str, equal: bool) -> None:
    assert saxon.same(one, other.encode()) == equal


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
def test_by_hand(case: Case) -> None:
    wanted = saxon.answer(case.xquery or case.query, case.message, case.namespaces)
    with Broker(case.namespaces) as broker:
        broker.subscribe("q", case.query)
        made = published(broker, case.message)
    assert ("q" in made) == case.delivered
    if case.delivered:
        assert saxon.canonical(made["q"]) == saxon.canonical(wanted)


def published(broker: Broker, message: str | bytes) -> dict[Hashable, bytes]:
    """What a broker delivers, by subscription."""
    deliveries = broker.publish(message.encode() if isinstance(message, str) else message)
    made = {delivery.subscription: delivery.body for delivery in deliveries}
    assert len(made) == len(deliveries), "one delivery for each subscription"
    return made


# -- at random -------------------------------------------------------------------------------------------

FAMILIES, DOCUMENTS = 4, 4  # in one example; the queries share a broker

TUNINGS = {
    "everything on": Tuning(),
    "no cache": Tuning(cache=0),
    "no value index": Tuning(index_values=False),
    "no joins": Tuning(join_bundles=False),
    "no prefilter": Tuning(prefilter=False),
}


class Tally:
    """How many answers were compared, and how many of them were of something."""

    def __init__(self) -> None:
        self.answers = 0
        self.positive = 0


@pytest.mark.parametrize("beyond", [False, True], ids=["the native language", "all of XPath"])
def test_at_random(beyond: bool) -> None:
    tally = Tally()

    @settings(max_examples=60, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32))
    def compare(seed: int) -> None:
        rng = random.Random(seed)
        families = [random_family(rng, rng.randint(1, 3), beyond) for _ in range(FAMILIES)]
        asked = [query for family in families for query in family]
        compare_all(asked, [random_document(rng) for _ in range(DOCUMENTS)], tally)

    compare()
    assert tally.answers >= 6_000
    assert tally.positive >= tally.answers * 0.15


@pytest.mark.parametrize("beyond", [False, True], ids=["the native language", "all of XPath"])
@settings(max_examples=100, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_query_at_random(beyond: bool, data: st.DataObject) -> None:
    """Few comparisons, but every choice is hypothesis's: what fails here shrinks."""
    compare_all([data.draw(queries(beyond))], [data.draw(documents())], Tally())


@dataclass(frozen=True)
class Wanted:
    """Saxon's answer."""

    bound: bool
    """whether there is a group at all; if not, nothing is delivered"""
    empty: bool
    """whether the groups are of nothing, so that it does not matter"""
    body: str

    @staticmethod
    def of(query: Query, document: str) -> Wanted:
        bound = saxon.answer(query.bindings, document, NAMESPACES) != "0"
        body = saxon.answer(query.xquery, document, NAMESPACES)
        empty = not (saxon.answer(query.unwrapped, document, NAMESPACES) if query.before else body)
        return Wanted(bound, empty, saxon.canonical(body))


def compare_all(asked: list[Query], messages: list[str], tally: Tally) -> None:
    """What brokers with each optimisation on or off make of the documents is what Saxon makes of them."""
    wanted = [[Wanted.of(query, document) for query in asked] for document in messages]
    for tuning in TUNINGS:
        with Broker(NAMESPACES, tuning=TUNINGS[tuning]) as broker:
            broker.subscribe_many((id, query.sapwood) for id, query in enumerate(asked))
            for document, answers in zip(messages, wanted, strict=True):
                made = published(broker, document)
                for id, (query, answer) in enumerate(zip(asked, answers, strict=True)):
                    about = f"\n  query    {query.sapwood}\n  xquery   {query.xquery}\n  document {document}"
                    compare_one(made.get(id), answer, f"{about}\n  tuning   {tuning}")
                    tally.answers += 1
                    tally.positive += answer.bound and not answer.empty


def compare_one(body: bytes | None, wanted: Wanted, about: str) -> None:
    if body is None:
        assert not wanted.bound or wanted.empty, f"not delivered:{about}"
    else:
        assert wanted.bound, f"delivered without a binding:{about}"
        assert saxon.canonical(body) == wanted.body, about
