"""The relational engine on the command line: it answers as the automaton does, and keeps its tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cli.common.interruption import InterruptHandler
from sapwood.cli.common.relational_options import PlanName
from sapwood.cli.tables.relational_match import decode_id, encode_id
from sapwood.relational import Plan, RelationalMatcher
from sapwood.relational.storage import store_sync
from sapwood.relational.subscription_catalog import SubscriptionCatalog
from sapwood.workload import MessageGenerator, QueryGenerator, load_dtd
from tests.support.in_process import Run, Sapwood
from tests.support.in_process import sapwood as run_here

RELATIONAL = "--engine", "relational"


@pytest.fixture
def sapwood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sapwood:
    """Runs `sapwood …` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return run_here


def told(run: Run) -> str:
    """The error of a refused command: one line, without a traceback."""
    assert run.returncode == 2, run
    assert run.stdout == ""
    assert run.stderr.startswith("error: ")
    assert "Traceback" not in run.stderr
    return run.stderr


def records(run: Run) -> list[dict[str, object]]:
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.fixture
def messages(tmp_path: Path) -> str:
    path = tmp_path / "messages.xmll"
    path.write_text('<news><title lang="en">a</title></news>\n<news><body/></news>\n')
    return path.name


# -- queries of a file ---------------------------------------------------------------------------------------


def test_answers_are_the_automatons(sapwood: Sapwood, tmp_path: Path) -> None:
    dtd = load_dtd("quotes")
    queries = QueryGenerator(dtd, seed=5, predicates=1, nested=1, values=3, operators=("=", "<", ">="))
    made = MessageGenerator(dtd, seed=6, values=3)
    lines = [queries.query() for _ in range(40)]
    lines[7:7] = ["//quote[", '{"id": "7", "query": "//*"}', '{"id": -3, "query": "count(//*) > 5"}', "# no"]
    lines.append('{"id": 7, "query": "//a"}')  # which is line 7's, unless that is no query
    lines.append('{"id": 8, "query": "//a"}')
    (tmp_path / "queries.txt").write_text("\n".join(lines))
    bodies = [made.message().decode().replace("\n", " ") for _ in range(16)]
    bodies[4] = "<a><b></a>"
    (tmp_path / "messages.xmll").write_text("\n".join(bodies))
    expected = sapwood("match", "queries.txt", "messages.xmll")
    assert expected.returncode == 1
    assert sum(len(json.loads(line).get("matches", ())) for line in expected.stdout.splitlines()) > 50
    for options in ((), ("--count",)):
        arguments = "match", "queries.txt", "messages.xmll", *options
        run = sapwood(*arguments, *RELATIONAL, "--batch", "6")
        expected = sapwood(*arguments)
        assert (run.returncode, run.stdout) == (1, expected.stdout)
        assert refused_lines(run) == refused_lines(expected) != []


def refused_lines(run: Run) -> list[str]:
    return [part for part in run.stderr.split() if part.startswith("queries.txt:")]


def test_tables_of_a_file_of_queries(sapwood: Sapwood, messages: str, tmp_path: Path) -> None:
    (tmp_path / "queries.txt").write_text("//body\n")
    (tmp_path / "others.txt").write_text("//title\n")
    match = partial(sapwood, "match")
    assert match("queries.txt", messages, *RELATIONAL, "--tables", "t.duckdb").returncode == 0
    (tmp_path / "queries.txt").write_text("//title\n//p:body\n")
    arguments = "-n", "p=urn:p", "queries.txt", "-", *RELATIONAL, "--tables", "t.duckdb"
    run = match(*arguments, stdin='<body xmlns="urn:p"><title xmlns=""/></body>')
    assert records(run)[0]["matches"] == [1, 2]  # those of the file as it is now
    assert "holds those of" in told(match("others.txt", messages, *RELATIONAL, "--tables", "t.duckdb"))
    assert sorted(path.name for path in tmp_path.glob("t.duckdb*")) == ["t.duckdb"]


def test_messages_before_a_missing_file_are_answered(sapwood: Sapwood, messages: str, tmp_path: Path) -> None:
    (tmp_path / "queries.txt").write_text("//body\n")
    for engine in ("automaton", "relational"):
        run = sapwood("match", "queries.txt", messages, "none.xml", "--engine", engine)
        assert (run.returncode, len(run.stdout.splitlines())) == (2, 2)
        assert "there is no file or folder 'none.xml'" in run.stderr


@given(st.one_of(st.integers(), st.text(), st.integers().map(str), st.text('0123-"\ud800\0a')))
def test_ids_come_back_as_they_were(id: int | str) -> None:
    stored = encode_id(id)
    assert (decode_id(stored), type(decode_id(stored))) == (id, type(id))
    stored.encode()
    if isinstance(id, str) and id.isalpha() and id.isascii():
        assert stored == id


# -- subscriptions of a store --------------------------------------------------------------------------------


