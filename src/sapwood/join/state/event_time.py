"""The event time of a message: given by the publisher, read from the message, or the time of publishing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.errors import ArgumentError, MessageError
from sapwood.lang.query import compile_query

_LARGEST = 1e11
"""seconds, some 3,000 years; milliseconds since the epoch would be more"""
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?", re.ASCII)

Moment = datetime | float
"""a number is seconds since the epoch; a datetime without a time zone is UTC"""


def to_seconds(moment: Moment) -> float:
    """Return seconds since the epoch; ValueError for a number out of range, TypeError for other types."""
    if isinstance(moment, datetime):
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        raise TypeError(f"a time is a datetime or a number of seconds, not {moment!r}")
    if not abs(moment) <= _LARGEST:
        raise ArgumentError(
            f"a time is in seconds since the epoch, and {moment} is out of range: is it in milliseconds?"
        )
    return float(moment)


def to_duration(given: timedelta | float) -> float:
    """Return seconds; ValueError if negative or infinite, TypeError for other types."""
    if not isinstance(given, int | float | timedelta):
        raise TypeError(f"a duration is a timedelta or a number of seconds, not {given!r}")
    length = given.total_seconds() if isinstance(given, timedelta) else float(given)
    if not length >= 0 or math.isinf(length):
        raise ArgumentError(f"a duration is a finite number of seconds, 0 or more, not {given}")
    return length


class TimePath:
    """The path at which the messages of a stream hold their event time."""

    def __init__(self, path: str, namespaces: Mapping[str, str]) -> None:
        query = compile_query(path, namespaces)
        if query.type != "node-set" or not query.exact:
            raise ArgumentError(f"a time is read from a path of names, attributes and text, not {path!r}")
        self._text = path
        self._paths = query.paths

    def read(self, evaluator: PatternEvaluator) -> float:
        """Return the event time in a message; MessageError if there is none."""
        nodes = evaluator.select_any(self._paths)
        if not nodes:
            raise MessageError(f"it has no event time: there is no {self._text}")
        value = evaluator.document.string_value(nodes[0]).strip()
        try:
            return to_seconds(float(value) if _NUMBER.fullmatch(value) else datetime.fromisoformat(value))
        except ValueError:
            reason = (
                f"{self._text} should be a time, ISO 8601 or seconds since the epoch, not {value[:100]!r}"
            )
            raise MessageError(reason) from None
