"""The command `sapwood subscriptions`: changes print versions, lists are JSON lines, imports go on."""

from __future__ import annotations

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.in_process import Run, Sapwood
from tests.support.in_process import sapwood as run_here


@pytest.fixture
def sapwood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sapwood:
    """Runs `sapwood subscriptions …` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return partial(run_here, "subscriptions")


def listed(run: Run) -> list[dict[str, object]]:
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def told(run: Run) -> str:
    """The error of a refused command: one line, or with a caret, without a traceback."""
    assert run.returncode == 2, run
    assert run.stdout == ""
    assert run.stderr.startswith("error: ")
    assert "Traceback" not in run.stderr
    return run.stderr


def test_every_change_prints_its_version(sapwood: Sapwood, tmp_path: Path) -> None:
    for number, change in enumerate(
        [
            ("add", "s1", "//a", "--subscriber", "anna"),
            ("add", "s2", "//b"),
            ("add", "s3", "//c"),
            ("replace", "s1", "//d"),
            ("deactivate", "s2"),
            ("activate", "s2"),
            ("remove", "s2", "s3"),
        ],
        1,
    ):
        run = sapwood(*change)
        assert (run.returncode, run.stdout) == (0, f"version {number}\n"), run.stderr
    assert listed(sapwood("list")) == [
        {
            "id": "s1",
            "query": "//d",
            "subscriber": "anna",
            "language": "xpath",
            "active": True,
            "since": 4,
            "streams": [],
        }
    ]
    assert listed(sapwood("list", "--at", "3", "--json")) == [
        {"id": "s1", "query": "//a"},
        {"id": "s2", "query": "//b"},
        {"id": "s3", "query": "//c"},
    ]
    assert (tmp_path / "subscriptions.db").exists()


def test_the_language_is_detected_from_the_text(sapwood: Sapwood) -> None:
    made = "for $a in //a return <made>{$a}</made>"
    assert sapwood("add", "s", made).stdout == "version 1\n"
    assert sapwood("add", "t", "//a").stdout == "version 2\n"
    assert [row["language"] for row in listed(sapwood("list"))] == ["for-where-return", "xpath"]
    assert sapwood("replace", "s", "//a").stdout == "version 3\n"
    assert sapwood("replace", "t", made).stdout == "version 4\n"
    assert [row["language"] for row in listed(sapwood("list"))] == ["xpath", "for-where-return"]
    assert "  for $a in //a\n" in told(sapwood("add", "u", "for $a in //a"))


def test_lists_are_chosen_from(sapwood: Sapwood) -> None:
    sapwood("add", "1", "//a", "--subscriber", "anna")
    sapwood("add", "2", "//a", "--subscriber", "bert")
    sapwood("deactivate", "1")
    assert [row["id"] for row in listed(sapwood("list", "--subscriber", "bert"))] == ["2"]
    assert [row["id"] for row in listed(sapwood("list", "--active"))] == ["2"]
    assert [row["id"] for row in listed(sapwood("list", "--inactive"))] == ["1"]
    assert "--at goes with neither" in told(sapwood("list", "--at", "1", "--active"))


def test_a_terminal_gets_a_table(sapwood: Sapwood, tmp_path: Path) -> None:
    sapwood("import", "-", stdin="".join(f"//a[@n = {n}]\n" for n in range(502)))
    sapwood("deactivate", "1")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sapwood.cli", "subscriptions", "list"]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=tmp_path) as process:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
    os.close(ours)
    assert process.returncode == 0
    text = shown.decode()
    assert "version 2" in text
    assert "//a[@n = 0]" in text  # brackets are no markup
    assert "and 2 more; --json lists all" in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # its other end is closed
        return b""


def test_the_store_may_come_from_the_environment(sapwood: Sapwood, tmp_path: Path) -> None:
    assert sapwood("add", "s", "//a", SAPWOOD_STORE="other.db").returncode == 0
    assert (tmp_path / "other.db").exists()
    assert len(listed(sapwood("list", "--store", "sqlite:///other.db"))) == 1


def test_namespaces_are_declared_in_the_store(sapwood: Sapwood) -> None:
    assert "prefix 'p' is not declared" in told(sapwood("add", "s", "//p:a"))
    assert sapwood("add", "s", "//p:a", "-n", "p=urn:p").stdout == "version 2\n"
    assert sapwood("add", "t", "//p:b").stdout == "version 3\n"
    assert sapwood("replace", "t", "//q:b", "-n", "q=urn:q").stdout == "version 5\n"
    assert listed(sapwood("namespaces", "-n", "r=urn:r")) == [
        {"prefix": "p", "uri": "urn:p"},
        {"prefix": "q", "uri": "urn:q"},
        {"prefix": "r", "uri": "urn:r"},
    ]
    assert "is bound to 'urn:p' already" in told(sapwood("namespaces", "-n", "p=urn:x"))
    assert "PREFIX=URI" in told(sapwood("add", "u", "//a", "-n", "p"))


def test_errors_have_no_traceback(sapwood: Sapwood, tmp_path: Path) -> None:
    for command in [("list",), ("remove", "s"), ("activate", "s"), ("replace", "s", "//a"), ("prune",)]:
        assert "there is no store 'subscriptions.db'" in told(sapwood(*command))
    assert list(tmp_path.iterdir()) == []
    sapwood("add", "s", "//a")
    assert "there is a subscription 's' already" in told(sapwood("add", "s", "//b"))
    assert "  //b[\n" in told(sapwood("replace", "s", "//b["))
    assert "no subscription 'none'" in told(sapwood("remove", "s", "none"))
    assert "no version 7 yet" in told(sapwood("list", "--at", "7"))
    assert "must not be empty" in told(sapwood("add", "", "//a"))
    assert "there is no file" in told(sapwood("import", "nothing.txt"))
    (tmp_path / "notes.txt").write_text("dear diary, " * 500)
    assert "not a database" in told(sapwood("list", "--store", "notes.txt"))


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://u:hush@127.0.0.1:1/d",
        "postgresql://u@127.0.0.1:1/d?password=hush",
        "postgresql://u:hush",
        "mysql://u:hush@h/d",
    ],
)
def test_no_password_is_printed(sapwood: Sapwood, store: str) -> None:
    for run in (
        sapwood("list", "--store", store),
        sapwood("add", "s", "//a", SAPWOOD_STORE=store),
        sapwood("import", "-", SAPWOOD_STORE=store),
    ):
        assert "hush" not in told(run)
        assert len(run.stderr.splitlines()) == 1
    assert "hush" not in sapwood("add", "--help", SAPWOOD_STORE=store).stdout


# -- import ------------------------------------------------------------------------------------------------


def test_an_import_takes_lines_and_json_lines(sapwood: Sapwood, tmp_path: Path) -> None:
    lines = [
        "# ours",
        "//a",
        '{"id": "s", "query": "//b", "subscriber": "bert", "active": false, "language": "xpath"}',
        '{"id": 7, "query": "//c", "subscriber": null}',
        "for $a in //a return <made>{$a}</made>",
        '{"id": "t", "query": "for $a in //a\\nreturn $a", "language": null}',
        '{"id": "u", "query": "for $a in //a return $a", "language": "for-where-return"}',
    ]
    (tmp_path / "all.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    run = sapwood("import", "all.gz", "--subscriber", "anna")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "added 6, refused 0; version 1\n"
    assert [tuple(row.values())[:6] for row in listed(sapwood("list"))] == [
        ("2", "//a", "anna", "xpath", True, 1),
        ("s", "//b", "bert", "xpath", False, 1),
        ("7", "//c", "anna", "xpath", True, 1),
        ("5", "for $a in //a return <made>{$a}</made>", "anna", "for-where-return", True, 1),
        ("t", "for $a in //a\nreturn $a", "anna", "for-where-return", True, 1),
        ("u", "for $a in //a return $a", "anna", "for-where-return", True, 1),
    ]


def test_import_reports_refused_lines_and_adds_the_others(sapwood: Sapwood, tmp_path: Path) -> None:
    bad = {
        2: b"//b[",
        3: b'{"id": "s", "query": ',
        4: b'{"id": true, "query": "//a"}',
        5: b'{"id": "s", "query": "//a", "active": "yes"}',
        6: b'{"id": "s", "query": "//a", "subscriber": 7}',
        7: b'{"id": "s", "query": "//a", "language": "sql"}',
        8: b'{"id": "", "query": "//a"}',
        9: b'{"id": "1", "query": "//a"}',
        10: b"//caf\xe9",
        11: b'{"id": "\\ud800", "query": "//a"}',
        12: b'{"id": "s", "query": ' + b"[" * 100_000,
        13: b"//p:a",
        14: b"for $a in //a",
        15: b'{"id": "s", "query": "//a", "language": "for-where-return"}',
        16: b'{"id": "s", "query": "for $a in //a return $a", "language": "xpath"}',
    }
    (tmp_path / "bad.txt").write_bytes(b"\n".join([b"//a", *bad.values(), b"//z"]))
    run = sapwood("import", "bad.txt")
    assert run.returncode == 1
    assert run.stdout == f"added 2, refused {len(bad)}; version 1\n"
    places = [line.split(":")[1] for line in run.stderr.splitlines() if line.startswith("bad.txt:")]
    assert places == [str(line) for line in bad]
    assert "  //b[\n      ^\n" in run.stderr
    assert "there is a subscription '1' already" in run.stderr
    assert "there is no language 'sql'; there are: xpath, for-where-return" in run.stderr
    assert [row["id"] for row in listed(sapwood("list"))] == ["1", "17"]


def test_only_the_first_refusals_are_reported_one_by_one(sapwood: Sapwood) -> None:
    run = sapwood("import", "-", stdin="//a\n" + "//b[\n{\n" * 600)
    assert (run.returncode, run.stdout) == (1, "added 1, refused 1,200; version 1\n")
    assert sum(line.startswith("-:") for line in run.stderr.splitlines()) == 50
    assert run.stderr.endswith("and 1,150 more lines were refused\n")


def test_replacing_by_import(sapwood: Sapwood) -> None:
    sapwood("import", "-", stdin="//a\n//b\n")
    assert sapwood("import", "-", stdin="//a\n//b\n//c\n").stdout == "added 1, refused 2; version 2\n"
    run = sapwood("import", "--replace", "-", stdin="//a\n//x\n//c\n//d\n")
    assert run.stdout == "added 1, replaced 1, unchanged 2, refused 0; version 3\n"
    again = sapwood("import", "--replace", "-", stdin="//a\n//x\n//c\n//d\n")
    assert again.stdout == "added 0, unchanged 4, refused 0; version 3\n"


def test_an_upsert_tells_what_has_changed(sapwood: Sapwood) -> None:
    def line(id: str, query: str, **more: object) -> str:
        return json.dumps({"id": id, "query": query, **more}) + "\n"

    sapwood("import", "-", stdin=line("a", "//a") + line("b", "//b") + line("c", "//c"))
    refused = sapwood("import", "-", stdin=line("a", "//x"))
    assert "there is a subscription 'a' already; --upsert replaces it" in refused.stderr
    new = [line("a", "//x"), line("b", "//b", subscriber="[bold]me"), line("c", "//c", active=False)]
    run = sapwood("import", "--upsert", "-", stdin="".join(new) + line("d", "//d"))
    assert run.stdout == "added 1, replaced 3, refused 0; version 2\n"
    assert run.stderr == ("a: //x, was //a\nb: subscriber [bold]me, was none\nc: no longer active\n")
    many = "".join(line(str(n), "//a") for n in range(70))
    sapwood("import", "-", stdin=many)
    run = sapwood("import", "--upsert", "-", stdin=many.replace("//a", "//b"))
    assert len(run.stderr.splitlines()) == 51
    assert run.stderr.endswith("and 20 more subscriptions were replaced\n")


def test_a_folder_of_queries_is_imported(sapwood: Sapwood, tmp_path: Path) -> None:
    folder = tmp_path / "queries"
    (folder / "trade").mkdir(parents=True)
    (folder / "urgent.xpath").write_text("# what cannot wait\n\n//order[@urgent]\n")
    (folder / "titles.xq").write_text("\ufefffor $b in //book\nreturn <t>{$b/title}</t>\n")
    (folder / "trade" / "paid.xscl").write_text("o//order[@id->i]\nJOIN{i = j, 1 day}\np//payment[@for->j]")
    (folder / "README.md").write_text("no query")
    (folder / "wrong.xpath").write_text("//a[")
    (folder / "latin.xpath").write_bytes(b"//caf\xe9")
    (folder / "mistaken.xq").write_text("//a")
    run = sapwood("import", "queries", "--subscriber", "desk")
    assert (run.returncode, run.stdout) == (1, "added 3, refused 3; version 1\n")
    for name in ("wrong.xpath", "latin.xpath", "mistaken.xq"):
        assert f"queries/{name}: " in run.stderr
    rows = {str(row["id"]): row for row in listed(sapwood("list"))}
    assert {id: row["language"] for id, row in rows.items()} == {
        "titles": "for-where-return",
        "trade/paid": "xscl",
        "urgent": "xpath",
    }
    assert rows["urgent"]["query"] == "//order[@urgent]"
    assert rows["titles"]["query"] == "for $b in //book\nreturn <t>{$b/title}</t>"
    (tmp_path / "nothing").mkdir()
    assert "no *.xpath, *.xq, *.xscl" in told(sapwood("import", "nothing"))


def test_a_broken_file_keeps_what_was_read_in_whole_chunks(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(os.urandom(3_000).hex().encode())[:-900])
    assert "'cut.gz' cannot be read" in told(sapwood("import", "cut.gz"))
    (tmp_path / "plain.gz").write_text("//a\n")
    assert "'plain.gz' cannot be read" in told(sapwood("import", "plain.gz"))


@pytest.mark.slow
def test_an_interruption_keeps_what_is_in(sapwood: Sapwood, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sapwood.cli", "subscriptions", "import", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path) as process:
        assert process.stdin is not None
        process.stdin.write(b"//a\n" * 30_000)
        process.stdin.flush()
        deadline = time.monotonic() + 30
        while not (version := _version(sapwood)) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.wait(30)
        assert process.stdout is not None
        assert process.stderr is not None
        said, complained = process.stdout.read().decode(), process.stderr.read().decode()
    assert version
    assert process.returncode == 130
    assert said == "interrupted after 20,000 subscriptions; version 1\n"
    assert "Traceback" not in complained
    assert len(listed(sapwood("list"))) == 20_000


def _version(sapwood: Sapwood) -> bool:
    return sapwood("list", "--at", "1").returncode == 0


# -- history -----------------------------------------------------------------------------------------------


def test_history_is_pruned(sapwood: Sapwood) -> None:
    sapwood("add", "s", "//a")
    sapwood("replace", "s", "//b")
    sapwood("replace", "s", "//c")
    assert sapwood("prune", "2").stdout == "dropped 1 former states; the oldest version is 2\n"
    assert "version 1 was pruned" in told(sapwood("list", "--at", "1"))
    assert sapwood("prune").stdout == "dropped 1 former states; the oldest version is 3\n"
    assert "no version 9 yet" in told(sapwood("prune", "9"))
    assert listed(sapwood("list", "--at", "3")) == [{"id": "s", "query": "//c"}]


def test_other_commands_load_no_database() -> None:
    code = "import sys, sapwood.cli; print('sqlalchemy' in sys.modules, 'sapwood.store' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
