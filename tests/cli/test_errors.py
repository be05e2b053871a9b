"""The tree of errors: it has all that are raised on purpose, and the command shows others as bugs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import sapwood.errors
from sapwood.errors import SapwoodError

_MODULES = [
    "sapwood.bench.harness.experiments",
    "sapwood.bench.spark.kafka_server",
    "sapwood.client",
    "sapwood.engine.serialization",
    "sapwood.input_files",
    "sapwood.mesh.nats.errors",
    "sapwood.mesh.wire.frame_codec",
    "sapwood.mesh.wire.topology_codec",
    "sapwood.relational.storage.store_sync",
    "sapwood.spark.joins.join_plan",
    "sapwood.spark.pipeline.pipeline",
    "sapwood.workload",
]
"""Modules whose import defines all errors."""


def subclasses(error: type[SapwoodError]) -> set[type[SapwoodError]]:
    below = set(error.__subclasses__())
    return below.union(*(subclasses(each) for each in below))


def test_the_tree_is_complete() -> None:
    for module in _MODULES:
        __import__(module)
    drawn = set(re.findall(r"── (\w+)", sapwood.errors.__doc__ or ""))
    found = [(error.__module__, error.__name__) for error in subclasses(SapwoodError)]
    own = [(module, name) for module, name in found if module.startswith("sapwood.")]
    # The errors of the service become answers of its API, of which there is a table in the docs.
    assert drawn == {name for module, name in own if not module.startswith("sapwood.serve.")}


def test_a_bug_shows_its_traceback(tmp_path: Path) -> None:
    program = (
        "import sys, sapwood.engine.matcher as m; m.Matcher.match = lambda *a: int('x');"
        "sys.argv = ['sapwood', 'match', 'q.txt', 'm.xml']; from sapwood.cli import main; main()"
    )
    (tmp_path / "q.txt").write_text("//a\n")
    (tmp_path / "m.xml").write_text("<a/>")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sapwood.cli",
        "generate",
        "messages",
        "--dtd",
        "news",
        "--count",
        "3000",
    ]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "error: the output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    (tmp_path / "file").touch()
    done = subprocess.run([*command, "--out", "file/folder"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "--out: the folder 'file/folder' cannot be created" in done.stderr
