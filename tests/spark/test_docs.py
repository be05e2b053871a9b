"""The blocks of README and docs that need Spark, with all that come before them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.doc_blocks import PAGES, RUN, Interpreter, Reader, blocks

WITH_SPARK = [page for page in PAGES if any(block.with_spark for block in blocks(page))]


@pytest.mark.skipif(os.environ.get("SAPWOOD_TESTS") != "full", reason="takes two minutes: make test-full")
@pytest.mark.parametrize("page", WITH_SPARK)
def test_every_block_of_a_page_runs(page: str, tmp_path: Path, java: None) -> None:
    with Interpreter(tmp_path) as interpreter:
        reader = Reader(tmp_path, interpreter)
        for block in blocks(page):
            if block.language in RUN and block.reason is None:
                reader.follow(block)


def test_the_pages_on_spark_are_known() -> None:
    assert {"README.md", "docs/tutorial.md"} <= set(WITH_SPARK)
