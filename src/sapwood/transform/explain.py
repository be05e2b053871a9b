"""Explanations of how a transformation is evaluated: its plan by itself, and what it shares with others."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.engine.diagnostics.explanation_sections import Section, SectionedExplanation
from sapwood.lang.fwr.model import DOCUMENT, TemplateHole, Transformation
from sapwood.lang.pattern import format_relative_path
from sapwood.transform.per_query.operator_plan import plan
from sapwood.transform.per_query.stream_conditions import ElementGraph
from sapwood.transform.shared_plan import SELF, SharedPlan


@dataclass(frozen=True, slots=True)
class PlanExplanation(SectionedExplanation):
    """The evaluation of a transformation: operators and sharing; `str()` of it is for people."""

    query: str
    bindings: tuple[str, ...]
    """every variable with its paths, including where conditions"""
    returns: tuple[str, ...]
    """the paths that fill the holes of the template"""
    plan: tuple[str, ...]
    """the operators of the query's own plan, and how each is implemented"""
    removed: tuple[str, ...]
    """the operators that are removed, and why"""
    shared: tuple[str, ...]
    """the parts of the shared plan that evaluate the query, and the number of others that use each"""
    refined: tuple[str, ...] = ()
    """the parts that only lxml evaluates, and why"""
    suspended: bool = False
    """True: it exceeded its budget too often, and is not evaluated until it is resumed"""

    def _parts(self) -> list[Section]:
        parts: list[Section] = [("query", (self.query,)), ("for", self.bindings), ("return", self.returns)]
        parts += [("refined", self.refined), ("by itself", self.plan), ("removed", self.removed)]
        parts += [("shared", self.shared)]
        if self.suspended:
            parts.append(
                ("suspended", ("it exceeded its budget too often; replace() or resume() reactivates it",))
            )
        return parts


def explain(
    shared: SharedPlan, number: int, transformation: Transformation, graph: ElementGraph | None
) -> PlanExplanation:
    """Explain an entry of the shared plan."""
    text = transformation.text
    refined = tuple(f"{text[reason.start : reason.end]}: {reason.why}" for reason in transformation.reasons)
    operators: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    if transformation.exact:
        alone = plan(transformation, "FWR", "query" if graph is None else "dtd", graph)
        operators = tuple(map(str, alone.operators))
        removed = tuple(map(str, alone.removed))
    return PlanExplanation(
        text,
        tuple(_bindings(transformation)),
        tuple(_format_hole(hole, transformation) for hole in transformation.holes),
        operators,
        removed,
        tuple(_sharing(shared, number)),
        refined,
        shared.is_suspended(number),
    )


def _bindings(transformation: Transformation) -> list[str]:
    lines = []
    for variable in transformation.variables:
        start = "" if variable.origin == DOCUMENT else f"${transformation.variables[variable.origin].name}"
        lines.append(f"${variable.name} in " + " | ".join(f"{start}{path}" or "/" for path in variable.paths))
    return lines


def _format_hole(hole: TemplateHole, transformation: Transformation) -> str:
    if hole.xpath:
        return hole.xpath
    start = "" if hole.origin == DOCUMENT else f"${transformation.variables[hole.origin].name}"
    paths = " | ".join(f"{start}{path}" or "/" for path in hole.paths)
    return paths if hole.kind == "nodes" else f"{hole.kind}({paths})"


def _sharing(shared: SharedPlan, number: int) -> list[str]:
    entry = shared.entry(number)
    if entry.template < 0:
        return ["path matching only: lxml evaluates the rest on the messages that pass the filter"]
    template = shared.templates[entry.template]
    if not entry.bound:
        return ["path matching only: nested loops do the rest on the messages that pass the filter"]
    binding = shared.bindings[entry.slot]
    lines = [f"join and selections, which bind the variable: {_others(len(binding.entries) - 1, 'query')}"]
    if binding.relative_path is not None:
        lines[0] += "; a group-by leads on from the element with a condition"
    if not binding.exact:
        lines[0] += "; the rest of the where clause is checked for each element found"
    lines += [
        f"group-by of {format_relative_path(source.paths[0])} below it: "
        + _others(shared.uses_of_path(source.relative_path) - 1, "return clause")
        for source in template.hole_sources
        if source.relative_path is not None and source.relative_path != SELF
    ]
    lines.append(f"return clause, filled once for each element: {_others(template.uses - 1, 'query')}")
    return lines


def _others(count: int, what: str) -> str:
    if not count:
        return "not shared yet"
    plural = {"query": "queries", "return clause": "return clauses"}[what]
    return f"shared with {count:,} other {what if count == 1 else plural}"
