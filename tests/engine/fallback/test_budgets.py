"""Budgets of queries that only lxml can evaluate, and the suspension of those that exceed them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import pytest

from sapwood import Broker, Failure, FailureKind, Limits, Matcher, MessageError, QueryError
from sapwood.engine.fallback import lxml_process, process_pool, xpath_fallback
from sapwood.engine.fallback.lxml_process import IDLE, LENGTH
from sapwood.engine.fallback.process_pool import POOL, Budget, Process
from sapwood.lang.query import compile_query

pytestmark = pytest.mark.slow

TIGHT = Limits(query_seconds=0.05)
MESSAGE = "<a>" + "".join(map(chr, range(0x4E00, 0x9C00))) * 3 + "<b>1</b>" * 300 + "</a>"
STALLING = {
    "a string of strings": f"string-length(concat({', '.join(['string(//a)'] * 2_500)})) > 1",
    "a translation": "translate(//a, //a, //a) != ''",
    "nested counts": "//a[count(//*[count(//*[count(//*[count(.//*) >= 0]) > 0]) > 0]) > 0]",
}
OVER = FailureKind.OVER_BUDGET


def population(*queries: str, limits: Limits = TIGHT) -> Matcher:
    matcher = Matcher(limits=limits)
    matcher.add_many(enumerate(queries))
    return matcher


@pytest.mark.parametrize("query", STALLING.values(), ids=STALLING.keys())
def test_a_query_over_budget_does_not_affect_others(query: str) -> None:
    matcher = population("//b", query, "count(//b) * 1 = 300")
    for ask in (matcher.match, matcher.select):
        found: Any = ask(MESSAGE)
        assert list(found) == [0, 2]
        assert found.undecided == (Failure(1, OVER, "it takes more than 0.05 s"),)
    assert matcher.failure_counts() == {1: {OVER: 2}}
    assert not matcher.match("<a/>").undecided


def test_a_query_that_takes_too_long_again_and_again_is_suspended(caplog: pytest.LogCaptureFixture) -> None:
    query = STALLING["nested counts"]
    matcher = population(query, "//b")
    matcher.add("alike", query)
    kinds = [[failure.kind for failure in matcher.match(MESSAGE).undecided] for _ in range(5)]
    assert kinds == [[OVER] * 2] * 3 + [[FailureKind.SUSPENDED] * 2] * 2
    assert "query suspended" in caplog.text
    assert matcher.failure_counts()["alike"] == {OVER: 3, FailureKind.SUSPENDED: 2}
    assert matcher.explain(0).suspended and "suspended" in str(matcher.explain("alike"))
    assert "suspended" in matcher.why(0, MESSAGE).reason
    assert not matcher.match("<c/>").undecided  # which does not meet what the query needs
    matcher.resume(0)
    assert not matcher.explain(0).suspended
    assert list(matcher.match("<a/>")) == [0, "alike"]


def test_replacing_a_suspended_query_resumes_it() -> None:
    query = STALLING["nested counts"]
    matcher = population(query)
    for _ in range(3):
        matcher.match(MESSAGE)
    matcher.replace(0, "count(//b) * 1 = 300")
    assert list(matcher.match(MESSAGE)) == [0]
    matcher.replace(0, query)
    assert [failure.kind for failure in matcher.match(MESSAGE).undecided] == [OVER]


def test_messages_within_the_budget_make_up_for_one_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xpath_fallback, "_FORGIVEN", 2)
    matcher = population(STALLING["nested counts"])
    for _ in range(4):
        assert [failure.kind for failure in matcher.match(MESSAGE).undecided] == [OVER]
        for _ in range(2):
            assert list(matcher.match("<a/>")) == [0]


def test_memory_is_bounded() -> None:
    matcher = population(
        f"string-length(concat({', '.join(['string(//a)'] * 400)})) > 1",
        "//b",
        limits=Limits(query_seconds=20, query_memory=300_000_000),
    )
    matches = matcher.match("<a>" + "x" * 2_000_000 + "<b/></a>")
    assert list(matches) == [1]
    assert matches.undecided == (Failure(0, OVER, "it takes more than 300,000,000 bytes of memory"),)


def test_a_message_whose_tree_takes_too_much_memory_leaves_refined_queries_undecided() -> None:
    matcher = population("//b", "count(//b) * 1 > 1", limits=Limits(query_memory=45_000_000))
    message = "<a>" + "<b/>" * 300_000 + "</a>"
    for _ in range(4):  # which is no fault of the query, so it is not suspended
        matches = matcher.match(message)
        assert list(matches) == [0]
        (failure,) = matches.undecided
        assert (failure.subscription, failure.kind) == (1, FailureKind.UNDECIDED)
        assert "cannot read the message" in failure.reason
    assert list(matcher.match("<a><b/><b/></a>")) == [0, 1]


def test_no_budget_is_no_limit() -> None:
    matcher = population(STALLING["a translation"], limits=Limits(query_seconds=0, query_memory=0))
    assert list(matcher.match(MESSAGE.replace(MESSAGE[3:50_000], ""))) == [0]


def test_results_of_selections_are_bounded() -> None:
    matcher = population("concat(//a, //a, //a)", "//b", limits=Limits(result=100_000))
    selected = matcher.select(MESSAGE)
    assert list(selected) == [1]
    assert selected.undecided == (Failure(0, OVER, "its result has more than 100,000 characters"),)


def test_a_transformation_has_the_same_budget_and_is_suspended_and_resumed() -> None:
    broker = Broker(limits=TIGHT)
    broker.subscribe("slow", f"for $x in //a where {STALLING['nested counts']} return <r/>")
    broker.subscribe("fine", "for $x in //a where count($x/b) = 300 return <r/>")
    broker.subscribe("filter", "//b")
    kinds = []
    for number in range(1, 6):
        deliveries = broker.publish(MESSAGE)
        assert [delivery.subscription for delivery in deliveries] == ["fine", "filter"]
        (failure,) = deliveries.failures
        assert (failure.subscription, failure.message) == ("slow", number)
        kinds.append(failure.kind)
    assert kinds == [OVER] * 3 + [FailureKind.SUSPENDED] * 2
    assert broker.failure_counts() == {"slow": {OVER: 3, FailureKind.SUSPENDED: 2}}
    explained = broker.explain("slow")
    assert "suspended" in str(explained)
    broker.resume("slow")
    assert [d.subscription for d in broker.publish("<a/>")] == ["slow"]
    broker.unsubscribe("slow")
    assert broker.failure_counts() == {}


def test_matches_tell_what_was_undecided_when_subscriptions_have_changed() -> None:
    matcher = population(STALLING["nested counts"], "//b")
    matches = matcher.match(MESSAGE)
    matcher.remove(0)
    assert [failure.subscription for failure in matches.undecided] == [0]
    assert repr(matches) == "<Matches: 1 subscriptions, 1 undecided>"


def test_a_query_that_takes_too_long_on_any_message_is_refused() -> None:
    """Before it is subscribed, a query is tried: it must not take longer there, either."""
    constants = f"'{'x' * 40_000}', '{'y' * 40_000}', ''"
    matcher = Matcher(limits=TIGHT)
    with pytest.raises(QueryError, match=r"it takes more than 0\.05 s"):
        matcher.add("q", f"string-length(translate({constants})) > count(//a)")
    assert len(matcher) == 0


def test_a_message_that_is_refused_is_refused_for_all() -> None:
    with pytest.raises(MessageError):
        population("count(//b) * 1 = 2").match("<a><b></a>")


# -- the processes --------------------------------------------------------------------------------------


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def test_the_process_may_be_killed_between_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[Process] = []
    run = Process.run

    def noted(process: Process, *args: Any) -> Any:
        processes.append(process)
        return run(process, *args)

    monkeypatch.setattr(Process, "run", noted)
    matcher = population("count(//b) * 1 = 1")
    assert list(matcher.match("<a><b/></a>")) == [0]
    os.kill(processes[-1].pid, 9)
    os.waitid(os.P_PID, processes[-1].pid, os.WEXITED | os.WNOWAIT)  # which may take a moment
    assert list(matcher.match("<a><b/></a>")) == [0]


def test_a_process_is_idle_when_the_last_result_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise a process that is killed between messages would seem to have died of a query.
    monkeypatch.setattr(lxml_process, "_FLUSH", -1)
    progress = memoryview(bytearray(LENGTH)).cast("q")
    sent: list[tuple[int, int]] = []
    queries = [
        xpath_fallback._condition_request(compile_query(f"count(//b) * 1 = {count}", {})) for count in (1, 2)
    ]
    lxml_process.answer(
        (b"<a><b/></a>", 0, 0, 10, queries), progress, lambda some: sent.append((len(some), progress[0]))
    )
    assert sent == [(1, 0), (1, IDLE)]


def test_a_process_that_cannot_start_leaves_queries_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POOL, "_idle", [])
    monkeypatch.setattr(sys, "executable", "/bin/false")
    matches = population("count(//b) * 1 = 1", "//b").match("<a><b/></a>")
    assert list(matches) == [1]
    assert [failure.kind for failure in matches.undecided] == [FailureKind.UNDECIDED]


def test_matchers_in_several_threads() -> None:
    def ask(number: int) -> bool:
        with population(f"count(//b) * 1 = {number}") as matcher:
            return all(list(matcher.match("<a>" + "<b/>" * number + "</a>")) == [0] for _ in range(20))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(ask, range(1, 9)))


def test_a_fork_has_processes_of_its_own() -> None:
    matcher = population("count(//b) * 1 = 1")
    assert list(matcher.match("<a><b/></a>")) == [0]
    child = os.fork()
    if not child:
        os._exit(0 if list(matcher.match("<a><b/></a>")) == [0] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert list(matcher.match("<a><b/></a>")) == [0]


def in_a_process_of_its_own(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert not done.stderr
    return done.stdout.split()


WATCHED = """if True:
    from sapwood import Matcher
    from sapwood.engine.fallback.process_pool import POOL
    def ask(matcher):
        matcher.add(1, "count(//b) * 1 = 1")
        assert list(matcher.match("<a><b/></a>")) == [1]
        return POOL._idle[-1].pid
