"""Subscriptions come and go at any time: no neighbour is harmed, and speed and memory stay."""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from sapwood import Matcher, QueryError, Tuning
from sapwood.lang.pattern import INTERNED
from tests.support.automata import guide_nodes, is_empty, trie_states
from tests.support.memory import held_by
from tests.support.oracles import lxml_oracle
from tests.support.query_classes import eager_classes

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def classes() -> Iterator[None]:
    """Have query classes from the first message on, also in Python."""
    with eager_classes():
        yield


# -- add, remove, replace --------------------------------------------------------------------------------


def test_length_membership_and_iteration_of_a_matcher() -> None:
    matcher = Matcher()
    assert len(matcher) == 0
    matcher.add("s1", "/a")
    matcher.add(2, "//b[@x = 1]")
    assert "s1" in matcher
    assert 2 in matcher
    assert "s2" not in matcher
    assert len(matcher) == 2
    assert list(matcher) == ["s1", 2]
    assert matcher.query("s1") == "/a"
    assert matcher.number("s1") < matcher.number(2)


def test_adding_an_id_twice_is_an_error_and_changes_nothing() -> None:
    matcher = Matcher()
    matcher.add("s", "/a")
    with pytest.raises(ValueError, match="'s' is subscribed already") as caught:
        matcher.add("s", "/b")
    assert not isinstance(caught.value, QueryError)
    assert matcher.query("s") == "/a"
    assert list(matcher.match("<b/>")) == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda matcher: matcher.remove("none"),
        lambda matcher: matcher.replace("none", "/a"),
        lambda matcher: matcher.query("none"),
        lambda matcher: matcher.number("none"),
        lambda matcher: matcher.explain("none"),
        lambda matcher: matcher.why("none", "<a/>"),
    ],
)
def test_unknown_ids_are_key_errors(ask: Callable[[Matcher], object]) -> None:
    matcher = Matcher()
    matcher.add("some", "/a")
    with pytest.raises(KeyError):
        ask(matcher)


def test_ids_come_in_the_order_added() -> None:
    matcher = Matcher()
    ids = list(range(200))
    random.Random(7).shuffle(ids)
    matcher.add_many((id, f"//*[@x or not(y{id % 7})]") for id in ids)
    assert list(matcher.match("<a/>")) == ids
    assert list(matcher.match("<a/>").numbers) == [matcher.number(id) for id in ids]


def test_a_replaced_query_keeps_its_place() -> None:
    matcher = Matcher()
    matcher.add_many([("a", "/a"), ("b", "/b"), ("c", "/a")])
    matcher.replace("b", "/*")
    assert list(matcher.match("<a/>")) == ["a", "b", "c"]
    assert list(matcher.match("<b/>")) == ["b"]
    assert matcher.query("b") == "/*"
    assert list(matcher) == ["a", "b", "c"]


def test_an_id_added_again_comes_last() -> None:
    matcher = Matcher()
    matcher.add_many([("a", "/a"), ("b", "/a"), ("c", "/a")])
    matcher.remove("a")
    matcher.add("a", "/a")
    assert list(matcher.match("<a/>")) == ["b", "c", "a"]


def test_one_of_many_with_the_same_query_leaves_alone() -> None:
    matcher = Matcher()
    matcher.add_many((id, "//a[@x = '1' and b]") for id in range(100))
    message = "<a x='1'><b/></a>"
    for id in range(0, 100, 2):
        matcher.remove(id)
    assert list(matcher.match(message)) == list(range(1, 100, 2))
    for id in range(1, 100, 2):
        matcher.replace(id, "//none")
    assert list(matcher.match(message)) == []


def test_add_many_continues_after_errors_with_a_callback() -> None:
    matcher = Matcher()
    wrong: list[tuple[object, str]] = []
    pairs = [(1, "/a"), (2, "/a["), (1, "/b"), (3, "/a")]
    matcher.add_many(pairs, on_error=lambda id, error: wrong.append((id, type(error).__name__)))
    assert wrong == [(2, "QueryError"), (1, "ArgumentError")]
    assert list(matcher.match("<a/>")) == [1, 3]


