"""The processes that evaluate with lxml, where they cannot start as usual; and edits that fail halfway."""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Thread

import pytest

from sapwood import Broker, Matcher, QueryError, Tuning
from sapwood.engine.fallback import process_pool
from sapwood.engine.fallback.process_pool import POOL, Process

REFINED = "count(//a) * 1 > 0"
TOO_DEEP = "string-length(//a)" + "+1" * 6_000 + " > 1"
_WITHOUT_INPUT = """
from sapwood import Matcher
matcher = Matcher()
matcher.add("s", "count(//a) * 1 > 0")
matches = matcher.match("<a/>")
print(list(matches), matches.undecided)
"""


def test_a_process_that_cannot_be_started_fails_its_queries_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Process:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(POOL, "_idle", [])
    monkeypatch.setattr(process_pool, "Process", refuse)
    matcher = Matcher()
    matcher.add_many([("native", "//a"), ("refined", REFINED)])
    matches = matcher.match("<a/>")
    assert list(matches) == ["native"]
    (failure,) = matches.undecided
    assert failure.subscription == "refined" and "cannot be started: [Errno 24]" in failure.reason


def test_where_the_standard_input_is_closed() -> None:
    command = f"exec {sys.executable} -c '{_WITHOUT_INPUT}' <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("['s'] ()\n", "")


def test_ctrl_c_is_for_the_parent_alone() -> None:
    process = Process()
    try:
        assert os.getpgid(process.pid) != os.getpgid(0)
    finally:
        process.kill()


@pytest.mark.parametrize("of", [Matcher, Broker])
def test_a_query_that_lxml_refuses_replaces_none(of: type[Matcher] | type[Broker]) -> None:
    subscribed = of()
    add = subscribed.add if isinstance(subscribed, Matcher) else subscribed.subscribe
    add("s", "//a")
    with pytest.raises(QueryError, match="lxml cannot evaluate"):
        subscribed.replace("s", TOO_DEEP)
    assert "s" in subscribed and subscribed.query("s") == "//a"
    subscribed.close()


def test_a_broker_without_shared_plans_lets_its_processes_go() -> None:
    users = POOL._users
    with Broker(tuning=Tuning(share_plans=False)) as broker:
        broker.subscribe("s", "for $a in //a[string-length(.) = 1] return <b>{$a}</b>")
        assert broker.publish("<a>x</a>")
        assert POOL._users > users
    assert POOL._users == users


def test_a_pack_made_during_changes_is_consistent() -> None:
    matcher = Matcher()
    matcher.add_many((i, f"//a{i}[b = {i}]") for i in range(200))
    going = True

    def edit() -> None:
        i = 0
        while going:
            matcher.add(("new", i), f"//n{i % 7}[@x = {i}]")
            matcher.remove(("new", i))
            i += 1

    thread = Thread(target=edit)
    thread.start()
    try:
        for _ in range(15):
            copy = Matcher.unpack(matcher.pack())
            for id in list(copy):
                copy.remove(id)
            assert len(copy) == 0 and not copy.match("<a1><b>1</b></a1>")
    finally:
        going = False
        thread.join()