"""


@pytest.mark.parametrize(
    "code",
    [
        "with Matcher() as one: pid = ask(one)\n    print(pid, len(POOL._idle))",
        "one, two = Matcher(), Matcher(); pid = ask(one); ask(two); one.close(); two.close()\n"
        "    print(pid, len(POOL._idle))",
        "one = Matcher(); pid = ask(one); del one\n    import gc; gc.collect(); print(pid, len(POOL._idle))",
        "one = Matcher(); print(ask(one), 0)",
    ],
    ids=["closed", "the last one closed", "dropped", "at exit"],
)
def test_processes_go_with_the_last_matcher(code: str) -> None:
    pid, idle = in_a_process_of_its_own(f"{WATCHED}    {code}")
    assert idle == "0"
    assert not running(int(pid))


def test_a_matcher_may_be_collected_while_its_thread_takes_a_process() -> None:
    left: list[bool] = []

    def collected() -> None:
        matcher = population("count(//b) * 1 = 1")
        matcher.match("<a><b/></a>")
        with POOL._lock:
            matcher.close()
        left.append(True)

    thread = Thread(target=collected, daemon=True)
    thread.start()
    thread.join(30)
    assert left == [True]


def test_a_closed_matcher_may_be_used_again() -> None:
    matcher = population("count(//b) * 1 = 1")
    for _ in range(2):
        assert list(matcher.match("<a><b/></a>")) == [0]
        matcher.close()


def test_queries_between_several_slow_ones_are_answered() -> None:
    """Also what was not sent yet when the process ended is answered, in its place."""
    slow = STALLING["nested counts"]
    queries = [f"count(//b) * {n} >= 300" for n in range(1, 9)]
    queries[2:2] = [slow]
    queries[6:6] = [slow + " or false()"]
    matches = population(*queries).match(MESSAGE)
    assert list(matches) == [0, 1, 3, 4, 5, 7, 8, 9]
    assert [failure.subscription for failure in matches.undecided] == [2, 6]


def test_a_process_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "_PATIENCE", 0.2)
    monkeypatch.setattr(POOL, "_idle", [])
    start: Callable[[], Process] = POOL._take

    def stopped() -> Process:
        process = start()
        os.kill(process.pid, 19)  # SIGSTOP
        return process

    monkeypatch.setattr(POOL, "_take", stopped)
    (found,) = POOL.evaluate(b"<a/>", [b""], Budget(0.001, 0, 100))
    assert isinstance(found, process_pool.Ended) and found.over_time
