"""The nearest miss: where a message that does not match leaves a pattern, and what is there instead.

A condition that does not hold is followed to the part that fails. Of several nodes or alternatives, the one
that gets furthest is told; `progress` measures that, from 0 (not at all) to 1 (all but the last comparison).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from math import isnan
from typing import NamedTuple

from sapwood.engine.message.document import ContextNode, Document, LeafNode
from sapwood.engine.pattern_evaluator import DOCUMENT, PatternEvaluator
from sapwood.lang.literals.numbers import to_number
from sapwood.lang.pattern import (
    TEXT,
    And,
    Axis,
    Condition,
    Has,
    Named,
    Not,
    Or,
    Path,
    Position,
    Step,
    format_constant,
    format_name,
    format_relative_path,
    is_wildcard,
)

_TOLD = 3
"""values, names or conditions that are told of one kind"""
_CANDIDATES = 100
"""nodes that are looked at to find the nearest"""
_LONGEST_VALUE = 40


class _Miss(NamedTuple):
    progress: float
    lines: tuple[str, ...]


def nearest_miss(condition: Condition, evaluator: PatternEvaluator) -> tuple[str, ...]:
    """What is there instead of what a condition on the message wants; the condition does not hold."""
    return _Misses(evaluator).of(condition, DOCUMENT).lines


def nearness(path: Path, evaluator: PatternEvaluator) -> float:
    """How far a path gets that leads nowhere, from 0 to 1."""
    return _Misses(evaluator).of(Has(path), DOCUMENT).progress


class _Misses:
    def __init__(self, evaluator: PatternEvaluator) -> None:
        self._evaluator = evaluator
        self._document: Document = evaluator.document

    def of(self, condition: Condition, node: ContextNode) -> _Miss:
        """Why a condition, which does not depend on positions, does not hold of a node."""
        match condition:
            case And(items=items):
                missed = [self.of(item, node) for item in items if not self._evaluator.holds(item, node)]
                held = len(items) - len(missed)
                return _Miss((held + sum(m.progress for m in missed)) / len(items), _lines(missed))
            case Or(items=()):
                return _Miss(0, ("no message can match",))
            case Or(items=items):
                return max((self.of(item, node) for item in items), key=lambda miss: miss.progress)
            case Not(item=item):
                return _Miss(0.5, tuple(self._witness(item, node)))
            case Named():
                return _Miss(0.5, (f"the element is {self._name(node)}",))
            case Has():
                return self._of_path(condition, node)
        return _Miss(0, (f"{condition} does not hold",))

    def _witness(self, item: Condition, node: ContextNode) -> Iterable[str]:
        """What makes a condition true that must not be."""
        if not isinstance(item, Has) or not item.path.steps:
            yield f"{item} holds"
            return
        found = self._evaluator.select(item.path, node)
        written = _written(item.path, node)
        yield from self._values(written, found) if item.test is not None else [f"there is {written}"]

    # -- paths -----------------------------------------------------------------------------------------

    def _of_path(self, condition: Has, node: ContextNode) -> _Miss:
        steps = condition.path.steps
        reached: list[ContextNode] = [node]
        for number, step in enumerate(steps):
            following = self._evaluator.follow(reached, step)
            if not following:
                miss = self._of_step(reached, step)
                return _Miss((number + miss.progress) / (len(steps) + 1), miss.lines)
            reached = following
        if condition.first:
            reached = reached[:1]
        written = _written(condition.path, node) if steps else self._name(node)
        wants_number = condition.test is not None and isinstance(condition.test.value, float)
        values = self._values(written, reached, wants_number)
        return _Miss((len(steps) + 0.5) / (len(steps) + 1), tuple(values))

    def _values(self, written: str, nodes: list[ContextNode], wants_number: bool = False) -> Iterable[str]:
        values = dict.fromkeys(self._document.string_value(n) for n in islice(nodes, _CANDIDATES))
        for value in islice(values, _TOLD):
            note = ", which is no number" if wants_number and isnan(to_number(value)) else ""
            yield f"{written} is {_quoted(value)}{note}"
        if len(values) > _TOLD:
            yield f"and {len(values) - _TOLD} other values of {written}"

    def _of_step(self, context: list[ContextNode], step: Step) -> _Miss:
        """Why a step leads nowhere from any of the nodes reached before it."""
        candidates: list[ContextNode] = []
        for passed in range(len(step.conditions) + 1):
            following = self._evaluator.follow(context, Step(step.axis, step.test, step.conditions[:passed]))
            if not following:
                break
            candidates = following
        if not candidates:
            return _Miss(0, tuple(self._absent(context, step)))
        failing = step.conditions[passed - 1]
        base = passed / (len(step.conditions) + 1)
        if failing.positional:
            return _Miss(base, (self._misplaced(failing, candidates),))
        misses = [self.of(failing, node) for node in candidates[:_CANDIDATES]]
        best = max(miss.progress for miss in misses)
        nearest = [miss for miss in misses if miss.progress == best]
        return _Miss(base + best / (len(step.conditions) + 1), _lines(nearest))

    def _misplaced(self, condition: Condition, candidates: list[ContextNode]) -> str:
        owners: dict[int, int] = {}
        for node in candidates:
            owner = self._document.parents[node] if isinstance(node, int) else node.element
            owners[owner] = owners.get(owner, 0) + 1
        most = max(owners.values())
        name = self._name(candidates[0])
        if isinstance(condition, Position):
            times = "once" if most == 1 else f"{most} times"
            in_all = f" at most in one place, {len(candidates)} in all" if len(owners) > 1 else ""
            return f"{name} is there {times}{in_all}"
        return f"[{condition}] holds of none of {len(candidates)} {name}"

    # -- names -----------------------------------------------------------------------------------------

    def _absent(self, context: list[ContextNode], step: Step) -> Iterable[str]:
        """What is there where no node has the name that a step wants."""
        elements = [node for node in context if isinstance(node, int)]
        if not elements:
            yield f"{self._name(context[0])} has neither children nor attributes"
            return
        if step.test == TEXT:
            yield f"there is no text in {self._name(elements[0])}"
            return
        present = self._names_at(elements, step.axis)
        sign = "@" if step.axis is Axis.ATTRIBUTE else ""
        similar = [] if is_wildcard(step.test) else _similar(step.test, present)
        if similar:
            yield from (f"there is {sign}{format_name(name)}" for name in similar[:_TOLD])
        else:
            yield from self._elsewhere(elements, step)
            yield self._inventory(elements, step.axis, sign, present)

    def _names_at(self, elements: list[int], axis: Axis) -> list[str]:
        """The names of the nodes on an axis, each once, in document order."""
        document = self._document
        if axis is Axis.ATTRIBUTE:
            names = (name for e in elements for name in document.attributes[e][::2])
        elif axis is Axis.CHILD:
            names = (document.names[child] for e in elements for child in document.children(e))
        else:
            names = (document.names[n] for e in elements for n in range(e + 1, document.ends[e]))
        return list(dict.fromkeys(names))

    def _elsewhere(self, elements: list[int], step: Step) -> Iterable[str]:
        """The same name as another kind of node, or in another place."""
        if is_wildcard(step.test):
            return
        document = self._document
        name = format_name(step.test)
        if step.axis is Axis.ATTRIBUTE:
            if any(document.names[child] == step.test for e in elements for child in document.children(e)):
                yield f"there is an element {name}"
            for element in range(1, len(document)):
                if step.test in document.attributes[element][::2]:
                    yield f"there is {self._place(element)}/@{name}"
                    return
            return
        if any(step.test in document.attributes[element][::2] for element in elements):
            yield f"there is an attribute @{name}"
        found = document.named(step.test, 1, len(document))
        if found:
            yield f"there is {self._place(found[0])}"

    def _inventory(self, elements: list[int], axis: Axis, sign: str, present: list[str]) -> str:
        if elements[0] == DOCUMENT and axis is Axis.CHILD:
            return f"the root element is {format_name(present[0])}"
        where = "the message" if elements[0] == DOCUMENT else self._name(elements[0])
        if not present:
            return f"{where} has no {'attributes' if sign else 'elements in it'}"
        told = ", ".join(sign + format_name(name) for name in present[: 2 * _TOLD])
        more = f" and {len(present) - 2 * _TOLD} other names" if len(present) > 2 * _TOLD else ""
        return f"{where} has {told}{more}"

    def _place(self, element: int) -> str:
        return "".join(f"/{format_name(name)}" for name in self._document.tag_path(element))

    def _name(self, node: ContextNode) -> str:
        if isinstance(node, LeafNode):
            if node.kind == "text":
                return TEXT
            return "@" + format_name(self._document.attributes[node.element][2 * node.number])
        return format_name(self._document.names[node]) if node else "the message"


def _similar(test: str, present: list[str]) -> list[str]:
    """Names that were likely meant: the same in another namespace, in other letters, or misspelt."""
    local = _local(test)
    for same in (str, str.lower):
        found = [name for name in present if same(_local(name)) == same(local)]
        if found:
            return found
    close = get_close_matches(local, [_local(name) for name in present], n=1, cutoff=0.75)
    return [name for name in present if _local(name) in close]


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _written(path: Path, node: ContextNode) -> str:
    return str(path) if node == DOCUMENT else format_relative_path(path)


def _quoted(value: str) -> str:
    cut = value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"
    return format_constant(cut.replace("\n", "\\n").replace("\t", "\\t"))


def _lines(misses: Iterable[_Miss]) -> tuple[str, ...]:
    return tuple(islice(dict.fromkeys(line for miss in misses for line in miss.lines), 2 * _TOLD))