def test_the_filters_of_a_store(sapwood: Sapwood, messages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emptied = 0
    empty = store_sync.clear_tables

    def counted(matcher: RelationalMatcher, note: dict[str, str | None]) -> None:
        nonlocal emptied
        emptied += 1
        empty(matcher, note)

    monkeypatch.setattr(store_sync, "clear_tables", counted)
    subscriptions = partial(sapwood, "subscriptions")
    match = partial(sapwood, "match", "--store", "subscriptions.db", messages)
    subscriptions("import", "-", stdin="//title\n//body\n/news\n//title[@lang='en']\n")
    for changes in (
        [],
        [("deactivate", "1"), ("add", "new", "/*/title")],
        [
            ("activate", "1"),
            ("replace", "2", "//title | //body"),
            ("remove", "3"),
            ("add", "3", "/news"),
            ("add", "made", "for $b in //body return <x>{$b}</x>"),
        ],
    ):
        for change in changes:
            assert subscriptions(*change).returncode == 0
        run, expected = match(*RELATIONAL), match()
        assert (run.returncode, run.stdout, run.stderr) == (0, expected.stdout, expected.stderr)
    assert json.loads(run.stdout.splitlines()[0])["matches"] == ["1", "2", "4", "new", "3"]
    assert "1 in for-where-return" in run.stderr
    assert emptied == 1
    assert Path("subscriptions.db.duckdb").exists()
    assert records(sapwood("relational", "show"))[0]["version"] == 8


def test_loading_by_itself(sapwood: Sapwood, messages: str, tmp_path: Path) -> None:
    sapwood("subscriptions", "import", "-", "-n", "p=urn:p", stdin="//p:title\n//body\n")
    run = sapwood("relational", "load", "--tables", "elsewhere", "--plan", "shared", "--memory", "1GB")
    assert run.returncode == 0
    assert run.stdout.startswith("version 2: 2 subscriptions, loaded in ")
    assert run.stdout.endswith("MB\n")
    assert not Path("subscriptions.db.duckdb").exists()
    shown = records(sapwood("relational", "show", "--tables", "elsewhere"))[0]
    assert (shown["store"], shown["plan"]) == (str(tmp_path / "subscriptions.db"), "shared")
    assert shown["rows"]["subscription"] == 2  # type: ignore[index]
    assert shown["bytes"] == Path("elsewhere").stat().st_size
    run = sapwood("match", "--store", "subscriptions.db", messages, *RELATIONAL, "--tables", "elsewhere")
    assert [record["matches"] for record in records(run)] == [[], ["2"]]


def test_explain_prints_costs_and_gc_prints_deleted_rows(sapwood: Sapwood) -> None:
    sapwood("subscriptions", "import", "-", stdin="//a[b = 1]\n//c[d > 2]\n")
    sapwood("relational", "load", "--plan", "buckets")
    assert sapwood("relational", "explain").stdout.startswith("plan        buckets, in use\n")
    choice = records(sapwood("relational", "explain", "--json"))[0]
    assert (choice["plan"], choice["in_use"]) == ("buckets", "buckets")
    assert choice["costs"].keys() == {"shared", "buckets", "unrolled"}  # type: ignore[attr-defined]
    sapwood("subscriptions", "remove", "1")
    sapwood("relational", "load")
    run = sapwood("relational", "gc", "--plan", "unrolled")
    assert "1 of linear_path" in run.stdout
    assert run.stdout.endswith("the plan was buckets and is unrolled now\n")
    assert records(sapwood("relational", "show"))[0]["plan"] == "unrolled"


def test_names_that_are_written_twice_are_the_same() -> None:
    assert [plan.value for plan in PlanName] == [plan.value for plan in Plan]


# -- interruptions -------------------------------------------------------------------------------------------


def test_ctrl_c_finishes_the_chunk(sapwood: Sapwood, monkeypatch: pytest.MonkeyPatch, messages: str) -> None:
    sapwood("subscriptions", "import", "-", stdin="//body\n" * 50)
    monkeypatch.setattr(store_sync, "synchronize", partial(store_sync.synchronize, chunk=10))
    apply_changes = SubscriptionCatalog.apply_changes
    chunks = 0

    def interrupted(*given: object, **named: object) -> None:
        nonlocal chunks
        chunks += 1
        if chunks == 2:
            os.kill(os.getpid(), signal.SIGINT)
        apply_changes(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(SubscriptionCatalog, "apply_changes", interrupted)
    run = sapwood("relational", "load")
    assert run.returncode == 130
    assert run.stderr.endswith("20 subscriptions are in the tables; the next run continues from there\n")
    assert records(sapwood("relational", "show"))[0]["unfinished"] is True
    run = sapwood("match", "--count", "--store", "subscriptions.db", messages, *RELATIONAL)
    assert ([record["count"] for record in records(run)], chunks) == ([0, 50], 5)


@pytest.fixture
def default_handler() -> Iterator[None]:
    """The handler that Python starts with: Spark sets one of its own in the processes of its tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_handler")
def test_ctrl_c_while_nothing_is_under_way() -> None:
    with pytest.raises(KeyboardInterrupt), InterruptHandler() as interruption:
        with interruption.allowed():
            os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("it was allowed")
    with pytest.raises(KeyboardInterrupt), InterruptHandler() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        with interruption.allowed():
            pytest.fail("it had come before")
    done = False
    with pytest.raises(KeyboardInterrupt), InterruptHandler():
        os.kill(os.getpid(), signal.SIGINT)
        done = True
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# -- forms ---------------------------------------------------------------------------------------------------


def test_explain_shows_the_rules(sapwood: Sapwood) -> None:
    run = sapwood("explain", "/a//b[c = 1 or d][not(e)]/@f", *RELATIONAL)
    assert run.stdout.splitlines() == [
        "query     /a//b[c = 1 or d][not(e)]/@f",
        "rule 1    /a//b(1)/c = 1",
        "          /a//b(1)/@f",
        "rule 2    /a//b(1)/d",
        "          /a//b(1)/@f",
        "branching at (1), the branches of a rule must share one element",
        "decided   by the query itself, on the messages that satisfy one of the rules",
        "weakened  not(e): a negation",
    ]
    assert "decided   by the rules" in sapwood("explain", "//a", *RELATIONAL).stdout
    assert "no message can match" in sapwood("explain", "//a[false()]", *RELATIONAL).stdout
    assert "every message satisfies it" in sapwood("explain", "/", *RELATIONAL).stdout
    form = records(sapwood("explain", "//p:a[@b > 2]", "-n", "p=urn:p", "--json", *RELATIONAL))[0]
    assert form == {
        "query": "//p:a[@b > 2]",
        "exact": True,
        "rules": [[{"path": "//{urn:p}a/@b", "test": {"op": ">", "value": 2.0}, "points": []}]],
        "weakened": [],
    }
    assert "the query ends" in told(sapwood("explain", "//a[", *RELATIONAL))
    assert "--message" in told(sapwood("explain", "//a", "--message", "x", *RELATIONAL))


# -- mistakes ------------------------------------------------------------------------------------------------


def test_errors_are_one_line(sapwood: Sapwood, messages: str, tmp_path: Path) -> None:
    (tmp_path / "queries.txt").write_text("//a\n")
    sapwood("subscriptions", "add", "s", "//a")
    store = "--store", "subscriptions.db"
    postgres = "--store", "postgresql://u:secret@localhost/x"
    for arguments, says in [
        (("match",), "MESSAGES are missing"),
        (("match", "queries.txt"), "MESSAGES are missing"),
        (("match", *store), "MESSAGES are missing"),
        (("match", "--store", "none.db", messages), "there is no store 'none.db'"),
        (("match", "--store", "none.db", messages, *RELATIONAL), "there is no store 'none.db'"),
        (("match", *store, messages, "-n", "p=urn:p"), "--namespace goes with QUERIES"),
        (("match", "queries.txt", messages, "--tables", "t"), "--tables goes with --engine relational"),
        (("match", "queries.txt", messages, "--batch", "9"), "--batch goes with --engine relational"),
        (("match", "queries.txt", messages, "--select", *RELATIONAL), "--select"),
        (("match", "none.txt", messages, *RELATIONAL), "none.txt"),
        (("match", *postgres, messages, *RELATIONAL), "--tables FILE"),
        (
            ("match", *store, messages, *RELATIONAL, "--memory", "much"),
            "--memory: the memory limit 'much' is",
        ),
        (("match", *store, messages, *RELATIONAL, "--memory", "1MB"), "--memory: the memory limit '1MB' is"),
        (("match", "queries.txt", messages, *RELATIONAL, "--memory", "1MB"), "give at least 16MB"),
        (("relational", "load", "--memory", "15MB"), "--memory: the memory limit '15MB' is too small"),
        (("match", *store, messages, *RELATIONAL, "--tables", "queries.txt"), "queries.txt cannot be opened"),
        (("relational", "load", "--store", "none.db"), "there is no store 'none.db'"),
        (("relational", "gc"), "'sapwood relational load' creates it"),
        (("relational", "explain", "--tables", "t"), "there is no file 't'"),
        (("relational", "show", "--tables", "t"), "there is no file 't'"),
        (("relational", "show", *postgres), "--tables FILE"),
    ]:
        text = told(sapwood(*arguments))
        assert says in text, arguments
        assert "secret" not in text
        assert text.count("\n") == 1
    assert not Path("subscriptions.db.duckdb").exists()


def test_without_duckdb_it_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['duckdb'] = None; sys.argv = ['sapwood', 'relational', 'show'];"
        "from sapwood.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "needs duckdb, which is missing: in a clone of Sapwood, pip install '.[relational]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_other_commands_load_no_duckdb() -> None:
    code = "import sys, sapwood.cli; print('duckdb' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
