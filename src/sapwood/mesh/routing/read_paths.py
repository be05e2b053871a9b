"""The parts of messages that transformations read, as sets of paths.

    for $s in //section where $s/title = 'T' return <new>{$s/@id}{$s/figure}</new>

    //section              the elements, with their attributes
    //section/title        whole, because its string-value is compared
    //section/figure       whole, because it is copied

A message that keeps these elements, and all that they are inside of, gives the same results: every path and
condition of the query selects among the elements that are read. So `not(path)` is exact, too. This is not so
where siblings are counted: queries with positions or counts read the whole message, and so do those that lxml
evaluates, and all that deliver the message itself. Text nodes beside elements that are cut would become one:
whoever reads the text nodes of an element reads all of it.

All three paths have a *binding*, //section[title = 'T']: a section that it does not select makes no results,
and may be cut as a whole. It must not be cut in parts: without its title, not(title = 'T') would hold of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sapwood.lang.fwr.model import DOCUMENT, BoundVariable, JointCondition, TemplateHole, Transformation
from sapwood.lang.pattern import TEXT, And, Axis, Condition, Has, Named, Not, Or, Path, format_name

MOST_PATHS = 256
"""of one set: what reads more is taken to read the whole message"""
MOST_BINDINGS = 8
"""of one set, each of which costs time for every message: of more, none counts"""

ReadStep = tuple[bool, str]
"""whether it goes to all descendants, or to children only, and the name test"""


class ReadPath(NamedTuple):
    """Elements that are read."""

    steps: tuple[ReadStep, ...]
    is_whole: bool
    """whether all that is inside of the elements is read, too"""
    binding: Path | None = None
    """the beginning of the path, with the conditions of the elements inside of which it is read; None: it is
    read inside of all"""

    def covers(self, other: ReadPath) -> bool:
        """Return whether all that another path reads is read by this one, as far as their steps are equal."""
        if self.binding not in (None, other.binding):
            return False
        if self.steps == other.steps:
            return self.is_whole or not other.is_whole
        return self.is_whole and other.steps[: len(self.steps)] == self.steps

    def __str__(self) -> str:
        bound = len(self.binding.steps) if self.binding is not None else 0
        rest = "".join([("//" if deep else "/") + format_name(test) for deep, test in self.steps[bound:]])
        return f"{self.binding or ''}{rest}{'//node()' if self.is_whole else ''}"


ReadPaths = frozenset[ReadPath]
"""what is read of a message; where there may be None instead, that is the whole message"""


class _WholeMessage(Exception):
    """Raised when a query reads the whole message."""


def covers(plan: ReadPaths | None, reads: ReadPaths | None) -> bool:
    """Return whether a message with what is in a plan has all that is read."""
    if plan is None:
        return True
    if reads is None:
        return False
    return all(path in plan or any(kept.covers(path) for kept in plan) for path in reads)


def unite_reads(all_reads: Iterable[ReadPaths | None]) -> ReadPaths | None:
    """Return what is read by any of several, without paths that others cover."""
    united: set[ReadPath] = set()
    bindings: set[Path] = set()
    for reads in all_reads:
        if reads is None:
            return None
        united |= reads
        bindings.update(path.binding for path in reads if path.binding is not None)
        if len(bindings) > MOST_BINDINGS or len(united) > MOST_PATHS:
            united = set(without_bindings(united))
            if len(united) > MOST_PATHS:
                return None
    return frozenset(
        path for path in united if not any(other != path and other.covers(path) for other in united)
    )


def without_bindings(reads: Iterable[ReadPath]) -> ReadPaths:
    """Return paths that are read inside of all elements, whatever their conditions."""
    return frozenset(path._replace(binding=None) for path in reads)


def reads_of(transformation: Transformation) -> ReadPaths | None:
    """Return what a transformation reads; None: the whole message."""
    if not transformation.exact:
        return None
    collector = _ReadCollector()
    try:
        collector.add_variables(transformation.variables)
        for joint in transformation.joints:
            collector.add_joint(joint)
        for hole in transformation.holes:
            collector.add_hole(hole)
    except _WholeMessage:
        return None
    return unite_reads([frozenset(collector.found)])


class _Way(NamedTuple):
    """The steps from the document to some nodes, and the binding that these are inside of."""

    steps: tuple[ReadStep, ...] = ()
    binding: Path | None = None


class _ReadCollector:
    """Collects what the parts of a transformation read; each raises _WholeMessage if that is everything."""

    def __init__(self) -> None:
        self.found: set[ReadPath] = set()
        self._bound: list[list[_Way]] = []
        """by variable, the ways to its nodes"""

    def add_variables(self, variables: Sequence[BoundVariable]) -> None:
        for variable in variables:
            if any(_last_axis(path) is not None for path in variable.paths):
                raise _WholeMessage  # bound to attributes or text, which need no path of their own
            starts = self._starts(variable.origin)
            is_binding = variable.origin == DOCUMENT
            self._bound.append(
                [self._follow(start, path, is_binding) for start in starts for path in variable.paths]
            )

    def add_joint(self, joint: JointCondition) -> None:
        for item in joint.items:
            self.add_joint(item)
        if joint.condition is not None:
            for start in self._starts(joint.origin):
                self._add_condition(start, joint.condition)

    def add_hole(self, hole: TemplateHole) -> None:
        if hole.kind not in ("nodes", "string"):
            raise _WholeMessage
        for start in self._starts(hole.origin):
            for path in hole.paths:
                self._read_values(start, path)

    def _starts(self, origin: int) -> list[_Way]:
        return [_Way()] if origin == DOCUMENT else self._bound[origin]

    def _read_values(self, start: _Way, path: Path) -> None:
        """Add the nodes of a path, of which the string-values are needed."""
        end = self._follow(start, path)
        if _last_axis(path) is not Axis.ATTRIBUTE:
            self._add(end, is_whole=True)

    def _follow(self, start: _Way, path: Path, is_binding: bool = False) -> _Way:
        """Add the elements of a path and what its conditions read; return the way to the last element.

        If the path is a binding with conditions, what is read there is read inside of these elements only.
        """
        at = start
        for step in path.steps:
            if step.axis is Axis.ATTRIBUTE or step.test == TEXT:
                if step is not path.steps[-1] or step.conditions:
                    raise _WholeMessage
                self._add(at, is_whole=step.test == TEXT)
                return at
            at = at._replace(steps=(*at.steps, (step.axis is Axis.DESCENDANT, step.test)))
            if is_binding and step is path.steps[-1] and any(each.conditions for each in path.steps):
                at = at._replace(binding=path)
            for condition in step.conditions:
                self._add_condition(at, condition)
        self._add(at, is_whole=False)
        return at

    def _add_condition(self, at: _Way, condition: Condition) -> None:
        match condition:
            case And(items=items) | Or(items=items):
                for item in items:
                    self._add_condition(at, item)
            case Not(item=item):
                self._add_condition(at, item)
            case Has(path=path, test=None):
                self._follow(at, path)
            case Has(path=path):
                self._read_values(at, path)
            case Named():
                self._add(at, is_whole=False)
            case _:  # positions
                raise _WholeMessage

    def _add(self, way: _Way, is_whole: bool) -> None:
        if not way.steps:
            if is_whole:
                raise _WholeMessage
            return  # the document node is always there
        self.found.add(ReadPath(way.steps, is_whole, way.binding))
        if len(self.found) > MOST_PATHS:
            raise _WholeMessage


def _last_axis(path: Path) -> Axis | None:
    """Return the axis of a last step to attributes or text; None if the path ends at elements."""
    last = path.steps[-1] if path.steps else None
    if last is None or (last.axis is not Axis.ATTRIBUTE and last.test != TEXT):
        return None
    return last.axis
