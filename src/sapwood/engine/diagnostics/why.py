"""Explanations of why a message matches a query: one match of its pattern, step by step and node by node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sapwood.engine.diagnostics import notebook_html
from sapwood.engine.diagnostics.nearest_miss import nearest_miss, nearness
from sapwood.engine.matches import Node
from sapwood.engine.message.document import ContextNode
from sapwood.engine.node_selection import Selection
from sapwood.engine.pattern_evaluator import DOCUMENT, PatternEvaluator
from sapwood.lang.pattern import EMPTY, And, Condition, Has, Or, Path, Step, format_constant
from sapwood.lang.query import Query
from sapwood.lang.xpath.absolute_paths import make_absolute
from sapwood.lang.xpath.ast import Binary, Expr, Number, Text, flatten_chain, static_type
from sapwood.lang.xpath.parser import parse


@dataclass(frozen=True, slots=True)
class Why:
    """The explanation of why a message matches a query, or how far it gets; `str()` of it is for people."""

    query: str
    matched: bool
    reason: str
    steps: tuple[StepTaken, ...]
    found: tuple[str, ...] = ()
    """if it does not match: what the message has where a step or condition fails"""

    def __str__(self) -> str:
        lines = [f"query     {self.query}", f"matched   {'yes' if self.matched else 'no'}: {self.reason}"]
        lines += [f"{'found' if not i else '':10}{line}" for i, line in enumerate(self.found)]
        for taken in self.steps:
            lines.append(f"  {taken.step:<40} {taken.node.kind} {taken.node.index}: {_cut(taken.node.xml)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        answer = f"{'yes' if self.matched else 'no'}: {self.reason}"
        parts = [("query", (self.query,)), ("matched", (answer,)), ("found", self.found)]
        steps = [
            (taken.step, f"{taken.node.kind} {taken.node.index}", _cut(taken.node.xml))
            for taken in self.steps
        ]
        return notebook_html.sections(parts) + (
            notebook_html.table(("step", "node", "xml"), steps) if steps else ""
        )


@dataclass(frozen=True, slots=True)
class StepTaken:
    """A step or a condition of the pattern, and a node that it reached."""

    step: str
    node: Node


def _cut(xml: str) -> str:
    """Format a slice of a message in one line."""
    shown = " ".join(xml.split())
    return shown if len(shown) <= 60 else shown[:59] + "…"


def explain_match(query: Query, matched: bool, selection: Selection, by_xpath: list[Node]) -> Why:
    """Explain a result; `by_xpath` are the nodes that lxml selected, if it decided."""
    if matched and not query.exact:
        steps = tuple(StepTaken("selected by lxml", node) for node in by_xpath[:10])
        return Why(query.text, True, "the pattern matches, and lxml's evaluation is true", steps)
    evaluator = selection.evaluator
    paths = query.paths or tuple(_paths(query.condition))
    if not paths:
        found = () if matched else _found(query, selection)
        return Why(query.text, matched, "decided on the message as a whole", (), found)
    routes = [_route(path, evaluator) for path in paths]
    reached = [path for path, route in zip(paths, routes, strict=True) if len(route) == len(path.steps)]
    if matched:
        steps = tuple(
            taken
            for path in (reached[:1] if query.paths else reached)
            for taken in _steps_taken(path, _route(path, evaluator), evaluator, selection)
        )
        return Why(query.text, True, "each step has its node", steps)
    missed = [path for path in paths if path not in reached]
    path = max(missed, key=lambda path: nearness(path, evaluator)) if missed else paths[0]
    route = routes[paths.index(path)]
    steps = tuple(_steps_taken(path, route, evaluator, selection))
    if missed:
        reason = f"nothing passes the step {path.steps[len(route)]}"
    elif query.exact:
        reason = "other conditions fail"
    else:
        reason = "the pattern matches, but lxml's evaluation is false"
    return Why(query.text, False, reason, steps, _found(query, selection))


def _found(query: Query, selection: Selection) -> tuple[str, ...]:
    """Return what a message that does not match has instead."""
    if not selection.evaluator.holds(query.condition):
        return nearest_miss(query.condition, selection.evaluator)
    return tuple(_comparison_values(query, selection)) if not query.exact else ()


_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})


def _comparison_values(query: Query, selection: Selection) -> Iterator[str]:
    """Yield the values of the sides of comparisons by lxml, where a query is a conjunction of them."""
    for part in flatten_chain(parse(query.text, query.namespaces), "and"):
        written = query.text[part.start : part.end]
        if selection.evaluate_expression(f"boolean({_absolute(written, query)})", query.namespaces):
            continue
        if isinstance(part, Binary) and part.op in _COMPARISONS:
            for side in (part.left, part.right):
                if not isinstance(side, Number | Text):
                    yield _value(side, query, selection)
        else:
            inside = [r for r in query.reasons if part.start <= r.start and r.end <= part.end]
            left = ", ".join(query.text[reason.start : reason.end] for reason in inside)
            yield f"nothing for which lxml finds true: {left or written}"


def _value(side: Expr, query: Query, selection: Selection) -> str:
    written = query.text[side.start : side.end]
    value = selection.evaluate_expression(f"string({_absolute(written, query)})", query.namespaces)
    return f"{written} is {value if static_type(side) == 'number' else format_constant(value)}"


def _absolute(text: str, query: Query) -> str:
    return make_absolute(text, parse(text, query.namespaces), query.namespaces)


def _paths(condition: Condition) -> Iterator[Path]:
    """Yield the paths of a condition on the message, with the conditions on their nodes."""
    if isinstance(condition, And | Or):
        for item in condition.items:
            yield from _paths(item)
    elif isinstance(condition, Has) and condition.path.steps:
        *steps, last = condition.path.steps
        tested = (Has(EMPTY, condition.test),) if condition.test is not None else ()
        yield Path((*steps, Step(last.axis, last.test, (*last.conditions, *tested))))


def _route(path: Path, evaluator: PatternEvaluator) -> list[ContextNode]:
    """Return one node for each step, each reached from the one before, as far as the path gets."""
    frontiers: list[list[ContextNode]] = [[DOCUMENT]]
    for step in path.steps:
        following = evaluator.follow(frontiers[-1], step)
        if not following:
            break
        frontiers.append(following)
    route = [frontiers[-1][0]]
    for i in range(len(frontiers) - 1, 1, -1):
        step = path.steps[i - 1]
        route.append(next(n for n in frontiers[i - 1] if route[-1] in evaluator.follow([n], step)))
    return list(reversed(route)) if len(frontiers) > 1 else []


def _steps_taken(
    path: Path, route: list[ContextNode], evaluator: PatternEvaluator, selection: Selection
) -> Iterator[StepTaken]:
    for step, node in zip(path.steps, route, strict=False):
        yield StepTaken(str(Step(step.axis, step.test)), selection.node(node))
        for condition in step.conditions:
            yield from _witnesses(condition, node, evaluator, selection)


def _witnesses(
    condition: Condition, node: ContextNode, evaluator: PatternEvaluator, selection: Selection
) -> Iterator[StepTaken]:
    """Yield nodes by which the positive parts of a condition hold."""
    for item in condition.items if isinstance(condition, And) else (condition,):
        if isinstance(item, Has) and item.path.steps:
            for found in evaluator.select(item.path, node):
                if item.test is None or evaluator.holds(Has(EMPTY, item.test), found):
                    yield StepTaken(f"  [{item}]", selection.node(found))
                    break
        else:
            yield StepTaken(f"  [{item}]", selection.node(node))
