"""Spark SQL answers as the automaton does, with each plan: hard cases, random queries, real data.

Most of it is left to `make test-full`: DuckDB runs the same statements in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from pyspark.sql import SparkSession

from sapwood.relational import Plan, RelationalMatcher
from sapwood.spark.relational.table_match import match_relational
from tests.engine.test_real_data import AUCTIONS, NITF_QUERIES, auctions, news, sampled
from tests.relational import test_against_automaton
from tests.relational.test_rule_form import QUERIES
from tests.support.oracles import lxml_oracle
from tests.support.oracles.relational_agreement import about, automaton
from tests.support.requirements import FULL
from tests.support.shared_data import folder

FEW_CASES = [
    test_against_automaton.names,
    test_against_automaton.numbers,
    test_against_automaton.no_facts,
]
PLANS = list(Plan) if FULL else [Plan.UNROLLED]


def assert_alike(
    spark: SparkSession,
    plan: Plan,
    queries: Sequence[str],
    messages: Sequence[str | bytes],
    namespaces: Mapping[str, str] | None = None,
) -> int:
    """Assert that Spark matches as the automaton does; return the number of matches."""
    pairs = [(query, query) for query in dict.fromkeys(queries)]
    bodies = [message.encode() if isinstance(message, str) else message for message in messages]
    expected = automaton(pairs, bodies, namespaces)
    frame = spark.createDataFrame(list(enumerate(bodies)), "message_id INT, body BINARY").repartition(2)
    with RelationalMatcher(plan=plan, namespaces=namespaces) as tables:
        tables.add_many(pairs)
        rows = match_relational(frame, tables, shape="messages", on="spark").collect()
    assert len(rows) == len(bodies)
    found = {row["message_id"]: row for row in rows}
    matches = 0
    for number, answer in enumerate(expected):
        row = found[number]
        if isinstance(answer, str):
            assert answer.endswith(row["error"]["reason"])
            continue
        assert row["error"] is None
        one, other = sorted(row["subscriptions"]), sorted(answer)
        assert one == other, about(plan, bodies[number], one, other)
        matches += len(one)
    return matches


@pytest.mark.parametrize("plan", PLANS)
def test_hard_cases(spark: SparkSession, plan: Plan) -> None:
    told = [cases() for cases in (test_against_automaton.CASES if FULL else FEW_CASES)]
    queries = [query for asked, _ in told for query in asked]
    documents = [document for _, documents in told for document in documents]
    assert assert_alike(spark, plan, queries, documents, test_against_automaton.NAMESPACES) > 500


@pytest.mark.long
@pytest.mark.parametrize("plan", Plan)
def test_random_queries(spark: SparkSession, plan: Plan) -> None:
    rng = Random(plan)
    queries = [kind(rng) for kind in QUERIES.values() for _ in range(60)]
    messages: list[str | bytes] = [
        lxml_oracle.random_document(rng, depth=rng.choice([4, 6, 9]), budget=rng.choice([8, 20, 60]))
        for _ in range(60)
    ]
    messages += [
        lxml_oracle.random_message(rng, lxml_oracle.random_document(rng, budget=20)) for _ in range(20)
    ]
    assert assert_alike(spark, plan, queries, messages, lxml_oracle.NAMESPACES) > 500


@pytest.mark.long
@pytest.mark.parametrize("plan", Plan)
def test_real_data(spark: SparkSession, plan: Plan) -> None:
    queries = [q for name, n in NITF_QUERIES.items() for q in sampled(folder("nitf") / name, n)]
    assert assert_alike(spark, plan, queries, news(40)) > 1_000
    queries = sampled(folder("xmark") / "queries-100k.txt.gz", 1_000)
    assert assert_alike(spark, plan, [*queries, *AUCTIONS], auctions(25)) > 300
