"""The notebooks and scripts in examples/ run, and are stored without outputs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.support.docs.doc_blocks import ROOT
from tests.support.docs.notebooks import code_cells, read_notebook, run_cells

EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_has_no_outputs_and_no_trace_of_a_machine(path: Path) -> None:
    notebook = read_notebook(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert notebook["metadata"] == {"kernelspec": kernel, "language_info": {"name": "python"}}
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_the_tour_runs_and_shows_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    values = run_cells(code_cells(read_notebook(EXAMPLES / "tour.ipynb")), "tour.ipynb")
    assert (2, False, ["french", "expensive"]) in values
    shown = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    assert len(shown) == 6  # matches, three explanations, twice why
    printed = capsys.readouterr().out
    assert '<sold order="7" sku="B-9">Ann</sold>' in printed
    assert '<paid order="7"><customer country="FR">Ann</customer><amount>149.00</amount></paid>' in printed


def test_the_break_even_is_measured() -> None:
    script = _load(EXAMPLES / "break_even.py")
    rows = script.measure(counts=(1, 5), predicates=1, messages=5, rounds=1)
    assert [count for count, _, _ in rows] == [1, 5]
    assert all(by_lxml > 0 and by_sapwood > 0 for _, by_lxml, by_sapwood in rows)


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_listed() -> None:
    page = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        if path.suffix in (".ipynb", ".py"):
            assert f"({path.name})" in page
