"""An error of one query, message or call does not affect others."""

from __future__ import annotations

import pickle

import pytest

from sapwood import Broker, LateMessage, Limits, MessageError
from sapwood.join.join_catalog import JoinCatalog, JoinEntry

PAIR = "S/a->x JOIN{x = y, INF} S/c->y"


def ids(broker: Broker, body: str, **options: object) -> list[object]:
    return [d.subscription for d in broker.publish(body, **options)]  # type: ignore[arg-type]


def test_queries_whose_variables_have_the_same_numbers_make_their_own() -> None:
    """The second variable is of the first block here, and of the second there."""
    broker = Broker()
    broker.subscribe("one", "SELECT <r>{$z}</r> FROM S/c[d->x] JOIN{x = z, INF} T/e[f->z]")
    broker.subscribe("other", "SELECT <r>{$z}</r> FROM S/c[d->z][g->x] JOIN{z = w, INF} T/e[f->w]")
    broker.publish("<c><d>1</d><g/></c>", stream="S", time=0)
    made = {d.subscription: d.body for d in broker.publish("<e><f>1</f></e>", stream="T", time=1)}
    assert made == {"one": b"<r><f>1</f></r>", "other": b"<r><d>1</d></r>"}


def test_a_message_that_cannot_be_published_is_a_failure_of_its_query() -> None:
    broker = Broker(limits=Limits(depth=3))
    broker.subscribe("filter", "//c")
    broker.subscribe("deep", f"{PAIR} PUBLISH out")
    broker.subscribe("other", PAIR)
    broker.publish("<a><b><b>1</b></b></a>", stream="S", time=0)
    deliveries = broker.publish("<c><b>1</b></c>", stream="S", time=0)
    assert [delivery.subscription for delivery in deliveries] == ["filter", "deep", "other"]
    (failure,) = deliveries.failures
    assert (failure.subscription, failure.message) == ("deep", "out(S:1, S:2)")
    assert failure.reason.startswith("its published message is refused: line 1, column ")
    assert ids(broker, "<c>1</c>", stream="S", time=0) == ["filter", "deep", "other"]


def test_a_published_message_keeps_its_encoding() -> None:
    broker = Broker()
    broker.subscribe("pass", "FROM S/a PUBLISH out")
    broker.subscribe("join", "S/a->x JOIN{x = y, INF} out/a->y")
    message = "<?xml version='1.0' encoding='ISO-8859-1'?><a>é</a>"
    assert ids(broker, message, stream="S", time=0) == ["pass", "join"]


def test_a_broken_message_changes_nothing() -> None:
    broker = Broker()
    broker.subscribe("pair", PAIR)
    broker.publish("<a>1</a>", "m", stream="S", time=5)
    before = broker.state()
    with pytest.raises(MessageError):
        broker.publish("<c>1</d>", stream="S", time=9)
    assert broker.state() == before
    assert ids(broker, "<c>1</c>", stream="S", time=5) == ["pair"]


def test_a_query_that_could_not_be_added_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    add = JoinCatalog.add

    def failing(catalog: JoinCatalog, entry: JoinEntry) -> None:
        add(catalog, entry)
        raise MemoryError

    monkeypatch.setattr(JoinCatalog, "add", failing)
    with pytest.raises(MemoryError):
        broker.subscribe("pair", PAIR)
    monkeypatch.undo()
    assert len(broker) == 0 and len(broker.network_of_joins) == 0
    assert len(broker.network_of_joins.witnesses) == 0
    broker.subscribe("pair", PAIR)
    broker.publish("<a>1</a>", stream="S", time=0)
    assert ids(broker, "<c>1</c>", stream="S", time=0) == ["pair"]


def test_everything_is_freed() -> None:
    broker = Broker()
    chain = f"{PAIR} FOLLOWED BY{{y = z AND x = w, 1 h}} S/d[e->z][f->w]"
    compared = "S/c[d->x][e->z] JOIN{x = y AND z < u, 1 min} S/c[d->y][e->u]"
    queries = [PAIR, chain, compared, "FROM S/a"]
    for round in range(3):
        for number, query in enumerate(queries):
            broker.subscribe(number, query)
        broker.publish("<a>1</a>", stream="S", time=round)
        broker.publish("<c>1<d>1</d><e>2</e></c>", stream="S", time=round)
        for number in range(len(queries)):
            broker.unsubscribe(number)
        state = broker.state()
        assert (state.messages, state.rows, state.values, state.templates) == (0, 0, 0, ())
        assert len(broker.network_of_joins.witnesses) == 0
        assert len(broker.filters.index) == 0


def test_a_window_that_leaves_takes_its_messages_along() -> None:
    broker = Broker()
    broker.subscribe("long", PAIR)
    broker.subscribe("short", PAIR.replace("INF", "10 s"))
    for time in range(100):
        broker.publish(f"<a>{time}</a>", stream="S", time=time)
    assert broker.state().messages == 100
    broker.replace("long", PAIR.replace("INF", "5 s"))
    assert broker.state().messages == 11


