"""Subscriptions, subscribers, keys and figures through the clients."""

from __future__ import annotations

import pytest

from sapwood import QueryError
from sapwood.client import (
    Conflict,
    Message,
    NewSubscription,
    NotFound,
    PreconditionFailed,
    SubscriberSettings,
    Subscription,
)
from sapwood.errors import ArgumentError
from tests.support.service.face import Face
from tests.support.service.stub_server import StubServer


def test_a_subscription_from_its_creation_to_its_end(face: Face) -> None:
    made = face.call("subscribe", "oil", "//hl1", subscriber="desk", streams=["news"])
    assert made == Subscription("oil", "//hl1", "desk", "xpath", True, ("news",), 1)
    assert face.call("subscription", "oil") == made
    changed = face.call("replace", "oil", "//hl2", version=made.version)
    assert (changed.query, changed.subscriber, changed.streams) == ("//hl2", "desk", ("news",))
    assert face.call("pause", "oil").active is False
    assert face.call("resume", "oil").active is True
    assert face.call("unsubscribe", "oil") == 5
    with pytest.raises(NotFound, match="there is no subscription 'oil'"):
        face.call("subscription", "oil")


def test_an_id_may_hold_any_characters(face: Face) -> None:
    for id in ("a/b", "ü ?&#%2F", "x:y"):
        face.call("subscribe", id, "//a")
        assert face.call("subscription", id).id == id
        assert face.call("replace", id, "//b").query == "//b"


def test_an_id_that_is_taken(face: Face) -> None:
    face.call("subscribe", "oil", "//a")
    with pytest.raises(Conflict, match="already"):
        face.call("subscribe", "oil", "//b")
    assert face.call("subscribe", "oil", "//b", replace=True).query == "//b"


def test_a_change_of_what_has_changed(face: Face) -> None:
    version = face.call("subscribe", "oil", "//a").version
    face.call("replace", "oil", "//b")
    for name, arguments in (("replace", ("oil", "//c")), ("unsubscribe", ("oil",))):
        with pytest.raises(PreconditionFailed, match="read the subscription again"):
            face.call(name, *arguments, version=version)
    with pytest.raises(ArgumentError, match="nothing to change in subscription 'oil'"):
        face.call("replace", "oil")


def test_a_query_error_shows_the_place(face: Face) -> None:
    for call in (("subscribe", "q", "//a[b = ]"), ("explain", "//a[b = ]")):
        with pytest.raises(QueryError) as caught:
            face.call(*call)
        with pytest.raises(QueryError) as local:
            from sapwood import Matcher

            Matcher().add("q", "//a[b = ]")
        assert str(caught.value) == str(local.value)
        assert "^" in str(caught.value)


def test_lists_are_read_page_by_page(face: Face, stub: StubServer) -> None:
    for number in range(1203):
        given = {"id": f"{number:04}", "query": "//a", "subscriber": "desk" if number % 2 else "me"}
        told = {"language": "xpath", "active": True, "streams": [], "version": number}
        stub.state.subscriptions[given["id"]] = given | told
    assert [s.id for s in face.call("subscriptions")] == [f"{number:04}" for number in range(1203)]
    assert len(stub.api.requests) == 3
    assert len(face.call("subscriptions", subscriber="desk", active=True)) == 601


def test_an_import_reports_each_refusal_by_its_place(face: Face) -> None:
    new = [(f"q{number}", f"//a[{number}]") for number in range(25)]
    new[13] = ("bad", "//a[")
    report = face.call("import_many", [*new, NewSubscription("q1", "//b", "desk")], batch=10)
    assert (report.added, report.refused, report.version) == (24, 2, 24)
    assert [(failure.number, failure.id) for failure in report.errors] == [(14, "bad"), (26, "q1")]
    assert isinstance(report.errors[0].error, QueryError)
    assert "//a[\n" in str(report.errors[0].error)
    assert face.call("import_many", [("q1", "//c")], replace=True).replaced == 1