def test_a_large_bulk_after_messages_is_seen_by_the_next_message() -> None:
    matcher = Matcher()
    matcher.add("before", "//x")
    message = "<a><b><c x='1'/></b></a>"
    matcher.match(message)
    matcher.add_many((i, f"/a/*/c[@x < {i}]") for i in range(3_000))
    assert list(matcher.match(message)) == list(range(2, 3_000))
    matcher.add_many((f"late {i}", "//c") for i in range(2_000))
    assert len(matcher.match(message)) == 2_998 + 2_000


LATE = [
    # (queries there when a message was matched, query added then): each finds what the other left behind
    (["/a//b"], "/a//d"),
    (["/a//b"], "/a//b/d"),
    (["//b"], "//d"),
    (["//b"], "//*"),
    (["/a/b"], "/a/*"),
    (["/a/*"], "/a/b"),
    (["/a"], "/a//*"),
    (["/a//b//c"], "/a//b//d"),
    (["/a//b//c"], "/a//c//d"),
    (["//b/d"], "//b//d"),
    (["/*/*"], "/*//d"),
    ([], "//d"),
    (["/x"], "//*/d"),
    (["//a[@x]"], "//d[@x]"),
    (["//d[@x]"], "//d[@y]"),
    (["//d[@x = 1]"], "//d[@x = 2]"),
    (["//d[@x < 1]"], "//d[@x < 3]"),
    (["//d"], "//d[@x]"),
    (["//d[. = 'u']"], "//d[. = 'v']"),
    (["//d[text() = 'u']"], "//d[contains(text(), 'v')]"),
    (["//d[@x and @z]"], "//d[@x and @y]"),
    (["//b[d]/e"], "//a[b]//d"),
    (["//p:d"], "//*[local-name() = 'd']"),
    (["//d/.."], "//d/../.."),
]


@pytest.mark.parametrize(("early", "late"), LATE, ids=str)
@pytest.mark.parametrize(
    "tuning", [Tuning(), Tuning(cache=0), Tuning(cache=200)], ids=["", "no cache", "small"]
)
def test_a_query_that_comes_late_finds_what_was_there_before(
    early: list[str], late: str, tuning: Tuning
) -> None:
    message = "<a><b><d x='2' y=''>v</d></b><c><d/></c></a>"
    tree = lxml_oracle.parse(message)
    matcher = Matcher(lxml_oracle.NAMESPACES, tuning=tuning)
    matcher.add_many(enumerate(early))
    wanted = [i for i, query in enumerate(early) if lxml_oracle.matches(tree, query)]
    assert list(matcher.match(message)) == wanted
    assert lxml_oracle.matches(tree, late)
    for _ in range(3):
        matcher.add("late", late)
        assert list(matcher.match(message)) == [*wanted, "late"]
        matcher.remove("late")
        assert list(matcher.match(message)) == wanted


def test_a_freed_state_that_is_used_again_does_not_answer_for_its_old_place() -> None:
    matcher = Matcher()
    matcher.add_many([(1, "/a//b"), (2, "/a//c")])
    message = "<a><b/></a>"
    assert list(matcher.match(message)) == [1]
    matcher.remove(1)
    matcher.add(3, "/z")
    assert list(matcher.match(message)) == []


# -- removal in any order --------------------------------------------------------------------------------

SIBLINGS = ["/a/b", "/a//b", "/a/b/c", "//b[@x = 1]", "//b[@x > 0 and c]", "count(//c) * 1 = 1"]


def test_a_removal_does_not_affect_siblings_in_any_order_of_insertion() -> None:
    """Six queries that share paths and values, added in all 720 orders; then one of them leaves."""
    message = "<a><b x='1'><c/></b></a>"
    for number, order in enumerate(itertools.permutations(range(len(SIBLINGS)))):
        with Matcher() as matcher:
            for id in order:
                matcher.add(id, SIBLINGS[id])
            leaving = number % len(SIBLINGS)
            matcher.remove(leaving)
            assert set(matcher.match(message)) == set(order) - {leaving}, (order, leaving)


