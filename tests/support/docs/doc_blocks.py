"""The blocks of README and docs, extracted and run page by page in an empty folder.

    python      executed in one namespace per page
    console     lines with `$ ` are run by a shell; the lines below are its output, in which `…` is any text
    toml        written to the file that its first line names, `# pipeline.toml`, and checked as a pipeline's,
                or `# server.toml`, as a server's; without a name, at least parsed

A block without a language, such as a diagram or a grammar, is not run. A comment before a block marks an
exception: `<!-- not run: REASON -->`, or `<!-- with Spark -->`, which needs Java and a minute. For a block
`<!-- with a broker -->`, SAPWOOD_URL is the address of a broker service, whose files are in the folder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sapwood.serve.config import read_config as read_server_config
from sapwood.spark.pipeline.config import read_config
from tests.support.in_process import sapwood

ROOT = Path(__file__).parents[3]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
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
    def with_broker(self) -> bool:
        return self.mark == "with a broker"

    @property
    def reason(self) -> str | None:
        """The reason why it is not run; None if it is run."""
        found = re.fullmatch(r"not run: *(.*)", self.mark)
        return found[1] if found else None


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page, in order."""
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
    """A separate Python process in a folder, for Spark, whose JVM resolves paths where it was started."""

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
        output: list[str] = []
        for line in self._process.stderr:  # the JVM and others write there, too
            if line.startswith('"'):
                assert not json.loads(line), f"{block}\n{json.loads(line)}"
                return
            output.append(line)
        raise AssertionError(f"{block}: Python ended\n{''.join(output)}")

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_TIMEOUT)
        assert self._process.stderr is not None
        self._process.stderr.close()


class Reader:
    """Runs the blocks of one page in a folder."""

    def __init__(self, folder: Path, interpreter: Interpreter | None = None) -> None:
        self._folder = folder
        self._interpreter = interpreter
        self._names: dict[str, Any] = {"__name__": "__main__"}

    def follow(self, block: Block) -> None:
        if block.language == "python":
            # so that line numbers in a traceback are those of the page
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
                read = read_server_config if name[1] == "server.toml" else read_config
                read(self._folder / name[1])

    def _type(self, command: str, shown: str, block: Block) -> None:
        arguments = None if self._interpreter is not None else sapwood_arguments(command)
        status, printed = self._run_in_shell(command) if arguments is None else self._run_here(*arguments)
        refused = shown.startswith("error: ")
        assert status == (2 if refused else 0), f"{block}: $ {command}\n{printed}"
        assert not shown or matches(shown, printed), (
            f"{block}: $ {command}\nprints\n{printed}\nand not\n{shown}"
        )

    def _run_here(self, arguments: list[str], target: str | None) -> tuple[int, str]:
        """Run a `sapwood` command in this process, whose current folder is the page's."""
        done = sapwood(*arguments, COLUMNS="200")
        if target is None:
            return done.returncode, done.stdout + done.stderr
        (self._folder / target).write_text(done.stdout)
        return done.returncode, done.stderr

    def _run_in_shell(self, command: str) -> tuple[int, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        strict = [] if "| head" in command else ["-o", "pipefail"]  # head ends the commands before it
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
        return done.returncode, done.stdout


_SHELL = frozenset("|&;<>()$`")


def sapwood_arguments(command: str) -> tuple[list[str], str | None] | None:
    """Return the arguments of a plain `sapwood` command, and the file that its output goes to; else None.

    A plain command has no use for a shell but that one redirection, so it can run without starting a process.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    words = list(lexer)
    if words[0] != "sapwood":
        return None
    target = words.pop() if len(words) > 2 and words[-2] == ">" else None
    if target is not None:
        words.pop()
    quoted = [word for word in words if _SHELL.isdisjoint(word) or _is_quoted(word, command)]
    return (words[1:], target) if quoted == words else None


def _is_quoted(word: str, command: str) -> bool:
    return f"'{word}'" in command or (f'"{word}"' in command and not {"$", "`"} & set(word))


def commands(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output shown below it."""
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
    """Return whether the shown text is the printed one, `…` being any text."""
    pattern = ".*".join(re.escape(part) for part in shown.rstrip("\n").split("…"))
    return re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None
