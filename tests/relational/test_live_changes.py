"""Subscriptions, plans and files change while others match: no other subscription is affected."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sapwood import Matcher
from sapwood.engine.fallback import process_pool
from sapwood.relational import Plan, RelationalMatcher
from sapwood.relational.paths import tag_paths
from sapwood.relational.rules import rule_compiler
from tests.engine.test_live_changes import LATE, SIBLINGS
from tests.relational.test_rule_form import QUERIES
from tests.support.oracles import lxml_oracle
from tests.support.oracles.relational_agreement import Answer, about, answers, automaton
from tests.support.oracles.table_structures import assert_consistent, assert_empty

pytestmark = pytest.mark.slow

# -- in any order ----------------------------------------------------------------------------------------


class Edits(RuleBasedStateMachine):
    """Edits, batches, garbage collections and restarts, against a new automaton each time.

    Queries come from a small pool, so that several ids have the same, and what one leaves another takes up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.matcher = self._opened(None)
        self.model: dict[str, str] = {}  # in the order added
        self.next_id = 0
        self.queries: list[str] = []
        self.documents: list[str] = []
        self.history: list[str] = []

    def _opened(self, plan: Plan | None) -> RelationalMatcher:
        return RelationalMatcher(self.folder / "tables", lxml_oracle.NAMESPACES, plan=plan, threads=1)

    @initialize(seed=st.integers(0, 2**32))
    def pools(self, seed: int) -> None:
        rng = random.Random(seed)
        self.queries = [kind(rng) for kind in QUERIES.values() for _ in range(8)]
        self.queries += [f"//a[@x = {i} and @y > {i}]/b" for i in range(3)]
        self.queries += [f"//b[@x > {i}][. != 'x']" for i in range(3)]
        self.documents = [lxml_oracle.random_document(rng, budget=25) for _ in range(8)]

    def _fresh(self, which: list[int]) -> list[tuple[str, str]]:
        pairs = [(f"s{self.next_id + i}", self.queries[w]) for i, w in enumerate(which)]
        self.next_id += len(pairs)
        return pairs

    @rule(which=st.lists(st.integers(0, 29), min_size=1, max_size=30), chunk=st.sampled_from([4, 100]))
    def add(self, which: list[int], chunk: int) -> None:
        pairs = self._fresh(which)
        self.history.append(f"add_many({pairs!r}, chunk={chunk})")
        self.matcher.add_many(pairs, chunk=chunk)
        self.model.update(pairs)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.model)), min_size=1, max_size=12, unique=True))
        self.history.append(f"remove(*{ids!r})")
        self.matcher.remove(*ids)
        for id in ids:
            del self.model[id]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), which=st.integers(0, 29))
    def replace(self, data: st.DataObject, which: int) -> None:
        id = data.draw(st.sampled_from(sorted(self.model)))
        self.history.append(f"replace({id!r}, {self.queries[which]!r})")
        self.matcher.replace(id, self.queries[which])
        self.model[id] = self.queries[which]

    @rule()
    def match(self) -> None:
        self.history.append(f"match_many({self.documents!r})")
        expected = automaton(self.model.items(), self.documents, lxml_oracle.NAMESPACES)
        found = answers(self.matcher, self.documents)
        for document, one, other in zip(self.documents, found, expected, strict=True):
            assert one == other, "\n".join([*self.history, about(self.matcher.plan, document, one, other)])

    @rule(plan=st.sampled_from([None, *Plan]))
    def collect_garbage(self, plan: Plan | None) -> None:
        self.history.append(f"collect_garbage({plan!r})")
        self.matcher.collect_garbage(plan)

    @rule(plan=st.sampled_from([None, None, *Plan]))
    def reopen(self, plan: Plan | None) -> None:
        self.history.append(f"reopen({plan!r})")
        self.matcher.close()
        self.matcher = self._opened(plan)

    def teardown(self) -> None:
        try:
            self.match()
            assert len(self.matcher) == len(self.model)
            assert_consistent(self.matcher)
            self.matcher.remove(*self.model)
            assert_consistent(self.matcher)
            self.matcher.collect_garbage()
            assert_empty(self.matcher)
        finally:
            self.matcher.close()
            shutil.rmtree(self.folder)


