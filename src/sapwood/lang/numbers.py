"""XPath's conversion of strings to numbers, as libxml2 does it (it accepts exponents, too)."""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"[ \t\r\n]*(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[ \t\r\n]*\Z")


def to_number(value: str | float) -> float:
    """`number(value)`: NaN for whatever does not look like a number."""
    if isinstance(value, float):
        return value
    match = _NUMBER.match(value)
    return float(match[1]) if match else math.nan
