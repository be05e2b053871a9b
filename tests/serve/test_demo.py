"""`sapwood serve --demo`: something to look at and to listen to at once, and nothing left afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.in_process import sapwood
from tests.support.service.service_command import wait_until

pytestmark = pytest.mark.slow


class _Demo:
    """A running demo, and what it has printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.output = folder / "output.txt"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sapwood.cli", "serve", "--demo", "--port", "0"],
                cwd=folder,
                stderr=output,
                stdout=output,
                env=os.environ | {"TMPDIR": str(self.temporary)},
            )
        wait_until(lambda: "  explain " in self.text or self.process.poll() is not None, 60)
        assert self.process.poll() is None, self.text
        [self.url] = re.findall(r"^Sapwood serves at ([^,]+),", self.text, re.MULTILINE)
        self.commands = dict(re.findall(r"^  (listen|publish|explain) +(.*)$", self.text, re.MULTILINE))

    @property
    def text(self) -> str:
        return self.output.read_text()

    def get(self, path: str) -> Any:
        return httpx.get(f"{self.url}{path}", timeout=30).raise_for_status().json()

    def type(self, command: str) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Demo]:
    running = _Demo(tmp_path_factory.mktemp("demo"))
    yield running
    running.process.kill()
    running.process.wait()


def test_there_is_something_of_everything(demo: _Demo) -> None:
    stats = demo.get("/v1/stats")
    assert stats["published"] > 300
    assert stats["rejected"] > 0
    wait_until(lambda: len(demo.get("/v1/stats")["subscriptions"]) == 3)  # the engine reports each second
    wait_until(lambda: demo.get("/v1/stats")["listeners"]["sse"] >= 5)
    found = {each["name"]: each for each in demo.get("/v1/subscribers")["subscribers"]}
    assert found.keys() >= {"audit", "billing", "desk", "newsroom", "risk"}
    assert found["audit"]["backlog"] > 20
    desk = demo.get("/v1/subscribers/desk/deliveries?limit=1000")["deliveries"]
    assert any(len(delivery["subscriptions"]) == 2 for delivery in desk)
    assert demo.get("/v1/failures")["refused"] == {}


def test_messages_keep_coming(demo: _Demo) -> None:
    before = demo.get("/v1/stats")["published"]
    wait_until(lambda: demo.get("/v1/stats")["published"] >= before + 4)


def test_the_commands_that_it_prints_work(demo: _Demo) -> None:
    assert demo.commands.keys() == {"listen", "publish", "explain"}
    assert '"native": true' in demo.type(demo.commands["explain"])
    assert '"deliveries":3' in demo.type(demo.commands["publish"])
    assert '"subscriptions"' in demo.type(f"{demo.commands['listen']} --count 1")


def test_ctrl_c_ends_all_of_it(demo: _Demo) -> None:
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(30) == 0
    assert "Traceback" not in demo.text
    assert list(demo.temporary.iterdir()) == []
    assert {path.name for path in demo.folder.iterdir()} == {"temporary", "output.txt"}


@pytest.mark.parametrize("option", ["--config", "--log"])
def test_it_has_a_log_of_its_own(option: str) -> None:
    done = sapwood("serve", "--demo", option, "sapwood.db", COLUMNS="200")
    assert done.returncode == 2
    assert "leave out --config and --log" in " ".join(done.stderr.split())