def test_queries_are_explained_and_tried(face: Face) -> None:
    face.call("subscribe", "oil", "//hl1")
    assert face.call("explain", "//hl1").native
    assert face.call("explain_subscription", "oil").text == face.call("explain", "//hl1").text
    assert face.call("try_query", "//a", "<a/>").matches
    assert not face.call("try_query", "//a", b"<b/>").matches
    join = "s/a[@i->x] FOLLOWED BY{x = y, 1 hour} s/b[@i->y]"
    assert face.call("try_query", "//a", Message("<a/>", time="1970-01-01"), stream="s").matches
    trial = face.call(
        "try_query", join, Message('<a i="1"/>', time=0), Message('<b i="1"/>', time=1), stream="s"
    )
    assert trial.results == ('<joined><a i="1"/><b i="1"/></joined>',)
    with pytest.raises(ArgumentError, match="at least one"):
        face.call("try_query", "//a")
    with pytest.raises(ArgumentError, match="UTF-8"):
        face.call("try_query", "//a", b"\xff")


def test_prefixes_are_declared(face: Face) -> None:
    assert face.call("namespaces") == {}
    assert face.call("declare", {"a": "urn:a"}) == 1
    assert face.call("namespaces") == {"a": "urn:a"}


def test_deliveries_are_pulled_and_acknowledged(face: Face, stub: StubServer) -> None:
    for number in range(3):
        stub.state.deliver("desk", f"<m>{number}</m>".encode())
    page = face.call("pull", "desk", limit=2, wait=1)
    assert ([d.number for d in page.deliveries], page.cursor, page.backlog) == ([1, 2], 2, 3)
    with pytest.raises(ArgumentError, match=r"client\.ack\(subscriber, delivery\)"):
        page.deliveries[0].ack()
    assert face.call("ack", "desk", page.deliveries[1]).backlog == 1
    assert face.call("ack", "desk", "desk-3").acknowledged == 3
    assert face.call("pull", "desk", wait=0.02).deliveries == ()
    assert len(face.call("pull", "desk", after=0).deliveries) == 3


def test_subscribers_are_listed_and_configured(face: Face, stub: StubServer) -> None:
    for name in ("a", "b", "c"):
        face.call("configure_subscriber", name)
    made = face.call("configure_subscriber", "d", limit=5, policy="suspend", merge=True, webhook={"url": "u"})
    assert made.settings == SubscriberSettings(5, "suspend", True, {"url": "u"})
    assert face.call("configure_subscriber", "d", limit=6).settings == SubscriberSettings(6)
    assert [subscriber.name for subscriber in face.call("subscribers")] == ["a", "b", "c", "d"]
    stub.state.inboxes["d"].suspended = True
    face.call("resume_subscriber", "d")
    assert not face.call("subscriber", "d").suspended
    face.call("delete_subscriber", "d")
    with pytest.raises(NotFound):
        face.call("subscriber", "d")


def test_dead_letters_are_replayed_or_deleted(face: Face, stub: StubServer) -> None:
    stub.state.deliver("desk", b"<m/>")
    inbox = stub.state.inboxes["desk"]
    inbox.dead = [
        {"number": n, "delivery": inbox.deliveries[0], "attempts": 3, "reason": "500", "since": 1.0}
        for n in range(5)
    ]
    inbox.gaps = [{"after": 0, "count": 2, "reason": "full", "since": 1.0, "until": 2.0}]
    assert [letter.delivery.body for letter in face.call("dead_letters", "desk")] == [b"<m/>"] * 5
    face.call("delete_dead_letter", "desk", 0)
    assert face.call("replay", "desk", [1, 2]).replayed == (1, 2)
    assert [letter.number for letter in face.call("dead_letters", "desk")] == [3, 4]
    face.call("replay", "desk")
    assert face.call("dead_letters", "desk") == []
    assert [gap.count for gap in face.call("gaps", "desk")] == [2]


def test_keys_and_figures(face: Face, stub: StubServer) -> None:
    key = face.call("create_key", ["publish"], "feed")
    assert key.secret == f"sw_{key.id}_secret"
    assert key.secret not in repr(key)
    assert [(k.name, k.scopes, k.secret) for k in face.call("keys")] == [("feed", ("publish",), None)]
    face.call("delete_key", key.id)
    assert face.call("keys") == []
    with pytest.raises(ArgumentError, match="a key needs a scope"):
        face.call("create_key", [])
    assert face.call("stats") == {"messages": 0}