def test_removal_in_any_order_leaves_an_empty_tree() -> None:
    message = "<a><b x='1'><c/></b></a>"
    with Matcher() as matcher:
        for order in itertools.permutations(range(len(SIBLINGS))):
            matcher.add_many(enumerate(SIBLINGS))
            assert len(matcher.match(message)) == len(SIBLINGS)
            for place, id in enumerate(order):
                matcher.remove(id)
                if place == 3:
                    assert set(matcher.match(message)) == set(order[4:]), order
            assert is_empty(matcher.index), order


# -- matches stay what they were -------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [["/a", "/a/b"], ["/a[@x]", "/a/b[. = 'v']"], ["/a/b/..", "/a"]], ids=str)
def test_matches_stay_what_they_were_when_the_population_changes(queries: list[str]) -> None:
    matcher = Matcher()
    matcher.add_many(enumerate(queries))
    message = "<a x='1'><b>v</b></a>"

    def fresh() -> list[object]:
        """Matches that are unread, counted, and listed."""
        unread, counted, listed = (matcher.match(message) for _ in range(3))
        assert len(counted) == 2
        assert list(listed) == [0, 1]
        return [unread, counted, listed]

    changes: list[Callable[[], None]] = [
        lambda: matcher.add("new", "/a"),
        lambda: matcher.replace(0, "//none"),
        lambda: matcher.replace(0, queries[0]),
        lambda: matcher.remove("new"),
        lambda: matcher.add_many((f"more {i}", f"//*[@x = {i}]") for i in range(1_500)),
    ]
    kept: list[object] = []
    for change in changes:
        if sorted(map(str, matcher.match(message))) == ["0", "1"]:
            kept += fresh()
        change()
        matcher.match("<other/>")
    matcher.remove(0)
    matcher.remove(1)
    assert len(kept) >= 6
    for matches in kept:
        assert list(matches) == [0, 1]  # type: ignore[call-overload]
        assert len(matches) == 2  # type: ignore[arg-type]
        assert 0 in matches  # type: ignore[operator]
        assert "new" not in matches  # type: ignore[operator]
        assert list(matches.numbers) == [0, 1]  # type: ignore[attr-defined]


def test_matches_can_be_asked_many_things() -> None:
    matcher = Matcher()
    matcher.add_many([("a", "/a"), ("b", "/a[@x]"), ("c", "/c"), ("d", "/a")])
    matches = matcher.match("<a x=''/>")
    assert bool(matches)
    assert len(matches) == 3
    assert "a" in matches
    assert "c" not in matches
    assert "unknown" not in matches
    assert matches.numbers.dtype == np.int64
    assert matches.numbers.tolist() == [matcher.number(id) for id in ("a", "b", "d")]
    assert list(matches) == list(matches) == ["a", "b", "d"]
    assert "3" in repr(matches)
    nothing = matcher.match("<none/>")
    assert not nothing
    assert len(nothing) == 0
    assert list(nothing) == []
    assert nothing.numbers.tolist() == []


def test_reading_matches_late_gives_what_reading_them_at_once_gives() -> None:
    """The cache may be dropped in between."""
    rng = random.Random(3)
    queries = [lxml_oracle.random_query(rng) for _ in range(40)]
    documents = [lxml_oracle.random_document(rng) for _ in range(30)]
    matcher = Matcher(lxml_oracle.NAMESPACES, tuning=Tuning(cache=500))
    matcher.add_many(enumerate(queries))
    at_once = [list(matcher.match(document)) for document in documents]
    later = list(matcher.match_many(documents))
    assert [list(matches) for matches in later] == at_once


# -- memory ----------------------------------------------------------------------------------------------

