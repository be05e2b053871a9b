"""Shares of messages and bytes on links, for cases that are counted by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sapwood.errors import ArgumentError
from sapwood.mesh.core.topology import build_tree
from sapwood.mesh.planning.placement import AS_IT_IS, LEAST, Placement
from sapwood.mesh.planning.planned_subscription import plan_subscription
from sapwood.mesh.planning.traffic_forecast import SampleMessage, TrafficForecast, TrafficSample

CHAIN: dict[str, str | None] = {"a": None, "b": "a", "c": "b"}
Interests = dict[str, Sequence[str]]


def forecast(
    interests: Interests,
    messages: Sequence[bytes | SampleMessage],
    publishers: dict[str, float] | None = None,
    stream: str = "",
    parents: dict[str, str | None] = CHAIN,
) -> TrafficForecast:
    names = list(parents)
    subscriptions = [plan_subscription(q, q) for queries in interests.values() for q in queries]
    places = [names.index(name) for name, queries in interests.items() for _ in queries]
    sample = TrafficSample(build_tree(parents), publishers)
    made = [each if isinstance(each, SampleMessage) else SampleMessage(each) for each in messages]
    sample.count(subscriptions, [Placement(AS_IT_IS, places)], made, stream)
    [found] = sample.forecast()
    return found


def shares(found: TrafficForecast, kind: str = "messages") -> dict[str, float]:
    return {f"{link.sender}{link.receiver}": getattr(link, kind) for link in found.links}


def test_a_message_crosses_the_links_to_those_who_want_it() -> None:
    found = forecast({"a": ["/x"], "c": ["/y"]}, [b"<x/>", b"<y/>", b"<y/>", b"<z/>"], {"a": 1})
    assert shares(found) == {"ab": 0.5, "bc": 0.5, "ba": 0.0, "cb": 0.0}
    assert shares(found, "flooded_messages") == {"ab": 1.0, "bc": 1.0, "ba": 0.0, "cb": 0.0}
    assert (found.everywhere, found.nowhere, found.sites_per_message) == (0.0, 0.25, 0.75)
    assert found.share_of_flooding == 0.5
    assert found.verdict == "routing saves 50 % of the messages on links, and 50 % of the bytes"


def test_publishers_everywhere_are_the_default() -> None:
    found = forecast({"c": ["/y"]}, [b"<x/>", b"<y/>"])
    assert shares(found) == pytest.approx({"ab": 1 / 6, "bc": 2 / 6, "ba": 0, "cb": 0})
    assert shares(found, "flooded_messages") == pytest.approx(
        {"ab": 1 / 3, "bc": 2 / 3, "ba": 2 / 3, "cb": 1 / 3}
    )
    assert found.flooded == pytest.approx(2.0)


def test_weights_and_known_places() -> None:
    weighted = forecast({"b": ["/x"]}, [b"<x/>"], {"a": 3, "c": 1})
    assert shares(weighted) == {"ab": 0.75, "bc": 0.0, "ba": 0.0, "cb": 0.25}
    known = [SampleMessage(b"<x/>", "c"), SampleMessage(b"<x/>", "b"), SampleMessage(b"<x/>")]
    mixed = forecast({"a": ["/x"]}, known, {"a": 1})
    assert shares(mixed) == pytest.approx({"ab": 0, "bc": 0, "ba": 2 / 3, "cb": 1 / 3})


def test_bytes_are_weighed_by_size() -> None:
    found = forecast({"c": ["/y"]}, [b"<x/>", b"<y>12345</y>"], {"a": 1})
    assert shares(found, "bytes") == {"ab": 0.75, "bc": 0.75, "ba": 0.0, "cb": 0.0}
    assert found.share_of_flooded_bytes == 0.75


def test_the_fewest_possible_is_what_is_delivered() -> None:
    weak = "//y[count(preceding::x) > 1]"  # which only lxml decides
    exact = "for $y in /y where $y/z = 1 return <r/>"
    messages = [b"<r><x/><x/><y/></r>", b"<r><y/><x/></r>", b"<y><z>1</z></y>", b"<y/>"]
    found = forecast({"b": [weak], "c": [exact]}, messages, {"a": 1})
    assert shares(found) == {"ab": 0.75, "bc": 0.25, "ba": 0.0, "cb": 0.0}
    assert shares(found, "fewest_messages") == {"ab": 0.5, "bc": 0.25, "ba": 0.0, "cb": 0.0}


def test_joins_need_what_their_blocks_want() -> None:
    join = "SELECT <r>{$x}{$y}</r> FROM s//book->x JOIN{x = y, 10 s} t//blog->y"
    messages = [b"<book>1</book>", b"<blog>2</blog>", b"<other/>"]
    found = forecast({"b": [join]}, messages, {"a": 1}, stream="s")
    assert shares(found)["ab"] == pytest.approx(1 / 3)
    assert shares(found, "fewest_messages")["ab"] == pytest.approx(1 / 3)


def test_restrictions_to_streams_hold() -> None:
    subscription = plan_subscription("1", "/x", streams=("news",))
    transformation = plan_subscription("2", "for $x in /x return <r/>", streams=("news",))
    for stream, share in (("news", 1.0), ("orders", 0.0)):
        sample = TrafficSample(build_tree(CHAIN), {"a": 1})
        sample.count(
            [subscription, transformation], [Placement(AS_IT_IS, [1, 2])], [SampleMessage(b"<x/>")], stream
        )
        [found] = sample.forecast()
        assert shares(found) == {"ab": share, "bc": share, "ba": 0.0, "cb": 0.0}
        assert shares(found, "fewest_messages") == shares(found)


def test_it_says_when_routing_will_not_help() -> None:
    wanted = [b"<x/>"] * 97 + [b"<y/>"] * 3
    found = forecast({name: ["/x"] for name in CHAIN}, wanted)
    assert found.verdict == "routing will not help: 97 % of messages are wanted at every site"
    leaves = forecast({"c": ["/x"], "a": ["/x"]}, wanted)  # not at b, but all links have to be passed
    assert leaves.verdict == "routing will not help: links carry 97 % of what flooding would"


def test_a_small_sample_has_a_margin() -> None:
    half = shares(forecast({"c": ["/y"]}, [b"<x/>", b"<y/>"] * 200, {"a": 1}), "margin")
    assert half == pytest.approx({"ab": 0.049, "bc": 0.049, "ba": 0.0, "cb": 0.0}, abs=0.001)
    every = shares(forecast({"c": ["/y"]}, [b"<y/>"] * 100, {"a": 1}), "margin")
    assert every == {"ab": 0.03, "bc": 0.03, "ba": 0.0, "cb": 0.0}


def test_more_sites_than_one_index_has_bits() -> None:
    parents: dict[str, str | None] = {"s0": None} | {f"s{n}": "s0" for n in range(1, 70)}
    subscriptions = [plan_subscription(str(n), f"/x[@n = '{n}']") for n in range(70)]
    placements = [Placement(AS_IT_IS, range(70)), Placement(LEAST, [69 - n for n in range(70)])]
    sample = TrafficSample(build_tree(parents), {"s0": 1})
    sample.count(subscriptions, placements, [SampleMessage(b"<x n='69'/>")])
    as_it_is, other = sample.forecast()
    assert [link.receiver for link in as_it_is.links if link.messages] == ["s69"]
    assert [link.receiver for link in other.links if link.messages] == []


def test_sites_with_one_prefix_for_two_namespaces() -> None:
    query = "//p:y[count(preceding::p:x) = 1]"
    subscriptions = [plan_subscription(uri, query, namespaces={"p": uri}) for uri in ("urn:1", "urn:2")]
    sample = TrafficSample(build_tree(CHAIN), {"a": 1})
    body = b"<r xmlns='urn:2'><x/><y/></r>"
    sample.count(subscriptions, [Placement(AS_IT_IS, [1, 2])], [SampleMessage(body)])
    [found] = sample.forecast()
    assert shares(found, "fewest_messages")["bc"] == 1.0
    assert found.sites_per_message == 1.0


def test_messages_that_cannot_be_read_cross_no_link() -> None:
    sample = TrafficSample(build_tree(CHAIN))
    placement = Placement(AS_IT_IS, [0])
    sample.count([plan_subscription("1", "/x")], [placement], [SampleMessage(b"<x", name="broken.xml")])
    assert [(each.name, each.error.line) for each in sample.refused] == [("broken.xml", 1)]
    with pytest.raises(ArgumentError, match="no message that can be read"):
        sample.forecast()


def test_what_cannot_be_planned() -> None:
    with pytest.raises(ArgumentError, match="two sites at least"):
        TrafficSample(build_tree({"a": None}))
    with pytest.raises(ArgumentError, match="'rome', which is no site"):
        TrafficSample(build_tree(CHAIN), {"rome": 1})
    with pytest.raises(ArgumentError, match="above 0"):
        TrafficSample(build_tree(CHAIN), {"a": -1})
    with pytest.raises(ArgumentError, match="'rome', which is no site"):
        forecast({"a": ["/x"]}, [SampleMessage(b"<x/>", "rome")])
