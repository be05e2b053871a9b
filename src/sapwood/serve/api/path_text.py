"""Texts in paths: ids and names may have slashes, and line breaks, too."""

from __future__ import annotations

from starlette.convertors import PathConvertor, register_url_convertor


class TextConvertor(PathConvertor):
    """Takes any text, where `path` ends at a line break."""

    regex = "(?s:.*)"


def register() -> None:
    """Let routes have parameters of the type `text`."""
    register_url_convertor("text", TextConvertor())
