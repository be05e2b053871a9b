"""The blocks of README and docs, extracted and run as a reader would: page by page, in an empty folder.

    python      executed in one namespace a page
    console     lines with `$ ` are given to a shell; those below are what it prints, where `…` is anything
    toml        written to the file that its first line names, `# pipeline.toml`, or at least parsed

A block without a language is not for running: a diagram, a grammar. A comment before a block says what is
special about it: `<!-- not run: REASON -->`, or `<!-- with Spark -->`, which takes a Java and a minute.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sapwood.spark.pipeline.config import read_config

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
RUN = frozenset({"python", "console", "toml"})
_BLOCK = re.compile(
    r"(?:^<!--[ ](?P<mark>[^\n]*?)[ ]-->\n)?^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_TIMEOUT = 300


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    mark: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def with_spark(self) -> bool:
        return self.mark == "with Spark"

    @property
    def reason(self) -> str | None:
        """Why it is not run; None if it is."""
        found = re.fullmatch(r"not run: *(.*)", self.mark)
        return found[1] if found else None


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    source = (ROOT / page).read_text()
    return [
        Block(
            page,
            source.count("\n", 0, found.start("language")) + 1,
            found["language"],
            found["text"],
            found["mark"] or "",
        )
        for found in _BLOCK.finditer(source)
    ]


_LOOP = """
import json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    source, page = json.loads(line)
    try:
        exec(compile(source, page, "exec"), names)
        answer = ""
    except BaseException:
        answer = traceback.format_exc()
    print(json.dumps(answer), file=sys.stderr, flush=True)
"""


class Interpreter:
    """A Python of its own in a folder, for Spark, whose Java takes paths from where it was started."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", _LOOP]
        pipe = subprocess.PIPE
        with (folder / "python.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=pipe, stdout=log, stderr=pipe, text=True
            )

    def run(self, source: str, block: Block) -> None:
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._process.stdin.write(json.dumps([source, block.page]) + "\n")
        self._process.stdin.flush()
        said: list[str] = []
        for line in self._process.stderr:  # Java and others have their say there, too
            if line.startswith('"'):
                assert not json.loads(line), f"{block}\n{json.loads(line)}"
                return
            said.append(line)
        raise AssertionError(f"{block}: Python ended\n{''.join(said)}")

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_TIMEOUT)
        assert self._process.stderr is not None
        self._process.stderr.close()


class Reader:
    """Somebody who follows a page word for word, in a folder."""

    def __init__(self, folder: Path, interpreter: Interpreter | None = None) -> None:
        self._folder = folder
        self._interpreter = interpreter
        self._names: dict[str, Any] = {"__name__": "__main__"}

    def follow(self, block: Block) -> None:
        if block.language == "python":
            # lines of an error's traceback are those of the page
            source = "\n" * block.line + block.text
            if self._interpreter is not None:
                self._interpreter.run(source, block)
            else:
                exec(compile(source, block.page, "exec"), self._names)
        elif block.language == "console":
            for command, shown in commands(block):
                self._type(command, shown, block)
        else:
            tomllib.loads(block.text)
            name = re.match(r"# (\S+\.toml)\n", block.text)
            if name is not None:
                (self._folder / name[1]).write_text(block.text)
                read_config(self._folder / name[1])

    def _type(self, command: str, shown: str, block: Block) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        strict = [] if "| head" in command else ["-o", "pipefail"]  # which ends what comes before it
        done = subprocess.run(
            ["bash", *strict, "-c", command],
            cwd=self._folder,
            env=os.environ | {"PATH": path, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_TIMEOUT,
        )
        refused = shown.startswith("error: ")
        assert done.returncode == (2 if refused else 0), f"{block}: $ {command}\n{done.stdout}"
        assert not shown or matches(shown, done.stdout), (
            f"{block}: $ {command}\nprints\n{done.stdout}\nand not\n{shown}"
        )


def commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, and what is shown below each."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            command, shown = found[-1]
            if command.endswith("\\"):
                found[-1] = f"{command[:-1]}{line.strip()}", shown
            else:
                found[-1] = command, f"{shown}{line}\n"
    return found


def matches(shown: str, printed: str) -> bool:
    """Whether a page shows what is printed, `…` being any text."""
    pattern = ".*".join(re.escape(part) for part in shown.rstrip("\n").split("…"))
    return re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None
