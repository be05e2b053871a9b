"""Subscriptions that are restricted to streams, and the event times of streams."""

from __future__ import annotations

import time

import pytest

from sapwood import Broker, LateMessage, MessageError, QueryError

FILTER = "/a"
MADE = "for $a in /a return <r/>"
JOIN = "orders/order[@id->i] FOLLOWED BY{i = j, 1 day} payments/payment[@for->j]"
NO_RESTRICTED_JOIN = "a join is not restricted to streams: it names those that it reads itself"


def subscribers(broker: Broker, stream: str = "", message: str = "<a/>") -> list[object]:
    return [delivery.subscription for delivery in broker.publish(message, stream=stream)]


def test_a_restricted_subscription_gets_the_messages_of_its_streams_only() -> None:
    broker = Broker()
    broker.subscribe("all", FILTER)
    broker.subscribe("news", FILTER, streams=["news"])
    broker.subscribe("made", MADE, streams=("news", "stocks"))
    broker.subscribe("unnamed", FILTER, streams={""})
    broker.subscribe("none", FILTER, streams=())
    assert subscribers(broker, "news") == ["all", "news", "made"]
    assert subscribers(broker, "stocks") == ["all", "made"]
    assert subscribers(broker, "sport") == ["all"]
    assert subscribers(broker) == ["all", "unnamed"]


def test_subscriptions_that_come_after_a_stream_was_seen_are_found_in_it() -> None:
    broker = Broker()
    broker.subscribe("news", FILTER, streams=["news"])
    assert subscribers(broker, "stocks") == []
    broker.subscribe("all", FILTER)
    broker.subscribe("made", MADE)
    broker.subscribe("stocks", FILTER, streams=["stocks"])
    broker.subscribe_many([("many", FILTER)])
    assert subscribers(broker, "stocks") == ["all", "made", "stocks", "many"]


def test_a_restriction_can_be_changed_and_removed() -> None:
    broker = Broker()
    broker.subscribe("filter", FILTER)
    broker.subscribe("made", MADE, streams=["news"])
    broker.restrict("filter", ["stocks"])
    broker.restrict("made", ["stocks", "sport"])
    assert [subscribers(broker, stream) for stream in ("news", "stocks", "sport")] == [
        [],
        ["filter", "made"],
        ["made"],
    ]
    broker.restrict("filter", None)
    broker.restrict("made", None)
    assert subscribers(broker, "news") == ["filter", "made"]
    assert broker.excluded("news") is None
    with pytest.raises(KeyError):
        broker.restrict("nobody", ["news"])


def test_a_subscription_of_the_same_id_does_not_inherit_a_restriction() -> None:
    broker = Broker()
    for query in (FILTER, MADE):
        broker.subscribe("s", query, streams=["news"])
        broker.unsubscribe("s")
        broker.subscribe("s", query)
        assert subscribers(broker, "stocks") == ["s"]
        broker.unsubscribe("s")


def test_one_string_is_not_taken_for_the_names_of_streams() -> None:
    broker = Broker()
    with pytest.raises(ValueError, match=r"such as \['news'\], not one string"):
        broker.subscribe("s", FILTER, streams="news")
    assert len(broker) == 0
    broker.subscribe("s", FILTER)
    with pytest.raises(ValueError, match="not one string"):
        broker.restrict("s", "news")


def test_streams_that_cannot_be_read_leave_no_subscription() -> None:
    broker = Broker()
    with pytest.raises(TypeError):
        broker.subscribe("s", FILTER, streams=[["news"]])  # type: ignore[list-item]
    with pytest.raises(QueryError):
        broker.subscribe("s", "/a[", streams=["news"])
    assert len(broker) == 0
    assert broker.excluded("news") is None


def test_failures_of_messages_of_other_streams_are_not_reported() -> None:
    broker = Broker()
    broker.subscribe("s", "for $x in //b, $y in //b, $z in //b return <r/>", streams=["news"])
    message = "<a>" + "<b/>" * 60 + "</a>"
    assert broker.publish(message, stream="stocks").failures == []
    assert len(broker.publish(message, stream="news").failures) == 1


def test_late_messages_and_published_ones_reach_subscriptions_to_their_stream() -> None:
    broker = Broker()
    broker.subscribe("join", f"{JOIN} PUBLISH pairs")
    for stream in ("orders", "payments", "pairs"):
        broker.subscribe(stream, "/*", streams=[stream])
    assert subscribers(broker, "orders", "<order id='1'/>") == ["orders"]
    assert subscribers(broker, "payments", "<payment for='1'/>") == ["join", "payments", "pairs"]
    with pytest.raises(LateMessage) as caught:
        broker.publish("<order id='2'/>", stream="orders", time=1)
    assert [delivery.subscription for delivery in caught.value.deliveries] == ["orders"]


# -- numbers -----------------------------------------------------------------------------------------------


