"""When a message happened: what the publisher says, what the message says, or when it came."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.errors import MessageError
from sapwood.lang.query import compile_query

_LARGEST = 1e11
"""seconds, some 3,000 years; milliseconds since the epoch are more"""
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?", re.ASCII)

Moment = datetime | float
"""seconds since the epoch, if it is a number; without a time zone, UTC"""


def to_seconds(moment: Moment) -> float:
    """Seconds since the epoch; ValueError for a number that cannot be meant, TypeError for what is none."""
    if isinstance(moment, datetime):
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        raise TypeError(f"a time is a datetime or a number of seconds, not {moment!r}")
    if not abs(moment) <= _LARGEST:
        raise ValueError(f"a time is given in seconds since the epoch, and {moment} is beyond all years")
    return float(moment)


def to_duration(given: timedelta | float) -> float:
    """Seconds; ValueError if it is less than nothing, TypeError if it is no number."""
    if not isinstance(given, int | float | timedelta):
        raise TypeError(f"a duration is a timedelta or a number of seconds, not {given!r}")
    length = given.total_seconds() if isinstance(given, timedelta) else float(given)
    if not length >= 0 or math.isinf(length):
        raise ValueError(f"a duration must be a number of seconds, not {given}")
    return length


class TimePath:
    """Where the messages of a stream say when they happened."""

    def __init__(self, path: str, namespaces: Mapping[str, str]) -> None:
        query = compile_query(path, namespaces)
        if query.type != "node-set" or not query.exact:
            raise ValueError(f"a time is read from a path of names, attributes and text, not {path!r}")
        self._text = path
        self._paths = query.paths

    def read(self, evaluator: PatternEvaluator) -> float:
        """The time that a message says; MessageError if it says none."""
        nodes = evaluator.select_any(self._paths)
        if not nodes:
            raise MessageError(f"it does not say when it happened: there is no {self._text}")
        value = evaluator.document.string_value(nodes[0]).strip()
        try:
            return to_seconds(float(value) if _NUMBER.fullmatch(value) else datetime.fromisoformat(value))
        except ValueError:
            reason = (
                f"{self._text} should be a time, ISO 8601 or seconds since the epoch, not {value[:100]!r}"
            )
            raise MessageError(reason) from None
