"""Explanations of how a query is evaluated."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.engine.automaton.query_paths import ELEMENT, VALUE, IndexPlan, Leaf, Twig
from sapwood.engine.diagnostics import notebook_html
from sapwood.lang.pattern import format_name
from sapwood.lang.query import Query


@dataclass(frozen=True, slots=True)
class Explanation:
    """The evaluation of a query: pattern, leaves and how it is decided; `str()` of it is for people."""

    query: str
    pattern: str
    """the tree pattern that every match must satisfy"""
    paths: tuple[tuple[str, ...], ...]
    """the leaves by which messages are found: all leaves of any group"""
    decided_by: str
    """`leaves`, `pattern` or `xpath`"""
    refined: tuple[str, ...] = ()
    """the parts that only lxml evaluates, and why"""
    shared_with: int = 0
    """the number of other subscriptions to the same query"""
    suspended: bool = False
    """True: it exceeded its budget too often, and is not evaluated until it is resumed"""

    @property
    def never_matches(self) -> bool:
        """True if no message can match."""
        return not self.paths

    def __str__(self) -> str:
        lines = [f"query     {self.query}", f"pattern   {self.pattern}"]
        for i, group in enumerate(self.paths):
            lines.append(f"{'found by' if not i else '      or'}  {' and '.join(group)}")
        lines.append(f"decided   {_format_decision(self)}")
        lines += [f"refined   {part}" for part in self.refined]
        if self.suspended:
            lines.append("suspended it exceeded its budget too often; replace() or resume() reactivates it")
        if self.shared_with:
            others = "other subscription" if self.shared_with == 1 else "other subscriptions"
            lines.append(f"shared    with {self.shared_with:,} {others} with the same query")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts: list[tuple[str, tuple[str, ...]]] = [("query", (self.query,)), ("pattern", (self.pattern,))]
        parts += [("found by", tuple(" and ".join(group) for group in self.paths))]
        parts += [("decided", (_format_decision(self),)), ("refined", self.refined)]
        others = f"with {self.shared_with:,} others with the same query"
        return notebook_html.sections([*parts, ("shared", (others,) if self.shared_with else ())])


_DECISIONS = {
    "leaves": "natively, by these paths alone",
    "pattern": "natively: the paths find candidates, the pattern is evaluated on them",
    "xpath": "by lxml, on the messages that meet the pattern",
}


def explain(query: Query, plan: IndexPlan, subscriptions: int = 1, suspended: bool = False) -> Explanation:
    """Explain a query with its index plan and its number of subscriptions."""
    decided = "xpath" if not query.exact else "leaves" if plan.exact else "pattern"
    return Explanation(
        query=query.text,
        pattern=_pattern(query),
        paths=_groups(plan),
        decided_by=decided,
        refined=tuple(f"{query.text[r.start : r.end]}: {r.why}" for r in query.reasons),
        shared_with=subscriptions - 1,
        suspended=suspended,
    )


def _format_decision(explanation: Explanation) -> str:
    if explanation.never_matches:
        return "at once: no message can match"
    return _DECISIONS[explanation.decided_by]


def _pattern(query: Query) -> str:
    if query.paths:
        return " | ".join(str(path) or "/" for path in query.paths)
    return str(query.condition)


def _groups(plan: IndexPlan) -> tuple[tuple[str, ...], ...]:
    groups = [part.leaves() if isinstance(part, Twig) else (part,) for part in plan.parts]
    return tuple(tuple(map(format_leaf, leaves)) for leaves in groups)


def format_leaf(leaf: Leaf) -> str:
    """Format a leaf as XPath."""
    path = ""
    for symbol in leaf.path:
        path += (
            "//"
            if symbol == DESCENDANT
            else format_name(symbol)
            if path.endswith("//")
            else f"/{format_name(symbol)}"
        )
    if leaf.target.startswith("@"):
        path += f"/@{format_name(leaf.target[1:])}"
    elif leaf.target not in (ELEMENT, VALUE):
        path += f"/{leaf.target}"
    if leaf.test is None:
        return path or "every message"
    if leaf.test.op in ("contains", "starts-with"):
        return f"{path}[{leaf.test.op}(., {str(leaf.test).partition(' ')[2]})]"
    return f"{path} {leaf.test}"
