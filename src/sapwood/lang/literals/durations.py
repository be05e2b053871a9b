"""Durations such as `10 min`: the windows of joins, and the lengths of time in options and settings."""

from __future__ import annotations

import re

from sapwood.errors import ArgumentError, QueryError
from sapwood.lang.scanning import END, describe_found, skip_space
from sapwood.lang.xpath import error_hints

_SECONDS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
}
_LONGEST = 1e11  # seconds, some 3,000 years
_WINDOW = re.compile(
    rf"\s*(?:(?P<inf>inf){END}|(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?P<unit>[^\W\d]\w*)?)",
    re.IGNORECASE,
)
_SECOND_NUMBER = re.compile(r"\s*[0-9]")
_UNIT_AND_MORE = re.compile(r"([^\W\d]+)[0-9]")
_ENDLESS = re.compile(
    rf"∞|(?:infinity|infinite|infinitely|forever|always|unbounded|unlimited){END}", re.IGNORECASE
)


def parse_window(text: str, at: int) -> tuple[float, int]:
    """Parse the window of a join, such as `1 day`, or `INF` for an infinite one.

    Returns the seconds and the position after it; raises QueryError. A window is never 0.
    """
    found = _WINDOW.match(text, at)
    at = skip_space(text, at)
    if found is None:
        raise _no_window(text, at)
    if found["inf"]:
        return float("inf"), found.end()
    unit = found["unit"]
    if unit is None:
        hint = f"write {found['number']} s, or ms, min, h, days, weeks"
        raise QueryError("a window without a unit", text, found.end("number"), hint)
    size = _SECONDS.get(unit.lower())
    if size is None:
        more = _UNIT_AND_MORE.match(unit)
        if more is not None and more[1].lower() in (*_SECONDS, "m"):
            raise _second_number(text, found.start("unit") + more.end(1))
        raise QueryError(f"there is no unit {unit!r}", text, found.start("unit"), _unit_hint(unit.lower()))
    seconds = float(found["number"]) * size
    if not seconds:
        hint = "write 1 ms for messages of the same time, INF for no bound"
        raise QueryError(_TOO_SHORT, text, at, hint)
    if seconds > _LONGEST:
        raise QueryError("a window of thousands of years", text, at, "write INF")
    if _SECOND_NUMBER.match(text, found.end()):
        raise _second_number(text, skip_space(text, found.end()))
    return seconds, found.end()


_TOO_SHORT = "a window must be longer than 0"


def _no_window(text: str, at: int) -> QueryError:
    if text.startswith("-", at):
        return QueryError(_TOO_SHORT, text, at, "to say which block comes first, write FOLLOWED BY{…}")
    hint = "write 1 day, 90 s or INF; conditions are joined by AND"
    if _ENDLESS.match(text, at):
        hint = "write INF for no bound"
    return QueryError(f"expected a window, {describe_found(text, at)}", text, at, hint)


def _second_number(text: str, at: int) -> QueryError:
    hint = "write the whole in the smaller unit: 90 min, not 1 h 30 min"
    return QueryError("a window is one number and one unit", text, at, hint)


def _unit_hint(unit: str) -> str:
    if unit in ("m", "mon", "month", "months"):
        return "write min for minutes; months are 30 days or so: write days"
    if unit in ("y", "year", "years"):
        return "write days or weeks"
    return error_hints.did_you_mean(unit, _SECONDS) or "there are ms, s, min, h, days and weeks"


_DURATION = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[^\W\d]\w*)?")


def parse_duration(text: str) -> float:
    """Parse a duration such as `10 min`, `0` or `0 s` into seconds; raises ArgumentError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ArgumentError(f"a duration such as '10 min' or '0 s' is expected, not {text!r}")
    number, unit = float(found["number"]), found["unit"]
    if unit is None:
        if number:
            raise ArgumentError(
                f"{text!r} has no unit; write {found['number']} s, or ms, min, h, days, weeks"
            )
        return 0.0
    size = _SECONDS.get(unit.lower())
    if size is None:
        raise ArgumentError(f"{text!r}: there is no unit {unit!r}; {_unit_hint(unit.lower())}")
    if number * size > _LONGEST:
        raise ArgumentError(f"{text!r} is longer than {_LONGEST / _SECONDS['days']:,.0f} days")
    return number * size
