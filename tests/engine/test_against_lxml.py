"""Random documents and queries: `match` and `select` answer as lxml does, with every optimisation on or off.

Each run counts its answers and how many of them were positive, so that nobody has to believe it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sapwood import Matcher, Node, Tuning
from tests.support.automata import is_empty
from tests.support.oracles import lxml_oracle
from tests.support.query_classes import eager_classes
from tests.support.requirements import FULL

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

FEWEST_ANSWERS = 20_000
FEWEST_IN_ALL = FEWEST_ANSWERS if FULL else FEWEST_ANSWERS // 2  # in all of XPath, where tuning matters less
QUERIES, DOCUMENTS = 12, 20  # in one example; the queries share a Matcher

TUNINGS = {
    "everything on": Tuning(),
    "no cache": Tuning(cache=0),
    "no query classes": Tuning(query_classes=False),
    "no value index": Tuning(index_values=False),
    "no joins": Tuning(join_bundles=False),
    "no prefilter": Tuning(prefilter=False),
}
SEEDS = st.integers(0, 2**32)


class Tally:
    """How many answers were compared, and how many of them were positive."""

    def __init__(self) -> None:
        self.answers = 0
        self.positive = 0
        self.selected = 0


@pytest.mark.parametrize("native", [True, False], ids=["the native language", "all of XPath"])
def test_match_and_select_answer_as_lxml_does(native: bool) -> None:
    tallies = {name: Tally() for name in TUNINGS}
    fewest = FEWEST_ANSWERS if native else FEWEST_IN_ALL

    @settings(
        max_examples=fewest // (QUERIES * DOCUMENTS) + 1,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(SEEDS)
    def compare(seed: int) -> None:
        rng = random.Random(seed)
        queries = [lxml_oracle.random_query(rng, native) for _ in range(QUERIES)]
        documents = [lxml_oracle.random_document(rng) for _ in range(DOCUMENTS)]
        trees = [lxml_oracle.parse(document) for document in documents]
        wanted = [[answer_of(tree, query) for query in queries] for tree in trees]
        for name, tuning in TUNINGS.items():
            with Matcher(lxml_oracle.NAMESPACES, tuning=tuning) as matcher:
                matcher.add_many(enumerate(queries))
                for document, answers in zip(documents, wanted, strict=True):
                    compare_answers(matcher, name, document, queries, answers, tallies[name])

    compare()
    for tally in tallies.values():
        assert tally.answers >= fewest
        assert tally.positive >= tally.answers * 0.05
        assert tally.selected >= tally.positive * 0.5


@pytest.mark.parametrize("native", [True, False], ids=["the native language", "all of XPath"])
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False))
def test_one_query_and_document(native: bool, rng: random.Random) -> None:
    """Few comparisons, but every choice is hypothesis's: what fails here shrinks."""
    query, document = lxml_oracle.random_query(rng, native), lxml_oracle.random_document(rng, budget=10)
    with Matcher(lxml_oracle.NAMESPACES) as matcher:
        matcher.add(0, query)
        answer = answer_of(lxml_oracle.parse(document), query)
        compare_answers(matcher, "everything on", document, [query], [answer], Tally())