TestEdits = Edits.TestCase
TestEdits.settings = settings(
    max_examples=3,
    stateful_step_count=10,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


# -- neighbours ------------------------------------------------------------------------------------------

MESSAGE = "<a><b x='1'><c/></b></a>"
NEIGHBOURS = [
    *SIBLINGS,
    *("/a[b/@x = 1]", "/a[b/@x = 1 and b/c]", "/a[b/@x = 1 and b/@x > 0]", "/a[b/@x = 1 and b/@x > 0.5]"),
    *("/a[b/@x = 1 and b/@x > 0 and b/@x < 2]", "/a[b/@x > 0 and b/@x < 2]", "//b[@x = 1][c]", "//b[@x > 0]"),
    "/a[b/@x = 1 and b/@x > 0 and b/@x < 2 and b/@x < 3 and b/@x < 4 and b/@x < 5 and b/c and a or b]",
]


@pytest.mark.parametrize("plan", Plan)
def test_removing_a_subscription_leaves_the_others(plan: Plan) -> None:
    """Queries with equal prefixes, and those whose whole chain is another's prefix."""
    rng = random.Random(plan)
    order = list(NEIGHBOURS)
    rng.shuffle(order)
    with RelationalMatcher(plan=plan, threads=1) as matcher:
        matcher.add_many(((query, query) for query in order), chunk=8)
        assert list(matcher.match(MESSAGE)) == order
        for count in (1, 3, 6):
            leaving = rng.sample(order, count)
            matcher.remove(*leaving)
            order = [query for query in order if query not in leaving]
            assert list(matcher.match(MESSAGE)) == order
            assert_consistent(matcher)


def test_removing_one_of_many_with_the_same_query() -> None:
    with RelationalMatcher() as matcher:
        matcher.add_many((str(id), "//a[@x = '1' and b]") for id in range(40))
        assert matcher.connection.value("SELECT count(*) FROM rule") <= 2
        matcher.remove(*(str(id) for id in range(0, 40, 2)))
        message = "<r><a x='1'><b/></a></r>"
        assert list(matcher.match(message)) == [str(id) for id in range(1, 40, 2)]
        for id in range(1, 40, 12):
            matcher.replace(str(id), "//none")
        assert list(matcher.match(message)) == [str(id) for id in range(1, 40, 2) if id % 12 != 1]


def test_positions_of_branching_points_are_stored_once() -> None:
    message = "<a><b><c>1</c><d>2</d></b></a>"
    with RelationalMatcher(threads=1) as matcher:
        matcher.add("s", "/a[.//b[c = 1][d = 2]]")
        list(matcher.match_many([message] * 3, batch=1))
        asked = matcher.connection.rows(_PLACED)
        for _ in range(2):  # batches that began at the same time
            assert len(matcher.locate_branching_nodes(asked)) == 2
        assert matcher.connection.rows(_PLACED) == asked
        assert len(asked) == 2


_PLACED = """
    SELECT k.tag, k.branching, t.text, p.text, b.points
    FROM tag_branching k JOIN tag_path t ON t.id = k.tag JOIN path_branching b ON b.id = k.branching
         JOIN linear_path p ON p.id = b.path
    ORDER BY ALL"""


def test_equal_queries_are_stored_once() -> None:
    with RelationalMatcher(threads=1) as matcher:
        for i in range(4):
            matcher.add(f"a{i}", "//a[@x = 1][b > 2]")
        matcher.add("spaced", "//a[ @x = 1 ][ b > 2.0 ]")
        assert matcher.connection.value("SELECT count(*) FROM query") == 1


def test_the_cache_of_templates_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_compiler, "_MAX_CACHED_BRANCHES", 6)
    with RelationalMatcher(threads=1) as matcher:
        for i in range(40):
            matcher.add(f"s{i}", f"/a{i % 7}[b = {i}][c > {i}]")
            assert len(matcher.catalog._compiler._templates) <= 6
        assert [id for i in range(7) for id in matcher.match(f"<a{i}><b>{i + 7}</b><c>99</c></a{i}>")] == [
            f"s{i + 7}" for i in range(7)
        ]


def test_new_queries_match_earlier_tag_paths() -> None:
    """Each needs more of the tag paths of earlier messages than the queries before it."""
    message = "<a><b><d x='2' y=''>v</d></b><c><d/></c></a>"
    early = list(dict.fromkeys(query for queries, _ in LATE for query in queries))
    with RelationalMatcher(namespaces=lxml_oracle.NAMESPACES, threads=1) as matcher:
        matcher.add_many((query, query) for query in early)
        here = [query for query in early if lxml_oracle.matches(lxml_oracle.parse(message), query)]
        late = [query for _, query in LATE if query not in early]
        for start in range(0, len(late), 6):
            assert list(matcher.match(message)) == here
            some = late[start : start + 6]
            matcher.add_many((query, query) for query in some)
            here += some
        assert list(matcher.match(message)) == here
        assert_consistent(matcher)


