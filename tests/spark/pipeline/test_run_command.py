"""The command `sapwood run`: errors in one line, JSON lines in a pipe, Ctrl-C and another run."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from sapwood import Broker, Limits, SapwoodError
from sapwood.cli import main
from sapwood.cli.common.run_log import Verbosity, log_to_file, log_to_notes, report_errors, summarize_error
from sapwood.cli.run import default_log
from sapwood.spark.distribution.pipeline_subscriptions import FileSubscriptions, compile_file
from sapwood.spark.pipeline.checkpoint_lock import lock_checkpoint
from sapwood.spark.pipeline.config import ConfigError
from sapwood.spark.pipeline.preflight import check_master
from sapwood.spark.pipeline.toml_lines import find_source_line
from tests.support.spark.spark_stream import delivered_by

QUERIES = {
    "1": "//a",
    "2": "//b[. > 3]",
    "3": "//c[count(d) = 1]",
    "4": "/none",
    "5": "for $b in //b where $b > 3 return <more>{$b}</more>",
}
MESSAGES = 5
FILES = 4
PIPELINE = """
name = "test"
[source]
path = "inbox"
files_per_batch = 1
[subscriptions]
file = "queries.txt"
[deliveries]
path = "deliveries"
[rejects]
path = "rejects"
[run]
checkpoint = "checkpoint"
trigger = "{trigger}"
master = "local[2]"
partitions = 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline with four files of five messages, one of each malformed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inbox").mkdir()
    for file in range(FILES):
        lines = [f"<a><b>{file + line}</b><c><d/></c></a>\n" for line in range(MESSAGES - 1)]
        (tmp_path / "inbox" / f"{file}.xmll").write_text("".join([*lines, "<a><b></a>\n"]))
    (tmp_path / "queries.txt").write_text("".join(f"{query}\n" for query in QUERIES.values()))
    describe(tmp_path, "available-now")
    return tmp_path


