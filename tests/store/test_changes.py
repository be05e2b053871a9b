"""Single changes of a store, and refused changes, which have no effect."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sapwood.errors import QueryError, SapwoodError, StoreError
from sapwood.store import LANGUAGES, Changes, Subscription, SubscriptionStore


def test_a_new_store_is_empty_and_at_version_0(store: SubscriptionStore) -> None:
    assert (store.version, store.oldest, len(store), store.namespaces) == (0, 0, 0, {})
    assert list(store.subscriptions()) == []
    assert list(store.at(0)) == []
    assert bool(store)


def test_added_subscriptions_are_visible_to_other_connections(
    store: SubscriptionStore, location: str
) -> None:
    assert store.add("s1", "//a", subscriber="anna") == 1
    assert store.add("s2", "//b[@c = 'é']", active=False) == 2
    with SubscriptionStore(location, create=False) as other:
        assert other.get("s1") == Subscription("s1", "//a", "anna", "xpath", True, place=1, since=1)
        assert other.get("s2") == Subscription("s2", "//b[@c = 'é']", "", "xpath", False, place=2, since=2)
        assert other.get("s3") is None
        assert "s1" in other
        assert "s3" not in other
        assert (len(other), other.version) == (2, 2)


def test_replacing_keeps_the_place_and_omitted_fields(store: SubscriptionStore) -> None:
    store.add("s1", "//a", subscriber="anna", active=False)
    store.add("s2", "//b")
    assert store.replace("s1", "//c") == 3
    assert [(s.id, s.query, s.subscriber, s.active) for s in store.subscriptions()] == [
        ("s1", "//c", "anna", False),
        ("s2", "//b", "", True),
    ]
    assert store.replace("s1", "//c", subscriber="", active=True) == 4
    assert store.get("s1") == Subscription("s1", "//c", "", "xpath", True, place=1, since=4)


def test_calls_without_effect_make_no_version(store: SubscriptionStore) -> None:
    store.declare({"p": "urn:p"})
    store.add("s1", "//a")
    assert store.replace("s1", "//a") == 2
    assert store.activate("s1") == 2
    assert store.declare({"p": "urn:p"}) == 2
    assert store.declare({}) == 2
    assert store.remove() == 2
    assert store.version == 2


def test_an_id_may_come_back_at_the_end(store: SubscriptionStore) -> None:
    store.add("s1", "//a")
    store.add("s2", "//b")
    store.remove("s1")
    store.add("s1", "//c")
    assert [s.id for s in store.subscriptions()] == ["s2", "s1"]
    assert list(store.at(2)) == [("s1", "//a"), ("s2", "//b")]


def test_several_are_removed_at_once_or_not_at_all(store: SubscriptionStore) -> None:
    for id in "abc":
        store.add(id, "//x")
    with pytest.raises(StoreError, match="no subscription 'z'"):
        store.remove("a", "z")
    assert len(store) == 3
    assert store.remove("a", "c", "a") == 4
    assert [s.id for s in store.subscriptions()] == ["b"]


def test_subscriptions_are_chosen_by_subscriber_and_activity(store: SubscriptionStore) -> None:
    store.add("1", "//a", "anna")
    store.add("2", "//a", "bert")
    store.add("3", "//a", "anna")
    store.deactivate("3")

    def chosen(subscriber: str | None = None, active: bool | None = None) -> str:
        return "".join(s.id for s in store.subscriptions(subscriber, active))

    assert chosen() == "123"
    assert chosen("anna") == "13"
    assert chosen("anna", active=True) == "1"
    assert chosen(active=False) == "3"
    assert chosen("nobody") == chosen("") == ""


MADE = "for $a in //a return <made>{$a}</made>"
JOINED = "S//a->x JOIN{x = y, 1 day} S//b->y"

REFUSED: list[tuple[Callable[[SubscriptionStore], object], str]] = [
    (lambda s: s.add("there", "//b"), "subscription 'there' already"),
    (lambda s: s.add("", "//a"), "must not be empty"),
    (lambda s: s.add(7, "//a"), "must be a string, not int"),  # type: ignore[arg-type]
    (lambda s: s.add("x" * 501, "//a"), "at most 500 characters"),
    (lambda s: s.add("a\0b", "//a"), "NUL"),
    (lambda s: s.add("\ud800", "//a"), "surrogate"),
    (lambda s: s.add("s", "//a[. = '\0']"), "NUL"),
    (lambda s: s.add("s", "//a[. = '\udfff']"), "surrogate"),
    (lambda s: s.add("s", None), "must be a string, not NoneType"),  # type: ignore[arg-type]
    (lambda s: s.add("s", "//a", subscriber="\0"), "NUL"),
    (lambda s: s.add("s", "//a", active="no"), "True or False"),  # type: ignore[arg-type]
    (lambda s: s.add("s", "//a", language="sql"), "no language 'sql'; there are: xpath, for-where"),
    (lambda s: s.add("s", "//a", language=""), "no language ''"),
    (lambda s: s.add("s", "//a", language=[]), "no language"),  # type: ignore[arg-type]
    (lambda s: s.add("s", "//a["), "the query ends"),
    (lambda s: s.add("s", "//a", language="for-where-return"), "expected 'for [$]v in path'"),
    (lambda s: s.add("s", MADE, language="xpath"), "a for-where-return query, not a filter"),
    (lambda s: s.add("s", JOINED, language="xpath"), "a join query, not a filter"),
    (lambda s: s.add("s", JOINED, language="for-where-return"), "a join query, not for-where-return"),
    (lambda s: s.add("s", MADE, language="xscl"), "a for-where-return query, not a join"),
    (lambda s: s.add("s", "S//a->x JOIN{x = y, 1 m} S//b->y"), "no unit 'm'"),
    (lambda s: s.add("s", "for $a in //a"), "'return'"),
    (lambda s: s.add("s", "for $a in //q:a return $a"), "prefix 'q' is not declared"),
    (lambda s: s.replace("there", MADE, language="xpath"), "a for-where-return query, not a filter"),
    (lambda s: s.add("s", ""), "the query is empty"),
    (lambda s: s.add("s", "//q:a"), "prefix 'q' is not declared"),
    (lambda s: s.replace("there", "//a["), "the query ends"),
    (lambda s: s.replace("none", "//a"), "no subscription 'none'"),
    (lambda s: s.activate("none"), "no subscription 'none'"),
    (lambda s: s.deactivate("none"), "no subscription 'none'"),
    (lambda s: s.remove("none"), "no subscription 'none'"),
    (lambda s: s.remove("a\0b"), "no subscription"),
    (lambda s: s.remove("\ud800"), "no subscription"),
    (lambda s: list(s.subscriptions("\ud800")), "surrogate"),
    (lambda s: s.declare({"p": "urn:other"}), "'p' is bound to 'urn:p' already"),
    (lambda s: s.declare({"new": "urn:new", "p": "urn:other"}), "already"),
    (lambda s: s.declare({"": "urn:x"}), "must not be empty"),
    (lambda s: s.declare({"a:b": "urn:x"}), "cannot be a prefix"),
    (lambda s: s.declare({"x": ""}), "must not be empty"),
    (lambda s: s.declare({"xml": "urn:x"}), "'xml' always stands for"),
    (lambda s: s.declare({"xmlns": "urn:x"}), "'xmlns' is reserved"),
    (lambda s: s.at(-1), "count from 0"),
    (lambda s: s.at(3), "no version 3 yet; the store is at version 2"),
    (lambda s: s.changes(0, 3), "no version 3 yet"),
    (lambda s: s.changes(2, 1), "not from 2 to 1"),
    (lambda s: s.prune(3), "no version 3 yet"),
]


def test_refused_changes_have_a_reason_and_no_effect(store: SubscriptionStore) -> None:
    store.declare({"p": "urn:p"})
    store.add("there", "//p:a")
    for attempt, says in REFUSED:
        with pytest.raises(SapwoodError, match=says):
            attempt(store)
    assert (store.version, store.namespaces, len(store)) == (2, {"p": "urn:p"}, 1)
    assert list(store.at(2)) == [("there", "//p:a")]
    assert store.get("a\0b") is None


def test_queries_use_the_namespaces_that_anyone_declared(store: SubscriptionStore, location: str) -> None:
    with pytest.raises(QueryError):
        store.add("s", "//p:a")
    with SubscriptionStore(location) as other:
        assert other.declare({"p": "urn:p", "q": "urn:q"}) == 1
    assert store.add("s", "//p:a[q:b]") == 2


def test_ids_and_queries_are_kept_as_they_are(store: SubscriptionStore) -> None:
    odd = ["'; DROP TABLE sapwood_state; --", "%s", ":id", " blank ", "É", "é", "🌲", "x" * 500, "Ａ", "\n"]
    for id in odd:
        store.add(id, f"//a[. = {id!r}]" if "'" not in id else "//a", subscriber=id)
    assert [s.id for s in store.subscriptions()] == odd
    assert [s.subscriber for s in store.subscriptions()] == odd
    for id in odd:
        assert store.remove(id)
    assert len(store) == 0


def test_reading_sees_one_moment_while_others_write(store: SubscriptionStore) -> None:
    for number in range(5):
        store.add(str(number), "//a")
    reading = store.subscriptions()
    first = next(reading)
    store.remove("4")
    store.replace("3", "//b")
    store.add("5", "//a")
    assert [(s.id, s.query) for s in [first, *reading]] == [(str(n), "//a") for n in range(5)]


def test_a_closed_store_connects_again(store: SubscriptionStore) -> None:
    store.add("s", "//a")
    store.close()
    assert len(store) == 1


def test_many_readings_may_be_left_unfinished(store: SubscriptionStore) -> None:
    for number in range(3):
        store.add(str(number), "//a")
    readings = [store.subscriptions() for _ in range(20)]
    assert {next(reading).id for reading in readings} == {"0"}
    del readings
    assert store.add("s", "//a") == 4


def test_the_languages_are_listed_once() -> None:
    assert list(LANGUAGES) == ["xpath", "for-where-return", "xscl"]


def test_the_language_is_detected_from_the_text(store: SubscriptionStore) -> None:
    def spoken() -> list[str]:
        return [subscription.language for subscription in store.subscriptions()]

    texts = [
        "//a",
        MADE,
        "<all>{ for $a in //a return $a }</all>",
        "for",
        "let $l := //a for $a in $l return $a",
        JOINED,
        "FROM news//a",
    ]
    for number, text in enumerate(texts):
        store.add(str(number), text)
    made = "for-where-return"
    assert spoken() == ["xpath", made, made, "xpath", made, "xscl", "xscl"]
    store.replace("0", MADE)
    store.replace("1", "//a")
    store.replace("2", MADE, language=made)
    store.replace("5", "//a", language="xscl")
    store.replace("6", "//a")
    assert spoken() == [made, "xpath", made, "xpath", made, "xscl", "xpath"]
    store.deactivate("0")
    store.activate("0")
    assert spoken()[0] == made


def test_both_languages_are_in_versions_and_changes(store: SubscriptionStore) -> None:
    store.add("a", "//a")
    store.add("b", MADE)
    store.replace("a", MADE)
    assert list(store.at(2)) == [("a", "//a"), ("b", MADE)]
    assert store.changes(1, 3).put == [("a", MADE), ("b", MADE)]
    assert store.replace("a", MADE) == 3  # which changes nothing


def test_from_which_version_on_subscriptions_have_been_as_they_are(store: SubscriptionStore) -> None:
    store.add("a", "//a")  # 1
    store.add("b", "//b")
    store.replace("a", "//a", subscriber="x")  # 3: the same query
    store.remove("b")
    store.add("b", "//b")  # 5: back as it was
    store.replace("a", "//c")
    store.replace("a", "//a")  # 7
    store.deactivate("b")
    store.activate("b")  # 9
    assert store.begun(0, 3) == [("a", "//a", 1), ("b", "//b", 2)]
    assert store.begun(0, 4) == [("a", "//a", 1)]
    assert store.begun(0, 9) == [("a", "//a", 7), ("b", "//b", 9)]
    assert store.begun(2, 3) == []
    assert store.begun(3, 5) == [("b", "//b", 5)]
    assert store.begun(5, 7) == [("a", "//a", 7)]
    assert store.changes(3, 5) == Changes([], [])  # nobody has to be told but those who remember messages


def test_subscriptions_in_one_language(store: SubscriptionStore) -> None:
    store.add("filter", "//a")
    store.add("join", "S//a->x JOIN{x = y, 1 s} T//b->y")
    assert [each.id for each in store.subscriptions(language="xscl")] == ["join"]


def test_subscribers_of_a_version_and_those_that_changed_since(store: SubscriptionStore) -> None:
    store.add("s1", "//a", subscriber="anna")
    store.add("s2", "//b")
    store.add("s3", "//c", subscriber="carl", active=False)
    assert store.replace("s1", "//a", subscriber="bea") == 4
    assert dict(store.subscribers(-1, 2)) == {"s1": "anna", "s2": ""}
    assert dict(store.subscribers(-1, 4)) == {"s1": "bea", "s2": ""}
    assert dict(store.subscribers(2, 4)) == {"s1": "bea"}
    assert dict(store.subscribers(4, 4)) == {}
    assert store.activate("s3") == 5
    assert dict(store.subscribers(4, 5)) == {"s3": "carl"}
    with pytest.raises(StoreError, match="no version 9"):
        list(store.subscribers(-1, 9))
