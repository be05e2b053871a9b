"""Without a suitable Java, the error says how to install one; with one, Spark prints nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sapwood.spark.spark_session import JavaError, check_java, session


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder on a path that leads nowhere else."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def fake_java(folder: Path, version: str, status: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\nexit {status}\n")
    java.chmod(0o755)
    return java


def said() -> str:
    """The error, which always says how to install Java."""
    with pytest.raises(JavaError) as caught:
        check_java()
    with pytest.raises(JavaError):
        session()
    text = str(caught.value)
    assert "sudo apt-get install openjdk-17-jre-headless" in text
    assert "brew install openjdk@17" in text
    assert "JAVA_HOME" in text
    return text.splitlines()[0]


def test_without_java_the_error_says_how_to_install_it(no_java: Path) -> None:
    assert said() == "Spark needs Java 17 or newer, and there is none."


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_402", "8"), ("11.0.22", "11"), ("16", "16")])
def test_an_old_java_is_named(no_java: Path, version: str, shown: str) -> None:
    java = fake_java(no_java, version)
    assert said() == f"Spark needs Java 17 or newer; {java} is version {shown}."


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25-ea"])
def test_a_new_java_will_do(no_java: Path, version: str) -> None:
    fake_java(no_java, version)
    check_java()


def test_java_home_comes_first(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(no_java, "21")
    old = fake_java(no_java / "old" / "bin", "1.8.0")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    assert said() == f"Spark needs Java 17 or newer; {old} is version 8."


def test_a_java_home_that_leads_nowhere_is_named(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(no_java, "21")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "gone"))
    java = no_java / "gone" / "bin" / "java"
    assert said() == f"Spark needs Java, and {java} cannot be run: No such file or directory."


def test_a_java_that_is_no_program_is_named(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(no_java / "home" / "bin", "21")
    java.write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "home"))
    assert said() == f"Spark needs Java, and {java} cannot be run: Exec format error."


def test_a_java_that_fails_is_named(no_java: Path) -> None:
    java = fake_java(no_java, "17", status=1)
    java.write_text("#!/bin/sh\necho 'Error: could not find libjvm.so' >&2\nexit 6\n")
    assert said() == f"Spark needs Java 17 or newer; {java} is version unknown."


_NOISY = """
import sys
from sapwood.spark.spark_session import session
print("before"); print("before", file=sys.stderr)
spark = session("local[1]", log=sys.argv[1])
def noise(batches):
    print("the worker speaks")
    print("the worker complains", file=sys.stderr)
    yield from batches
print(spark.range(3).mapInArrow(noise, "id long").count())
print("after"); print("after", file=sys.stderr)
spark.stop()
"""


def test_output_of_spark_goes_to_the_log(java: None, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "spark.log"
    command = [sys.executable, "-c", _NOISY, str(log)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "before\n3\nafter\n"
    assert ran.stderr == "before\nafter\n"
    written = log.read_text()
    assert "the worker speaks" in written
    assert "the worker complains" in written
    assert "log4j" in written


_WITH_PACKAGES = """
import sys
from sapwood.spark.spark_session import PackageError, session
try:
    session("local[1]", config={"spark.jars.packages": "no.such.group:thing:1.0"}, log=sys.argv[1])
except PackageError as error:
    print(error)
"""


def test_packages_that_cannot_be_fetched_are_named(java: None, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WITH_PACKAGES, str(tmp_path / "spark.log")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(
        "Spark cannot fetch the packages no.such.group:thing:1.0: "
        "unresolved dependency: no.such.group#thing;1.0: not found. Check their names"
    )
    assert '"spark.jars" = "folder/*.jar"' in ran.stdout


def test_the_running_session_is_given_again(spark: SparkSession) -> None:
    assert session("local[2]") is spark


def test_times_are_utc_wherever_it_runs(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_the_daemon_starts_no_thread_before_it_forks_workers() -> None:
    code = (
        "import os, sys; from sapwood.spark_daemon import preload; preload();"
        "print(len(os.listdir('/proc/self/task')), 'sapwood.broker' in sys.modules, 'pyarrow' in sys.modules)"
    )
    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads are counted in /proc, which this system does not have")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["1", "True", "False"]
