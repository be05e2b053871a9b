"""Pieces that the sections of a report are made of."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.spark.monitoring.svg_charts import clean_text


def section(title: str, note: str, content: str) -> str:
    """A part of the page with a title, what it is about, and what is to be seen."""
    return f"<section><h2>{clean_text(title)}</h2><p>{clean_text(note)}</p>{content}</section>\n"


def nothing(text: str) -> str:
    """What is said where there is nothing to show."""
    return f'<p class="none">{clean_text(text)}</p>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 0) -> str:
    """A table that is there for those who open it; its first columns are text, the others numbers."""
    return f"<details><summary>As a table</summary>{open_table(heads, rows, texts)}</details>"


def open_table(heads: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 0) -> str:
    """A table that is always seen."""

    def row(tag: str, cells: Sequence[str]) -> str:
        kinds = [' class="text"' if place < texts else "" for place in range(len(cells))]
        return "".join(
            f"<{tag}{kind}>{clean_text(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True)
        )

    body = "".join(f"<tr>{row('td', cells)}</tr>" for cells in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{row("th", heads)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
