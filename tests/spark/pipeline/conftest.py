"""A folder with a small pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spark.small_pipeline import write_pipeline


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a small pipeline in it."""
    monkeypatch.chdir(tmp_path)
    write_pipeline(tmp_path)
    return tmp_path
