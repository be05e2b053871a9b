"""The relational form of a query, for people and machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sapwood.lang.query import compile_query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sapwood.relational.rules.rule_form import Branch, RuleForm


def form_of(query: str, namespaces: Mapping[str, str]) -> RuleForm:
    """The rules of a query; QueryError says where and why it is not XPath 1.0."""
    from sapwood.relational.rules.rule_form import relational_form

    return relational_form(compile_query(query, namespaces))


def as_record(query: str, form: RuleForm) -> dict[str, Any]:
    """The form as JSON has it: a rule is a list of branches."""
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


def as_text(query: str, form: RuleForm) -> str:
    """The form as people read it: a line a branch, with the branching points in parentheses."""
    lines = [f"query     {query}"]
    for number, rule in enumerate(form.rules, 1):
        branches = [_written(branch) for branch in rule.branches] or ["every message meets it"]
        for i, branch in enumerate(branches):
            lines.append(f"{f'rule {number}' if not i else '':9} {branch}")
    lines += _notes(form)
    return "\n".join(lines)


def _notes(form: RuleForm) -> Iterator[str]:
    points = sorted({p for rule in form.rules for branch in rule.branches for p, _ in branch.points})
    if points:
        listed = ", ".join(f"({point})" for point in points)
        yield f"meeting   at {listed}, the branches of a rule have to be on the same element"
    if not form.rules:
        yield "decided   at once: no message can match"
    elif form.exact:
        yield "decided   by the rules: a message that meets one of them matches"
    else:
        yield "decided   by the query itself, on the messages that meet one of the rules"
    for part in form.weakened:
        yield f"weakened  {part}"


def _written(branch: Branch) -> str:
    """`/a//b(1)/c = 5`: the path, with the number of a branching point behind its step, and the test."""
    from sapwood.relational.paths.linear_path import LinearPath

    at = {step: point for point, step in branch.points}
    steps = [
        LinearPath((step,)).text + (f"({at[number]})" if number in at else "")
        for number, step in enumerate(branch.path.steps, 1)
    ]
    return "".join(steps) + (f" {branch.test}" if branch.test is not None else "")
