"""One Matcher and one Broker under threads: right answers, and edits that take effect between messages."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest

from sapwood import Broker, Matcher
from sapwood.engine.kernel import KERNEL
from sapwood.errors import ArgumentError, MessageError
from sapwood.lang import pattern
from sapwood.workload import MessageGenerator, QueryGenerator, load_dtd
from tests.support.oracles import lxml_oracle

THREADS = 4
EDITS = 100 if KERNEL is None else 400  # in Python, messages wait for each other: each edit takes longer


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    """Lets threads interrupt one another at every turn."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Runs the work at the same time in several threads, and raises what one of them raised."""
    failures: list[BaseException] = []
    start = Barrier(threads)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            failures.append(error)

    running = [Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]


def news(queries: int, messages: int, predicates: int = 1) -> tuple[dict[int, str], list[bytes]]:
    """Subscriptions, some of which lxml decides, and messages."""
    dtd = load_dtd("news")
    texts = QueryGenerator(dtd, seed=1, predicates=predicates).take(queries)
    asked = dict(enumerate([*texts, "//*[@* and count(*) mod 2 = 1]", "//*[position() mod 3 = 2]"]))
    return asked, list(MessageGenerator(dtd, seed=1).take(messages))


def test_concurrent_matches_are_right() -> None:
    queries, messages = news(500, 60)
    alone = Matcher()
    alone.add_many(queries.items())
    wanted = [list(alone.match(message)) for message in messages]
    selected = [{id: len(nodes) for id, nodes in alone.select(m).items()} for m in messages[:10]]
    assert sum(map(len, wanted)) > 300
    shared = Matcher()
    shared.add_many(queries.items())

    def match(number: int) -> None:
        order = list(range(len(messages)))
        random.Random(number).shuffle(order)
        for i in order:
            matches = shared.match(messages[i])
            assert len(matches) == len(wanted[i])
            assert list(matches) == wanted[i]
            if i < len(selected):
                assert {id: len(nodes) for id, nodes in shared.select(messages[i]).items()} == selected[i]

    in_threads(match)
    shared.close()
    alone.close()


def test_edits_take_effect_between_messages() -> None:
    """What stays subscribed is matched by every message, whatever comes and goes meanwhile, also if the
    matches are read late; and what is gone for good is matched no more."""
    queries, messages = news(300, 40)
    alone = Matcher()
    alone.add_many(queries.items())
    wanted = [set(alone.match(message)) for message in messages]
    shared = Matcher()
    shared.add_many(queries.items())

    def work(number: int) -> None:
        rng = random.Random(number)
        for _ in range(60):
            if number % 2:
                id = (number, rng.randrange(5))
                query = rng.choice([*queries.values(), "//*", "//*[@*]"])
                shared.replace(id, query) if id in shared else shared.add(id, query)
                if rng.random() < 0.3:
                    shared.remove(id)
            else:
                i = rng.randrange(len(messages))
                matches = shared.match(messages[i])
                shared.match(rng.choice(messages))
                assert {id for id in matches if isinstance(id, int)} == wanted[i]

    in_threads(work)
    for id in [id for id in shared if not isinstance(id, int)]:
        shared.remove(id)
    assert [set(shared.match(message)) for message in messages] == wanted
    shared.close()
    alone.close()


@pytest.mark.parametrize("threads", [2, 3])
def test_match_many_in_threads_is_in_order(threads: int) -> None:
    queries, messages = news(300, 200)
    with Matcher() as matcher:
        matcher.add_many(queries.items())
        wanted = [list(matches) for matches in matcher.match_many(messages)]
        assert [list(matches) for matches in matcher.match_many(iter(messages), threads=threads)] == wanted
        assert list(matcher.match_many([], threads=threads)) == []


def test_match_many_in_threads_raises_where_a_message_is_refused() -> None:
    with Matcher() as matcher:
        matcher.add("a", "/a")
        refused: list[tuple[bytes | Path, str]] = [(b"<a>", "no element"), (Path("nowhere.xml"), "no file")]
        for broken, reason in refused:
            found = matcher.match_many([*([b"<a/>"] * 100), broken, b"<a/>"], threads=2)
            for _ in range(100):
                assert list(next(found)) == ["a"]
            with pytest.raises(MessageError, match=reason):
                next(found)
            assert [list(matches) for matches in found] == [["a"]]  # the rest is not lost
        with pytest.raises(ArgumentError, match="at least 1"):
            matcher.match_many([], threads=0)