STANDING = ["/a/b", "//c", "//b[@x = 'one']", "/a[b and c]", "//b[@y > 5]", "//c[. = 'v']", "//c/.."]
MESSAGE = "<a><b x='one' y='7'/><b x='two'><c>v</c></b><c/></a>"
CHURNING: dict[str, Callable[[int], str]] = {
    "new names": lambda i: f"/a/n{i}",
    "new names below //": lambda i: f"//n{i}//m{i}",
    "new values": lambda i: f"//b[@x = 'v{i}']",
    "new inequalities": lambda i: f"//b[@x != 'v{i}']",
    "new numbers": lambda i: f"//b[@y = {i}]",
    "new ranges": lambda i: f"//b[@y > {i}.5]",
    "new prefixes": lambda i: f"//b[starts-with(@x, '{i}')]",
    "new substrings": lambda i: f"//b[contains(@x, '{i}abc')]",
    "new attributes": lambda i: f"//b[@n{i}]",
    "new conjunctions": lambda i: f"//b[@x = 'v{i}' and @y < {i}][n{i}]",
    "new negations": lambda i: f"/a/b[not(n{i})]",
    "new positions": lambda i: f"//b[{i + 1}]",
    "new texts": lambda i: f"/a[b = '{i}']/c",
    "new refinements": lambda i: f"count(//b) = {i + 3}",
    "old and new": lambda i: STANDING[i % len(STANDING)],
}


@pytest.mark.parametrize("every", [50, 10_000], ids=["with messages", "without messages"])
@pytest.mark.parametrize("query", CHURNING.values(), ids=CHURNING.keys())
def test_churn_leaves_nothing_behind(query: Callable[[int], str], every: int) -> None:
    """Subscriptions change for a long time without messages, so that no cache is read."""
    matcher = Matcher()
    matcher.add_many((f"standing {i}", text) for i, text in enumerate(STANDING))
    wanted = list(matcher.match(MESSAGE))
    kept = []
    for rounds in (range(60), range(60, 600)):
        for i in rounds:
            matcher.add(i, query(i))
            if i % every == 0:
                matcher.match(MESSAGE)
            matcher.remove(i)
        matcher.index.planner.templates.clear()
        kept.append(held_by(matcher))
    assert kept[1] - kept[0] < 5_000
    assert list(matcher.match(MESSAGE)) == wanted
    matcher.close()


def test_3000_rounds_of_churn_leave_tables_as_long_as_they_were() -> None:
    matcher = Matcher()
    matcher.add_many((f"standing {i}", text) for i, text in enumerate(STANDING))
    matcher.match(MESSAGE)
    index = matcher.index
    states, nodes, memory = trie_states(index), guide_nodes(index), held_by(matcher)
    for i in range(3_000):
        query = list(CHURNING.values())[i % len(CHURNING)](i)
        matcher.add(i, query)
        if i % 10 == 0:
            matcher.match(MESSAGE)
        matcher.remove(i)
    assert len(matcher) == len(index) == len(STANDING)
    assert trie_states(index) == states
    assert len(index._queries) <= len(STANDING) + 2
    matcher.match(MESSAGE)
    assert guide_nodes(index) <= 2 * nodes + 5
    index.planner.templates.clear()
    assert held_by(matcher) < 2 * memory
    matcher.close()


def test_one_long_query_costs_its_neighbours_nothing() -> None:
    matcher = Matcher()
    matcher.add_many((i, f"//a[@x = {i} and b]") for i in range(1_000))
    before = held_by(matcher)
    matcher.add("long", f"//c[{' and '.join(f'@x{i}' for i in range(400))}]")
    assert held_by(matcher) - before < 1_000_000


def test_removed_queries_are_really_freed() -> None:
    left = []
    for _ in range(2):  # the first fills caches of a bounded size
        gc.collect()
        before = len(INTERNED)
        matcher = Matcher()
        for kind in CHURNING.values():
            for i in range(20):
                matcher.add((kind, i), kind(i))
        matcher.match("<a><b x='one' y='7'/></a>")
        assert len(INTERNED) > before + 150
        for id in list(matcher):
            matcher.remove(id)
        matcher.index.planner.templates.clear()
        gc.collect()
        left.append(len(INTERNED))
        assert is_empty(matcher.index)
        matcher.close()
    assert left[1] <= left[0]


def test_an_unreferenced_matcher_is_freed_with_its_queries() -> None:
    gc.collect()
    before = len(INTERNED)
    matcher = Matcher()
    matcher.add_many((i, f"//gone{i}[@x = {i}]/..") for i in range(50))
    matches = matcher.match("<a/>")
    del matcher, matches
    gc.collect()
    assert len(INTERNED) <= before


