"""The canonical encoding of read paths, in which brokers tell each other what their subscriptions read.

    reads       path …, in the order of their encodings
    path        whether it is whole, the condition that there is what it is bound to or nil, step …
    step        whether it goes to all descendants, name test

What is decoded comes from other sites: every part is checked, and what is not canonical is refused.
"""

from __future__ import annotations

from itertools import pairwise

from sapwood.errors import RouteError
from sapwood.lang.pattern import TEXT, Axis, Has, Path
from sapwood.mesh.routing.condition_codec import Form, from_form, is_name_test, pack, to_form
from sapwood.mesh.routing.read_paths import MOST_PATHS, ReadPath, ReadPaths, ReadStep

_MOST_STEPS = 256


def reads_to_form(reads: ReadPaths) -> Form:
    """Return read paths as nested lists."""
    return sorted([_path_to_form(path) for path in reads], key=pack)


def _path_to_form(path: ReadPath) -> Form:
    binding = None if path.binding is None else to_form(Has(path.binding))
    return [path.is_whole, binding, *[list(step) for step in path.steps]]


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
        case [bool(is_whole), binding, *steps] if 0 < len(steps) <= _MOST_STEPS:
            read = tuple([_read_step(step) for step in steps])
            return ReadPath(read, is_whole, None if binding is None else _read_binding(binding, read))
    raise RouteError("a read path that is not whether it is whole, a binding or nil, and steps")


def _read_binding(form: object, steps: tuple[ReadStep, ...]) -> Path:
    """Return the path that a read path is bound to, which has to be its beginning, with conditions."""
    condition = from_form(form)
    if isinstance(condition, Has) and condition.test is None:
        bound = condition.path.steps
        plain = tuple([(step.axis is Axis.DESCENDANT, step.test) for step in bound])
        if plain and steps[: len(plain)] == plain and not any(step.axis is Axis.ATTRIBUTE for step in bound):
            return condition.path
    raise RouteError("a binding that is not the beginning of its read path")


def _read_step(form: object) -> ReadStep:
    match form:
        case [bool(is_deep), str(test)] if test != TEXT and is_name_test(test):
            return is_deep, test
    raise RouteError("a step of a read path that is not whether it is deep, and a name test")
