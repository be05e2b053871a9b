"""Where real data lies: beside the project. Tests that want it are skipped where it is absent."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"


def folder(name: str) -> Path:
    path = DATA / name
    if not path.is_dir():
        pytest.skip(f"{path} is not there")
    return path