def test_excluded_subscriptions_are_marked_by_number() -> None:
    broker = Broker()
    assert broker.excluded("news") is None
    broker.subscribe("all", FILTER)
    broker.subscribe("made", MADE, streams=["stocks"])
    broker.subscribe("ended", FILTER, streams=["stocks"])
    broker.subscribe("news", FILTER, streams=["news"])
    broker.unsubscribe("ended")
    broker.subscribe("join", JOIN)
    marks = broker.excluded("news")
    assert marks is not None
    assert [id for id in broker if marks[broker.number(id)]] == ["made"]
    assert len(marks) == 5, "one for each number that was given"
    found = broker.answer("<a/>", stream="news")
    assert set(found.matches) == {"all", "news"}
    assert [number for number, _ in found.made] == [broker.number("made")]


def test_numbers_ascend_and_stay_when_a_query_is_replaced() -> None:
    broker = Broker()
    queries = {"filter": FILTER, "made": MADE, "join": JOIN, "last": FILTER}
    broker.subscribe_many(queries.items())
    numbers = [broker.number(id) for id in queries]
    assert numbers == sorted(numbers)
    for query in (JOIN, FILTER, MADE):
        broker.replace("made", query)
        assert [broker.number(id) for id in queries] == numbers
    broker.unsubscribe("made")
    broker.subscribe("made", MADE)
    assert broker.number("made") > numbers[-1], "no number is given twice"
    ids, given = broker.numbered()
    assert {id: broker.number(id) for id in ids} == dict(zip(ids, given.tolist(), strict=True))
    with pytest.raises(KeyError):
        broker.number("nobody")


def test_more_streams_than_are_cached_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.broker.registry._MOST_STREAMS", 3)
    broker = Broker()
    broker.subscribe("s", FILTER, streams=["7"])
    found = [stream for _ in range(2) for stream in map(str, range(10)) if subscribers(broker, stream)]
    assert found == ["7", "7"]


# -- replacements ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [(FILTER, MADE), (MADE, FILTER), (FILTER, "//a"), (MADE, MADE)])
def test_a_replaced_query_keeps_the_restriction(old: str, new: str) -> None:
    broker = Broker()
    broker.subscribe("s", old, streams=["news"])
    broker.subscribe("all", FILTER)
    broker.replace("s", new)
    assert subscribers(broker, "news") == ["s", "all"]
    assert subscribers(broker, "stocks") == ["all"]


@pytest.mark.parametrize("query", [FILTER, MADE])
def test_a_restricted_query_is_not_replaced_by_a_join(query: str) -> None:
    broker = Broker()
    broker.subscribe("s", query, streams=["news"])
    with pytest.raises(ValueError, match=NO_RESTRICTED_JOIN):
        broker.replace("s", JOIN)
    assert (broker.query("s"), broker.joins) == (query, 0)
    assert [subscribers(broker, stream) for stream in ("news", "stocks")] == [["s"], []]
    broker.restrict("s", None)
    broker.replace("s", JOIN)
    assert broker.joins == 1
    broker.replace("s", query)
    broker.restrict("s", ["stocks"])
    assert [subscribers(broker, stream) for stream in ("news", "stocks")] == [[], ["s"]]


def test_joins_are_not_restricted() -> None:
    broker = Broker()
    with pytest.raises(ValueError, match=NO_RESTRICTED_JOIN):
        broker.subscribe("join", JOIN, streams=["orders"])
    assert len(broker) == 0
    broker.subscribe("join", JOIN)
    with pytest.raises(ValueError, match=NO_RESTRICTED_JOIN):
        broker.restrict("join", ["orders"])
    broker.restrict("join", None)
    broker.subscribe("news", FILTER, streams=["news"])
    broker.publish("<order id='1'/>", stream="orders")
    assert subscribers(broker, "payments", "<payment for='1'/>") == ["join"]


def test_packed_subscriptions_keep_their_restriction() -> None:
    broker = Broker()
    broker.subscribe("filter", FILTER, streams=["news"])
    broker.subscribe("made", MADE, streams=["stocks"])
    broker.subscribe("all", FILTER)
    assert subscribers(broker, "news") == ["filter", "all"]
    unpacked = Broker.unpack(broker.pack())
    assert subscribers(unpacked, "news") == ["filter", "all"]
    assert subscribers(unpacked, "stocks") == ["made", "all"]
    unpacked.subscribe("new", FILTER)
    unpacked.restrict("filter", None)
    assert subscribers(unpacked, "stocks") == ["filter", "made", "all", "new"]
    assert subscribers(broker, "stocks") == ["made", "all"]


# -- event times -------------------------------------------------------------------------------------------


def test_the_path_of_event_times_can_be_removed() -> None:
    broker = Broker()
    broker.subscribe("join", JOIN)
    broker.time_from("orders", "/order/@at")
    broker.publish("<order id='1' at='2026-01-05T09:00:00Z'/>", stream="orders")
    with pytest.raises(MessageError, match="time"):
        broker.publish("<order id='2'/>", stream="orders")
    broker.time_from("orders", None)
    broker.time_from("payments", None)  # which has none
    before = time.time()
    broker.publish("<order id='2'/>", stream="orders")
    [delivery] = broker.publish("<payment for='2'/>", stream="payments")
    assert delivery.meeting is not None
    assert before <= delivery.meeting.time <= time.time()
    with pytest.raises(KeyError):
        broker.time_of("<order/>", "orders")
