"""Explanations of why a message produces output of a transformation or takes part in a join, or does not."""

from __future__ import annotations

from collections.abc import Mapping

from sapwood.engine.diagnostics.why import Why, explain_match
from sapwood.engine.index import Index
from sapwood.engine.message.message_reader import Message
from sapwood.engine.node_selection import Selection
from sapwood.lang.fwr.model import Transformation
from sapwood.lang.pattern import Condition, Has, add_condition, all_of, any_of, use_prefixes
from sapwood.lang.query import Query
from sapwood.lang.xscl.model import MESSAGE, Join


def why_transformed(
    transformation: Transformation, made: int, message: Message, index: Index, namespaces: Mapping[str, str]
) -> Why:
    """Explain why a transformation has output for a message, or at which step of its pattern it fails."""
    trace = _trace(transformation.text, transformation.condition, made > 0, message, index, namespaces)
    if made:
        return Why(trace.query, True, f"it has output: {trace.reason}", trace.steps)
    if not trace.found:
        reason = "the pattern matches, but no variable is bound"
        return Why(trace.query, False, reason, trace.steps)
    return trace


def why_joined(join: Join, message: Message, index: Index, namespaces: Mapping[str, str]) -> Why:
    """Explain whether a message would take part in a join, and as which of its blocks, if it is published to
    the stream of that block."""
    evaluator = Selection(message, index.read(message, all=True), index.fallback).evaluator
    conditions = [_block_condition(join, number) for number in range(len(join.blocks))]
    matched = [number for number, condition in enumerate(conditions) if evaluator.holds(condition)]
    condition = conditions[matched[0]] if matched else any_of(conditions)
    trace = _trace(join.text, condition, bool(matched), message, index, namespaces)
    if not matched:
        return Why(trace.query, False, f"it matches no block: {trace.reason}", trace.steps, trace.found)
    blocks = " and ".join(
        f"{number + 1} (stream {join.blocks[number].stream or 'without a name'})" for number in matched
    )
    reason = f"it takes part as block {blocks} of {len(join.blocks)}"
    return Why(trace.query, True, reason, trace.steps)


def _trace(
    text: str,
    condition: Condition,
    matched: bool,
    message: Message,
    index: Index,
    namespaces: Mapping[str, str],
) -> Why:
    selection = Selection(message, index.read(message, all=True), index.fallback)
    with use_prefixes(namespaces):
        return explain_match(Query(text, "boolean", condition), matched, selection, [])


def _block_condition(join: Join, number: int) -> Condition:
    """Return the condition that a message must meet to take part as a block."""

    def exists(variable: int) -> Condition:
        below = [exists(n) for n, other in enumerate(join.variables) if other.origin == variable]
        return Has(add_condition(join.variables[variable].path, all_of(below)))

    roots = [n for n, v in enumerate(join.variables) if v.block == number and v.origin == MESSAGE]
    return all_of(map(exists, roots))
