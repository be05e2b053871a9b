"""Escaping of strings for XML."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

_IN_CONTENT = {"\r": "&#13;"}
_IN_VALUE = {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""characters that no XML document may hold"""


def escape_content(value: str) -> str:
    """Escape a string for the content of an element."""
    return escape(value, _IN_CONTENT)


def escape_attribute(value: str) -> str:
    """Escape a string for an attribute value between double quotes."""
    return escape(value, _IN_VALUE)
