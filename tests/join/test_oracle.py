"""The oracle by itself, on examples worked out by hand."""

from __future__ import annotations

from itertools import count
from math import inf
from random import Random

import pytest

from tests.support.generators.join_queries import (
    Block,
    Comparison,
    Condition,
    Filter,
    Hole,
    Link,
    Op,
    Operand,
    Query,
    Variable,
    written,
)
from tests.support.generators.join_strategies import random_query
from tests.support.oracles.join_oracle import Expected, Late, Oracle
from tests.support.oracles.saxon import canonical


def pair(op: Op = "=", window: float = 10, **parts: object) -> Query:
    """Something of S followed by something of S, an element b of the one compared with a b of the other."""
    blocks = tuple(
        Block("S", Variable(root, "//a", branches=(Variable(leaf, "//b"),)))
        for root, leaf in (("x", "y"), ("z", "w"))
    )
    link = Link("FOLLOWED BY", window, (Comparison(Operand("y"), op, Operand("w")),))
    return Query(blocks, (link,), **parts)  # type: ignore[arg-type]


def told(query: Query, *messages: tuple[float, str]) -> list[Expected]:
    """What is delivered of messages of S; their ids are 1, 2 and so on."""
    oracle, ids = Oracle(), count(1)
    oracle.subscribe("q", query)
    return [d for time, body in messages for d in oracle.publish(body, next(ids), "S", time)]


def joined(*copies: str) -> str:
    return canonical("".join(f"<joined>{copy}</joined>" for copy in copies))


A1, A2, A12 = "<a><b>1</b></a>", "<a><b>2</b></a>", "<a><b>1</b><b>2</b></a>"


def test_a_pair_that_meets() -> None:
    assert told(pair(), (0, A1), (1, A12), (2, A2)) == [
        Expected("q", 2, (1, 2), joined(A1 + A12)),
        Expected("q", 3, (2, 3), joined(A12 + A2)),
    ]


def test_times() -> None:
    assert told(pair(), (0, A1), (0, A1)) == []
    assert [d.messages for d in told(pair(), (0, A1), (10, A1), (10.5, A1))] == [(1, 2), (2, 3)]
    assert [d.messages for d in told(pair(window=inf), (0, A1), (1e9, A1))] == [(1, 2)]


def test_comparisons() -> None:
    assert len(told(pair("!="), (0, A1), (1, A1))) == 0
    assert len(told(pair("!="), (0, A1), (1, A12))) == 1
    assert len(told(pair("<"), (0, A12), (1, A2))) == 1
    assert len(told(pair(">="), (0, A1), (1, "<a><b>x</b></a>"))) == 0
    assert len(told(pair(">="), (0, A1), (1, "<a><b> 1.0 </b></a>"))) == 1


def test_a_copy_for_each_way_to_bind_what_is_shown() -> None:
    shown = ("<r>", Hole(Operand("y")), Hole(Operand("z"), "count"), "</r>")
    (made,) = told(pair(select=shown), (0, A12), (1, "<a><b>2</b><a><b>1</b></a></a>"))
    b1, b2 = "<b>1</b>", "<b>2</b>"
    assert made.body == canonical(f"<r>{b1}1</r><r>{b1}1</r><r>{b2}1</r>")  # 1 is below both of the a


def test_output() -> None:
    shown = ('<r k="', Hole(Operand("x", "//b")), '">', Hole(Operand("y", "/text()")), "</r>")
    (made,) = told(pair(select=shown), (0, A12), (1, A1))
    assert made.body == canonical('<r k="1 2">1</r>')


def test_conditions_of_links_are_conditions_on_variables() -> None:
    link = Link(
        "JOIN",
        5,
        (Comparison(Operand("y"), "=", Operand("w")),),
        (Condition(Operand("y"), "{} = 2"), Condition(Operand("z", "/b"), "not({} = 1)")),
    )
    query = Query(pair().blocks, (link,))
    assert [d.messages for d in told(query, (0, A12), (1, A1), (2, A2))] == [(1, 3)]


def test_publishing_feeds_other_queries() -> None:
    oracle = Oracle(lateness=5)
    oracle.subscribe("made", pair(publish="P", select=("<a>", Hole(Operand("y")), "</a>")))
    oracle.subscribe("again", Query((Block("P", Variable("x", "/a")),)))
    oracle.subscribe("filter", Filter("/a/b"))
    assert [d.subscription for d in oracle.publish(A12, "m2", "S", 2)] == ["filter"]
    made = oracle.publish(A12, "m1", "S", 1)
    assert [(d.subscription, d.message, d.messages) for d in made] == [
        ("filter", "m1", ("m1",)),
        ("made", "m1", ("m1", "m2")),
        ("filter", "P(S:m1, S:m2)", ("P(S:m1, S:m2)",)),
        ("again", "P(S:m1, S:m2)", ("P(S:m1, S:m2)",)),
        ("filter", "P(S:m1, S:m2)#2", ("P(S:m1, S:m2)#2",)),
        ("again", "P(S:m1, S:m2)#2", ("P(S:m1, S:m2)#2",)),
    ]
    with pytest.raises(Late):
        oracle.publish(A1, "m3", "S", -3.5)


def test_queries_do_not_see_messages_before_them() -> None:
    oracle = Oracle()
    oracle.subscribe("q", pair())
    oracle.publish(A1, 1, "S", 1)
    oracle.subscribe("r", pair())
    assert [d.subscription for d in oracle.publish(A1, 2, "S", 2)] == ["q"]
    oracle.unsubscribe("q")
    assert [(d.subscription, d.messages) for d in oracle.publish(A1, 3, "S", 3)] == [("r", (2, 3))]


def test_the_papers_spelling() -> None:
    query = pair(window=86_400, select=("<r>", Hole(Operand("y"), "string"), "</r>"), publish="P")
    assert written(query) == (
        "SELECT <r>{string($y)}</r> FROM S//a->x[.//b->y] FOLLOWED BY{y=w, 1 d} S//a->z[.//b->w] PUBLISH P"
    )


def test_there_are_many_spellings() -> None:
    rng = Random(1)
    query = random_query(rng)
    assert len({written(query, rng) for _ in range(100)}) > 50
