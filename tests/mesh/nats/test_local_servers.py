"""Servers for trials: they start, are killed and restarted, and leave no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sapwood.mesh.nats.errors import NatsServerError
from sapwood.mesh.nats.local_servers import LocalServers
from tests.support.nats import running


def test_a_missing_program_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(NatsServerError, match="apt-get install nats-server"):
        LocalServers(tmp_path)


@pytest.mark.server
def test_servers_keep_their_ports_over_restarts(tmp_path: Path) -> None:
    with running(tmp_path) as servers:
        server = servers.start_single()
        with pytest.raises(NatsServerError, match="already"):
            servers.start_single()
        with pytest.raises(NatsServerError, match="start_hub"):
            servers.start_site("a")
        url, process = server.url, server.process
        assert process is not None
        servers.kill("single")
        assert process.returncode == -signal.SIGKILL
        restarted = servers.restart("single")
        assert restarted.url == url
        again = restarted.process
        assert again is not None and again.poll() is None
    assert again.returncode is not None


@pytest.mark.server
def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    with running(tmp_path) as servers:
        server = servers.start_single()
        servers.kill("single")
        server.config += "nonsense: {\n"
        with pytest.raises(NatsServerError, match="does not start"):
            servers.restart("single")
        assert not server.running


_PROGRAM = """
import sys, time
from sapwood.mesh.nats.local_servers import LocalServers
server = LocalServers(sys.argv[1]).start_single()
print(server.process.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.server
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_no_server_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    with running(tmp_path):
        pass
    with subprocess.Popen([sys.executable, "-c", _PROGRAM, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.kill()
    deadline = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(process_id: int) -> bool:
    """Whether a process is there that is no zombie, which nobody waits for in a container."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
