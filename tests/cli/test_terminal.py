"""Commands on a terminal: progress apart from the output, and tables for people."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from functools import cache
from pathlib import Path
from threading import Thread

import pytest

pytestmark = pytest.mark.slow

MESSAGES = 300
INPUTS = {
    "filters": "//a[@n = 7]\n/a\n",
    "transformations": "for $a in /a return <b>{$a/@n}</b>\n",
    "joins": "s/a[@n->i] FOLLOWED BY{i = j, 1 hour} s/a[@n->j]\n",
    "messages.xmll": "".join(f'<a n="{number % 10}"/>\n' for number in range(MESSAGES)),
}
COMMANDS = {
    "match": ["match", "filters", "messages.xmll"],
    "transform": ["transform", "transformations", "messages.xmll"],
    "join": ["join", "joins", "s=messages.xmll"],
    "generate messages": ["generate", "messages", "--dtd", "news", "--count", "20"],
    "generate queries": ["generate", "queries", "--dtd", "news", "--count", "20"],
    "generate transformations": ["generate", "transformations", "--dtd", "news", "--count", "20"],
    "generate feeds": ["generate", "feeds", "--count", "20"],
    "generate joins": ["generate", "joins", "--count", "20"],
}


class Terminal:
    """A pseudo-terminal whose content is collected."""

    def __init__(self) -> None:
        self._own, self.stream = pty.openpty()
        self._shown = bytearray()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while some := os.read(self._own, 65_536):
                self._shown += some
        except OSError:  # the other end is closed
            pass

    def close(self) -> bytes:
        os.close(self.stream)
        self._reader.join()
        os.close(self._own)
        return bytes(self._shown)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    for name, text in INPUTS.items():
        (folder / name).write_text(text)
    return folder


def run(command: list[str], folder: Path, stdout: int, stderr: int) -> bytes:
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    line = [sys.executable, "-m", "sapwood.cli", *command]
    done = subprocess.run(line, cwd=folder, stdout=stdout, stderr=stderr, env=environment, timeout=120)
    assert done.returncode == 0
    return done.stdout or b""


@cache
def run_without_terminal(name: str, folder: Path) -> bytes:
    return run(COMMANDS[name], folder, subprocess.PIPE, subprocess.DEVNULL)


@pytest.mark.parametrize("name", COMMANDS)
def test_output_is_the_same_with_and_without_a_terminal(name: str, inputs: Path) -> None:
    plain = run_without_terminal(name, inputs)
    assert plain.count(b"\n") >= 20

    terminal = Terminal()
    try:
        with (inputs / "output").open("wb") as file:
            run(COMMANDS[name], inputs, file.fileno(), terminal.stream)
    finally:
        shown = terminal.close()
    assert (inputs / "output").read_bytes() == plain
    assert b"\x1b[" in shown  # the progress bar


def test_no_progress_is_shown_while_a_pipe_is_written_to(inputs: Path) -> None:
    terminal = Terminal()
    try:
        run(COMMANDS["generate queries"], inputs, subprocess.PIPE, terminal.stream)
    finally:
        shown = terminal.close()
    assert not shown


def test_output_of_a_command_may_go_to_a_stream_without_a_file(inputs: Path) -> None:
    script = (
        "import contextlib, io, sys; from sapwood.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):\n"
        "    main()\n"
        "print(output.getvalue(), end='')"
    )
    terminal = Terminal()
    try:
        arguments = [sys.executable, "-c", script, *COMMANDS["match"]]
        done = subprocess.run(arguments, cwd=inputs, stdout=subprocess.PIPE, stderr=terminal.stream)
    finally:
        shown = terminal.close()
    assert b"Traceback" not in shown
    assert done.stdout == run_without_terminal("match", inputs)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_progress_bar_is_not_mixed_with_output_on_the_terminal(name: str, inputs: Path) -> None:
    plain = run_without_terminal(name, inputs)
    terminal = Terminal()
    try:
        run(COMMANDS[name], inputs, terminal.stream, terminal.stream)
    finally:
        shown = terminal.close()
    assert plain.replace(b"\n", b"\r\n") in shown


def test_lists_are_tables_on_a_terminal(inputs: Path) -> None:
    for command in (["subscriptions", "import", "filters"], ["relational", "load"]):
        run(command, inputs, subprocess.DEVNULL, subprocess.DEVNULL)
    for command, cells in (
        (["subscriptions", "list"], ("//a[@n = 7]", "xpath")),
        (["relational", "show"], ("linear_path", "2")),
    ):
        terminal = Terminal()
        try:
            run(command, inputs, terminal.stream, subprocess.DEVNULL)
        finally:
            shown = terminal.close().decode()
        assert any(all(f" {cell} " in line for cell in cells) and "│" in line for line in shown.splitlines())