def test_single_blocks_do_not_care_for_time() -> None:
    broker = Broker()
    broker.subscribe("block", "FROM S/a")
    assert ids(broker, "<a/>", stream="S", time=9) == ids(broker, "<a/>", stream="S", time=1) == ["block"]
    broker.subscribe("pair", PAIR)
    with pytest.raises(LateMessage) as caught:
        broker.publish("<a/>", stream="S", time=1)
    assert [delivery.subscription for delivery in caught.value.deliveries] == ["block"]


def test_streams_that_no_query_joins_need_no_time() -> None:
    broker = Broker()
    broker.time_from("T", "/a/@at")
    broker.subscribe("pair", PAIR)
    broker.subscribe("filter", "/a")
    assert ids(broker, "<a/>", stream="T") == ["filter"]


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("1712121212", 1712121212), ("20240403", 20240403), ("2024-04-03", 1712102400), ("-3.5", -3.5)],
)
def test_times_that_messages_say(said: str, seconds: float) -> None:
    broker = Broker()
    broker.time_from("S", "/a/@at")
    assert broker.time_of(f"<a at=' {said} '/>", "S") == seconds


@pytest.mark.parametrize("said", ["", "soon", "1712121212345", "1_000", "٣", "nan"])
def test_a_value_that_is_no_time_is_refused(said: str) -> None:
    broker = Broker()
    broker.subscribe("pair", PAIR)
    broker.time_from("S", "/a/@at")
    with pytest.raises(MessageError, match="should be a time"):
        broker.publish(f"<a at='{said}'/>", stream="S")


@pytest.mark.parametrize("time", ["2024-01-01", True])
def test_a_time_argument_of_another_type_is_a_type_error(time: object) -> None:
    with pytest.raises(TypeError, match="a time is a datetime or a number of seconds"):
        Broker().publish("<a/>", time=time)  # type: ignore[arg-type]


def test_milliseconds_are_not_taken_for_seconds() -> None:
    with pytest.raises(ValueError, match="seconds since the epoch"):
        Broker().publish("<a/>", time=1_712_121_212_345)


def test_a_delivery_can_be_sent_elsewhere() -> None:
    broker = Broker()
    broker.subscribe("pair", PAIR)
    broker.publish("<a>1</a>", "one", stream="S", time=0)
    [delivery] = broker.publish("<c>1</c>", "two", stream="S", time=0)
    copy = pickle.loads(pickle.dumps(delivery))
    assert copy[:3] == delivery[:3]
    assert copy.meeting.messages == ("one", "two")
    assert copy.meeting.nodes == ({"x": 1, "y": 1},)
    assert repr(copy.meeting) == "<Meeting of 'one', 'two'>"


def test_answers_are_numbered_and_outlive_their_queries() -> None:
    broker = Broker()
    broker.subscribe("pair", PAIR)
    broker.answer("<a>1</a>", stream="S", time=0)
    joined = broker.answer("<c>1</c>", stream="S", time=0).joined
    assert joined is not None and len(joined) == joined.deliveries == 1
    assert [meeting.messages for meeting in joined] == [(1, 2)]
    broker.unsubscribe("pair")
    assert list(joined) == [] and joined.deliveries == 0


def test_few_of_many_ways_are_found() -> None:
    """160,000 ways to bind the variables of each message, of which one meets the other's."""
    broker = Broker()
    query = "SELECT <r>{$x}</r> FROM S/m[a->x][b->y] JOIN{x = u AND y = v, INF} S/m[a->u][b->v]"
    broker.subscribe("one", query)
    for time, sign in enumerate("pq"):
        values = [f"<a>{sign}{n}</a><b>{sign}{n}</b>" for n in range(400)]
        deliveries = broker.publish(f"<m><a>same</a><b>same</b>{''.join(values)}</m>", stream="S", time=time)
    assert {delivery.body for delivery in deliveries} == {b"<r><a>same</a></r>"}


def test_more_variables_than_a_table_has_room_for() -> None:
    broker = Broker()
    for number in range(1_200):
        broker.subscribe(number, f"S/a{number}->x JOIN{{x = y, INF}} T/c{number}->y")
    for number in (3, 1_100):
        broker.publish(f"<a{number}>1</a{number}>", stream="S", time=0)
    assert ids(broker, "<c1100>1</c1100>", stream="T", time=0) == [1_100]
    broker.unsubscribe(1_100)
    broker.subscribe("new", "S/a3->x JOIN{x = y, INF} T/new->y")
    broker.publish("<a3>1</a3>", stream="S", time=0)
    assert ids(broker, "<new>1</new>", stream="T", time=0) == ["new"]
    assert ids(broker, "<c1100>1</c1100>", stream="T", time=0) == []
    assert ids(broker, "<c3>1</c3>", stream="T", time=0) == [3, 3]


def test_equal_queries_publish_once_whenever_they_were_subscribed() -> None:
    broker = Broker()
    broker.subscribe("one", f"{PAIR} PUBLISH out")
    broker.publish("<z/>", stream="S", time=0)
    broker.subscribe("other", f"{PAIR} PUBLISH out")
    broker.subscribe("reader", "FROM out/joined")
    broker.publish("<a>1</a>", stream="S", time=0)
    assert ids(broker, "<c>1</c>", stream="S", time=0) == ["one", "other", "reader"]