@pytest.mark.parametrize("native", [True, False], ids=["the native language", "all of XPath"])
def test_a_crowd_of_queries_in_one_matcher(native: bool) -> None:
    """Hundreds of queries that share paths, values and patterns, on larger documents."""
    tally = Tally()

    @settings(max_examples=10, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
    @given(SEEDS)
    def compare(seed: int) -> None:
        rng = random.Random(seed)
        queries = [lxml_oracle.random_query(rng, native) for _ in range(400)]
        with Matcher(lxml_oracle.NAMESPACES) as matcher:
            matcher.add_many(enumerate(queries))
            for _ in range(5):
                document = lxml_oracle.random_document(rng, depth=8, budget=80)
                tree = lxml_oracle.parse(document)
                answers = [answer_of(tree, query) for query in queries]
                compare_answers(matcher, "everything on", document, queries, answers, tally)

    compare()
    assert tally.answers >= FEWEST_ANSWERS
    assert tally.positive >= tally.answers * 0.05


@pytest.mark.parametrize("native", [True, False], ids=["the native language", "all of XPath"])
def test_messages_with_prologs_doctypes_and_encodings(native: bool) -> None:
    """DOCTYPEs supply attributes and entities, whoever decides a query."""
    tally = Tally()

    @settings(max_examples=25, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
    @given(SEEDS)
    def compare(seed: int) -> None:
        rng = random.Random(seed)
        queries = [lxml_oracle.random_query(rng, native) for _ in range(30)]
        queries += [
            "/comment()",
            "/processing-instruction('pi')",
            "//comment()[. = ' around ']/..",
            "//p:*/@*",
        ]
        with Matcher(lxml_oracle.NAMESPACES) as matcher:
            matcher.add_many(enumerate(queries))
            for _ in range(5):
                message = lxml_oracle.random_message(rng, lxml_oracle.random_document(rng, budget=20))
                tree = lxml_oracle.parse(message, defaults=True)
                answers = [answer_of(tree, query) for query in queries]
                compare_answers(matcher, "everything on", message, queries, answers, tally)

    compare()
    assert tally.answers >= 4_000
    assert tally.positive >= tally.answers * 0.05


Answer = list[lxml_oracle.Described] | None
"""the nodes that lxml selects; None: the document does not match"""


def answer_of(tree: Any, query: str) -> Answer:
    return lxml_oracle.selected(tree, query) if lxml_oracle.matches(tree, query) else None


def compare_answers(
    matcher: Matcher,
    tuning: str,
    document: str | bytes,
    queries: list[str],
    wanted: list[Answer],
    tally: Tally,
) -> None:
    matches = matcher.match(document)
    assert len(matches) == len(matches.numbers), f"{document!r}, {tuning}"
    matched = set(matches)
    selected = matcher.select(document)
    for id, (query, answer) in enumerate(zip(queries, wanted, strict=True)):
        about = f"\n  query    {query}\n  document {document!r}\n  tuning   {tuning}"
        assert (id in matched) == (answer is not None), f"lxml says {answer is not None}:{about}"
        assert (id in selected) == (answer is not None), f"select; lxml says {answer is not None}:{about}"
        if answer is not None:
            assert list(_described(selected[id])) == answer, f"other nodes, or another order:{about}"
            tally.positive += 1
            tally.selected += len(answer)
        tally.answers += 1


def _described(nodes: list[Node]) -> Iterator[lxml_oracle.Described]:
    """Nodes as the oracle tells them, which leaves out the document node and what scalars are."""
    for node in nodes:
        if node.kind != "document":
            is_scalar = node.kind in ("boolean", "number", "string")
            yield node.index, node.kind, "" if is_scalar else node.value


# -- subscriptions that come and go ----------------------------------------------------------------------


class LiveChanges(RuleBasedStateMachine):
    """Edits and messages in any order, against a model that asks lxml one query at a time.

    Queries and documents come from small pools, so that edits meet states and values that earlier messages
    have left in the caches.
    """

    tuning = Tuning()

    def __init__(self) -> None:
        super().__init__()
        self.cleanup = ExitStack()
        self.cleanup.enter_context(eager_classes())
        self.matcher = Matcher(lxml_oracle.NAMESPACES, tuning=self.tuning)
        self.model: dict[int, str] = {}  # in the order added
        self.next_id = 0
        self.history: list[str] = []
        self.queries: list[str] = []
        self.documents: list[tuple[str, Any]] = []

    @initialize(seed=SEEDS)
    def pools(self, seed: int) -> None:
        rng = random.Random(seed)
        self.queries = [lxml_oracle.random_query(rng, native=rng.random() < 0.8) for _ in range(12)]
        self.queries += [
            rng.choice(["/", "//"]) + rng.choice("abc*") + rng.choice(["/", "//"]) + rng.choice("abc*")
            for _ in range(8)
        ]
        documents = [lxml_oracle.random_document(rng, budget=15) for _ in range(4)]
        self.documents = [(document, lxml_oracle.parse(document)) for document in documents]

    @rule(which=st.integers(0, 19))
    def add(self, which: int) -> None:
        self._did(f"add({self.next_id}, {self.queries[which]!r})")
        self.matcher.add(self.next_id, self.queries[which])
        self.model[self.next_id] = self.queries[which]
        self.next_id += 1

    @rule(which=st.lists(st.integers(0, 19), min_size=2, max_size=6))
    def add_many(self, which: list[int]) -> None:
        pairs = [(self.next_id + i, self.queries[w]) for i, w in enumerate(which)]
        self._did(f"add_many({pairs!r})")
        self.matcher.add_many(pairs)
        self.model.update(pairs)
        self.next_id += len(pairs)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.model)))
        self._did(f"remove({id})")
        self.matcher.remove(id)
        del self.model[id]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), which=st.integers(0, 19))
    def replace(self, data: st.DataObject, which: int) -> None:
        id = data.draw(st.sampled_from(sorted(self.model)))
        self._did(f"replace({id}, {self.queries[which]!r})")
        self.matcher.replace(id, self.queries[which])
        self.model[id] = self.queries[which]

    @rule(which=st.integers(0, 3))
    def match(self, which: int) -> None:
        document, tree = self.documents[which]
        self._did(f"match({document!r})")
        wanted = [id for id, query in self.model.items() if lxml_oracle.matches(tree, query)]
        matches = self.matcher.match(document)
        assert len(matches) == len(wanted), self._story()
        assert list(matches) == wanted, self._story()

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.matcher) == len(self.model)

    def teardown(self) -> None:
        for id in list(self.model):
            self.matcher.remove(id)
        assert is_empty(self.matcher.index), self._story()
        self.matcher.close()
        self.cleanup.close()

    def _did(self, what: str) -> None:
        self.history.append(what)

    def _story(self) -> str:
        return "\n".join(["after", *self.history])


