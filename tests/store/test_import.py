"""Imports: in chunks, with refused subscriptions omitted and reported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sapwood.errors import QueryError, SapwoodError, StoreError
from sapwood.lang import languages
from sapwood.store import ImportReport, NewSubscription, SubscriptionStore


def rows(*pairs: tuple[str, str]) -> list[NewSubscription]:
    return [NewSubscription(id, query) for id, query in pairs]


class Refused(list[tuple[str, str]]):
    def __call__(self, row: NewSubscription, error: SapwoodError) -> None:
        self.append((row.id, str(error).partition("\n")[0]))


def numbered(count: int) -> Iterator[NewSubscription]:
    return (NewSubscription(str(n), f"//a[@n = {n % 7}]") for n in range(count))


def test_each_chunk_is_a_version(store: SubscriptionStore) -> None:
    progress: list[int] = []
    report = store.import_many(numbered(25), on_progress=progress.append, chunk=10)
    assert report == ImportReport(added=25, replaced=0, refused=0, version=3)
    assert progress == [10, 20, 25]
    assert [len(list(store.at(version))) for version in range(4)] == [0, 10, 20, 25]
    assert [s.id for s in store.subscriptions()] == [str(n) for n in range(25)]


def test_nothing_to_import_is_no_version(store: SubscriptionStore) -> None:
    assert store.import_many([]) == ImportReport(0, 0, 0, 0)


def test_import_reports_refusals_in_order_and_adds_the_others(store: SubscriptionStore) -> None:
    store.add("there", "//old")
    refused = Refused()
    new = rows(
        ("1", "//a"), ("there", "//b"), ("2", "//b["), ("1", "//c"), ("", "//d"), ("\0", "//e"), ("3", "//f")
    )
    new += [NewSubscription("4", "//a", language="sql"), NewSubscription("5", "//a", active=False)]
    report = store.import_many(new, on_error=refused, chunk=2)
    assert (report.added, report.refused) == (3, 6)
    assert [id for id, _ in refused] == ["there", "2", "1", "", "\0", "4"]
    refused.clear()
    report = store.import_many(new, on_error=refused)
    assert (report.added, report.refused) == (0, 9)
    assert [id for id, _ in refused] == [row.id for row in new]
    assert dict(refused)["2"].endswith("but the query ends")
    assert dict(refused)["3"] == "there is a subscription '3' already"
    assert dict(refused)["4"] == "there is no language 'sql'; there are: xpath, for-where-return, xscl"
    assert [(s.id, s.query, s.active) for s in store.subscriptions()] == [
        ("there", "//old", True),
        ("1", "//a", True),
        ("3", "//f", True),
        ("5", "//a", False),
    ]


def test_languages_are_detected_where_they_are_not_given(store: SubscriptionStore) -> None:
    made = "for $a in //a return <made>{$a}</made>"
    refused = Refused()
    new = [
        *rows(("1", "//a"), ("2", made), ("3", made), ("4", "for $a in //a")),
        NewSubscription("5", made, language="for-where-return"),
        NewSubscription("6", made, language="xpath"),
        NewSubscription("7", "//a", language="for-where-return"),
        NewSubscription("8", "//a", language="xpath"),
    ]
    report = store.import_many(new, on_error=refused)
    assert (report.added, [id for id, _ in refused]) == (5, ["4", "6", "7"])
    assert [(s.id, s.language) for s in store.subscriptions()] == [
        ("1", "xpath"),
        ("2", "for-where-return"),
        ("3", "for-where-return"),
        ("5", "for-where-return"),
        ("8", "xpath"),
    ]
    assert store.import_many(rows(("1", made), ("2", made)), replace=True).replaced == 1
    assert [s.language for s in store.subscriptions()][:2] == ["for-where-return"] * 2


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_with_replace_the_later_wins(store: SubscriptionStore, chunk: int) -> None:
    store.add("1", "//old", subscriber="anna")
    store.deactivate("1")
    new = rows(("1", "//a"), ("2", "//b"), ("1", "//c"), ("2", "//b"))
    report = store.import_many(new, replace=True, chunk=chunk)
    assert (report.added, report.replaced, report.unchanged, report.refused) == (1, 2, 1, 0)
    assert [(s.id, s.query, s.subscriber, s.active) for s in store.subscriptions()] == [
        ("1", "//c", "anna", False),
        ("2", "//b", "", True),
    ]
    version = store.version
    again = store.import_many(rows(("1", "//c"), ("2", "//b")), replace=True)
    assert again == ImportReport(0, 0, 0, version, unchanged=2)


def test_a_change_and_its_undoing_in_one_chunk_is_no_version(store: SubscriptionStore) -> None:
    store.add("1", "//a")
    report = store.import_many(rows(("1", "//b"), ("1", "//a")), replace=True)
    assert (report.replaced, report.version) == (2, 1)


def test_without_on_error_the_error_is_raised_and_its_chunk_left_out(store: SubscriptionStore) -> None:
    new = rows(("1", "//a"), ("2", "//b"), ("3", "//c"), ("bad", "//d["))
    with pytest.raises(QueryError) as caught:
        store.import_many(new, chunk=2)
    assert caught.value.__notes__ == ["in the subscription 'bad'"]
    assert [s.id for s in store.subscriptions()] == ["1", "2"]
    with pytest.raises(StoreError, match="already"):
        store.import_many(rows(("1", "//z")))
    assert store.version == 1


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_an_interruption_keeps_the_chunks_before(
    store: SubscriptionStore, interruption: type[BaseException]
) -> None:
    def interrupted() -> Iterator[NewSubscription]:
        yield from numbered(25)
        raise interruption

    with pytest.raises(interruption):
        store.import_many(interrupted(), chunk=10)
    assert (len(store), store.version) == (20, 2)
    rest = store.import_many(numbered(25), replace=True, chunk=10)
    assert (rest.added, rest.unchanged, rest.version) == (5, 20, 3)


def test_more_than_a_statement_takes(store: SubscriptionStore) -> None:
    """Ids are looked up, and ended, several hundred at a time."""
    store.import_many(numbered(2_500))
    new = [NewSubscription(str(n), "//b") for n in range(1_000, 3_500)]
    report = store.import_many(new, replace=True)
    assert (report.added, report.replaced, report.version) == (1_000, 1_500, 2)
    assert len(list(store.at(1))) == 2_500
    assert sum(query == "//b" for _, query in store.at(2)) == 2_500
    store.remove(*map(str, range(3_000)))
    assert len(store) == 500


def test_queries_known_good_are_forgotten_in_time(
    store: SubscriptionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(languages, "_REMEMBERED", 3)
    refused = Refused()
    new = [NewSubscription(str(n), f"//a[{n % 5}{']' * (n % 5 > 0)}") for n in range(20)]
    report = store.import_many(new, on_error=refused)
    assert (report.added, report.refused) == (16, 4)


def test_a_chunk_has_at_least_a_row(store: SubscriptionStore) -> None:
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        store.import_many([], chunk=0)
