"""The lines of a pipeline file: tomllib reads values without their positions."""

from __future__ import annotations

import re

_SOURCE = re.compile(r"\s*\[{1,2}\s*([\"']?)source\1\s*\]{1,2}\s*(?:#.*)?")
_HEADER = re.compile(r"\s*\[")


def find_source_line(text: str, number: int, key: str) -> int | None:
    """Return the line of a key of a source, both counted from 1; None if it is not on a line of its own."""
    assignment = re.compile(rf"\s*([\"']?){re.escape(key)}\1\s*=")
    source, inside = 0, False
    for line_number, line in enumerate(text.split("\n"), 1):
        if _SOURCE.fullmatch(line):
            source, inside = source + 1, True
        elif _HEADER.match(line):
            inside = False
        elif inside and source == number and assignment.match(line):
            return line_number
    return None
