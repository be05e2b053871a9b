"""The demo runs, and draws its chart."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from sapwood import demo


def test_the_demo_shows_a_table_and_draws_a_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SIZES", (30, 90))
    console = Console(record=True, width=120)
    chart = demo.run(console, tmp_path, messages=20)
    text = console.export_text()
    assert "20 matched, 3 refused" in text
    assert "mismatched tag" in text
    assert chart.stat().st_size > 10_000
