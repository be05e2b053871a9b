"""XML names in queries: regular expressions that find them, and the character table that validates them.

The characters of names are those of XML 1.0, fifth edition (productions 4 and 4a, without the colon).
Python's `\\w` is no substitute: it lacks combining marks and has superscript digits. A class with all ranges
takes milliseconds to compile in every expression that holds it, so expressions take any character beyond
ASCII for part of a name, and `name_length` looks at the few names that have one.

Older parsers, expat among them, know fewer names; a query for a name that no parser reads matches nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_right

_ASCII = r"A-Za-z0-9_.\-"
_BEYOND_ASCII = r"[^\x00-\x7f]"
NAME = rf"(?![0-9.\-])(?:[{_ASCII}]+|{_BEYOND_ASCII}+)++"
"""a name without a prefix, or what looks like one"""
ASCII_NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*"
"""a name that needs no validation"""
NAME_ENDS = rf"(?![{_ASCII}]|{_BEYOND_ASCII})"
"""an assertion that a name ends here"""
NO_NAME_BEFORE = rf"(?<![{_ASCII}])(?<!{_BEYOND_ASCII})"
"""an assertion that no name character precedes"""

_WHOLE = re.compile(NAME)
_START_RANGES = (
    ("\xc0", "\xd6"), ("\xd8", "\xf6"), ("\xf8", "\u02ff"), ("\u0370", "\u037d"), ("\u037f", "\u1fff"),
    ("\u200c", "\u200d"), ("\u2070", "\u218f"), ("\u2c00", "\u2fef"), ("\u3001", "\ud7ff"),
    ("\uf900", "\ufdcf"), ("\ufdf0", "\ufffd"), ("\U00010000", "\U000effff"),
)  # fmt: skip
_FURTHER_RANGES = (("\xb7", "\xb7"), ("\u0300", "\u036f"), ("\u203f", "\u2040"))


def name_length(text: str) -> int:
    """Return the length of the XML name at the start of a text that matches `NAME`; 0 if there is none."""
    if text.isascii():
        return len(text)
    if not text[0].isascii() and not _within(text[0], _START_RANGES):
        return 0
    for i, character in enumerate(text):
        if not (
            character.isascii() or _within(character, _START_RANGES) or _within(character, _FURTHER_RANGES)
        ):
            return i
    return len(text)


def is_name(text: str) -> bool:
    """Return whether the whole text is an XML name without a prefix."""
    return _WHOLE.fullmatch(text) is not None and name_length(text) == len(text)


def qualified_name_length(text: str) -> int:
    """Return the length of the name, which may have a prefix, at the start of a text."""
    prefix, colon, local = text.partition(":")
    length = name_length(prefix)
    if not colon or length < len(prefix):
        return length
    further = name_length(local)
    return length + 1 + further if further else length


def _within(character: str, ranges: tuple[tuple[str, str], ...]) -> bool:
    i = bisect_right(ranges, (character, "\U0010ffff"))
    return i > 0 and character <= ranges[i - 1][1]
