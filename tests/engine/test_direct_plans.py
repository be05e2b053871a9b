"""Index plans that are made without decomposing the condition are those that decomposing it yields."""

from __future__ import annotations

from random import Random

from sapwood.engine.automaton import query_paths
from sapwood.lang.query import compile_query
from tests.support.oracles import lxml_oracle


def test_direct_plans_are_those_of_the_planner() -> None:
    rng = Random(5)
    direct = 0
    for _ in range(5_000):
        text = lxml_oracle.random_query(rng, native=rng.random() < 0.5)
        condition = compile_query(text, lxml_oracle.NAMESPACES).condition
        plan = query_paths._plan_directly(condition)
        if plan is not None:
            direct += 1
            assert plan == query_paths._Planner().plan(condition), text
    assert direct > 1_000
