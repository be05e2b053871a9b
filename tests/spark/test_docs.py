"""The blocks of README and docs that need Spark, with all before them, and the notebook on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs.doc_blocks import PAGES, ROOT, RUN, Block, Interpreter, Reader, blocks
from tests.support.docs.notebooks import code_cells, read_notebook

WITH_SPARK = [page for page in PAGES if any(block.with_spark for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_SPARK)
@pytest.mark.long
def test_every_block_of_a_page_runs(page: str, tmp_path: Path, java: None) -> None:
    with Interpreter(tmp_path) as interpreter:
        reader = Reader(tmp_path, interpreter)
        for block in blocks(page):
            if block.language in RUN and block.reason is None:
                reader.follow(block)


@pytest.mark.long
def test_the_pages_on_spark_are_known() -> None:
    assert {"docs/tutorial/pipeline.md", "docs/how-to/spark-jobs.md"} <= set(WITH_SPARK)


@pytest.mark.long
def test_the_notebook_on_spark_runs(tmp_path: Path, java: None) -> None:
    cells = code_cells(read_notebook(ROOT / "examples" / "spark.ipynb"))
    with Interpreter(tmp_path) as interpreter:
        for number, cell in enumerate(cells, 1):
            interpreter.run(cell, Block("examples/spark.ipynb", number, "python", cell, ""))
    printed = (tmp_path / "python.log").read_text()
    assert "mismatched tag" in printed
    assert "one.xmll@0" in printed
