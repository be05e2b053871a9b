"""The relational form of a query as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sapwood.lang.query import compile_query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sapwood.relational.rules.rule_form import Branch, RuleForm


def compile_rules(query: str, namespaces: Mapping[str, str]) -> RuleForm:
    """Return the rules of a query; QueryError if it is not XPath 1.0."""
    from sapwood.relational.rules.rule_form import relational_form

    return relational_form(compile_query(query, namespaces))


def to_record(query: str, form: RuleForm) -> dict[str, Any]:
    """Return the form for JSON: a rule is a list of branches."""
    return {
        "query": query,
        "exact": form.exact,
        "rules": [[_record(branch) for branch in rule.branches] for rule in form.rules],
        "weakened": list(form.weakened),
    }


def _record(branch: Branch) -> dict[str, Any]:
    test = branch.test
    return {
        "path": branch.path.text,
        "test": None if test is None else {"op": test.op, "value": test.value},
        "points": [{"point": point, "step": step} for point, step in branch.points],
    }


def to_text(query: str, form: RuleForm) -> str:
    """Format the form: one line per branch, with the branching points in parentheses."""
    lines = [f"query     {query}"]
    for number, rule in enumerate(form.rules, 1):
        branches = [_format_branch(branch) for branch in rule.branches] or ["every message satisfies it"]
        for i, branch in enumerate(branches):
            lines.append(f"{f'rule {number}' if not i else '':9} {branch}")
    lines += _notes(form)
    return "\n".join(lines)


def _notes(form: RuleForm) -> Iterator[str]:
    points = sorted({p for rule in form.rules for branch in rule.branches for p, _ in branch.points})
    if points:
        listed = ", ".join(f"({point})" for point in points)
        yield f"branching at {listed}, the branches of a rule must share one element"
    if not form.rules:
        yield "decided   at once: no message can match"
    elif form.exact:
        yield "decided   by the rules: a message that satisfies one of them matches"
    else:
        yield "decided   by the query itself, on the messages that satisfy one of the rules"
    for part in form.weakened:
        yield f"weakened  {part}"


def _format_branch(branch: Branch) -> str:
    """Format a branch as `/a//b(1)/c = 5`: the path, numbers of branching points behind their steps, and
    the test.
    """
    from sapwood.relational.paths.linear_path import LinearPath

    at = {step: point for point, step in branch.points}
    steps = [
        LinearPath((step,)).text + (f"({at[number]})" if number in at else "")
        for number, step in enumerate(branch.path.steps, 1)
    ]
    return "".join(steps) + (f" {branch.test}" if branch.test is not None else "")
