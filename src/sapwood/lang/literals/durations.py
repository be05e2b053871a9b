"""Lengths of time as people write them in options and settings."""

from __future__ import annotations

import re

from sapwood.lang.xscl.lexer import window

_NOTHING = re.compile(r"\s*0+(?:\.0*)?\s*(?P<unit>[^\W\d]\w*)?\s*\Z")


def parse_duration(text: str) -> float:
    """The seconds of `10 min`, or of nothing, `0` or `0 s`; ValueError (QueryError) says what is wrong."""
    nothing = _NOTHING.match(text)
    if nothing is not None:
        if nothing["unit"] is not None:
            window(f"1 {nothing['unit']}", 0)  # no window is 0 long, but its unit ought to be right
        return 0.0
    seconds, end = window(text, 0)
    if text[end:].strip() or seconds == float("inf"):
        raise ValueError(f"a length of time such as '10 min' is expected, not {text!r}")
    return seconds
