"""Results and explanations as HTML for notebooks; everything that comes from users is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_CELL = "text-align: left; vertical-align: top"


def sections(parts: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return a table with a row for each title, and its lines as code."""
    rows = "".join(
        f'<tr><th style="{_CELL}">{escape(title)}</th><td style="{_CELL}">{_lines(lines)}</td></tr>'
        for title, lines in parts
        if lines
    )
    return f"<table>{rows}</table>"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a line of titles, and cells as code."""
    head = "".join(f'<th style="{_CELL}">{escape(title)}</th>' for title in titles)
    cells = ["".join(f'<td style="{_CELL}">{code(cell)}</td>' for cell in row) for row in rows]
    body = "".join(f"<tr>{each}</tr>" for each in cells)
    return f"<table><tr>{head}</tr>{body}</table>"


def escape(text: str) -> str:
    from html import escape as escaped  # here, because it loads all entities of HTML

    return escaped(text)


def code(text: str) -> str:
    return f'<code style="white-space: pre-wrap">{escape(text)}</code>'


def _lines(lines: Sequence[str]) -> str:
    return "<br>".join(map(code, lines))
