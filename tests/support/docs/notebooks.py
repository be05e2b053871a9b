"""Notebooks, read and run without Jupyter: their cells are plain Python, in one namespace."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any


def read_notebook(path: Path) -> dict[str, Any]:
    """Return a notebook as its file has it."""
    notebook: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[str]:
    """Return the text of each cell of code."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cells(cells: list[str], name: str) -> list[Any]:
    """Run cells of code and return the value of the expression that each ends with, None if there is none."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_run_cell(cell, f"{name}, cell {number}", names) for number, cell in enumerate(cells, 1)]


def _run_cell(cell: str, name: str, names: dict[str, Any]) -> Any:
    tree = ast.parse(cell, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, name, "exec"), names)
        return None
    tree.body.pop()
    exec(compile(tree, name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names)
