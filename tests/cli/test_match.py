"""The command on files: JSON lines out, invalid input reported and skipped."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from lxml import etree

from tests.support.in_process import Run, sapwood


def records(run: Run | subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.fixture
def queries(tmp_path: Path) -> str:
    path = tmp_path / "queries.txt"
    path.write_text("# what we watch\n/news/title\n\n//title[@lang='en']\n//body\n")
    return str(path)


@pytest.fixture
def messages(tmp_path: Path) -> str:
    path = tmp_path / "messages.xmll"
    path.write_text('<news><title lang="en">a</title></news>\n<news><body/></news>\n')
    return str(path)


def test_match_writes_a_json_line_a_message(queries: str, messages: str) -> None:
    command = [sys.executable, "-m", "sapwood.cli", "match", queries, messages]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert records(run) == [
        {"message": f"{messages}:1", "matches": [2, 4]},
        {"message": f"{messages}:2", "matches": [5]},
    ]


@pytest.mark.parametrize("command", ["match", "transform", "explain", "import"])
def test_errors_name_the_option_that_declares_a_prefix(command: str, tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("//p:a\n")
    arguments = {
        "match": ["match", str(queries), "-"],
        "transform": ["transform", str(queries), "-"],
        "explain": ["explain", "//p:a"],
        "import": ["subscriptions", "import", str(queries), "--store", str(tmp_path / "s.db")],
    }[command]
    told = sapwood(*arguments).stderr
    assert "hint: declare it with -n p=URI (declared: none)" in told
    made = sapwood("explain", "for $a in //a return <q:r/>").stderr
    assert 'hint: add xmlns:q="…", or declare it with -n q=URI (declared: none)' in made


@pytest.mark.parametrize("engine", ["automaton", "relational"])
def test_errors_for_other_languages_name_commands(engine: str, tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("for $a in //a return <r/>\nS//a->x JOIN{x = y, 1 day} S//b->y\n")
    told = sapwood("match", str(queries), "-", "--engine", engine, stdin="<a/>").stderr
    assert "hint: filters are XPath 1.0; 'sapwood transform' takes for-where-return queries, too" in told
    assert "hint: filters are XPath 1.0; 'sapwood join' takes joins, too" in told
    assert "Matcher" not in told


@pytest.mark.parametrize("query", ["for $a in //a return <r/>", "S//a->x JOIN{x = y, 1 day} S//b->y"])
def test_explain_with_tables_names_the_option_to_omit(query: str) -> None:
    run = sapwood("explain", query, "--engine", "relational")
    assert run.returncode == 2
    told = run.stderr
    assert "hint: the relational engine evaluates filters only: omit --engine relational" in told
    assert "Matcher" not in told


def test_a_command_leaves_hints_for_python_as_they_are() -> None:
    code = """if True:
        import sys
        from sapwood import Matcher
        from sapwood.cli import main
        sys.argv = ["sapwood", "explain", "//a"]
        try:
            main()
        except SystemExit:
            pass
        try:
            Matcher().add(1, "//p:a")
        except ValueError as error:
            print(error)
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.endswith("hint: declare it with namespaces={'p': '…'} (declared: none)\n")


def test_queries_may_be_the_files_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "b.xpath").write_text("//b")
    (folder / "a.xpath").write_text("//a\n  [@x\n   = 1]")
    (folder / "t.xq").write_text("for $a in //a\nreturn <t>{$a/@x}</t>")
    run = sapwood("match", str(folder), "-", stdin="<a x='1'/>\n")
    assert run.returncode == 1
    assert records(run) == [{"message": "-:1", "matches": ["a"]}]
    assert f"{folder}/t.xq: this is a for-where-return query, not a filter" in run.stderr
    tables = sapwood("match", "--engine", "relational", str(folder), "-", stdin="<a x='1'/>\n")
    assert records(tables) == records(run)
    assert f"{folder}/t.xq: " in tables.stderr
    made = sapwood("transform", str(folder), "-", stdin="<a x='1'/>\n")
    assert [(r["subscription"], r["body"]) for r in records(made)] == [
        ("a", "<a x='1'/>"),
        ("t", '<t x="1"/>'),
    ]