@pytest.mark.parametrize("plan", [Plan.SHARED, Plan.UNROLLED])
def test_a_removed_long_query_costs_no_statements(plan: Plan) -> None:
    """Each level of its chain was a statement of every batch."""
    with RelationalMatcher(plan=plan, threads=1) as matcher:
        matcher.add("short", "/a[@x0 = 0]")
        matcher.add("long", f"/a[{' and '.join(f'@x{i} = {i}' for i in range(12))}]")
        matcher.remove("long")
        matcher.collect_garbage(plan)
        size = matcher.catalog.plan_parameters(matcher.connection).size
        assert (size.fact_levels, size.fact_slots) in [(1, 0), (0, 1)]
        assert list(matcher.match("<a x0='0'/>")) == ["short"]


# -- order, ids ------------------------------------------------------------------------------------------


def test_paths_of_any_length_in_messages_of_any_depth() -> None:
    depth = 120
    queries = [
        ("whole", "/a" * depth),
        ("too long", "/a" * (depth + 1)),
        ("ends", "/a" * 40 + "//b" + "/a" * 40 + "/@x"),
        ("any", "/*" * 90 + "/a/b/a"),
        ("deep", "//a" * 50 + "//b//@x"),
    ]
    message = "<a>" * 60 + "<b>" + "<a>" * 38 + "<a/><a><a x='1'/></a>" + "</a>" * 38 + "</b>" + "</a>" * 60
    deep = "<a>" * depth + "</a>" * depth
    with RelationalMatcher(threads=1) as matcher:
        matcher.add_many(queries[::2])
        answers = [list(matcher.match(message)), list(matcher.match(deep))]
        assert answers == [["ends", "deep"], ["whole"]]
        matcher.add_many(queries[1::2])
        expected = Matcher()
        expected.add_many(queries)
        for text in (message, deep, deep.replace("<a>", "<a x='2'>", 1)):
            assert set(matcher.match(text)) == set(expected.match(text))


def test_ids_come_in_the_order_added(tmp_path: Path) -> None:
    ids = [str(id) for id in range(60)]
    random.Random(7).shuffle(ids)
    with RelationalMatcher(tmp_path / "tables") as matcher:
        matcher.add_many(((id, f"//*[@x or not(y{id[-1]})]") for id in ids), chunk=17)
        matches = matcher.match("<a/>")
        assert list(matches) == ids
        assert list(matches.numbers) == sorted(matches.numbers)
        assert len(matches) == 60
        assert "7" in matches
        assert "none" not in matches
        matcher.replace(ids[3], "/b")
        matcher.replace(ids[5], "/a")
        matcher.replace(ids[3], "/a")
        matcher.remove(ids[10])
        matcher.add(ids[10], "/a")
    with RelationalMatcher(tmp_path / "tables") as matcher:
        assert list(matcher.match("<a/>")) == [*ids[:10], *ids[11:], ids[10]]
        matcher.add("new", "/a")
        assert list(matcher.match("<a/>")) == [*ids[:10], *ids[11:], ids[10], "new"]


def test_length_membership_and_queries(tmp_path: Path) -> None:
    with RelationalMatcher(tmp_path / "tables", {"p": "urn:p"}) as matcher:
        assert len(matcher) == 0
        assert matcher.plan is None
        matcher.add_many([("s", "/a"), ("t", "//p:b[@x = 1]"), ("u", "/a/b/..")])
    with RelationalMatcher(tmp_path / "tables") as matcher:
        assert len(matcher) == 3
        assert "s" in matcher
        assert "x" not in matcher
        assert [matcher.query(id) for id in "stu"] == ["/a", "//p:b[@x = 1]", "/a/b/.."]
        assert matcher.namespaces == {"p": "urn:p"}
        assert matcher.plan in set(Plan)
        matcher.add("v", "/p:c")
        assert list(matcher.match("<c xmlns='urn:p'/>")) == ["v"]
        with pytest.raises(ValueError, match="bound to 'urn:p' already"):
            matcher.declare({"p": "urn:q"})


# -- many names ------------------------------------------------------------------------------------------


