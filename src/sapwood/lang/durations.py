"""Lengths of time as people write them in options and settings."""

from __future__ import annotations

import re

from sapwood.lang.xscl_text import window

_NOTHING = re.compile(r"\s*0+(?:\.0*)?\s*(?:[a-z]+\s*)?\Z", re.IGNORECASE)


def read_duration(text: str) -> float:
    """The seconds of `10 min`, or of nothing, such as `0 s`; QueryError says what is wrong with it."""
    if _NOTHING.match(text):
        return 0.0
    seconds, end = window(text, 0)
    if text[end:].strip() or seconds == float("inf"):
        raise ValueError(f"a length of time such as '10 min' is expected, not {text!r}")
    return seconds