def test_match_many_in_threads_can_be_left() -> None:
    with Matcher() as matcher:
        matcher.add("a", "/a")
        read = []

        def endless() -> Iterator[bytes]:
            while True:
                read.append(1)
                yield b"<a/>"

        found = matcher.match_many(endless(), threads=2)
        assert len(next(found)) == 1
        del found
        assert len(read) < 1_000


def test_edits_while_others_match_in_threads() -> None:
    """Every answer belongs to one version: what stays is matched, and what is replaced in either form."""
    queries, messages = news(300, 60)
    with Matcher() as matcher:
        matcher.add_many(queries.items())
        wanted = [set(matches) for matches in matcher.match_many(messages)]
        matcher.add("exchanged", "//*")
        done = Event()

        def work(number: int) -> None:
            if number == 0:
                for i in range(EDITS):
                    matcher.replace("exchanged", "/*" if i % 2 else "//*")
                    matcher.add(("more", i), f"//none{i}")
                    matcher.remove(("more", i))
                done.set()
            else:
                while not done.is_set():
                    for matches, right in zip(matcher.match_many(messages, threads=2), wanted, strict=True):
                        ids = list(matches)
                        assert len(matches) == len(ids)
                        assert set(ids) == right | {"exchanged"}

        in_threads(work, 3)


def test_a_broker_of_all_kinds_under_threads() -> None:
    messages = [f"<m k='{i % 7}'><v>{i}</v></m>" for i in range(120)]
    with Broker(lateness=10) as broker:
        broker.subscribe("filter", "/m[@k = 3]")
        broker.subscribe("refined", "/m[@k mod 2 = 1]")
        broker.subscribe("made", "for $m in /m where $m/@k = 3 return <made>{$m/v}</made>")
        broker.subscribe("joined", "s//m[@k->a] JOIN{a = b, INF} s//m[@k->b]")
        delivered: list[list[tuple[object, object]]] = [[] for _ in range(THREADS)]

        def publish(number: int) -> None:
            for i in range(number, len(messages), THREADS):
                for each in broker.publish(messages[i], i, stream="s", time=float(i % 3)):
                    delivered[number].append((each.subscription, each.message))

        in_threads(publish)
    by_kind = {kind: [m for part in delivered for k, m in part if k == kind] for kind in ("filter", "made")}
    threes = [i for i in range(len(messages)) if i % 7 == 3]
    assert sorted(by_kind["filter"]) == sorted(by_kind["made"]) == threes  # type: ignore[type-var]
    odd = [i for i in range(len(messages)) if i % 7 % 2]
    assert sorted(m for part in delivered for k, m in part if k == "refined") == odd  # type: ignore[type-var]
    joined = sum(k == "joined" for part in delivered for k, _ in part)
    sizes = [len(range(k, len(messages), 7)) for k in range(7)]
    assert joined == sum(n * (n - 1) for n in sizes)  # each pair, in both orders of its blocks


def test_equal_patterns_are_one_object_whoever_makes_them() -> None:
    made: list[list[object]] = [[] for _ in range(THREADS)]

    def make(number: int) -> None:
        for i in range(400):
            path = pattern.Path((pattern.Step(pattern.Axis.CHILD, f"thread-{i}"),))
            made[number].append(pattern.Has(path, pattern.Test("=", f"thread-{i}")))

    in_threads(make)
    assert all(len({id(each) for each in column}) == 1 for column in zip(*made, strict=True))


def test_matchers_of_several_threads_do_not_disturb_one_another() -> None:
    documents = [lxml_oracle.random_document(random.Random(seed)) for seed in range(6)]
    queries = [lxml_oracle.random_query(random.Random(seed)) for seed in range(80)]
    wanted = [[lxml_oracle.matches(lxml_oracle.parse(d), q) for q in queries] for d in documents]

    def match(number: int) -> None:
        matcher = Matcher(lxml_oracle.NAMESPACES)
        matcher.add_many(enumerate(queries))
        for document, answers in zip(documents, wanted, strict=True):
            matches = matcher.match(document)
            assert [i in matches for i in range(len(queries))] == answers
        matcher.close()

    in_threads(match)
