"""Query classes count as lists do, whatever messages and edits come, and cost no more than they are worth."""

from __future__ import annotations

import gzip
import random
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sapwood import Broker, Matcher, Tuning
from sapwood.engine.automaton import query_classes
from sapwood.engine.automaton.dataguide import GuideNode
from sapwood.engine.automaton.query_classes import QueryClasses
from tests.support.automata import IN_PYTHON, python_automaton
from tests.support.memory import held_by
from tests.support.query_classes import eager_classes
from tests.support.shared_data import folder

NAMES = "abc"


def random_path(rng: random.Random) -> str:
    steps = [rng.choice(["/", "/", "//"]) + rng.choice([*NAMES, "*"]) for _ in range(rng.randint(1, 4))]
    return "".join(steps)


def random_query(rng: random.Random) -> str:
    """A path, a union of paths, or a path with a predicate: posted once, often, or under a test."""
    kind = rng.random()
    if kind < 0.7:
        return random_path(rng)
    if kind < 0.85:
        return " | ".join(random_path(rng) for _ in range(rng.randint(2, 3)))
    return random_path(rng) + rng.choice(
        ["[@x = 1]", "[@x]", "[b]", "[not(a)]", f" | {random_path(rng)}[@x]"]
    )


def random_message(rng: random.Random, depth: int = 4) -> str:
    name = rng.choice(NAMES)
    value = rng.choice(["", " x='1'", " x='2'"])
    inside = "".join(random_message(rng, depth - 1) for _ in range(rng.randint(0, 2))) if depth else ""
    return f"<{name}{value}>{inside}</{name}>"


def guide_nodes(root: GuideNode) -> set[GuideNode]:
    """All guide nodes; where nothing can match any more, one node is its own child."""
    found, new = {root}, [root]
    while new:
        children = set(new.pop().values()) - found
        found |= children
        new += children
    return found


def check_partition(matcher: Matcher) -> int:
    """Check that the classes of a node have exactly its slots; return how many nodes have classes."""
    found = python_automaton(matcher.index)
    classes = found.classes
    of_class: dict[int, set[int]] = {}
    for slot, number in enumerate(classes._class_of):
        if number:
            of_class.setdefault(number, set()).add(slot)
    classed = {node for node in guide_nodes(found.dataguide.root) if node.class_numbers}
    for node in classed:
        assert node.class_numbers is not None
        assert len(set(node.class_numbers)) == len(node.class_numbers)
        assert node.classes is None or node.classes.tolist() == node.class_numbers.tolist()
        slots = [slot for number in node.class_numbers for slot in of_class[number]]
        assert sorted(slots) == sorted(node.read_slots().tolist())
        for number in node.class_numbers:
            assert node in classes._nodes[number]
    for number, slots_of in of_class.items():
        assert len(slots_of) == classes._sizes[number]
        assert sum(classes.slot_weights[slot] for slot in slots_of) == classes._weights[number]
        assert all(number in (node.class_numbers or ()) for node in classes._nodes[number])
    assert len(of_class) == len(classes)
    assert sum(len(classes._nodes[number]) for number in of_class) == classes.entries
    return len(classed)


# -- the same answers ------------------------------------------------------------------------------------


class ClassesAndLists(RuleBasedStateMachine):
    """Edits and messages in any order, for a matcher with classes and one without."""

    cost = 0
    tuning = IN_PYTHON

    @initialize(seed=st.integers(0, 2**32))
    def pools(self, seed: int) -> None:
        self.cleanup = ExitStack()
        self.patch = self.cleanup.enter_context(eager_classes(self.cost))
        self.change_classes()
        self.rng = random.Random(seed)
        self.queries = [random_query(self.rng) for _ in range(30)]
        self.messages = [random_message(self.rng) for _ in range(6)]
        self.with_classes = Matcher(tuning=self.tuning)
        self.with_lists = Matcher(tuning=Tuning(kernel=False, query_classes=False))
        self.both = self.with_classes, self.with_lists
        self.ids: list[int] = []
        self.unread: list[tuple[object, int]] = []
        self.next_id = 0

    def change_classes(self) -> None:
        """Change constants of query classes, which are restored after the example."""

    @rule(which=st.lists(st.integers(0, 29), min_size=1, max_size=8))
    def add(self, which: list[int]) -> None:
        for query in which:
            for matcher in self.both:
                matcher.add(self.next_id, self.queries[query])
            self.ids.append(self.next_id)
            self.next_id += 1

    @precondition(lambda self: self.ids)
    @rule(which=st.integers(0, 1_000))
    def remove(self, which: int) -> None:
        id = self.ids.pop(which % len(self.ids))
        for matcher in self.both:
            matcher.remove(id)

    @precondition(lambda self: self.ids)
    @rule(which=st.integers(0, 1_000), query=st.integers(0, 29))
    def replace(self, which: int, query: int) -> None:
        for matcher in self.both:
            matcher.replace(self.ids[which % len(self.ids)], self.queries[query])

    @rule(which=st.lists(st.integers(0, 5), min_size=1, max_size=6))
    def match(self, which: list[int]) -> None:
        for message in (self.messages[number] for number in which):
            found, wanted = (matcher.match(message) for matcher in self.both)
            assert len(found) == len(wanted) == len(list(wanted))
            assert list(found) == list(wanted)
            assert len(found) == len(wanted)
        check_partition(self.with_classes)

    @rule(which=st.integers(0, 5))
    def match_and_read_later(self, which: int) -> None:
        found = self.with_classes.match(self.messages[which])
        self.unread.append((found, len(self.with_lists.match(self.messages[which]))))

    @rule()
    def read_what_is_unread(self) -> None:
        for found, wanted in self.unread:
            assert len(found) == wanted  # type: ignore[arg-type]
        self.unread.clear()

    @rule()
    def drop_guide_nodes(self) -> None:
        self.with_classes.index.clear_cache()

    def teardown(self) -> None:
        if not hasattr(self, "cleanup"):
            return
        self.read_what_is_unread()
        for id in self.ids:
            for matcher in self.both:
                matcher.remove(id)
        assert check_partition(self.with_classes) == 0
        for matcher in self.both:
            matcher.close()
        self.cleanup.close()