def test_messages_are_not_kept() -> None:
    """Compiled queries, matches and caches must not pin the messages they have seen."""
    matcher = Matcher()
    matcher.add_many(enumerate(["//a[@x]", "//a[. = 'v']", "//b/..", "//a[b][c]"]))
    kept = []
    for i in range(10):
        kept.append(matcher.match(f"<a x='{'x' * 50_000}{i}'>{'v' * 100_000}<b/><c/></a>"))
    assert held_by((matcher, kept)) < 100_000
    matcher.close()


# -- the budget of the cache -----------------------------------------------------------------------------


def random_tree(rng: random.Random, depth: int, names: str = "abcdefgh") -> str:
    """Deep and recursive, ever new paths: like the parses of a treebank."""
    name = rng.choice(names)
    if depth == 0:
        return f"<{name} x='{rng.randrange(1_000_000)}'>{rng.randrange(1_000_000)}</{name}>"
    return f"<{name}>{''.join(random_tree(rng, depth - 1, names) for _ in range(rng.randint(1, 2)))}</{name}>"


DEEP_QUERIES = [
    "//a//b//c",
    "//a[b]//c",
    "//d/*/e",
    "/*/*/*//f[@x > 500000]",
    "//g[not(h)]",
    "//h[. < 300000]",
    "//a/b",
]


@pytest.mark.parametrize("budget", [0, 1, 100, 1_000, 20_000])
def test_deep_recursive_data_stays_within_the_budget_and_is_matched_right(budget: int) -> None:
    rng = random.Random(budget)
    matcher = Matcher(tuning=Tuning(cache=budget))
    matcher.add_many(enumerate(DEEP_QUERIES))
    for _ in range(40):
        message = random_tree(rng, 10)
        tree = lxml_oracle.parse(message)
        found = list(matcher.match(message))
        assert found == [i for i, q in enumerate(DEEP_QUERIES) if lxml_oracle.matches(tree, q)], message
        assert guide_nodes(matcher.index) * 8 <= budget + 8  # the cells of the smallest guide node
    matcher.close()


def test_the_budget_is_one_of_memory() -> None:
    """A cell is some twenty bytes: what is kept is no more than that."""
    rng = random.Random(5)
    budget = 50_000
    matcher = Matcher(tuning=Tuning(cache=budget))
    matcher.add_many(enumerate(DEEP_QUERIES))
    before = held_by(matcher)
    for number in range(25):
        len(matcher.match(random_tree(rng, 11, "abcdefghijklmnop")))
        if number % 4 == 0:  # to walk all objects takes longer than to match
            assert held_by(matcher) - before < 20 * budget


@pytest.mark.parametrize(
    "message",
    [
        lambda i: f"<a><n{i}/></a>",
        lambda i: f"<a><b n{i}='v'/></a>",
        lambda i: f"<a><b x='v{i}'/></a>",
        lambda i: f"<a><c>{i}</c></a>",
        lambda i: f"<a xmlns:p='urn:{i}'><p:b/></a>",
        lambda i: f"<a><b><n{i}><b><c>v{i}</c></b></n{i}></b></a>",
    ],
    ids=["elements", "attributes", "values", "texts", "namespaces", "paths"],
)
def test_names_and_values_that_no_query_uses_do_not_accumulate(message: Callable[[int], str]) -> None:
    budget = 1_500
    matcher = Matcher(tuning=Tuning(cache=budget))
    matcher.add_many((f"standing {i}", text) for i, text in enumerate(STANDING))
    before = held_by(matcher)
    for i in range(800):
        len(matcher.match(message(i)))
        if i % 97 == 0:
            assert held_by(matcher) - before < 20 * budget
    matcher.close()


def test_long_names_and_values_are_not_kept() -> None:
    """They would cost more than the budget says."""
    matcher = Matcher()
    matcher.add_many((f"standing {i}", text) for i, text in enumerate(STANDING))
    before = held_by(matcher)
    for i in range(50):
        long = f"{'n' * 900}{i}"
        matcher.match(f"<a><{long}/><b {long}='' x='{long}'>{long}</b><c>{long}</c></a>")
    assert held_by(matcher) - before < 300_000
    matcher.close()
