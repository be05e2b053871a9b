"""Joins that come, go and change; and the example of the paper."""

from __future__ import annotations

import pytest

from sapwood import QueryError
from tests.support.cases.joins import bodies, broker_of, check, told

PAIR = "S//a->x[b->y] JOIN{y=w, INF} S//c->z[b->w]"
SAME = "FROM S//a AS n[./b AS m] join { $m = k, inf } S//c->o[b->k]"
A, C = "<a><b>1</b></a>", "<c><b>1</b></c>"


def test_a_query_sees_what_is_published_after_it() -> None:
    broker = broker_of(PAIR)
    check(broker, [(1, "S", A, "")])
    broker.subscribe("new", PAIR.replace("INF", "9 s"))
    check(broker, [(2, "S", C, "1+2"), (2, "S", A, "3+2 new:3+2"), (3, "S", C, "1+4 3+4 new:3+4")], first=2)


def test_also_if_there_is_one_just_like_it() -> None:
    broker = broker_of(PAIR)
    check(broker, [(1, "S", A, "")])
    broker.subscribe("same", PAIR)
    check(broker, [(2, "S", C, "1+2"), (2, "S", A, "3+2 same:3+2")], first=2)
    broker.unsubscribe("q")
    check(broker, [(2, "S", C, "same:3+4")], first=4)


def test_of_a_chain_all_messages_must_be_new() -> None:
    chain = f"{PAIR} JOIN{{w=v, INF}} S/d->t[b->v]"
    broker = broker_of(chain)
    check(broker, [(1, "S", A, "")])
    broker.subscribe("second", chain)
    check(broker, [(1, "S", C, "")], first=2)
    broker.subscribe("third", chain)
    check(broker, [(1, "S", "<d><b>1</b></d>", "1+2+3"), (2, "S", A, "4+2+3 second:4+2+3")], first=3)


def test_identical_queries_get_the_same() -> None:
    broker = broker_of(
        {"q": PAIR, "same": PAIR, "spelt otherwise": SAME, "other": PAIR.replace("//c", "//d")}
    )
    broker.publish(A, stream="S", time=1)
    got = broker.publish(C, stream="S", time=1)
    assert [d.subscription for d in got] == ["q", "same", "spelt otherwise"]
    assert len({d.body for d in got}) == len({d.meeting for d in got}) == 1


def test_unsubscribing_does_not_affect_other_subscriptions() -> None:
    broker = broker_of({"q": PAIR, "same": SAME, "other": PAIR.replace("INF", "1 day")})
    check(broker, [(1, "S", A, "")])
    broker.unsubscribe("q")
    check(broker, [(2, "S", C, "same:1+2 other:1+2")], first=2)
    broker.unsubscribe("same")
    check(broker, [(3, "S", C, "other:1+3")], first=3)
    broker.subscribe("q", PAIR)
    check(broker, [(4, "S", C, "other:1+4"), (4, "S", A, "5+4 other:5+2 other:5+3 other:5+4")], first=4)
    with pytest.raises(KeyError):
        broker.unsubscribe("same")


def test_a_replacement_starts_anew_in_its_old_place() -> None:
    broker = broker_of({"q": PAIR, "last": "//c"})
    check(broker, [(1, "S", A, "")])
    broker.replace("q", PAIR.replace("//c", "//d"))
    check(broker, [(2, "S", C, "last:2"), (2, "S", "<d><b>1</b></d>", ""), (2, "S", A, "4+3")], first=2)
    broker.replace("q", PAIR)
    check(broker, [(3, "S", C, "last:5"), (3, "S", A, "6+5")], first=5)
    assert [d.subscription for d in broker.publish(C, stream="S", time=3)] == ["q", "last"]


def test_any_kind_may_replace_any_other() -> None:
    kinds = ["//c", "for $c in //c return $c/b", PAIR, "FROM S//c", "SELECT <r/> FROM S//c->x"]
    broker = broker_of({"q": kinds[0], "last": "/c"})
    for query in [*kinds[1:], *kinds[::-1], kinds[2], kinds[0]]:
        broker.replace("q", query)
        assert broker.query("q") == query
        broker.publish(A, stream="S", time=1)
        got = broker.publish(C, stream="S", time=1)
        assert [d.subscription for d in got] == ["q", "last"]
        assert (b"joined" in got[0].body) == (query == PAIR)


def test_an_invalid_query_changes_nothing() -> None:
    broker = broker_of(PAIR)
    check(broker, [(1, "S", A, "")])
    for wrong in (PAIR.replace("y=w", "y=v"), PAIR.replace(", INF", ""), PAIR.replace("b->y", "b->x")):
        with pytest.raises(QueryError):
            broker.replace("q", wrong)
        with pytest.raises(QueryError):
            broker.subscribe("new", wrong)
    check(broker, [(1, "S", C, "1+2")], first=2)
    assert list(broker) == ["q"]


def test_an_id_is_given_once() -> None:
    broker = broker_of({"q": PAIR, "f": "/a"})
    for id in "qf":
        with pytest.raises(ValueError, match="subscribed already"):
            broker.subscribe(id, PAIR)
    assert len(broker) == 2
    assert list(broker) == ["q", "f"]


# -- the example of the paper --------------------------------------------------------------------------------

BOOK = """<book><info><author>Danny Ayers</author><author>Andrew Watt</author>
<title>Beginning RSS and Atom Programming</title><category>Scripting &amp; Programming</category>
<category>Web Site Development</category></info></book>"""
BLOG = """<blog><author>Danny Ayers</author><title>Beginning RSS and Atom Programming</title>
<category>Book Announcement</category><category>Scripting &amp; Programming</category></blog>"""
PAPER = {
    "Q1": """S//book->x1[.//author->x2][.//title->x3] FOLLOWED BY{x2=x5 AND x3=x6, 1 day}
             S//blog->x4[.//author->x5][.//title->x6]""",
    "Q2": """S//book->x1[.//author->x2][.//category->x7] FOLLOWED BY{x2=x5 AND x7=x8, 1 day}
             S//blog->x4[.//author->x5][.//category->x8]""",
    "Q3": """S//blog->x4[.//author->x5][.//title->x6] FOLLOWED BY{x5=x5' AND x6=x6', 1 day}
             S//blog->x4'[.//author->x5'][.//title->x6']""",
}


def test_the_papers_example() -> None:
    broker = broker_of(PAPER)
    assert broker.publish(BOOK, "d1", stream="S", time=0) == []
    got = broker.publish(BLOG, "d2", stream="S", time=3_600)
    assert told(got) == ["Q1:d1+d2", "Q2:d1+d2"]
    assert bodies(got)["Q1"] == bodies(got)["Q2"]
    assert got[0].body == f"<joined>{BOOK}{BLOG}</joined>".encode()
    assert told(broker.publish(BLOG, "d3", stream="S", time=86_400)) == ["Q1:d1+d3", "Q2:d1+d3", "Q3:d2+d3"]


def test_the_three_queries_of_the_paper_are_one_template() -> None:
    (template,) = broker_of(PAPER).state().templates
    assert template.queries == 3
