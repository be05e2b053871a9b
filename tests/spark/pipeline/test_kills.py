"""Whatever is killed, and whenever: in the end, everything is delivered once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sapwood.spark.pipeline.config import read_config
from sapwood.spark.pipeline.pipeline import Pipeline
from tests.support.requirements import FULL
from tests.support.spark.spark_stream import Stream

_PATIENCE = 150


def _start(stream: Stream, master: str = "local[2]") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.spark.spark_driver", str(stream.settings), master]
    root = Path(__file__).parents[3]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, start_new_session=True)


def _finish(stream: Stream, process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 0, (stream.folder / "spark.log").read_text()[-3000:]
    return output


def test_a_driver_killed_at_random_moments(tmp_path: Path, spark: SparkSession) -> None:
    stream = Stream(tmp_path / "stream")
    stream.subscribe(200)
    stream.publish(10)
    chance = random.Random(3)
    for round in range(4 if FULL else 1):
        process = _start(stream)
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        for _ in range(chance.choice((0, 1, 2))):
            process.stdout.readline()
        time.sleep(chance.uniform(0.0, 1.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=_PATIENCE)
        stream.change_subscriptions(round)
    Pipeline(spark, read_config(stream.settings)).run()
    stream.assert_exact(spark)


def test_an_executor_killed_in_the_middle_of_a_batch(tmp_path: Path, spark: SparkSession) -> None:
    stream = Stream(tmp_path / "stream")
    stream.subscribe(200)
    stream.publish(3)
    process = _start(stream, "local-cluster[2,1,1024]")
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    assert process.stdout.readline().startswith("0 ")
    time.sleep(0.3)
    victim = _executors(process.pid)[0]
    os.kill(victim, signal.SIGKILL)
    output = _finish(stream, process)
    assert output.splitlines()[-1].startswith("2 ")
    stream.assert_exact(spark)


def _executors(group: int) -> list[int]:
    """The executors' processes: Java with their class, in the driver's session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
            except OSError:
                continue
            if session == group and b"CoarseGrainedExecutorBackend" in command:
                found.append(int(entry.name))
    if not found:
        pytest.fail("there are no executors")
    return found
