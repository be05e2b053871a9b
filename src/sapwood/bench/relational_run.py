"""Work in a process of its own, so that its memory is that of the work alone.

    python -m sapwood.bench.relational_run < SPECIFICATION

The specification is a JSON object that names a function and what it is given. What the function says (texts,
on what comes next) and finds (see `relational_findings`) is printed as it comes, a JSON object on each line.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

from sapwood.bench import relational_findings as findings

Given = ParamSpec("Given")
Said = TypeVar("Said")
Finding = TypeVar("Finding")


def measure(
    work: Callable[Given, Iterator[Said]], /, *args: Given.args, **options: Given.kwargs
) -> Iterator[Said]:
    """What a function says and finds, run in a fresh process; its arguments are such as JSON has."""
    command = [sys.executable, "-m", "sapwood.bench.relational_run"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
    assert process.stdin is not None and process.stdout is not None
    try:
        given = {"module": work.__module__, "name": work.__name__, "args": args, "options": options}
        with process.stdin:
            json.dump(given, process.stdin)
        for line in process.stdout:
            yield _unpacked(json.loads(line))
        code = process.wait()
    finally:  # whoever listens may have had enough
        process.kill()
        process.wait()
        process.stdout.close()
    if code == -signal.SIGINT:
        raise KeyboardInterrupt
    if code:
        raise subprocess.CalledProcessError(code, command)


def told(work: Iterator[str | Finding], about: str = "") -> Generator[str, None, Finding]:
    """Passes on what is said, and returns what is found, if that is one thing."""
    found = []
    for said in work:
        if isinstance(said, str):
            yield f"{about}{said}"
        else:
            found.append(said)
    (finding,) = found
    return finding


def _packed(said: Any) -> dict[str, Any]:
    return {"says": said} if isinstance(said, str) else {"finds": type(said).__name__, "in": asdict(said)}


def _unpacked(line: dict[str, Any]) -> Any:
    return line["says"] if "says" in line else getattr(findings, line["finds"])(**line["in"])


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # to end at once: the parent has it too, and says so
    given = json.load(sys.stdin)
    work = getattr(import_module(given["module"]), given["name"])
    for said in work(*given["args"], **given["options"]):
        print(json.dumps(_packed(said)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