class ClassesAfterSomeReads(ClassesAndLists):
    """Messages have nodes with and without classes."""

    cost = 3

    def change_classes(self) -> None:
        self.patch.setattr(query_classes, "_AT_ONCE", 4)


class ClassesWithEqualHashes(ClassesAndLists):
    """All sets of nodes with an even number of nodes have one hash, the others another."""

    def change_classes(self) -> None:
        self.patch.setattr(query_classes, "_hash", lambda node: 1)


class FewEntries(ClassesAndLists):
    """Most nodes stay lists, and queries that come make too many entries."""

    def change_classes(self) -> None:
        self.patch.setattr(query_classes, "_MAX_SHARE", Tuning().cache // 36)


class ClassesInASmallCache(ClassesAndLists):
    """Guide nodes are dropped again and again, or made for one message only."""

    tuning = Tuning(kernel=False, cache=600)


EDITS = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

for machine in (
    ClassesAndLists,
    ClassesAfterSomeReads,
    ClassesWithEqualHashes,
    FewEntries,
    ClassesInASmallCache,
):
    case = machine.TestCase
    case.settings = EDITS
    globals()[f"Test{machine.__name__}"] = pytest.mark.slow(case)
del case


# -- what classes are ------------------------------------------------------------------------------------


def classes_of(matcher: Matcher) -> QueryClasses:
    return python_automaton(matcher.index).classes


def test_queries_that_no_message_tells_apart_are_one_class() -> None:
    with eager_classes():
        matcher = Matcher(tuning=IN_PYTHON)
        matcher.add_many(
            [*((("a", i), "/a") for i in range(3)), ("any", "/*"), ("deep", "//a"), ("b", "/a/b")]
        )
        assert len(matcher.match("<a/>")) == 5
        assert len(classes_of(matcher)) == 1
        assert len(matcher.match("<a><b/></a>")) == 6
        assert len(classes_of(matcher)) == 2
        assert len(matcher.match("<a><a/></a>")) == 5  # which `//a` is found at once more
        assert len(classes_of(matcher)) == 3
        assert len(matcher.match("<a/>")) == 5


def test_a_query_that_comes_joins_the_class_of_its_nodes_and_leaves_it() -> None:
    with eager_classes():
        matcher = Matcher(tuning=IN_PYTHON)
        matcher.add_many([("a", "/a"), ("b", "/a/b"), ("c", "//c")])
        for _ in range(3):
            assert len(matcher.match("<a><b/><c/></a>")) == 3
        classes = classes_of(matcher)
        before = len(classes), classes.entries
        matcher.add("any", "/a/*")  # at b and c, as none before
        assert (len(classes), classes.entries) == (before[0] + 1, before[1] + 2)
        matcher.add("same", "*/*")  # another query, at the same nodes
        matcher.add("again", "//b")  # at the nodes of /a/b
        assert (len(classes), classes.entries) == (before[0] + 1, before[1] + 2)
        assert len(matcher.match("<a><b/></a>")) == 5
        assert len(matcher.match("<a><c/></a>")) == 4
        for id in ("any", "again", "same"):
            matcher.remove(id)
        assert (len(classes), classes.entries) == before
        assert check_partition(matcher) == 3


def test_subscriptions_to_one_query_are_counted_each() -> None:
    with eager_classes():
        matcher = Matcher(tuning=IN_PYTHON)
        matcher.add_many([("one", "/a"), ("other", "/a/b")])
        assert len(matcher.match("<a><b/></a>")) == 2
        for i in range(5):
            matcher.add(i, "/a")
            assert len(matcher.match("<a><b/></a>")) == 3 + i
        for i in range(5):
            matcher.remove(i)
            assert len(matcher.match("<a><b/></a>")) == 6 - i


def test_the_filters_of_a_broker_are_counted_without_its_transformations() -> None:
    with eager_classes():
        broker = Broker(tuning=IN_PYTHON)
        broker.subscribe("f", "/a/b")
        broker.subscribe("t", "for $x in /a/b return <r>{$x}</r>")
        for _ in range(3):
            assert [delivery.subscription for delivery in broker.publish("<a><b/></a>")] == ["f", "t"]
            assert len(broker.answer_alone("<a><b/></a>").matches) == 1


def test_a_packed_matcher_counts_alike() -> None:
    with eager_classes():
        matcher = Matcher(tuning=IN_PYTHON)
        matcher.add_many((i, f"//b{i % 7}") for i in range(50))
        message = "<a><b1/><b2/></a>"
        wanted = [len(matcher.match(message)) for _ in range(3)]
        unpacked = Matcher.unpack(matcher.pack())  # with its tuning
        assert not len(classes_of(unpacked))
        assert [len(unpacked.match(message)) for _ in range(3)] == wanted
        assert len(classes_of(unpacked)) == len(classes_of(matcher)) > 0


# -- bounds ----------------------------------------------------------------------------------------------


def test_a_few_queries_have_no_classes() -> None:
    matcher = Matcher(tuning=IN_PYTHON)
    matcher.add_many((i, f"//b{i}") for i in range(100))
    for _ in range(50):
        assert len(matcher.match("<a><b1/><b2/></a>")) == 2
    assert not len(classes_of(matcher))


def test_new_paths_are_not_classed() -> None:
    with eager_classes(cost=query_classes.CLASSING_COST):
        matcher = Matcher(tuning=IN_PYTHON)
        matcher.add_many((i, f"//n{i}/*//m") for i in range(300))
        rng = random.Random(1)
        for _ in range(100):
            names = [f"n{rng.randrange(300)}" for _ in range(6)]
            message = "".join(f"<{name}>" for name in names) + "<m/>"
            message += "".join(f"</{name}>" for name in reversed(names))
            len(matcher.match(message))
        assert not classes_of(matcher).entries
        assert len(python_automaton(matcher.index).dataguide) > 400


def test_a_node_whose_slots_are_all_told_apart_stays_a_list() -> None:
    with eager_classes():
        matcher = Matcher(tuning=IN_PYTHON)
        matcher.add_many((i, f"/a/n{i} | /b") for i in range(100))
        every = "<a>" + "".join(f"<n{i}/>" for i in range(100)) + "</a>"
        for _ in range(3):
            assert len(matcher.match(every)) == 100
            assert len(matcher.match("<b/>")) == 100
        assert classes_of(matcher).entries == 100  # of the /a/n…, not of /b


@pytest.mark.parametrize("budget", [0, 100, 1_000, 20_000])
def test_entries_are_bounded_by_the_cache(budget: int) -> None:
    rng = random.Random(budget)
    queries = [random_query(rng) for _ in range(400)]
    with eager_classes():
        matcher = Matcher(tuning=Tuning(kernel=False, cache=budget))
        twin = Matcher(tuning=Tuning(kernel=False, query_classes=False))
        for each in (matcher, twin):
            each.add_many(enumerate(queries))
        for i in range(60):
            message = random_message(rng, 6)
            assert len(matcher.match(message)) == len(twin.match(message))
            assert classes_of(matcher).cells <= 2 * budget // query_classes._MAX_SHARE
            for each in (matcher, twin):
                each.replace(i, queries[-i])
        matcher.close()
        twin.close()


@pytest.mark.slow
def test_classes_take_their_share_of_memory_only() -> None:
    rng = random.Random(8)
    budget = 40_000
    with eager_classes():
        matcher = Matcher(tuning=Tuning(kernel=False, cache=budget))
        matcher.add_many((i, random_path(rng)) for i in range(300))
        before = held_by(matcher)
        for number in range(60):
            len(matcher.match(random_message(rng, 8)))
            if number % 5 == 4:  # to walk all objects takes longer than to match
                assert held_by(matcher) - before < 20 * budget
        assert classes_of(matcher).entries > 100


# -- real data -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_counts_on_news_messages() -> None:
    nitf = folder("nitf")
    with gzip.open(nitf / "queries-153928-distinct.txt.gz", "rt") as lines:
        queries = [line.rstrip("\n") for line in lines][:20_000]
    messages = [path.read_bytes() for path in sorted((nitf / "docs").glob("*.xml"))[:60]]
    matcher = Matcher(tuning=IN_PYTHON)
    matcher.add_many(enumerate(queries))
    with eager_classes(cost=2):
        for _ in range(6):
            for message in messages:
                matches = matcher.match(message)
                assert len(matches) == len(matcher.match(message).numbers)
    assert 100 < len(classes_of(matcher)) < len(queries) / 5
    nodes = guide_nodes(python_automaton(matcher.index).dataguide.root)
    assert check_partition(matcher) == sum(1 for node in nodes if len(node.read_slots()))
