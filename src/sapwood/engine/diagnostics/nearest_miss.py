"""The nearest miss: the part of a pattern at which a message fails, and what the message has instead.

A condition that does not hold is followed to the part that fails. Of several nodes or alternatives, the one
that gets furthest is reported; `progress` measures it, from 0 (not at all) to 1 (all but the last test).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from math import isnan
from typing import NamedTuple

from sapwood.engine.message.document import ContextNode, Document, LeafNode
from sapwood.engine.pattern_evaluator import DOCUMENT, PatternEvaluator
from sapwood.lang import pattern
from sapwood.lang.literals.numbers import to_number

_MAX_REPORTED = 3
"""values, names or conditions reported of one kind"""
_CANDIDATES = 100
"""nodes considered to find the nearest"""
_MAX_VALUE = 40


class _Miss(NamedTuple):
    progress: float
    lines: tuple[str, ...]


def nearest_miss(condition: pattern.Condition, evaluator: PatternEvaluator) -> tuple[str, ...]:
    """Describe the values in the message that make a condition false."""
    return _Misses(evaluator).of(condition, DOCUMENT).lines


def nearness(path: pattern.Path, evaluator: PatternEvaluator) -> float:
    """Return how far a path gets that reaches no node, from 0 to 1."""
    return _Misses(evaluator).of(pattern.Has(path), DOCUMENT).progress


class _Misses:
    def __init__(self, evaluator: PatternEvaluator) -> None:
        self._evaluator = evaluator
        self._document: Document = evaluator.document

    def of(self, condition: pattern.Condition, node: ContextNode) -> _Miss:
        """Return why a condition, which does not depend on positions, does not hold of a node."""
        match condition:
            case pattern.And(items=items):
                missed = [self.of(item, node) for item in items if not self._evaluator.holds(item, node)]
                held = len(items) - len(missed)
                return _Miss((held + sum(m.progress for m in missed)) / len(items), _lines(missed))
            case pattern.Or(items=()):
                return _Miss(0, ("no message can match",))
            case pattern.Or(items=items):
                return max((self.of(item, node) for item in items), key=lambda miss: miss.progress)
            case pattern.Not(item=item):
                return _Miss(0.5, tuple(self._witness(item, node)))
            case pattern.Named():
                return _Miss(0.5, (f"the element is {self._name(node)}",))
            case pattern.Has():
                return self._of_path(condition, node)
        return _Miss(0, (f"{condition} does not hold",))

    def _witness(self, item: pattern.Condition, node: ContextNode) -> Iterable[str]:
        """Yield what makes a condition true that must be false."""
        if not isinstance(item, pattern.Has) or not item.path.steps:
            yield f"{item} holds"
            return
        found = self._evaluator.select(item.path, node)
        written = _format_path(item.path, node)
        yield from self._values(written, found) if item.test is not None else [f"there is {written}"]

    # -- paths -----------------------------------------------------------------------------------------

    def _of_path(self, condition: pattern.Has, node: ContextNode) -> _Miss:
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
        written = _format_path(condition.path, node) if steps else self._name(node)
        wants_number = condition.test is not None and isinstance(condition.test.value, float)
        values = self._values(written, reached, wants_number)
        return _Miss((len(steps) + 0.5) / (len(steps) + 1), tuple(values))

    def _values(self, written: str, nodes: list[ContextNode], wants_number: bool = False) -> Iterable[str]:
        values = dict.fromkeys(self._document.string_value(n) for n in islice(nodes, _CANDIDATES))
        for value in islice(values, _MAX_REPORTED):
            note = ", which is no number" if wants_number and isnan(to_number(value)) else ""
            yield f"{written} is {_quote(value)}{note}"
        if len(values) > _MAX_REPORTED:
            yield f"and {len(values) - _MAX_REPORTED} other values of {written}"

    def _of_step(self, context: list[ContextNode], step: pattern.Step) -> _Miss:
        """Return why a step reaches no node from those reached before it."""
        candidates: list[ContextNode] = []
        for passed in range(len(step.conditions) + 1):
            following = self._evaluator.follow(
                context, pattern.Step(step.axis, step.test, step.conditions[:passed])
            )
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

    def _misplaced(self, condition: pattern.Condition, candidates: list[ContextNode]) -> str:
        owners: dict[int, int] = {}
        for node in candidates:
            owner = self._document.parents[node] if isinstance(node, int) else node.element
            owners[owner] = owners.get(owner, 0) + 1
        most = max(owners.values())
        name = self._name(candidates[0])
        if isinstance(condition, pattern.Position):
            times = "once" if most == 1 else f"{most} times"
            in_all = f" at most in one place, {len(candidates)} in all" if len(owners) > 1 else ""
            return f"{name} is there {times}{in_all}"
        return f"[{condition}] holds of none of {len(candidates)} {name}"

    # -- names -----------------------------------------------------------------------------------------

    def _absent(self, context: list[ContextNode], step: pattern.Step) -> Iterable[str]:
        """Yield what is there where no node has the name of a step."""
        elements = [node for node in context if isinstance(node, int)]
        if not elements:
            yield f"{self._name(context[0])} has neither children nor attributes"
            return
        if step.test == pattern.TEXT:
            yield f"there is no text in {self._name(elements[0])}"
            return
        present = self._names_at(elements, step.axis)
        sign = "@" if step.axis is pattern.Axis.ATTRIBUTE else ""
        similar = [] if pattern.is_wildcard(step.test) else _similar(step.test, present)
        if similar:
            yield from (f"there is {sign}{pattern.format_name(name)}" for name in similar[:_MAX_REPORTED])
        else:
            yield from self._elsewhere(elements, step)
            yield self._inventory(elements, step.axis, sign, present)

    def _names_at(self, elements: list[int], axis: pattern.Axis) -> list[str]:
        """Return the names of the nodes on an axis, each once, in document order."""
        document = self._document
        if axis is pattern.Axis.ATTRIBUTE:
            names = (name for e in elements for name in document.attributes[e][::2])
        elif axis is pattern.Axis.CHILD:
            names = (document.names[child] for e in elements for child in document.children(e))
        else:
            names = (document.names[n] for e in elements for n in range(e + 1, document.ends[e]))
        return list(dict.fromkeys(names))

    def _elsewhere(self, elements: list[int], step: pattern.Step) -> Iterable[str]:
        """Yield the same name as another kind of node, or elsewhere in the message."""
        if pattern.is_wildcard(step.test):
            return
        document = self._document
        name = pattern.format_name(step.test)
        if step.axis is pattern.Axis.ATTRIBUTE:
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

    def _inventory(self, elements: list[int], axis: pattern.Axis, sign: str, present: list[str]) -> str:
        if elements[0] == DOCUMENT and axis is pattern.Axis.CHILD:
            return f"the root element is {pattern.format_name(present[0])}"
        where = "the message" if elements[0] == DOCUMENT else self._name(elements[0])
        if not present:
            return f"{where} has no {'attributes' if sign else 'elements in it'}"
        listed = ", ".join(sign + pattern.format_name(name) for name in present[: 2 * _MAX_REPORTED])
        more = (
            f" and {len(present) - 2 * _MAX_REPORTED} other names" if len(present) > 2 * _MAX_REPORTED else ""
        )
        return f"{where} has {listed}{more}"

    def _place(self, element: int) -> str:
        return "".join(f"/{pattern.format_name(name)}" for name in self._document.tag_path(element))

    def _name(self, node: ContextNode) -> str:
        if isinstance(node, LeafNode):
            if node.kind == "text":
                return pattern.TEXT
            return "@" + pattern.format_name(self._document.attributes[node.element][2 * node.number])
        return pattern.format_name(self._document.names[node]) if node else "the message"


def _similar(test: str, present: list[str]) -> list[str]:
    """Yield names that were likely meant: in another namespace, in other letters, or misspelt."""
    local = _local(test)
    for same in (str, str.lower):
        found = [name for name in present if same(_local(name)) == same(local)]
        if found:
            return found
    close = get_close_matches(local, [_local(name) for name in present], n=1, cutoff=0.75)
    return [name for name in present if _local(name) in close]


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _format_path(path: pattern.Path, node: ContextNode) -> str:
    return str(path) if node == DOCUMENT else pattern.format_relative_path(path)


def _quote(value: str) -> str:
    cut = value if len(value) <= _MAX_VALUE else value[: _MAX_VALUE - 1] + "…"
    return pattern.format_constant(cut.replace("\n", "\\n").replace("\t", "\\t"))


def _lines(misses: Iterable[_Miss]) -> tuple[str, ...]:
    return tuple(islice(dict.fromkeys(line for miss in misses for line in miss.lines), 2 * _MAX_REPORTED))
