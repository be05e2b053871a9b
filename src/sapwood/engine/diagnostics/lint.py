"""Queries that are valid and likely not meant: those that can never match, and names that lack a prefix.

A name without a prefix has no namespace, whatever is declared. Two signs tell that one was meant:

- a step without a prefix below a step with one, `/p:order/id`: elements below a namespace mostly are in it;
- prefixes that are declared along with a query which uses none of them (the caller asks `uses_prefixes`).

Attributes and wildcards are no signs: attributes rarely have a namespace.

Dates are compared as numbers, which they are not, so such a comparison is never true.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sapwood.engine.automaton.query_paths import plan_index
from sapwood.lang import pattern
from sapwood.lang.query import Query

if TYPE_CHECKING:
    from sapwood.lang.fwr.model import BoundVariable
    from sapwood.lang.languages import AnyQuery
    from sapwood.lang.xscl.model import BlockVariable

_MESSAGE = -1
"""in place of a variable's number: the path starts at the message"""


def find_warnings(compiled: AnyQuery) -> list[str]:
    """Return what is suspicious about a query, one line each, for people."""
    dates = list(_dates(compiled))
    if dates:
        return dates
    if _is_impossible(compiled):
        return ["no message can match it"]
    return list(dict.fromkeys(_unprefixed_names(compiled)))


def uses_prefixes(compiled: AnyQuery) -> bool:
    """Return whether a query names any namespace."""
    return any(
        "}" in test and not test.startswith(pattern.ANY_NAMESPACE) for test in _tests(_paths(compiled))
    )


# -- queries that never match -------------------------------------------------------------------------------


def _is_impossible(compiled: AnyQuery) -> bool:
    if isinstance(compiled, Query):
        return not plan_index(compiled.condition).parts
    from sapwood.lang.xscl.model import Join  # here, because filters need no joins

    if isinstance(compiled, Join):
        starts = [variable.path for variable in compiled.variables if variable.origin == _MESSAGE]
        return any(not plan_index(pattern.Has(path)).parts for path in starts)
    return not plan_index(compiled.condition).parts


_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_QUOTED_DATE = re.compile(
    rf"""[<>]=?\s*(?P<after>"{_DATE}[^"]*"|'{_DATE}[^']*')|(?P<before>"{_DATE}[^"]*"|'{_DATE}[^']*')\s*[<>]"""
)
_BARE_DATE = re.compile(rf"(?:[=<>]\s*)({_DATE})(?![\w<])")
_STRING = re.compile(r"\"[^\"]*\"|'[^']*'")


def _dates(compiled: AnyQuery) -> Iterator[str]:
    """Yield comparisons with dates, in the part of a query before its constructor."""
    text = re.split(r"\breturn\b", compiled.text, maxsplit=1)[0]
    if "<" in _STRING.sub("", text) and re.match(r"\s*(?:<|select\b)", text, re.IGNORECASE):
        return
    advice = "write translate(d, '-', '') > 20240131"
    for found in _QUOTED_DATE.finditer(text):
        date = found["after"] or found["before"]
        yield f"< and > compare numbers, and {date} is none, so this is never true; {advice}"
    for bare in _BARE_DATE.finditer(_STRING.sub("''", text)):
        year, month, day = map(int, bare[1].split("-"))
        yield f"{bare[1]} is a subtraction, {year - month - day}, and no date; {advice}"


# -- names without a prefix --------------------------------------------------------------------------------


def _unprefixed_names(compiled: AnyQuery) -> Iterator[str]:
    for path, above in _paths(compiled):
        yield from _names_below_namespace(path, above)


def _names_below_namespace(path: pattern.Path, above: str) -> Iterator[str]:
    """Yield names without a namespace below a name in a namespace."""
    for step in path.steps:
        named = (
            step.axis is not pattern.Axis.ATTRIBUTE
            and step.test != pattern.TEXT
            and not pattern.is_wildcard(step.test)
        )
        if named and "}" not in step.test and above:
            prefix = (
                pattern.format_name(above).rpartition(":")[0] if ":" in pattern.format_name(above) else "p"
            )
            yield (
                f"{step.test} has no prefix, so no namespace, though it stands below "
                f"{pattern.format_name(above)}; "
                f"write {prefix}:{step.test} if it is in one"
            )
        elif named and "}" in step.test:
            above = step.test
        for condition in step.conditions:
            for inner in _conditions(condition):
                yield from _names_below_namespace(inner, above)


def _conditions(condition: pattern.Condition) -> Iterator[pattern.Path]:
    """Yield the paths of a condition."""
    match condition:
        case pattern.And(items=items) | pattern.Or(items=items):
            for item in items:
                yield from _conditions(item)
        case pattern.Not(item=item):
            yield from _conditions(item)
        case pattern.Has(path=path):
            yield path


def _paths(compiled: AnyQuery) -> Iterator[tuple[pattern.Path, str]]:
    """Yield the paths of a query, each with the name in a namespace that it starts below, if any."""
    if isinstance(compiled, Query):
        yield from ((path, "") for path in _conditions(compiled.condition))
        return
    variables: tuple[BoundVariable | BlockVariable, ...] = compiled.variables
    below = {_MESSAGE: ""}
    for number, variable in enumerate(variables):
        paths = getattr(variable, "paths", None) or (variable.path,)  # type: ignore[union-attr]
        start = below.get(variable.origin, "")
        yield from ((path, start) for path in paths)
        names = [
            step.test for step in paths[0].steps if "}" in step.test and not pattern.is_wildcard(step.test)
        ]
        below[number] = names[-1] if names else start
    for hole in compiled.holes:
        yield from ((path, below.get(hole.origin, "")) for path in hole.paths)


def _tests(paths: Iterable[tuple[pattern.Path, str]]) -> Iterator[str]:
    waiting = [path for path, _ in paths]
    while waiting:
        for step in waiting.pop().steps:
            yield step.test
            for condition in step.conditions:
                if isinstance(condition, pattern.Named):
                    yield condition.test
                waiting += _conditions(condition)