def test_queries_and_messages_may_be_json_lines_compressed_folders_or_stdin(tmp_path: Path) -> None:
    queries = tmp_path / "queries.jsonl.gz"
    queries.write_bytes(gzip.compress(b'{"id": "s1", "query": "//a"}\n'))
    folder = tmp_path / "inbox" / "today"
    folder.mkdir(parents=True)
    (folder / "one.xml").write_text("<a/>")
    (folder / "two.xml").write_text("<b/>")
    (folder / "notes.txt").write_text("not a message")
    run = sapwood("match", str(queries), str(tmp_path / "inbox"), "-", stdin="<r><a/></r>\n")
    assert records(run) == [
        {"message": str(folder / "one.xml"), "matches": ["s1"]},
        {"message": str(folder / "two.xml"), "matches": []},
        {"message": "-:1", "matches": ["s1"]},
    ]


def test_select_tells_the_nodes_and_count_only_how_many(queries: str, messages: str) -> None:
    first = records(sapwood("match", "--select", queries, messages))[0]
    assert first["matches"][0]["nodes"] == [  # type: ignore[index]
        {"index": 2, "kind": "element", "value": "a", "xml": '<title lang="en">a</title>', "name": "title"}
    ]
    assert [r["count"] for r in records(sapwood("match", "--count", queries, messages))] == [2, 1]


