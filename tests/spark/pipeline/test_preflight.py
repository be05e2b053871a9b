"""Errors of `sapwood run` before Spark starts: one line or a few, that say what is wrong and where."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sapwood import Limits, SapwoodError
from sapwood.cli import main
from sapwood.cli.common.run_log import summarize_error
from sapwood.cli.pipeline.run import default_log
from sapwood.config_file import ConfigError
from sapwood.spark.distribution.pipeline_subscriptions import FileSubscriptions, compile_file
from sapwood.spark.pipeline.checkpoint_lock import lock_checkpoint
from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.preflight import check_master, check_pipeline
from sapwood.spark.pipeline.toml_lines import find_source_line
from sapwood.store import SubscriptionStore
from tests.support.spark.small_pipeline import describe


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


@pytest.mark.parametrize(("tenant", "restricted"), [("", 0), ("acme", 2)])
def test_subscriptions_that_a_pipeline_does_not_evaluate_are_warned_of(
    folder: Path, caplog: pytest.LogCaptureFixture, tenant: str, restricted: int
) -> None:
    with SubscriptionStore("subscriptions.db") as store:
        store.add("all", "//a")
        store.add("not active", "//a", streams=["news"], active=False)
    with SubscriptionStore("subscriptions.db", tenant="acme") as store:
        store.add("all", "//a")
        store.add("news", "//a", streams=["news"])
        store.add("stocks", "for $a in //a return $a", streams=["stocks"])
    text = (folder / "pipeline.toml").read_text()
    text = text.replace('file = "queries.txt"', f'store = "subscriptions.db"\ntenant = "{tenant}"')
    (folder / "pipeline.toml").write_text(text)
    assert check_pipeline(read_config("pipeline.toml"), "local") is None
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    expected = f"{restricted} subscriptions of {folder / 'subscriptions.db'} are restricted to streams"
    assert [message.partition(":")[0] for message in warned] == [expected] * bool(restricted)


def test_a_file_of_queries_that_are_restricted_to_streams(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "queries.txt").write_text('//a\n{"id": "s", "query": "//b", "streams": ["news"]}\n')
    told = refused(monkeypatch, capsys, "pipeline.toml")
    assert "queries.txt:2: 'streams' are for the service" in told


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
