"""How a transformation is evaluated: its plan by itself, and what of it is shared with others."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.engine.diagnostics import notebook_html
from sapwood.lang.fwr.model import DOCUMENT, TemplateHole, Transformation
from sapwood.lang.pattern import format_relative_path
from sapwood.transform.per_query.operator_plan import plan
from sapwood.transform.per_query.stream_conditions import ElementGraph
from sapwood.transform.shared_plan import SELF, SharedPlan


@dataclass(frozen=True, slots=True)
class PlanExplanation:
    """How a transformation is evaluated; `str()` of it is for people."""

    query: str
    bindings: tuple[str, ...]
    """every variable with its paths, where conditions included"""
    returns: tuple[str, ...]
    """what fills the holes of the template"""
    plan: tuple[str, ...]
    """the operators that the query would need by itself, and how each works"""
    removed: tuple[str, ...]
    """the operators that it does not need, and why"""
    shared: tuple[str, ...]
    """what carries the query in the network of all, and with how many others"""
    refined: tuple[str, ...] = ()
    """the parts left to lxml, and why"""
    suspended: bool = False
    """whether it went over its budget too often, and is not evaluated until it is resumed"""

    def _parts(self) -> list[tuple[str, tuple[str, ...]]]:
        parts = [("query", (self.query,)), ("for", self.bindings), ("return", self.returns)]
        parts += [("refined", self.refined), ("by itself", self.plan), ("removed", self.removed)]
        parts += [("shared", self.shared)]
        if self.suspended:
            parts.append(
                ("suspended", ("it went over its budget too often; replace() or resume() lets it go on",))
            )
        return parts

    def __str__(self) -> str:
        return "\n".join(
            f"{title if not i else '':<10}{line}"
            for title, lines in self._parts()
            for i, line in enumerate(lines)
        )

    def _repr_html_(self) -> str:
        return notebook_html.sections(self._parts())


def explain(
    network: SharedPlan, number: int, transformation: Transformation, graph: ElementGraph | None
) -> PlanExplanation:
    """Explains an entry of the network."""
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
        tuple(_filled(hole, transformation) for hole in transformation.holes),
        operators,
        removed,
        tuple(_shared(network, number)),
        refined,
        network.is_suspended(number),
    )


def _bindings(transformation: Transformation) -> list[str]:
    lines = []
    for variable in transformation.variables:
        start = "" if variable.origin == DOCUMENT else f"${transformation.variables[variable.origin].name}"
        lines.append(f"${variable.name} in " + " | ".join(f"{start}{path}" or "/" for path in variable.paths))
    return lines


def _filled(hole: TemplateHole, transformation: Transformation) -> str:
    if hole.xpath:
        return hole.xpath
    start = "" if hole.origin == DOCUMENT else f"${transformation.variables[hole.origin].name}"
    paths = " | ".join(f"{start}{path}" or "/" for path in hole.paths)
    return paths if hole.kind == "nodes" else f"{hole.kind}({paths})"


def _shared(network: SharedPlan, number: int) -> list[str]:
    entry = network.entry(number)
    if entry.template < 0:
        return ["path matching only: lxml evaluates the rest on the messages that pass the filter"]
    template = network.templates[entry.template]
    if not entry.bound:
        return ["path matching only: nested loops do the rest on the messages that pass the filter"]
    binding = network.bindings[entry.slot]
    lines = [f"join and selections, which bind the variable: {_others(len(binding.entries) - 1, 'query')}"]
    if binding.hop is not None:
        lines[0] += "; from the element with a condition on the way, a group-by leads on"
    if not binding.exact:
        lines[0] += "; what is left of the where clause is decided for each element found"
    lines += [
        f"group-by of {format_relative_path(filling.paths[0])} below it: "
        + _others(network.uses_of_group(filling.group) - 1, "return clause")
        for filling in template.fillings
        if filling.group is not None and filling.group != SELF
    ]
    lines.append(f"return clause, filled once for each element: {_others(template.uses - 1, 'query')}")
    return lines


def _others(count: int, what: str) -> str:
    if not count:
        return "nobody else's yet"
    plural = {"query": "queries", "return clause": "return clauses"}[what]
    return f"shared with {count:,} other {what if count == 1 else plural}"