def describe(folder: Path, trigger: str, **changed: str) -> None:
    text = PIPELINE.format(trigger=trigger)
    for old, new in changed.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    (folder / "pipeline.toml").write_text(text)


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The error of a command that ends with 2 before Spark is started."""
    monkeypatch.setattr(sys, "argv", ["sapwood", "run", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err
    return " ".join(told.err.split())


# -- before Spark starts -------------------------------------------------------------------------------


def test_a_file_that_is_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(monkeypatch, capsys, "absent.toml")
    assert told == "error: absent.toml cannot be read: No such file or directory"


def test_a_key_that_is_wrong(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "pipeline.toml").read_text().replace("partitions", "partition")
    (folder / "pipeline.toml").write_text(text)
    assert "did you mean 'partitions'?" in refused(monkeypatch, capsys, "pipeline.toml")


def test_a_source_that_is_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    describe(folder, "batch", inbox="outbox")
    told = refused(monkeypatch, capsys, "pipeline.toml")
    assert told == f"error: source.path: there is no file or folder {folder / 'outbox'}"


@pytest.mark.parametrize(
    ("servers", "told"),
    [
        ("127.0.0.1:1,localhost:1", "Kafka cannot be reached (127.0.0.1:1: Connection refused; localhost:1"),
        ("broker", "a host and a port are expected, such as broker:9092, not 'broker'"),
        ("broker:99999", "a host and a port are expected, such as broker:9092, not 'broker:99999'"),
    ],
)
def test_a_kafka_server_that_does_not_answer(
    servers: str,
    told: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = f'options = {{ "kafka.bootstrap.servers" = "{servers}" }}'
    text = (folder / "pipeline.toml").read_text()
    sink = f'format = "kafka"\ntopic = "rejects"\n{options}'
    (folder / "pipeline.toml").write_text(text.replace('path = "rejects"', sink))
    error = refused(monkeypatch, capsys, "pipeline.toml")
    assert f'rejects.options."kafka.bootstrap.servers": {told}' in error


@pytest.mark.parametrize(
    ("query", "language", "told"),
    [
        ("//a", "for-where-return", "expected 'for $v in path'"),
        ("for $a in //a return $a", "xpath", "a for-where-return query, not a filter"),
        ("//a", "sql", "there is no language 'sql'"),
    ],
)
def test_a_file_whose_queries_are_in_another_language(
    tmp_path: Path, query: str, language: str, told: str
) -> None:
    line = {"id": "s", "query": query, "language": language}
    (tmp_path / "queries.txt").write_text(json.dumps(line))
    with pytest.raises(SapwoodError, match=re.escape(told)):
        FileSubscriptions(str(tmp_path / "queries.txt"), {}, Limits())


def test_queries_that_are_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "queries.txt").unlink()
    assert "queries.txt" in refused(monkeypatch, capsys, "pipeline.toml")


def test_a_store_that_is_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "pipeline.toml").read_text().replace('file = "queries.txt"', 'store = "none.db"')
    (folder / "pipeline.toml").write_text(text)
    told = refused(monkeypatch, capsys, "pipeline.toml")
    assert "there is no store" in told
    assert not (folder / "none.db").exists()


def test_a_report_that_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is a folder" in refused(monkeypatch, capsys, "pipeline.toml", "--report", "inbox")
    told = refused(monkeypatch, capsys, "pipeline.toml", "--report", "queries.txt/report.html")
    assert "--report:" in told


def test_without_spark_it_says_what_to_install(folder: Path) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; sys.argv = ['sapwood', 'run', 'pipeline.toml'];"
        "from sapwood.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "in a clone of Sapwood, pip install '.[spark]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_all_invalid_queries_of_a_file_are_reported_with_their_lines(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["//a", "//b[", "{broken", '{"id": 1, "query": "//c"}', '{"id": "x", "query": "//a["}', "//ok"]
    lines += ['{"id": "y", "query": "//a", "language": "sql"}', "for $x in //a return"]
    (folder / "queries.txt").write_text("\n".join(lines))
    told = refused(monkeypatch, capsys, "pipeline.toml")
    assert "subscriptions.file: 6 queries cannot be evaluated" in told
    assert "starting Spark" not in told
    for line, reason in {
        2: "column 5 of the query",
        3: "expected {",
        4: "the id '1' is that of line 1",
        5: "column",
        7: "there is no language 'sql'",
        8: "column",
    }.items():
        assert f"{folder / 'queries.txt'}:{line}: {reason}" in told


@pytest.mark.parametrize("joins", ["", "[joins]\n"])
@pytest.mark.parametrize(
    ("time", "reason"),
    [
        ("/a[", "expected an element name"),
        ("//p:a", "declare it with subscriptions.namespaces, or for a store 'sapwood subscriptions "),
        ("for $a in //a return <b/>", "XPath 1.0 is expected here"),
    ],
)
def test_a_time_that_is_no_path(
    joins: str,
    time: str,
    reason: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    describe(folder, "available-now")
    text = (folder / "pipeline.toml").read_text()
    text = text.replace('path = "inbox"', f'path = "inbox"\ntime = "{time}"')
    (folder / "pipeline.toml").write_text(text + joins)
    told = refused(monkeypatch, capsys, "pipeline.toml")
    assert "error: pipeline.toml:5: source.time: " in told and reason in told
    assert "starting Spark" not in told


def test_the_line_of_a_key_of_a_source() -> None:
    text = "time = 1\n[[source]]\npath = 'a'\n[source.options]\ntime = 2\n[[ source ]] # two\n'time' = 3\n"
    assert find_source_line(text, 2, "time") == 7
    assert find_source_line(text, 1, "time") is None
    assert find_source_line(text, 1, "path") == 3
    assert find_source_line("source = { time = '/a[' }", 1, "time") is None


def test_many_bad_queries_are_counted(tmp_path: Path) -> None:
    (tmp_path / "queries.txt").write_text("//[\n" * 100)
    with pytest.raises(ConfigError) as caught:
        compile_file(str(tmp_path / "queries.txt"), {}, Limits())
    told = str(caught.value).splitlines()
    assert "100 queries" in told[0]
    assert len(told) == 22
    assert told[-1].strip() == "and 80 more"


@pytest.mark.parametrize(
    ("master", "told"),
    [
        ("nonsense://", "is not a master of Spark; use local,"),
        ("local[0]", "is not a master of Spark"),
        ("local[two]", "is not a master of Spark"),
        ("spark://", "is not a master of Spark"),
        ("spark://host", "a host and a port are expected"),
        ("spark://127.0.0.1:1", "spark://127.0.0.1:1 cannot be reached (127.0.0.1:1: Connection refused)"),
        ("spark://127.0.0.1:1,localhost:1", "cannot be reached (127.0.0.1:1: Connection refused; localhost"),
        ("k8s://https://127.0.0.1:1", "cannot be reached"),
        ("yarn", "yarn needs HADOOP_CONF_DIR"),
    ],
)
def test_a_master_that_is_none_or_does_not_answer(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    master: str,
    told: str,
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    assert told in refused(monkeypatch, capsys, "pipeline.toml", "--master", master)
    describe(folder, "batch", **{"local[2]": master})
    assert told in refused(monkeypatch, capsys, "pipeline.toml")


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[4]", "local[4,2]", "local[*, 3]", "local-cluster[2,1,1024]"]
)
def test_masters_of_this_machine(master: str) -> None:
    check_master(master)


def test_a_master_that_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{port}")
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
        check_master(f"k8s://http://127.0.0.1:{port}")


def test_a_checkpoint_that_another_run_is_using(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import sys, time; from sapwood.spark.pipeline.checkpoint_lock import lock_checkpoint\n"
        "with lock_checkpoint(sys.argv[1]):\n    print('locked', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(folder / "checkpoint")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        told = refused(monkeypatch, capsys, "pipeline.toml")
        assert f"{folder / 'checkpoint'} is in use by process {process.pid} on" in told
        process.kill()  # which does not let it tidy up
    with (
        lock_checkpoint(str(folder / "checkpoint")),
        pytest.raises(ConfigError, match=f"process {os.getpid()} "),
    ):
        lock_checkpoint(f"file://{folder}/checkpoint").__enter__()
    with lock_checkpoint(str(folder / "checkpoint")), lock_checkpoint("s3a://bucket/checkpoint"):
        """It is free again, and others are not locked."""


def test_the_log_is_beside_a_local_checkpoint() -> None:
    assert default_log("/data/checkpoint") == Path("/data/checkpoint/spark.log")
    assert default_log("file:///data/checkpoint") == Path("/data/checkpoint/spark.log")
    assert default_log("s3a://bucket/checkpoint") == Path("sapwood-spark.log")


def test_errors_of_spark_come_down_to_a_line() -> None:
    java = "[PATH_NOT_FOUND] Path does not exist: file:/x.;\n\tat org.apache.spark.Some.method\n"
    assert summarize_error(RuntimeError(java)) == "[PATH_NOT_FOUND] Path does not exist: file:/x"
    python = (
        "Job aborted\nTraceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    f()\nOSError: full\n\n\tat org.apache.Some'
    )
    assert summarize_error(RuntimeError(python)) == "OSError: full"
    assert summarize_error(RuntimeError()) == "RuntimeError"


# -- the log, and bugs ---------------------------------------------------------------------------------


def test_a_bug_is_called_a_bug_with_its_traceback_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "logs" / "run.log"
    with pytest.raises(SystemExit) as ended, log_to_file(log), report_errors(log):
        raise ValueError("a [bold] mistake")
    assert ended.value.code == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "internal error: ValueError: a [bold] mistake this is a bug in Sapwood" in told
    assert f"the traceback in {log}" in told
    text = log.read_text()
    assert "CRITICAL" in text
    assert "Traceback (most recent call last)" in text
    assert "raise ValueError" in text


def test_errors_of_users_and_of_the_machine_are_no_bugs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.log"
    with pytest.raises(ConfigError), log_to_file(log), report_errors(log):
        raise ConfigError("a key")
    assert log.read_text() == ""
    with pytest.raises(SystemExit) as ended, log_to_file(log), report_errors(log):
        raise OSError(28, "No space left on device")
    assert ended.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"No space left on device; more is in {log}" in told
    assert "bug" not in told
    assert "Traceback" in log.read_text()
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit), log_to_file(tmp_path / "file" / "run.log"):
        pytest.fail("there is no such folder")
    assert "run.log cannot be written" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("count", "shown", "logged"),
    [(0, ["warning"], "IW"), (1, ["info", "warning"], "IW"), (2, ["debug", "info", "warning"], "DIW")],
)
def test_verbose_shows_more_and_the_log_has_it_anyway(
    tmp_path: Path, count: int, shown: list[str], logged: str
) -> None:
    notes: list[str] = []
    logger = logging.getLogger("sapwood.spark.pipeline.pipeline")
    before = logging.getLogger("sapwood").level
    verbosity = Verbosity(count)
    with log_to_file(tmp_path / "run.log", verbosity), log_to_notes(notes.append, verbosity):
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            logger.log(level, logging.getLevelName(level).lower())
    logger.warning("after the run")
    assert notes == shown
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert "".join(line.split()[2][0] for line in lines) == logged
    assert logging.getLogger("sapwood").level == before
    assert Verbosity(7) is Verbosity.DETAILS


# -- a stream ------------------------------------------------------------------------------------------


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sapwood.cli", "run", "pipeline.toml", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, text=True, start_new_session=True, **pipes)  # type: ignore[call-overload, no-any-return]


def expected() -> Counter[tuple[str, str, str | None]]:
    """What has to be delivered, by a broker in this process."""
    found: Counter[tuple[str, str, str | None]] = Counter()
    with Broker() as broker:
        broker.subscribe_many(QUERIES.items())
        for file in sorted(Path("inbox").iterdir()):
            offset = 0
            for line in file.read_bytes().splitlines(keepends=True)[:-1]:
                name = f"{file.name}@{offset}"
                found.update((name, id, body) for id, body in delivered_by(broker, line.rstrip()))
                offset += len(line)
    return found


def delivered() -> Counter[tuple[str, str, str | None]]:
    table = ds.dataset("deliveries", format="parquet").to_table(["message_id", "subscription", "body"])
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_ctrl_c_finishes_the_batch_and_the_next_run_goes_on(folder: Path, java: None) -> None:
    describe(folder, "1 second")
    with start(folder) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to Spark's processes, too
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    lines = [first, *map(json.loads, out.splitlines())]
    done = len(lines) - 1
    assert 1 <= done < FILES
    assert lines[-1]["summary"]["batches"] == done
    assert "stopping after the current batch; again to stop at once" in err
    assert f"stopped after batch {done - 1}; run it again to continue from there" in err
    assert "Traceback" not in err

    describe(folder, "available-now")
    with start(folder, "--json", "-v", "--report", "reports/page.html", "--log", "noise.txt") as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    rest = [json.loads(line) for line in out.splitlines()]
    batches = rest[:-1]
    # Stopped between two of Spark's logs, the next run may take two files into its first batch.
    assert len(batches) in (FILES - done, FILES - done - 1)
    assert [line["batch"] for line in batches] == list(range(done, done + len(batches)))
    assert sum(line["messages"] for line in batches) == MESSAGES * (FILES - done)
    assert sum(line["rejects"] for line in batches) == FILES - done  # one in every file
    assert all(line["reasons"] == {"mismatched tag": line["rejects"]} for line in batches)
    assert all(line["messages_per_second"] > 0 for line in batches)
    assert delivered() == expected()
    page = (folder / "reports" / "page.html").read_text("utf-8")
    assert f"Batches 0 to {done + len(batches) - 1}" in page  # of the run before, too
    assert "//c[count(d) = 1]" in page
    logged = f"batch {done} committed: {batches[0]['messages']} messages, "
    assert logged in err
    assert f"INFO sapwood.spark.pipeline.pipeline: {logged}" in (folder / "noise.txt").read_text()
    assert "batch 0 committed" in (folder / "checkpoint" / "spark.log").read_text()


def test_a_stream_says_when_it_is_ready(folder: Path, java: None) -> None:
    """So nobody has to guess when a message that is put into the inbox will be served by itself."""
    for file in (folder / "inbox").iterdir():
        file.unlink()
    describe(folder, "500 milliseconds")
    text = (folder / "pipeline.toml").read_text()
    (folder / "pipeline.toml").write_text(
        text.replace("partitions = 2", 'log = "logs/noise.txt"\npartitions = 2')
    )
    with start(folder) as process:
        assert process.stdout is not None and process.stderr is not None
        told = iter(process.stderr.readline, "")
        assert f"its log is {folder}/logs/noise.txt" in next(told)
        assert any(line == f"waiting for messages in {folder / 'inbox'}\n" for line in told)
        for batch in range(2):
            (folder / "inbox" / f".{batch}").write_text("<a/>")
            (folder / "inbox" / f".{batch}").rename(folder / "inbox" / f"{batch}.xml")
            line = json.loads(process.stdout.readline())
            assert (line["batch"], line["messages"]) == (batch, 1)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "waiting" not in err  # it is told once
    assert (folder / "logs" / "noise.txt").stat().st_size > 0


def test_an_error_of_spark_is_one_line_that_names_the_log(folder: Path, java: None) -> None:
    describe(folder, "batch")
    with (folder / "pipeline.toml").open("a") as file:
        file.write('[spark]\n"spark.driver.bindAddress" = "256.0.0.1"\n"spark.port.maxRetries" = 1\n')
    with start(folder) as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "error: Spark: " in err
    assert f"more is in {folder / 'checkpoint' / 'spark.log'}" in err
    assert "Traceback" not in err
