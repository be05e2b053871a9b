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
    """Run cells of code and return the value of the last expression of each, None if it ends in a statement."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_run_cell(cell, f"{name}, cell {number}", names) for number, cell in enumerate(cells, 1)]


def _run_cell(cell: str, name: str, names: dict[str, Any]) -> Any:
    tree = ast.parse(cell, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), name, "eval"), names)
