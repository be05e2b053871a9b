"""Measurements in processes of their own, whose memory and caches are those of the measurement alone.

An isolated function is a generator that yields texts, which announce its next step, and results. It is found
by its module and name, in a process that has imported little else. Its arguments and all that it yields
are pickled, so results can be any dataclasses. Everything that it prints goes to the standard error.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Item = TypeVar("Item")
Result = TypeVar("Result")


def stream_isolated(
    work: Callable[Given, Iterator[Item]], /, *args: Given.args, **options: Given.kwargs
) -> Iterator[Item]:
    """Run a function in a new process and yield each text and result as it comes.

    Raises KeyboardInterrupt if Ctrl-C ended the process, and CalledProcessError if anything else did.
    """
    return _stream_process(work, args, options)


def collect_isolated(
    work: Callable[Given, Iterator[str | Result]], /, *args: Given.args, **options: Given.kwargs
) -> Generator[str, None, list[Result]]:
    """Run a function in a new process; yield its texts and return its results."""
    found: list[Result] = []
    for item in _stream_process(work, args, options):
        if isinstance(item, str):
            yield item
        else:
            found.append(item)
    return found


def run_isolated(
    work: Callable[Given, Iterator[str | Result]], /, *args: Given.args, **options: Given.kwargs
) -> Generator[str, None, Result]:
    """Run a function that has one result in a new process; yield its texts and return the result."""
    (result,) = yield from collect_isolated(work, *args, **options)
    return result


def _stream_process(
    work: Callable[..., Iterator[Any]], args: tuple[Any, ...], options: dict[str, Any]
) -> Iterator[Any]:
    command = [sys.executable, "-c", f"from {__name__} import main; main()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        with process.stdin:
            pickle.dump((work.__module__, work.__name__, args, options), process.stdin)
        while True:
            try:
                item = pickle.load(process.stdout)
            except EOFError:
                break
            yield item
        code = process.wait()
    finally:  # the consumer may stop before the end
        process.kill()
        process.wait()
        process.stdout.close()
    if code == -signal.SIGINT:
        raise KeyboardInterrupt
    if code:
        raise subprocess.CalledProcessError(code, command)


def main() -> None:
    """Run the function that the standard input names, and write what it yields to the standard output."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # end at once: the parent is interrupted as well
    with os.fdopen(os.dup(1), "wb") as items:
        os.dup2(2, 1)
        module, name, args, options = pickle.load(sys.stdin.buffer)
        for item in getattr(import_module(module), name)(*args, **options):
            pickle.dump(item, items)
            items.flush()
