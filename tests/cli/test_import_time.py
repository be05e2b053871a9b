"""Modules that the package and the command load, and those that they load only when needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sapwood
from sapwood.engine.kernel import KERNEL, REASON

NEVER_FOR_A_MATCH = [
    "duckdb",
    "http.client",
    "matplotlib",
    "pandas",
    "pyarrow",
    "pyspark",
    "rich",
    "sapwood.bench",
    "sapwood.broker",
    "sapwood.cli.generate",
    "sapwood.cli.pipeline.run",
    "sapwood.cli.subscriptions",
    "sapwood.demo",
    "sapwood.join",
    "sapwood.lang.fwr.constructor",
    "sapwood.lang.fwr.compiler",
    "sapwood.lang.xscl.compiler",
    "sapwood.relational",
    "sapwood.spark",
    "sapwood.store",
    "sapwood.transform",
    "sapwood.workload",
    "sqlalchemy",
    "ssl",
]
"""Modules whose import takes a message's time many times over; `rich.repr` and the like count as `rich`."""

_COMMAND = """
import sys
from sapwood.cli import main
try:
    main()
finally:
    print(*(name for name in sys.modules), sep="\\n", file=sys.stderr)
"""


def loaded_by(*arguments: str) -> tuple[str, set[str]]:
    """The output of the command, and the modules that are loaded when it ends."""
    command = [sys.executable, "-c", _COMMAND, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize("options", [(), ("--select",), ("--count",)])
def test_a_match_loads_what_it_needs_only(options: tuple[str, ...], tmp_path: Path) -> None:
    queries, message = tmp_path / "queries.txt", tmp_path / "message.xml"
    queries.write_text("".join(f"//a[b = {n}]\n" for n in range(10)))
    message.write_text("<a><b>7</b></a>")
    out, loaded = loaded_by("match", *options, str(queries), str(message))
    assert '"matches": [' in out or '"count": 1' in out
    assert [name for name in NEVER_FOR_A_MATCH if name in loaded] == []
    assert "numpy" in loaded  # so the list of modules is one


def test_the_version_is_printed_without_loading_the_matcher() -> None:
    out, loaded = loaded_by("--version")
    engine = "compiled kernel" if KERNEL is not None else f"pure Python: {REASON}"
    assert out == f"sapwood {sapwood.__version__} ({engine})\n"
    assert "numpy" not in loaded
    assert "sapwood.engine.matcher" not in loaded


def test_the_version_says_that_the_kernel_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPWOOD_KERNEL", "0")
    out, _ = loaded_by("--version")
    assert out == f"sapwood {sapwood.__version__} (pure Python: SAPWOOD_KERNEL=0)\n"


def test_the_version_is_the_one_of_the_project() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert f'version = "{sapwood.__version__}"\n' in project.read_text()


def test_names_of_the_package_are_imported_when_asked_for() -> None:
    code = "import sys, sapwood; print('sapwood.engine' in sys.modules); from sapwood import Matcher, Broker;"
    code += "import sapwood.broker; print(Broker is sapwood.broker.Broker)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\nTrue\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'sapwood' has no attribute 'Mather'"):
        sapwood.Mather  # type: ignore[attr-defined]  # noqa: B018


def test_a_misspelt_command_is_answered_with_the_one_that_was_meant() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "sapwood.cli", "subscription", "list"], capture_output=True, text=True
    )
    assert run.returncode == 2
    assert "'subscriptions'" in run.stderr


def test_a_shell_gets_its_completions() -> None:
    """What the script of `--show-completion bash` asks the command for."""
    asked = {"_SAPWOOD_COMPLETE": "complete_bash", "COMP_WORDS": "sapwood sub", "COMP_CWORD": "1"}
    command = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'sapwood'; from sapwood.cli import main; main()",
    ]
    run = subprocess.run(command, capture_output=True, text=True, env=asked)
    assert run.stdout.split() == ["subscriptions"]
    asked |= {"COMP_WORDS": "sapwood subscriptions im", "COMP_CWORD": "2"}
    run = subprocess.run(command, capture_output=True, text=True, env=asked)
    assert run.stdout.split() == ["import"]
