"""Residual checks evaluate candidates, with bounded caches."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood import Failure
from sapwood.engine import Limits
from sapwood.engine.fallback.process_pool import POOL
from sapwood.engine.message.message_reader import Message
from sapwood.relational import RelationalMatcher, executor, residual
from sapwood.relational.residual import ResidualEvaluator
from sapwood.relational.storage.store_sync import clear_tables
from tests.engine.fallback.test_budgets import MESSAGE, OVER, STALLING, TIGHT
from tests.support.oracles.relational_agreement import answers, automaton


def test_a_message_is_parsed_once_for_all_residual_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[int] = []
    evaluate = POOL.evaluate

    def counted(data: bytes, queries: Any, budget: Any) -> Any:
        times.append(len(queries))
        return evaluate(data, queries, budget)

    monkeypatch.setattr(POOL, "evaluate", counted)
    with RelationalMatcher(threads=1) as matcher:
        matcher.add_many((str(i), f"count(//b) > {i}") for i in range(20))
        assert list(matcher.match("<a><b/><b/></a>")) == ["0", "1"]
    assert times == [19]  # the first is exact by its rules


def test_a_failed_residual_check_is_reported_for_its_query_only() -> None:
    with RelationalMatcher(threads=1, limits=TIGHT) as matcher:
        pairs = [("fine", "//b"), ("slow", STALLING["nested counts"]), ("as slow", STALLING["nested counts"])]
        matcher.add_many([*pairs, ("refined", "count(//b) * 1 = 300")])
        first, second = matcher.match_many([MESSAGE, "<a/>"])
        assert list(first) == ["fine", "refined"]
        reason = "it takes more than 0.05 s"
        assert first.undecided == tuple(Failure(id, OVER, reason) for id in ("slow", "as slow"))
        assert (list(second), second.undecided) == (["slow", "as slow"], ())
        assert matcher.failure_counts() == {"slow": {OVER: 1}, "as slow": {OVER: 1}}


def test_the_cache_of_compiled_queries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residual, "_MAX_COMPILED_QUERIES", 3)
    monkeypatch.setattr(residual, "_QUERIES_PER_PARSE", 2)
    evaluator = ResidualEvaluator(Limits())
    message = Message("<a><b/><b/></a>")
    queries = [f"count(//b) > {i}" for i in range(7)]
    for _ in range(3):
        assert evaluator.evaluate(message, queries, {}) == [True, True, *[False] * 5]
    assert len(evaluator._compiled) == 3
    assert len(evaluator._costs) <= 3
    assert len(evaluator._fallback._conditions) <= 3
    evaluator.close()


def test_a_prefix_that_is_bound_to_another_namespace() -> None:
    message = "<a xmlns='urn:two'><c/></a>"
    with RelationalMatcher(threads=1, namespaces={"p": "urn:one"}) as matcher:
        matcher.add("s", "/p:a[not(p:b)]")
        assert list(matcher.match(message)) == []
        clear_tables(matcher)
        matcher.declare({"p": "urn:two"})
        matcher.add("s", "/p:a[not(p:b)]")
        assert list(matcher.match(message)) == ["s"]


def test_more_residual_checks_than_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_MAX_RESIDUAL_PAIRS", 10)
    pairs = [(f"s{i}", f"/a[not(b = {i})]") for i in range(8)]
    messages = [f"<a><b>{i % 5}</b></a>" for i in range(20)]
    with RelationalMatcher(threads=1) as matcher:
        matcher.add_many(pairs)
        assert answers(matcher, messages) == automaton(pairs, messages)
