"""Faults around the server: a log that cannot be written, restarts, and messages that wait for long."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from sapwood.serve.server_process import ServerStartError
from tests.serve.test_equality import check_equality
from tests.support import postgres
from tests.support.requirements import missing
from tests.support.service import calls
from tests.support.service.running_server import RunningServer

pytestmark = pytest.mark.slow


def test_a_new_subscriber_gets_nothing_of_a_deleted_one(tmp_path: Path) -> None:
    """Also after a restart, for which the tail of the log still has entries of the deleted inbox."""
    with RunningServer(tmp_path) as server:
        with server.client() as client:
            for number in range(70):  # more than the tables of inboxes have at first
                calls.subscribe(client, f"s{number}", "/a", f"subscriber-{number}")
            calls.publish(client, "<a>secret</a>", "m1")
            for number in range(60, 70):
                assert client.delete(f"/v1/subscriptions/s{number}").status_code == 200
                assert client.delete(f"/v1/subscribers/subscriber-{number}").status_code == 204
        server.kill()
        server.start()
        with server.client() as client:
            calls.subscribe(client, "new", "/a", "new")
            assert client.get("/v1/subscribers/new").json()["last"] == 0
            calls.publish(client, "<a>public</a>", "m2")
            assert calls.pull(client, "new") == ["<a>public</a>"]
            assert calls.pull(client, "subscriber-0") == ["<a>secret</a>", "<a>public</a>"]


def test_what_a_suspended_subscriber_misses_is_counted_over_a_restart(tmp_path: Path) -> None:
    with RunningServer(tmp_path) as server:
        with server.client() as client:
            calls.subscribe(client, "a", "/a", "desk")
            client.put("/v1/subscribers/desk", json={"limit": 2, "policy": "suspend"}).raise_for_status()
            for number in range(5):
                calls.publish(client, f"<a>{number}</a>", f"m{number}")
        server.kill()
        server.start()
        with server.client() as client:
            for number in range(5, 9):
                calls.publish(client, f"<a>{number}</a>", f"m{number}")
            [gap] = client.get("/v1/subscribers/desk/gaps").json()["gaps"]
            assert (gap["after"], gap["count"], gap["reason"]) == (2, 7, "suspended")


@pytest.mark.long
def test_messages_that_a_subscriber_has_not_read_are_kept(tmp_path: Path) -> None:
    """Longer than those that all have acknowledged, also while they are in the tail of the log."""
    with RunningServer(tmp_path, '[log]\nkeep_acknowledged = "0 s"\n') as server, server.client() as client:
        calls.subscribe(client, "a", "/a", "reader")
        calls.subscribe(client, "b", "/b", "other")
        calls.publish(client, "<b/>", "m1")
        client.post("/v1/subscribers/other/ack", json={"upto": 1}).raise_for_status()
        calls.publish(client, "<a>1</a>", "m2")
        calls.publish(client, "<a>2</a>", "m3")
        deadline = time.monotonic() + 40
        while client.get("/v1/messages").json()["messages"][-1]["seq"] == 1:  # until the first is deleted
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert calls.pull(client, "reader") == ["<a>1</a>", "<a>2</a>"]


# -- a log that cannot be written --------------------------------------------------------------------------


_SHORT_WAIT = '[overload]\npublish_wait = "3 s"\n'
"""so that publishers are refused soon"""


class _Burst:
    """Publishes numbered messages from several threads, each until it is accepted, and notes refusals."""

    def __init__(self, server: RunningServer, threads: int = 4) -> None:
        self._server = server
        self._stopping = threading.Event()
        self.accepted: list[tuple[int, str]] = []
        """sequence numbers and bodies"""
        self.refusals: list[int] = []
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(threads)]

    def __enter__(self) -> _Burst:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)
        assert not self.failures, self.failures[0]

    def _run(self, name: int) -> None:
        try:
            with self._server.client() as client:
                number = 0
                while not self._stopping.is_set():
                    number += 1
                    self._publish(client, f"{name}-{number}")
        except BaseException as error:
            self.failures.append(error)

    def _publish(self, client: httpx.Client, id: str) -> None:
        body = f"<a>{id}{'x' * 500}</a>"
        while True:
            with suppress(httpx.HTTPError):
                headers = {"Sapwood-Message-Id": id}
                answer = client.post("/v1/streams/s/messages", content=body, headers=headers)
                if answer.status_code in (200, 201):
                    self.accepted.append((answer.json()["seq"], body))
                    return
                assert answer.status_code in (429, 503), answer.text
                assert int(answer.headers["Retry-After"]) >= 1
                self.refusals.append(answer.status_code)
            time.sleep(0.05)


def _wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _read_problem(client: httpx.Client) -> str | None:
    """Return why messages cannot be published, by /readyz."""
    answer = client.get("/readyz")
    problem: str | None = answer.json()["problem"]
    assert answer.status_code == (200 if problem is None else 503)
    return problem


def _wait_for_problem(client: httpx.Client) -> str:
    """Return the first problem that is reported, which may be over for a moment when a smaller batch fits."""
    found: list[str] = []

    def has_problem() -> bool:
        found.extend(filter(None, [_read_problem(client)]))
        return bool(found)

    _wait_until(has_problem)
    return found[0]


def _check_all_delivered(client: httpx.Client, burst: _Burst, subscriber: str = "desk") -> None:
    found: list[str] = []
    after = 0
    while True:
        query = {"after": after, "limit": 1_000}
        page = client.get(f"/v1/subscribers/{subscriber}/deliveries", params=query).json()
        if not page["deliveries"]:
            break
        found += [delivery["body"] for delivery in page["deliveries"]]
        after = page["cursor"]
    assert found == [body for _, body in sorted(burst.accepted)]
    assert burst.accepted


@contextmanager
def _full_disk(server: RunningServer) -> Iterator[None]:
    """Let the engine write no file beyond the size that the largest has now."""
    largest = max(path.stat().st_size for path in server.folder.glob("sapwood.db*"))
    old = resource.prlimit(server.engine_id, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(server.engine_id, resource.RLIMIT_FSIZE, old)


@contextmanager
def _locked(server: RunningServer, how: str) -> Iterator[None]:
    connection = sqlite3.connect(server.folder / "sapwood.db", isolation_level=None, timeout=30)
    try:
        connection.execute(f"BEGIN {how}")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="limits another process")
def test_a_full_disk_refuses_messages_and_loses_none(tmp_path: Path) -> None:
    with RunningServer(tmp_path, _SHORT_WAIT) as server, server.client() as client:
        calls.subscribe(client, "a", "/a", "desk")
        with _Burst(server) as burst:
            _wait_until(lambda: len(burst.accepted) > 50)
            engine = server.engine_id
            with _full_disk(server):
                problem = _wait_for_problem(client)
                assert "full" in problem or "I/O" in problem, problem
                _wait_until(lambda: 503 in burst.refusals)
                assert client.get("/healthz").status_code == 200
                assert client.get("/v1/subscribers/desk/deliveries").status_code == 200
            before = len(burst.accepted)
            _wait_until(lambda: _read_problem(client) is None)
            _wait_until(lambda: len(burst.accepted) > before + 50)
            assert server.engine_id == engine
        _check_all_delivered(client, burst)


@pytest.mark.parametrize("how", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_database_that_another_locks_refuses_messages_and_loses_none(tmp_path: Path, how: str) -> None:
    with RunningServer(tmp_path, _SHORT_WAIT) as server, server.client() as client:
        calls.subscribe(client, "a", "/a", "desk")
        with _Burst(server) as burst:
            _wait_until(lambda: len(burst.accepted) > 50)
            with _locked(server, how):
                assert "locked" in _wait_for_problem(client)
                _wait_until(lambda: 503 in burst.refusals)
            before = len(burst.accepted)
            _wait_until(lambda: _read_problem(client) is None)
            _wait_until(lambda: len(burst.accepted) > before + 50)
        _check_all_delivered(client, burst)


@pytest.mark.long
def test_a_server_stops_although_the_log_cannot_be_written(tmp_path: Path) -> None:
    """What was not committed is in no snapshot: joins know the messages of the log, and no others."""
    with RunningServer(tmp_path) as server:
        with server.client() as client:
            calls.subscribe(client, "j", "s/a->x JOIN{x = y, 1 hour} s/b->y", "desk")
            calls.publish(client, "<a>1</a>", "m1")
            with _locked(server, "IMMEDIATE"):
                with pytest.raises(httpx.ReadTimeout):
                    headers = {"Sapwood-Message-Id": "m2", "Sapwood-Time": "1800000000"}
                    path = "/v1/streams/s/messages"
                    client.post(path, content="<a>2</a>", headers=headers, timeout=1)
                server.stop(40)
        server.start()
        with server.client() as client:
            calls.publish(client, "<b>1</b>", "m3", time=1)
            calls.publish(client, "<b>2</b>", "m4", time=2)
            assert calls.pull(client, "desk") == ["<joined><a>1</a><b>1</b></joined>"]


# -- several servers, and engines that die -----------------------------------------------------------------


def test_a_second_server_of_a_log_refuses_to_start(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    location = tmp_path / "sapwood.db"
    with RunningServer(tmp_path) as server, server.client() as client:
        second = RunningServer(other, f'[log]\nlocation = "{location}"\n')
        with pytest.raises(
            ServerStartError, match=r"another server uses the log .* stop it, or give this one"
        ):
            second.start()
        calls.subscribe(client, "a", "/a", "desk")
        calls.publish(client, "<a/>", "m1")
        assert calls.pull(client, "desk") == ["<a/>"]


def test_an_engine_that_dies_again_and_again_is_started_later_each_time(tmp_path: Path) -> None:
    with RunningServer(tmp_path) as server, server.client() as client:
        calls.subscribe(client, "a", "/a", "desk")
        with _Burst(server, threads=2) as burst:
            for _ in range(4):
                _wait_until(lambda: _read_problem(client) is None)
                os.kill(server.engine_id, signal.SIGKILL)
                _wait_until(lambda: _read_problem(client) == "the engine is starting")
                assert client.get("/healthz").status_code == 200
            _wait_until(lambda: _read_problem(client) is None)
            before = len(burst.accepted)
            _wait_until(lambda: len(burst.accepted) > before + 10)
        _check_all_delivered(client, burst)
        lines = server.output.read_text().splitlines()
        delays = [float(line.split()[-2]) for line in lines if "it is started again in" in line]
        assert delays == [0.1, 0.2, 0.4, 0.8]


# -- PostgreSQL --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgresql() -> Iterator[postgres.Server]:
    found = postgres.programs()
    if found is None:
        missing("there is no PostgreSQL on this machine")
    with postgres.running(found) as server:
        yield server


@pytest.mark.server
def test_deliveries_from_postgresql_are_those_of_a_broker(
    tmp_path: Path, postgresql: postgres.Server
) -> None:
    config = f'[log]\nlocation = "{postgresql.fresh()}"\nsnapshot = "snapshot"\n'
    check_equality(tmp_path, config, 2, subscriptions=500, messages=300, odd=0.15, spread=40)


@pytest.mark.server
def test_a_postgresql_server_that_restarts_loses_nothing(tmp_path: Path) -> None:
    found = postgres.programs()
    if found is None:
        missing("there is no PostgreSQL on this machine")
    with postgres.running(found) as database:
        config = f'{_SHORT_WAIT}[log]\nlocation = "{database.fresh()}"\nsnapshot = "snapshot"\n'
        with RunningServer(tmp_path, config) as server, server.client() as client:
            calls.subscribe(client, "a", "/a", "desk")
            with _Burst(server) as burst:
                _wait_until(lambda: len(burst.accepted) > 50)
                _control(found, database, "-m", "fast", "stop")
                _wait_until(lambda: _read_problem(client) is not None)
                _wait_until(lambda: 503 in burst.refusals)
                log, options = database.folder / "server.log", f"-k {database.folder} -c listen_addresses=''"
                _control(found, database, "-l", str(log), "-o", options, "start")
                before = len(burst.accepted)
                _wait_until(lambda: _read_problem(client) is None, 60)
                _wait_until(lambda: len(burst.accepted) > before + 50)
            _check_all_delivered(client, burst)


def _control(programs: Path, database: postgres.Server, *arguments: str) -> None:
    command = [str(programs / "pg_ctl"), "-D", str(database.folder / "data"), "-w", *arguments]
    with (database.folder / "pg_ctl.log").open("ab") as log:
        who = postgres._unprivileged(database.folder)
        subprocess.run(command, check=True, stdout=log, stderr=log, cwd=database.folder, timeout=60, **who)
