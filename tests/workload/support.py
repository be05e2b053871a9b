"""Helpers of several tests of workloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.workload import Dtd, load_dtd

PROJECT = Path(__file__).parents[2]
SHIPPED = PROJECT / "src/sapwood/workload/dtds"
REAL = PROJECT.parent / "shared/data"

NAMES = ("auction", "bibliography", "book", "news", "observatory", "quotes")
REAL_FILES = (
    "nitf/nitf-2-5.dtd",
    "xmark/auction.dtd",
    "dblp/dblp.dtd",
    "bib/bib.dtd",
    "shakespeare/play.dtd",
)


def real(name: str) -> Path:
    """A published DTD, which the project does not ship; the test is skipped where it is absent."""
    path = REAL / name
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    return path


def written(folder: Path, text: str, root: str | None = None) -> Dtd:
    """A DTD from its text."""
    path = folder / "test.dtd"
    path.write_text(text)
    return load_dtd(path, root=root)
