"""The canonical encoding of read paths, in which brokers tell each other what their subscriptions read.

    reads       path …, in the order of their encodings
    path        whether it is whole, step …
    step        whether it goes to all descendants, name test

What is decoded comes from other sites: every part is checked, and what is not canonical is refused.
"""

from __future__ import annotations

from itertools import pairwise

from sapwood.errors import RouteError
from sapwood.lang.pattern import TEXT
from sapwood.mesh.routing.condition_codec import Form, is_name_test, pack
from sapwood.mesh.routing.read_paths import MOST_PATHS, ReadPath, ReadPaths, ReadStep

_MOST_STEPS = 256


def reads_to_form(reads: ReadPaths) -> Form:
    """Return read paths as nested lists."""
    forms = [[path.is_whole, *[list(step) for step in path.steps]] for path in reads]
    return sorted(forms, key=pack)


def reads_from_form(form: object) -> ReadPaths:
    """Return the read paths that nested lists stand for; RouteError if `reads_to_form` returns others."""
    if not isinstance(form, list) or len(form) > MOST_PATHS:
        raise RouteError(f"read paths that are not a list of at most {MOST_PATHS}")
    paths = [_read_path(each) for each in form]
    if not all(before < after for before, after in pairwise([pack(each) for each in form])):
        raise RouteError("read paths that are not in their order")
    return frozenset(paths)


def _read_path(form: object) -> ReadPath:
    match form:
        case [bool(is_whole), *steps] if 0 < len(steps) <= _MOST_STEPS:
            return ReadPath(tuple([_read_step(step) for step in steps]), is_whole)
    raise RouteError("a read path that is not whether it is whole, and steps")


def _read_step(form: object) -> ReadStep:
    match form:
        case [bool(is_deep), str(test)] if test != TEXT and is_name_test(test):
            return is_deep, test
    raise RouteError("a step of a read path that is not whether it is deep, and a name test")