def test_invalid_queries_and_messages_are_reported_and_skipped(tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("//a\n//b[\n//c\n")
    messages = tmp_path / "messages.xmll"
    messages.write_text("<a/>\n<a><b></a>\n<c/>\n")
    run = sapwood("match", str(queries), str(messages))
    assert run.returncode == 1
    assert f"{queries}:2:" in run.stderr
    assert [record.get("matches") for record in records(run)] == [[1], None, [3]]
    assert records(run)[1]["error"] == {"reason": "mismatched tag", "line": 1, "column": 9}


@pytest.mark.slow
def test_undecided_queries_are_reported_and_the_others_answered(tmp_path: Path) -> None:
    slow = "//a[count(//*[count(//*[count(//*[count(.//*) >= 0]) > 0]) > 0]) > 0]"
    (tmp_path / "queries").write_text(f"{slow}\n//b\n")
    (tmp_path / "m.xml").write_text("<a>" + "<b/>" * 1_000 + "</a>")
    name = str(tmp_path / "m.xml")
    told = [{"id": 1, "kind": "over budget", "reason": "it takes more than 1 s"}]
    for more, answer in (
        ([], {"matches": [2]}),
        (["--count"], {"count": 1}),
        (["--engine", "relational"], {"matches": [2]}),
    ):
        run = sapwood("match", str(tmp_path / "queries"), name, *more)
        assert records(run) == [{"message": name, **answer, "undecided": told}]
        assert run.returncode == 1
        assert "1: over budget: it takes more than 1 s" in run.stderr


@pytest.mark.slow
def test_failing_transformations_are_reported_and_the_others_delivered(tmp_path: Path) -> None:
    product = "for $x in //b, $y in //b, $z in //b return <r/>"
    (tmp_path / "queries").write_text(f"{product}\nfor $x in /a return <r/>\n")
    (tmp_path / "m.xml").write_text("<a>" + "<b/>" * 60 + "</a>")
    name = str(tmp_path / "m.xml")
    failed = {"id": 1, "kind": "failed", "reason": "more than 100,000 groups"}
    for command in ("transform", "join"):
        run = sapwood(command, str(tmp_path / "queries"), name)
        assert records(run) == [
            {"message": name, "subscription": 2, "body": "<r/>"},
            {"message": name, "undecided": [failed]},
        ]
        assert run.returncode == 1
        assert "1: failed: more than 100,000 groups" in run.stderr
        raw = sapwood(command, "--raw", str(tmp_path / "queries"), name)
        assert (raw.stdout, raw.returncode) == ("<r/>\n", 1)
        assert "1: failed: more than 100,000 groups" in raw.stderr


def test_mistakes_on_the_command_line_are_one_line_without_a_traceback(queries: str, messages: str) -> None:
    for arguments, says in [
        (("match", "nothing-here.txt", messages), "nothing-here.txt"),
        (("match", queries, "nothing-here.xml"), "nothing-here.xml"),
        (("match", "-n", "p", queries, messages), "PREFIX=URI"),
        (("match", "-n", "1x=urn:x", queries, messages), "--namespace: '1x' cannot be a prefix"),
        (
            ("transform", "-n", "xmlns=urn:x", queries, messages),
            "--namespace: the prefix 'xmlns' is reserved",
        ),
        (("explain", "-n", "xml=urn:x", "//a"), "--namespace: the prefix 'xml' always stands for"),
        (
            ("match", "-n", "p=a", "-n", "p=b", queries, messages),
            "--namespace: the prefix 'p' is bound to 'a'",
        ),
        (("explain", "//a["), "the query ends"),
        (("generate", "messages", "--dtd", "no-such-dtd"), "no-such-dtd"),
    ]:
        run = sapwood(*arguments)
        assert run.returncode == 2, arguments
        assert says in run.stderr
        assert "Traceback" not in run.stderr


def test_a_closed_pipe_ends_quietly(queries: str, tmp_path: Path) -> None:
    messages = tmp_path / "many.xmll"
    messages.write_text("<news><title/></news>\n" * 20_000)
    command = f"{sys.executable} -m sapwood.cli match {queries} {messages} | head -1"
    run = subprocess.run(command, shell=True, capture_output=True, timeout=60, check=False)
    assert len(run.stdout.splitlines()) == 1
    assert b"Traceback" not in run.stderr


def test_explain_shows_what_is_native_and_why_a_message_matches(tmp_path: Path) -> None:
    message = tmp_path / "message.xml"
    message.write_text("<a><b/><b/></a>")
    run = sapwood("explain", "//a[count(b) > 1]", "--message", str(message))
    text = run.stdout
    assert "refined   count(b) > 1" in text
    assert "matched   yes" in text
    as_json = json.loads(sapwood("explain", "//a", "--json").stdout)
    assert as_json["decided_by"] == "leaves"


def test_namespaces_are_declared_on_the_command_line(tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("//p:a\n")
    run = sapwood("match", "-n", "p=urn:x", str(queries), "-", stdin='<a xmlns="urn:x"/>')
    assert records(run)[0]["matches"] == [1]


def test_generated_queries_and_messages_go_together(tmp_path: Path) -> None:
    messages = sapwood("generate", "messages", "--dtd", "quotes", "--count", "20", "--seed", "3")
    assert len(messages.stdout.splitlines()) == 20
    for line in messages.stdout.splitlines():
        etree.fromstring(line)
    queries = sapwood("generate", "queries", "--dtd", "quotes", "--count", "30", "--predicates", "1")
    (tmp_path / "queries.txt").write_text(queries.stdout)
    (tmp_path / "messages.xmll").write_text(messages.stdout)
    run = sapwood("match", "--count", str(tmp_path / "queries.txt"), str(tmp_path / "messages.xmll"))
    assert run.returncode == 0
    assert sum(int(str(record["count"])) for record in records(run)) > 0
    folder = tmp_path / "files"
    sapwood("generate", "messages", "--dtd", "book", "--count", "3", "--out", str(folder))
    assert len(list(folder.glob("*.xml"))) == 3


def test_items_and_joins_of_them_are_generated() -> None:
    items = sapwood("generate", "feeds", "--count", "30", "--channels", "3", "--seed", "5")
    assert items.returncode == 0, items.stderr
    read = [etree.fromstring(line) for line in items.stdout.splitlines()]
    assert len(read) == 30
    assert len({item.findtext("channel_url") for item in read}) <= 3
    assert sapwood("generate", "feeds", "-c", "30", "--channels", "3", "--seed", "5").stdout == items.stdout
    for schema, root in (("flat", "/r->"), ("levels", "/r->"), ("feed", "/item->")):
        run = sapwood("generate", "joins", "--schema", schema, "--count", "20", "--stream", "news")
        queries = run.stdout.splitlines()
        assert len(queries) == 20
        assert all(query.startswith(f"news{root}v0[") for query in queries)
        assert all(query.count("FOLLOWED BY{") == query.count(", INF}") == 1 for query in queries)
        assert max(query.count("=") for query in queries) <= 6
    refused = sapwood("generate", "joins", "--schema", "feed", "--equalities", "6")
    assert refused.returncode == 2
    assert "at most 5" in refused.stderr


def test_explain_says_why_nothing_is_made_of_a_message(tmp_path: Path) -> None:
    message = tmp_path / "m.xml"
    message.write_text("<a><b>2</b></a>")
    run = sapwood("explain", "for $a in /a where $a/b = 1 return <r/>", "--message", str(message))
    out = run.stdout
    assert "matched   no: nothing passes the step" in out
    assert "found     b is '2'" in out
    assert out.endswith("the message gives no result\n")
    run = sapwood("explain", "for $a in /a where $a/b = 2 return <r/>", "--message", str(message))
    assert run.stdout.endswith("\n<r/>\n")


@pytest.mark.parametrize("command", ["match", "transform", "join"])
def test_a_folder_without_messages_is_reported(command: str, queries: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no message")
    run = sapwood(command, queries, str(tmp_path / "empty"))
    assert (run.returncode, run.stdout) == (0, "")
    assert run.stderr.startswith("there were no messages; in folders, files are read that end in .xml")


def test_one_refusal_is_reported_in_the_singular(queries: str) -> None:
    run = sapwood("match", queries, "-", stdin="<a>\n<b/>\n")
    assert run.stderr == "refused, or without an answer: 1 query or message\n"


def test_explain_names_the_message_that_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_text("<a>")
    run = sapwood("explain", "//a", "--message", str(tmp_path / "m.xml"))
    assert run.returncode == 2
    assert run.stderr.startswith(f"error: {tmp_path}/m.xml: line 1, column 4: no element found")


def test_a_malformed_message_does_not_stop_transformations_and_joins(tmp_path: Path) -> None:
    (tmp_path / "transformations").write_text("for $a in /a return <b>{$a/@n}</b>\n")
    (tmp_path / "joins").write_text("s/a[@n->i] FOLLOWED BY{i = j, 1 hour} s/a[@n->j]\n")
    (tmp_path / "messages.xmll").write_text('<a n="1" t="7"/>\n<a>\n<a n="1" t="8"/>\n')
    messages = str(tmp_path / "messages.xmll")
    made = sapwood("transform", str(tmp_path / "transformations"), messages)
    joined = sapwood("join", str(tmp_path / "joins"), f"s={messages}", "--time", "s=/a/@t")
    raw = sapwood("transform", str(tmp_path / "transformations"), messages, "--raw")
    assert (made.returncode, joined.returncode, raw.returncode) == (1, 1, 1)
    error = {"reason": "no element found", "line": 1, "column": 4}
    assert [line.get("body") or line["error"] for line in records(made)] == [
        '<b n="1"/>',
        error,
        '<b n="1"/>',
    ]
    assert [line.get("error") or line["messages"] for line in records(joined)] == [
        error,
        [f"{messages}:1", f"{messages}:3"],
    ]
    assert raw.stdout == '<b n="1"/>\n<b n="1"/>\n'
    assert "messages.xmll:2: line 1, column 4: no element found" in raw.stderr
