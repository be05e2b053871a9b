"""Streams that queries publish, cycles of streams, and the times of published messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sapwood import Broker, LateMessage, MessageError, QueryError
from tests.support.cases.joins import bodies, broker_of, check, told
from tests.support.oracles.saxon import canonical

PAIR = "S//a->x[b->y] JOIN{y=w, 10 s} S//c->z[.//b->w]"
MADE = f"SELECT <m k='{{$x/@k}}'>{{$y}}</m> FROM {PAIR} PUBLISH P"
A, C = "<a k='7'><b>1</b></a>", "<c><b>1</b></c>"
M = "<m k='7'><b>1</b></m>"


# -- what is published -------------------------------------------------------------------------------------


def test_published_messages_reach_all_kinds_of_queries() -> None:
    queries = {
        "q": MADE,
        "filter": "/m[b = 1]",
        "made": "for $m in /m return <n>{$m/b}</n>",
        "join": "T/t->x[@k->k] JOIN{k=l, 10 s} P/m->y[@k->l]",
        "one": "FROM P/m[@k = 7]",
        "elsewhere": "FROM S/m",
    }
    broker = broker_of(queries)
    broker.publish("<t k='7'/>", "t", stream="T", time=1)
    broker.publish(A, "a", stream="S", time=2)
    got = broker.publish(C, "c", stream="S", time=3)
    assert [d.message for d in got] == ["c", *["P(S:a, S:c)"] * 4]
    assert told(got) == sorted(
        ["a+c", "filter:P(S:a, S:c)", "made:P(S:a, S:c)", "join:t+P(S:a, S:c)", "one:P(S:a, S:c)"],
    )
    assert bodies(got) == {
        **dict.fromkeys(["q", "filter", "one"], canonical(M)),
        "made": canonical("<n><b>1</b></n>"),
        "join": canonical(f"<joined><t k='7'/>{M}</joined>"),
    }


def test_each_copy_is_a_message_of_its_own() -> None:
    broker = broker_of({"q": MADE, "one": "FROM P/m->m", "pairs": "P//b->x JOIN{x=y, 1 s} P//b->y"})
    broker.publish("<a><b>1</b><b>2</b></a>", 1, stream="S", time=0)
    got = broker.publish("<c><b>2</b><b>1</b></c>", 2, stream="S", time=1)
    assert [(d.subscription, d.message, canonical(d.body)) for d in got] == [
        ("q", 2, canonical('<m k=""><b>1</b></m><m k=""><b>2</b></m>')),
        ("one", "P(S:1, S:2)", canonical('<m k=""><b>1</b></m>')),
        ("one", "P(S:1, S:2)#2", canonical('<m k=""><b>2</b></m>')),
    ]


def test_messages_made_of_the_same_messages_by_several_queries_are_numbered_in_order() -> None:
    other = f"SELECT <n/> FROM {PAIR} PUBLISH P"
    broker = broker_of({"first": other, "second": MADE, "filter": "/m | /n"})
    broker.publish(A, 1, stream="S", time=0)
    got = broker.publish(C, 2, stream="S", time=1)
    assert [(d.message, d.body[:2]) for d in got if d.subscription == "filter"] == [
        ("P(S:1, S:2)", b"<n"),
        ("P(S:1, S:2)#2", b"<m"),
    ]


def test_a_published_message_is_of_the_time_of_the_latest_it_is_made_of() -> None:
    broker = broker_of({"q": MADE, "before": "T/t->x[@k->k] FOLLOWED BY{k=l, 1 s} P/m->y[@k->l]"}, lateness=9)
    broker.publish("<t k='7'/>", "same", stream="T", time=5)
    broker.publish("<t k='7'/>", "before", stream="T", time=4)
    broker.publish("<t k='7'/>", "too early", stream="T", time=3.5)
    broker.publish(C, "c", stream="S", time=5)
    assert told(broker.publish(A, "a", stream="S", time=2)) == ["a+c", "before:before+P(S:a, S:c)"]


def test_a_published_message_may_meet_what_it_is_made_of() -> None:
    broker = broker_of({"q": MADE, "own": "S/c->x[b->y] JOIN{y=w, 1 s} P/m->z[b->w]"})
    broker.publish(A, "a", stream="S", time=1)
    assert told(broker.publish(C, "c", stream="S", time=1)) == ["a+c", "own:c+P(S:a, S:c)"]


def test_streams_from_streams() -> None:
    queries = {
        "third": "SELECT <t>{$w}</t> FROM Q/n->z[b->w] PUBLISH R",
        "second": "SELECT <n>{$y}</n> FROM P/m->x[b->y] JOIN{y=w, 9 s} S/a->z[b->w] PUBLISH Q",
        "first": MADE,
        "filter": "/t",
        "q": "FROM R",
    }
    broker = broker_of(queries)
    broker.publish(A, "a", stream="S", time=1)
    got = broker.publish(C, "c", stream="S", time=1)
    assert [d.subscription for d in got] == ["first", "second", "third", "filter", "q"]
    assert got[-1].message == "R(Q(P(S:a, S:c), S:a))"
    assert got[-1].body == b"<t><b>1</b></t>"


def test_a_message_may_be_passed_on_to_another_stream() -> None:
    broker = broker_of({"pass": "FROM S//a->x PUBLISH P", "q": "P//b->x JOIN{x=y, 1 s} S//c[b->y]"})
    assert told(broker.publish(A, 1, stream="S", time=1)) == ["pass:1"]
    assert told(broker.publish(C, 2, stream="S", time=1)) == ["P(S:1)+2"]


def test_publishing_queries_may_be_added_and_removed() -> None:
    broker = broker_of({"q": "FROM P/m"})
    broker.publish(A, 1, stream="S", time=1)
    assert broker.publish(C, 2, stream="S", time=1) == []
    broker.subscribe("made", MADE)
    broker.publish(A, 3, stream="S", time=1)
    assert told(broker.publish(C, 4, stream="S", time=1)) == ["P(S:3, S:4)", "made:3+4"]
    broker.unsubscribe("made")
    assert broker.publish(C, 5, stream="S", time=1) == []


def test_anybody_may_publish_on_a_stream_that_a_query_makes() -> None:
    broker = broker_of({"q": "P/m->x[b->y] JOIN{y=w, 1 s} P/m->z[b->w]", "made": MADE})
    broker.publish(A, 1, stream="S", time=1)
    broker.publish(M, 2, stream="P", time=1)
    assert told(broker.publish(C, 3, stream="S", time=1)) == ["2+P(S:1, S:3)", "P(S:1, S:3)+2", "made:1+3"]


# -- cycles ------------------------------------------------------------------------------------------------


def reading(stream: str, publish: str) -> str:
    return f"{stream}//a->x[b->y] JOIN{{y=w, 1 s}} T//c->z[b->w] PUBLISH {publish}"


def test_a_query_may_not_read_what_it_publishes() -> None:
    with pytest.raises(QueryError, match="cycle"):
        broker_of(reading("S", "S"))
    with pytest.raises(QueryError, match="cycle"):
        broker_of(reading("S", "T"))


def test_nor_may_queries_in_a_circle() -> None:
    broker = broker_of({"a": reading("S", "P"), "b": reading("P", "Q"), "c": reading("Q", "R")})
    for stream in ("P", "Q", "R"):
        with pytest.raises(QueryError, match="cycle") as caught:
            broker.subscribe("d", reading(stream, "S"))
        assert "S" in str(caught.value.reason)
        assert stream in str(caught.value.reason)
    assert list(broker) == ["a", "b", "c"]
    broker.subscribe("d", reading("R", "V"))
    with pytest.raises(QueryError, match="cycle"):
        broker.replace("d", reading("R", "S"))
    assert broker.query("d") == reading("R", "V")
    broker.unsubscribe("b")
    broker.subscribe("e", reading("R", "S"))  # the circle is open now


def test_a_replaced_query_is_no_part_of_a_cycle() -> None:
    broker = broker_of({"a": reading("S", "P"), "b": reading("P", "Q")})
    broker.replace("a", reading("Q", "R"))
    broker.replace("b", reading("S", "Q"))
    with pytest.raises(QueryError, match="cycle"):
        broker.subscribe("c", reading("R", "S"))


# -- times -------------------------------------------------------------------------------------------------


def test_times_may_be_dates() -> None:
    broker = broker_of(PAIR)
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    broker.publish(A, 1, stream="S", time=noon)
    assert told(broker.publish(C, 2, stream="S", time=noon + timedelta(seconds=10))) == ["1+2"]
    assert told(broker.publish(C, 3, stream="S", time=noon.timestamp() + 10)) == ["1+3"]
    assert told(broker.publish(C, 4, stream="S", time=noon + timedelta(seconds=10.5))) == []


def test_the_lateness_may_be_a_timedelta() -> None:
    broker = Broker(lateness=timedelta(seconds=5))
    broker.subscribe("q", PAIR)
    check(broker, [(10, "S", A, ""), (5, "S", C, "1+2"), (4, "S", C, "late")])


def test_times_from_a_path() -> None:
    broker = broker_of(PAIR)
    broker.time_from("S", "/*/@at")
    rows = [
        ("<a at='2026-03-01T12:00:00Z'><b>1</b></a>", []),
        ("<c at='2026-03-01T13:00:10+01:00'><b>1</b></c>", ["1+2"]),
        ("<c at='2026-03-01T12:00:10.5Z'><b>1</b></c>", []),
        ("<a at='1772366415'><b>1</b></a>", ["4+2", "4+3"]),  # 12:00:15
        ("<c at='1772366425.25'><b>1</b></c>", []),
    ]
    for id, (message, expected) in enumerate(rows, 1):
        assert told(broker.publish(message, id, stream="S")) == expected


def test_a_path_holds_for_its_stream_and_a_time_given_is_stronger() -> None:
    broker = broker_of(PAIR.replace("S//c", "T//c"))
    broker.time_from("S", "//when")
    broker.publish("<a><when>100</when><b>1</b></a>", 1, stream="S")
    check(broker, [(111, "T", C, ""), (111, "S", "<a><when>100</when><b>1</b></a>", "3+2")], first=2)


def test_without_a_time_a_message_is_of_the_time_it_arrives() -> None:
    broker = broker_of(PAIR)
    broker.publish(A, 1, stream="S")
    broker.publish("<x/>")
    assert told(broker.publish(C, 2, stream="S")) == ["1+2"]


def test_a_message_whose_time_cannot_be_read_is_refused() -> None:
    broker = broker_of(PAIR)
    broker.time_from("S", "/*/@at")
    for message in ("<a at='soon'><b>1</b></a>", A):
        with pytest.raises(MessageError):
            broker.publish(message, stream="S")


def test_a_late_message_still_reaches_filters_and_transformations() -> None:
    queries = {"filter": "//a", "made": "for $a in //a return $a/b", "q": PAIR, "pairs": PAIR}
    broker = broker_of(queries, lateness=5)
    broker.publish(C, "c", stream="S", time=10)
    with pytest.raises(LateMessage, match="late") as caught:
        broker.publish(A, "a", stream="S", time=4)
    assert isinstance(caught.value, MessageError)
    assert bodies(caught.value.deliveries) == {"filter": canonical(A), "made": canonical("<b>1</b>")}
    assert {d.message for d in caught.value.deliveries} == {"a"}
    check(broker, [(10, "S", C, "")])


def test_messages_that_no_query_joins_are_never_late() -> None:
    broker = broker_of({"q": PAIR, "filter": "//a"})
    check(
        broker,
        [(10, "S", A, "filter:1"), (1, "T", A, "filter:2"), (2, "", A, "filter:3"), (9, "S", C, "late")],
    )


def test_messages_of_two_streams_with_one_id_are_published_as_two() -> None:
    broker = Broker()
    broker.subscribe("s", "S//c->x PUBLISH P")
    broker.subscribe("t", "T//c->x PUBLISH P")
    broker.subscribe("met", "P//c->x JOIN{x = y, INF} P//c->y")
    broker.publish(C, 7, stream="S", time=0)
    got = broker.publish(C, 7, stream="T", time=0)
    assert {d.message for d in got} == {7, "P(T:7)"}
    met = {d.meeting.messages for d in got if d.subscription == "met" and d.meeting is not None}
    assert met == {("P(S:7)", "P(T:7)"), ("P(T:7)", "P(S:7)")}
