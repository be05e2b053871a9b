"""Acceptance test 24: every way to evaluate transformations has the same results.

Spark, the fourth way, is compared with the broker in tests/spark. `make test-full` takes 10,000 queries.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sapwood import Broker, Tuning
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.lang.fwr.compiler import compile_transformation
from sapwood.transform import nested_loops
from sapwood.transform.result_writer import ResultTemplate, ResultWriter
from sapwood.transform.source_fragments import SourceFragments
from sapwood.workload import MessageGenerator, TransformationGenerator, load_dtd
from tests.support.requirements import FULL

QUERIES, MESSAGES = (10_000 if FULL else 1_000), 200
BOOK = load_dtd("book")


@pytest.fixture(scope="module")
def queries() -> list[str]:
    return TransformationGenerator(BOOK, seed=24, descendant=0.3).take(QUERIES)


@pytest.fixture(scope="module")
def shared(queries: list[str]) -> Broker:
    broker = Broker()
    broker.subscribe_many(enumerate(queries))
    return broker


def messages() -> Iterator[bytes]:
    yield from MessageGenerator(BOOK, seed=24, max_depth=5, max_repeats=3, values=10).take(MESSAGES)


def made(broker: Broker, message: bytes) -> dict[object, bytes]:
    return {delivery.subscription: delivery.body for delivery in broker.publish(message)}


@pytest.mark.slow
def test_24_shared_plans_equal_a_plan_for_each_query(queries: list[str], shared: Broker) -> None:
    each = Broker(tuning=Tuning(share_plans=False), dtd=BOOK)
    each.subscribe_many(enumerate(queries))
    results = 0
    for message in messages():
        wanted = made(each, message)
        assert made(shared, message) == wanted
        results += len(wanted)
    assert results > 10 * QUERIES


@pytest.mark.slow
def test_24_shared_plans_equal_walks_of_the_tree(queries: list[str], shared: Broker) -> None:
    compiled = [compile_transformation(query) for query in queries]
    templates = [ResultTemplate.of(transformation) for transformation in compiled]
    for message in messages():
        found = shared.filters.index.find(Message(message))
        document = found.evaluator.document
        writer = ResultWriter(document, SourceFragments(document))
        evaluator = PatternEvaluator(document)
        wanted = {}
        for number, (transformation, template) in enumerate(zip(compiled, templates, strict=True)):
            groups = nested_loops.groups(transformation, evaluator, document)
            if groups:
                wanted[number] = template.body([writer.group(template, group.lists) for group in groups])
        assert made(shared, message) == wanted
