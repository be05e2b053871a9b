"""Location paths as routes: how nodes are reached, in steps that the pattern language has.

Abbreviations and rarer axes are written out. A step on a reverse or sibling axis has no pattern: it *cuts*
the path in two, and all that is known of the nodes beyond the cut is that their route starts somewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sapwood.lang.pattern import (
    FALSE,
    TEXT,
    TRUE,
    Axis,
    Condition,
    Has,
    Named,
    Path,
    Step,
    Test,
    all_of,
    canonical_predicates,
    plain_step,
)
from sapwood.lang.xpath import ast


@dataclass(frozen=True, slots=True)
class Route:
    """A route to nodes along `steps`, from the document or from a context node that meets `context`."""

    absolute: bool
    steps: tuple[Step, ...] = ()
    context: tuple[Condition, ...] = ()

    def then(self, step: Step) -> Route:
        return Route(self.absolute, (*self.steps, step), self.context)

    def holds(self, test: Test | None, first: bool = False) -> Condition:
        """Return the condition that some (or the first) node of the route passes the test."""
        if any(FALSE in step.conditions for step in self.steps):
            return FALSE
        reached = TRUE if not self.steps and test is None else Has(Path(self.steps), test, first)
        return all_of((*self.context, reached))

    @property
    def at_leaf(self) -> bool:
        """Whether the nodes reached are attributes or text, which have no children."""
        return bool(self.steps) and (self.steps[-1].axis is Axis.ATTRIBUTE or self.steps[-1].test == TEXT)


@dataclass(frozen=True, slots=True)
class NodeSet:
    """A union of routes. `beyond` a cut are nodes whose routes start anywhere in the message."""

    routes: list[Route]
    beyond: NodeSet | None = None
    anywhere: bool = False  # nothing is known of the nodes

    def at_end(self, change: Callable[[NodeSet], NodeSet]) -> NodeSet:
        """Apply a function to the nodes beyond the last cut, not to the way to it."""
        if self.beyond is None:
            return change(self)
        return NodeSet(self.routes, self.beyond.at_end(change))


ANYWHERE = NodeSet([Route(True)], anywhere=True)


_ANY_DESCENDANT = plain_step(Axis.DESCENDANT, "*")


class Conditions(Protocol):
    """The interface of the translator that a walk uses: conditions of steps, and reasons for weakening."""

    def step_predicates(self, step: ast.Step, positions: bool) -> tuple[Condition, ...]: ...
    def weaken(self, expr: ast.Expr, why: str) -> None: ...


class Walk:
    """Follows location steps from a set of routes, writing abbreviations and rarer axes out as steps."""

    def __init__(self, conditions: Conditions, at_document: bool, on_leaves: bool = False) -> None:
        """`on_leaves`: the context node may be an attribute or text."""
        self._conditions = conditions
        self._at_document = at_document
        self._on_leaves = on_leaves

    def over(self, steps: tuple[ast.Step, ...], routes: list[Route]) -> NodeSet:
        deep = False  # whether `//` precedes
        for i, step in enumerate(steps):
            if step.test == "node()" and not step.predicates:
                if step.axis == "descendant-or-self":
                    deep = True
                    continue
                if step.axis == "self":
                    continue
            inner = i + 1 < len(steps) and steps[i + 1].axis in ("child", "attribute", "descendant")
            moved = self._step(step, routes, deep, inner)
            if moved is None:
                return NodeSet(routes, self._beyond(step, steps[i + 1 :]))
            routes, deep = moved, False
        if deep:
            self._conditions.weaken(steps[-1], "all kinds of descendant nodes")
            return NodeSet(routes, ANYWHERE)
        return NodeSet(routes)

    def _beyond(self, step: ast.Step, rest: tuple[ast.Step, ...]) -> NodeSet:
        """The nodes after a cut, which must exist somewhere, and the rest of the path from them."""
        self._conditions.weaken(step, _why_cut(step))
        if not _is_name(step.test) or step.axis == "namespace":
            return self.from_anywhere(rest)
        kept = self._conditions.step_predicates(step, positions=False)
        return self.over(rest, [Route(True, (Step(Axis.DESCENDANT, step.test, kept),))])

    def from_anywhere(self, steps: tuple[ast.Step, ...]) -> NodeSet:
        """Follow steps from unknown nodes, as if `//` preceded."""
        if not steps or steps[0].axis not in ("child", "descendant", "attribute"):
            return ANYWHERE
        deep = ast.Step("descendant-or-self", "node()", (), start=steps[0].start, end=steps[0].start)
        return self.over((deep, *steps), [Route(True)])

    def _step(self, step: ast.Step, routes: list[Route], deep: bool, inner: bool) -> list[Route] | None:
        """Return the routes after a step; None if no pattern expresses the step."""
        test = "*" if step.test == "node()" and inner and not step.predicates else step.test
        match step.axis:
            case "child" if _is_name(test) or test == TEXT:
                kept = self._conditions.step_predicates(step, positions=True)
                axis = Axis.DESCENDANT if deep else Axis.CHILD
                move = Step(axis, test, kept) if kept else plain_step(axis, test)
                return [route.then(move) for route in routes if not route.at_leaf]
            case "descendant" if _is_name(test) or test == TEXT:
                kept = self._conditions.step_predicates(step, positions=False)
                return [
                    route.then(Step(Axis.DESCENDANT, test, kept)) for route in routes if not route.at_leaf
                ]
            case "attribute" if _is_name(test) or test == "node()":
                return self._attributes(step, "*" if test == "node()" else test, routes, deep)
            case "self" | "descendant-or-self" if _is_name(test):
                return self._self(step, routes, deep or step.axis == "descendant-or-self")
        return None

    def _attributes(self, step: ast.Step, test: str, routes: list[Route], deep: bool) -> list[Route]:
        kept = self._conditions.step_predicates(step, positions=False)
        move = Step(Axis.ATTRIBUTE, test, kept)
        owners = [route for route in routes if not route.at_leaf]
        if deep:
            owners = [further for route in owners for further in (route, route.then(_ANY_DESCENDANT))]
        return [route.then(move) for route in owners if route.steps or not self._is_document(route)]

    def _self(self, step: ast.Step, routes: list[Route], deep: bool) -> list[Route]:
        kept = self._conditions.step_predicates(step, positions=False)
        named = (Named(step.test), *kept) if step.test != "*" else kept
        if step.test == "*" and self._on_leaves and any(not route.steps for route in routes):
            self._conditions.weaken(step, "an element, where a node may be none")
        staying = [
            filter_route(route, named)
            for route in routes
            if not route.at_leaf and (route.steps or not self._is_document(route))
        ]
        if not deep:
            return staying
        move = Step(Axis.DESCENDANT, step.test, kept)
        return [*staying, *(route.then(move) for route in routes if not route.at_leaf)]

    def _is_document(self, route: Route) -> bool:
        return route.absolute or self._at_document


def filter_route(route: Route, conditions: tuple[Condition, ...]) -> Route:
    """Return the route with further conditions on the nodes that it reaches."""
    if not conditions:
        return route
    if not route.steps:
        return Route(route.absolute, (), (*route.context, *conditions))
    last = route.steps[-1]
    narrowed = Step(last.axis, last.test, canonical_predicates((*last.conditions, *conditions)))
    return Route(route.absolute, (*route.steps[:-1], narrowed), route.context)


def _why_cut(step: ast.Step) -> str:
    if step.axis in ("child", "descendant", "descendant-or-self", "self", "attribute"):
        return f"the node test {step.test}"
    return f"the {step.axis} axis"


def _is_name(test: str) -> bool:
    return not test.endswith(")")
