"""`sapwood mesh`: the files that it writes, and what it shows of a mesh that is made up here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sapwood.cli.mesh import mesh_commands
from sapwood.errors import SapwoodError
from sapwood.serve.config import read_config
from tests.support.in_process import Run, sapwood
from tests.support.mesh.trees import need_nats

ROUTE = {"key": "0f", "tenant": "", "stream": None, "condition": "o[x > 2]", "exact": True}


def link(sender: str, receiver: str, **changes: Any) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "sender": sender,
        "receiver": receiver,
        "open": True,
        "messages_per_second": 1.5,
        "bytes_per_second": 2_500.0,
        "outbox": 0,
        "unsettled": 0,
        "queue_age": 0.25,
        "routes": 7,
        "table_known": True,
        "table_lag": 0,
    }
    return figures | changes


TOPOLOGY = {
    "version": 3,
    "root": "basel",
    "parents": {"basel": None, "lyon": "basel", "osaka": "lyon"},
    "brokers": [
        {"broker": "basel", "subscriptions": 4, "error": None},
        {"broker": "lyon", "subscriptions": 1_000, "error": None},
        {"broker": "osaka", "subscriptions": None, "error": "it has not answered"},
    ],
    "links": [
        link("basel", "lyon", generalised=2),
        link("lyon", "basel", open=False, outbox=12),
        link("lyon", "osaka", table_known=False, table_lag=2),
        link("osaka", "lyon", open=None),
    ],
}
HOP = {
    "broker": "lyon",
    "received": 1_700_000_000.5,
    "came_by": None,
    "version": 4,
    "deliveries": 0,
    "matched_here": True,
    "chosen": [{"link": "basel", "count": 5, "routes": [ROUTE]}],
    "not_chosen": ["osaka"],
}
ANSWERS: dict[tuple[str, ...], dict[str, Any]] = {
    (): {"broker": "lyon"},
    ("topology",): TOPOLOGY,
    ("brokers",): {
        "version": 3,
        "brokers": [
            {
                "broker": "lyon",
                "parent": "basel",
                "lease_age": 0.4,
                "host": "alp",
                "process": 4711,
                "error": None,
                "status": {
                    "confirmed": 5,
                    "unconfirmed": 1,
                    "unsettled": 3,
                    "counters": {"duplicates": 2, "late": 0, "lost": 1},
                    "links": {"basel": {"open": True, "routes in": 9, "rates": {"messages in": 2.0}}},
                },
            },
            {"broker": "osaka", "parent": "lyon", "lease_age": 900.0, "error": "silent", "status": None},
        ],
    },
    ("tables",): {"broker": "lyon", "link": None, "routes": [ROUTE], "count": 1, "next": None},
    ("explain", "s"): {
        "id": "s",
        "tenant": "",
        "silent": {"osaka": "no answer"},
        "hosts": [
            {
                "broker": "lyon",
                "query": "/o[x > 2]",
                "active": True,
                "version": 4,
                "confirmed": False,
                "routes": [ROUTE],
                "brokers": [
                    {
                        "broker": "basel",
                        "side": "lyon",
                        "has": True,
                        "table_version": 8,
                        "entries": [ROUTE | {"condition": "o[x]"}],
                        "projection": [
                            {
                                "stream": "news",
                                "is_cut": True,
                                "reason": "nobody beyond reads the rest",
                                "reads": ["/o", "/o/x//node()"],
                                "saved": 0.43,
                                "seconds": 41e-6,
                            },
                            {
                                "stream": "",
                                "is_cut": False,
                                "reason": "only 3% of the bytes would be cut",
                                "reads": ["/o"],
                                "saved": 0.03,
                                "seconds": 41e-6,
                            },
                        ],
                        "error": None,
                    },
                    {"broker": "lyon", "side": "local", "has": False, "error": None},
                    {"broker": "osaka", "side": "lyon", "has": None, "error": "no answer"},
                ],
            }
        ],
    },
    ("trace", "m"): {
        "id": "m",
        "messages": [
            {
                "source": "lyon",
                "number": 17,
                "hops": [HOP, HOP | {"broker": "basel", "came_by": "lyon", "deliveries": 2, "chosen": []}],
            }
        ],
        "refused": [{"broker": "osaka", "received": 0.0, "reason": "mismatched tag", "line": 1, "column": 9}],
        "silent": {},
    },
    ("check",): {
        "consistent": False,
        "brokers": 3,
        "findings": [{"severity": "error", "where": "a → b", "what": "tables differ", "advice": "wait"}],
    },
}


class FakeClient:
    """Answers as a broker would, and notes what it is asked to change."""

    def __init__(self) -> None:
        self.changes: list[tuple[tuple[str, ...], dict[str, Any]]] = []
        self.removed = True

    def read_mesh(self, *names: str, **filters: Any) -> dict[str, Any]:
        if names not in ANSWERS:
            raise SapwoodError(f"there is nothing at {names}")
        if names == ("tables",):
            return ANSWERS[names] | {"broker": filters["broker"], "link": filters["link"]}
        return ANSWERS[names]

    def change_mesh(self, *names: str, body: dict[str, Any], patience: float) -> dict[str, Any]:
        self.changes.append((names, body))
        if names == ("drain",):
            return {"removed": self.removed, "reason": None if self.removed else "it hosts 3 subscriptions"}
        if names == ("subscriptions", "move"):
            return {"moved": [{"id": id, "source": "lyon", "target": body["to"]} for id in body["ids"]]}
        return {"version": 9, "parents": {}}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    found = FakeClient()

    @contextmanager
    def connect(*_: object) -> Iterator[FakeClient]:
        yield found

    monkeypatch.setattr(mesh_commands, "connect", connect)
    monkeypatch.setenv("COLUMNS", "200")
    return found


def run(*arguments: str) -> Run:
    return sapwood("mesh", *arguments)


# -- what it shows -----------------------------------------------------------------------------------------


def test_status(client: FakeClient) -> None:
    done = run("status")
    assert done.returncode == 0, done.stderr
    lyon, osaka = (line for line in done.stdout.splitlines() if "lyon " in line and "│" in line)
    assert "alp 4711" in lyon
    assert "5 (1 wait)" in lyon and "2/0/1" in lyon and "ok" in lyon
    assert "15 min" in osaka and "silent" in osaka


def test_the_tree_is_drawn(client: FakeClient) -> None:
    lines = run("topology").stdout.splitlines()
    assert lines[1] == "basel  4 subscriptions"
    assert lines[2] == "└── lyon  1,000 subscriptions"
    assert "↑ broken, 12 wait" in lines[3]
    assert "↓    1.5 messages/s    2.5 kB/s  queue 0.2 s  7 routes, 2 generalised" in lines[4]
    assert lines[5].startswith("    └── osaka  ? subscriptions  it has not answered")
    assert "everything is sent" in lines[7] and "table 2 behind" in lines[7]


def test_tables_of_all_sides(client: FakeClient) -> None:
    titles = [line for line in run("tables").stdout.splitlines() if " wanted " in line]
    assert [title.strip() for title in titles] == [
        "1 route wanted by its own subscriptions at lyon",
        "1 route wanted on the side of osaka at lyon",
        "1 route wanted on the side of basel at lyon",
    ]
    assert "on the side of osaka at basel" in run("tables", "basel", "--link", "osaka").stdout


def test_explain(client: FakeClient) -> None:
    text = run("explain", "s").stdout
    assert "s is hosted at lyon, active since version 4, not confirmed by all brokers" in text
    assert "route o[x > 2]" in text and "osaka: no answer" in text
    assert re.search(r"basel +│ lyon +│ yes +│ 8", text)
    assert re.search(r"lyon +│ local +│ no", text)
    assert "basel has it as o[x]" in text
    assert "basel → lyon, stream news: cut to /o, /o/x//node() (43% of the bytes in 41 µs)" in text
    assert "basel → lyon, stream none: whole messages, since only 3% of the bytes would be cut" in text


def test_trace(client: FakeClient) -> None:
    text = run("trace", "m").stdout
    assert "m published at lyon, number 17" in text
    assert "→ basel: o[x > 2] and 4 more" in text
    assert "not to osaka: nobody there wants it" in text
    assert "22:13:20.500 from lyon, subscriptions of version 4, 2 deliveries" in text
    assert "refused at osaka, 00:00:00.000: mismatched tag (line 1, column 9)" in text


def test_check_fails_for_what_is_wrong(client: FakeClient) -> None:
    done = run("check")
    assert done.returncode == 1
    assert done.stdout == "error: a → b: tables differ; wait\n"


@pytest.mark.parametrize(
    "arguments", [("status",), ("topology",), ("explain", "s"), ("trace", "m"), ("check",)], ids=" ".join
)
def test_json_is_what_the_broker_answers(client: FakeClient, arguments: tuple[str, ...]) -> None:
    what = ("brokers",) if arguments == ("status",) else arguments
    assert json.loads(run(*arguments, "--json").stdout) == ANSWERS[what]


# -- what it changes ---------------------------------------------------------------------------------------


def test_changes(client: FakeClient) -> None:
    assert run("move", "s", "t", "--to", "osaka").stdout == "s: lyon → osaka\nt: lyon → osaka\n"
    assert "has version 9" in run("tree", "move", "osaka", "--parent", "basel").stdout
    assert run("drain", "osaka", "--force").stdout == "osaka has left the mesh; its server can be stopped\n"
    client.removed = False
    kept = run("drain", "osaka", "--wait", "1")
    assert (kept.returncode, kept.stdout) == (1, "it hosts 3 subscriptions\n")
    assert client.changes == [
        (("subscriptions", "move"), {"ids": ["s"], "to": "osaka", "tenant": ""}),
        (("subscriptions", "move"), {"ids": ["t"], "to": "osaka", "tenant": ""}),
        (("topology", "move"), {"broker": "osaka", "parent": "basel"}),
        (("drain",), {"broker": "osaka", "force": True, "wait": 60.0}),
        (("drain",), {"broker": "osaka", "force": False, "wait": 1.0}),
    ]


def test_a_problem_of_the_broker_is_told(client: FakeClient) -> None:
    done = run("explain", "absent")
    assert done.returncode == 2 and "there is nothing at" in done.stderr


# -- init --------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_files_that_can_be_used(folder: Path) -> None:
    done = run("init", "news", "basel", "lyon:basel", "osaka:lyon", "--host", "osaka=osaka.example")
    assert done.returncode == 0, done.stderr
    found = sorted(str(path.relative_to(folder / "mesh")) for path in folder.rglob("*.*") if path.is_file())
    assert found == [
        "basel/nats.conf",
        "basel/server.toml",
        "hub/nats.conf",
        "lyon/nats.conf",
        "lyon/server.toml",
        "osaka/nats.conf",
        "osaka/server.toml",
    ]
    configs = {
        name: read_config(folder / "mesh" / name / "server.toml") for name in ("basel", "lyon", "osaka")
    }
    settings = {name: config.mesh for name, config in configs.items()}
    assert [mesh.parent for mesh in settings.values() if mesh] == [None, "basel", "lyon"]
    assert [mesh.servers[0] for mesh in settings.values() if mesh] == [
        "nats://127.0.0.1:4223",
        "nats://127.0.0.1:4224",
        "nats://127.0.0.1:4222",
    ]
    assert [config.listen.port for config in configs.values()] == [8_080, 8_081, 8_080]
    assert configs["osaka"].listen.host == "0.0.0.0" and configs["basel"].listen.is_loopback
    assert configs["lyon"].log.location == str(folder / "mesh" / "lyon" / "sapwood.db")
    commands = done.stdout.splitlines()
    assert "cd mesh/hub && nats-server -c nats.conf" in commands[1]
    assert commands[-1] == "then: sapwood mesh status --url http://127.0.0.1:8080"
    again = run("init", "news", "basel")
    assert again.returncode == 2 and "is there already" in again.stderr


def test_init_with_servers_that_are_there(folder: Path) -> None:
    (folder / "tree").write_text("# two sites\nbasel\nlyon: basel  # in France\n")
    done = run("init", "news", "--tree", "tree", "--servers", "nats://n:4222", "--out", "out")
    assert done.returncode == 0 and "nats-server" not in done.stdout
    mesh = read_config(folder / "out" / "lyon" / "server.toml").mesh
    assert mesh is not None
    assert (mesh.name, mesh.broker, mesh.parent, mesh.domain) == ("news", "lyon", "basel", None)
    assert mesh.servers == ("nats://n:4222",)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "a mesh needs brokers"),
        (("a", "b"), "a tree has one root, not 2"),
        (("a", "b:c"), "the parent of 'b' is 'c'"),
        (("a", "a"), "is there twice"),
        (("hub",), "is the name of the hub's NATS server"),
        (("a b",), "cannot be a broker's name"),
        (("a", "--host", "z=there"), "which is no broker of the mesh"),
        (("a", "--tree", "absent"), "the tree cannot be read"),
    ],
)
def test_init_refuses(folder: Path, arguments: tuple[str, ...], told: str) -> None:
    done = run("init", "news", *arguments)
    assert done.returncode == 2 and told in done.stderr
    assert not (folder / "mesh").exists()


# -- the demo ----------------------------------------------------------------------------------------------


def test_the_demo_needs_nats_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.mesh.nats.local_servers.shutil.which", lambda *_, **__: None)
    done = run("demo")
    assert done.returncode == 2 and "apt-get install nats-server" in done.stderr


@pytest.mark.slow
@pytest.mark.server
def test_the_demo_runs_and_ends_without_a_trace() -> None:
    need_nats()
    done = subprocess.run(
        [sys.executable, "-m", "sapwood.cli", "mesh", "demo", "--seconds", "4"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "with 25 subscriptions" in done.stdout and "└── basel  8 subscriptions" in done.stdout
    (folder,) = set(re.findall(r"sapwood mesh trace hello --url (\S+)", done.stdout))
    port = folder.rpartition(":")[2]
    listening = Path("/proc/net/tcp").read_text()
    assert f":{int(port):04X} 00000000:0000 0A" not in listening