def test_data_with_ever_new_names_clears_the_cache_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tag paths that are evicted within a batch, or between two, are resolved again."""
    monkeypatch.setattr(tag_paths, "MAX_TAG_PATHS", 40)
    queries = ["/a/b", "//x", "//b[@x > 1]", "/a[b][@y = 1]", "//*[@x][not(z)]", "/*/@y"]
    pairs = [(query, query) for query in queries]
    old = ["<a><b/></a>", "<a y='1'><b x='2'/></a>", "<a><b x='1'/></a>"]
    strangers = [f"<n{i}><x/><m{i} x='{i}'/></n{i}>" for i in range(150)]
    messages = [*old, *strangers[:20], *old, *strangers, *old]
    expected = automaton(pairs, messages)
    with RelationalMatcher() as matcher:
        matcher.add_many(pairs)
        for batch in (1_000, 30):
            assert answers(matcher, messages, batch) == expected
        assert answers(matcher, old) == expected[:3]
        assert_consistent(matcher)


# -- threads ---------------------------------------------------------------------------------------------


def test_a_batch_sees_the_subscriptions_of_its_beginning(tmp_path: Path) -> None:
    """However late its matches are fetched."""
    with RelationalMatcher(tmp_path / "tables") as matcher:
        matcher.add_many([("a", "/a"), ("b", "/a[@x = 1]"), ("c", "/a/b/..")])
        message = "<a x='1'><b/></a>"
        changes: list[Callable[[], object]] = [
            lambda: matcher.add("d", "/a"),
            lambda: matcher.remove("b"),
            lambda: matcher.collect_garbage(Plan.SHARED),
            lambda: matcher.replace("a", "/none[@y > 5]"),
            lambda: matcher.collect_garbage(Plan.UNROLLED),
        ]
        before = ["a", "b", "c"]
        for change in changes:
            running = matcher.match_many([message] * 3)
            assert list(next(running)) == before
            change()
            assert [list(matches) for matches in running] == [before, before]
            before = list(matcher.match(message))
        assert before == ["c", "d"]


def test_one_thread_changes_what_others_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is that of one state, between the beginning and the end of its batch.

    Each state has a marker of its own besides queries that come and go with it; all are asked at once.
    """
    monkeypatch.setattr(process_pool, "MESSAGES_PER_PROCESS", 5)  # lxml's process is replaced all the time
    rounds = 6
    message = "<a x='1'><b><c>5</c></b></a>"
    kinds = [
        "/a[@x = 1]",
        "//b[c = 5]",
        "//b[c > 4][.//c]",
        "/a[not(z{0})]",
        "//c[. = 5]/..",
        "/a[b/c < {0}9]",
    ]
    matcher = RelationalMatcher(tmp_path / "tables", threads=2)
    done = [0]  # the state that is there at least
    begun = [0]  # the state that may be there
    failures: list[str] = []

    def state(number: int) -> list[str]:
        return [f"{number} {kind}" for kind in range(len(kinds))]

    def change() -> None:
        try:
            for number in range(1, rounds):
                begun[0] = number
                put = [(f"{number} {i}", kind.format(number)) for i, kind in enumerate(kinds)]
                matcher.catalog.apply_changes(removed=state(number - 1), put=put)
                if number % 3 == 0:
                    matcher.collect_garbage(list(Plan)[number % 2])
                done[0] = number
        except BaseException as error:
            failures.append(f"changing: {error!r}")

    def ask() -> None:
        try:
            last = 0
            while last < rounds - 1 and not failures:
                earliest = done[0]
                found: list[Answer] = answers(matcher, [message] * 3)
                latest = begun[0]
                states = [state(number) for number in range(earliest, latest + 1)]
                if found[0] not in states or found != [found[0]] * 3:
                    failures.append(f"{found} from {earliest} to {latest}")
                last = earliest
        except BaseException as error:
            failures.append(f"matching: {error!r}")

    matcher.add_many((f"0 {i}", kind.format(0)) for i, kind in enumerate(kinds))
    workers = [threading.Thread(target=target) for target in (change, ask, ask)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    assert not failures
    assert list(matcher.match(message)) == state(rounds - 1)
    matcher.remove(*state(rounds - 1))
    matcher.collect_garbage()
    assert_empty(matcher)
    matcher.close()


def test_many_threads_match_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with residual checks by lxml, whose process is replaced now and then: here, all the time."""
    monkeypatch.setattr(process_pool, "MESSAGES_PER_PROCESS", 2)
    queries = [f"count(//a) = {i}" for i in range(4)] + [f"//b[not(@x = {i})]/.." for i in range(4)]
    documents = [f"<r>{'<a/>' * i}<b x='{i}'/></r>" for i in range(4)]
    pairs = [(query, query) for query in queries]
    expected = automaton(pairs, documents)
    found: list[list[Answer] | BaseException] = []

    def ask() -> None:
        try:
            found.extend(answers(matcher, documents) for _ in range(3))
        except BaseException as error:
            found.append(error)

    with RelationalMatcher() as matcher:
        matcher.add_many(pairs)
        workers = [threading.Thread(target=ask) for _ in range(4)]
        for thread in workers:
            thread.start()
        for thread in workers:
            thread.join()
    assert found == [expected] * 12
