"""Words and white space in the text of a query, for parsers that do not split it into tokens first."""

from __future__ import annotations

import re

from sapwood.errors import QueryError
from sapwood.lang.names import NAME_ENDS

WORD = r"(?![0-9.\-])(?:[A-Za-z0-9_.]|-(?!>)|[^\x00-\x7f])+"
"""a name; the arrow after one is not part of it"""
END = NAME_ENDS
"""of a word"""

_SPACE = re.compile(r"\s*")
_WORD = re.compile(WORD)


def skip_space(text: str, at: int) -> int:
    """Return the position after white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def describe_found(text: str, at: int) -> str:
    """Describe the word at a position, for an error that expects something else there."""
    word = _WORD.match(text, at)
    found = word.group() if word else text[at : at + 1]
    return f"but found {found!r}" if found else "but the query ends"


class TextReader:
    """A reader of a part of a query's text; its errors have positions in the whole."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _unsupported(self, what: str, at: int) -> QueryError:
        return self._error(f"XQuery allows {what}, Sapwood does not", at)

    def _error(self, reason: str, position: int, hint: str | None = None) -> QueryError:
        return QueryError(reason, self._text, position, hint)
