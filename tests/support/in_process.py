"""The command `sapwood`, run in this process to be quick."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from sapwood.cli import main


@dataclass(frozen=True)
class Run:
    returncode: int
    stdout: str
    stderr: str


Sapwood = Callable[..., Run]


def sapwood(*arguments: str, stdin: str = "", **environment: str) -> Run:
    """The output and status of `sapwood ARGUMENTS`, with these variables in its environment."""
    written, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(written, "utf-8", write_through=True)  # commands write text and bytes
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["sapwood", *arguments])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            main()
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
    return Run(status, written.getvalue().decode(), err.getvalue())