class LiveChangesInASmallCache(LiveChanges):
    """The cache is full all the time: what is thrown away must not be missed."""

    tuning = Tuning(cache=300)


class LiveChangesWithoutCache(LiveChanges):
    tuning = Tuning(cache=0)


class LiveChangesWithoutClasses(LiveChanges):
    tuning = Tuning(query_classes=False)


EDITS = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

TestLiveChanges = LiveChanges.TestCase
TestLiveChanges.settings = EDITS
TestLiveChangesInASmallCache = LiveChangesInASmallCache.TestCase
TestLiveChangesInASmallCache.settings = EDITS
TestLiveChangesWithoutCache = LiveChangesWithoutCache.TestCase
TestLiveChangesWithoutCache.settings = EDITS
TestLiveChangesWithoutClasses = LiveChangesWithoutClasses.TestCase
TestLiveChangesWithoutClasses.settings = EDITS


@pytest.mark.parametrize(
    "query",
    [
        *("/a/text()[self::*]", "/a/@x[self::*]", "/a/text()[not(self::*)]", "/a/@x[not(self::*)]"),
        *("(//b | //b/@x)[self::*]", "(//z | //b/@x)[self::*]", "//b[self::*]", "//@x[not(self::x)]"),
        *("/a[local-name() = '*']", "/a[name() = '*']", "/a[namespace-uri() = '*']"),
    ],
)
def test_a_star_stands_for_elements_and_names_are_taken_literally(query: str) -> None:
    document = '<a x="1">t<b x="2"/><c/></a>'
    with Matcher() as matcher:
        matcher.add("s", query)
        assert ("s" in matcher.match(document)) == bool(lxml_oracle.parse(document).xpath(query))
