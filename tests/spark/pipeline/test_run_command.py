"""The command `sapwood run`: its log, JSON lines in a pipe, Ctrl-C and another run."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from sapwood import Broker
from sapwood.cli.common.run_log import Verbosity, log_to_file, log_to_notes, report_errors
from sapwood.config_file import ConfigError
from tests.support.spark.small_pipeline import FILES, MESSAGES, QUERIES, describe
from tests.support.spark.spark_stream import delivered_by

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
