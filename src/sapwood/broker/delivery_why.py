"""Why a message is delivered to a transformation or a join, or is not."""

from __future__ import annotations

from collections.abc import Mapping

from sapwood.engine.diagnostics.why import Why, explain_match
from sapwood.engine.index import Index
from sapwood.engine.message.message_reader import Message
from sapwood.engine.selection import Selection
from sapwood.lang.fwr.model import Transformation
from sapwood.lang.pattern import Condition, Has, add_condition, all_of, any_of, use_prefixes
from sapwood.lang.query import Query
from sapwood.lang.xscl.model import MESSAGE, Join


def why_made(
    transformation: Transformation, made: int, message: Message, index: Index, namespaces: Mapping[str, str]
) -> Why:
    """Why a transformation makes something of a message, or how far its pattern gets."""
    traced = _traced(transformation.text, transformation.condition, made > 0, message, index, namespaces)
    if made:
        return Why(traced.query, True, f"something is made of it: {traced.reason}", traced.steps)
    if not traced.found:
        reason = "the pattern is met, but nothing is bound"
        return Why(traced.query, False, reason, traced.steps)
    return traced


def why_joined(join: Join, message: Message, index: Index, namespaces: Mapping[str, str]) -> Why:
    """Whether a message of the right stream would take part in a join, and as which of its blocks; it is
    delivered when messages of all the other blocks are there."""
    evaluator = Selection(message, index.read(message, all=True), index.refiner).evaluator
    wanted = [_block(join, number) for number in range(len(join.blocks))]
    met = [number for number, condition in enumerate(wanted) if evaluator.holds(condition)]
    condition = wanted[met[0]] if met else any_of(wanted)
    traced = _traced(join.text, condition, bool(met), message, index, namespaces)
    if not met:
        return Why(
            traced.query, False, f"it is none of the blocks: {traced.reason}", traced.steps, traced.found
        )
    told = " and ".join(
        f"{number + 1} (stream {join.blocks[number].stream or 'without a name'})" for number in met
    )
    reason = f"it takes part as block {told} of {len(join.blocks)}"
    return Why(traced.query, True, reason, traced.steps)


def _traced(
    text: str,
    condition: Condition,
    matched: bool,
    message: Message,
    index: Index,
    namespaces: Mapping[str, str],
) -> Why:
    selection = Selection(message, index.read(message, all=True), index.refiner)
    with use_prefixes(namespaces):
        return explain_match(Query(text, "boolean", condition), matched, selection, [])


def _block(join: Join, number: int) -> Condition:
    """What a message must have to take part as a block."""

    def exists(variable: int) -> Condition:
        below = [exists(n) for n, other in enumerate(join.variables) if other.origin == variable]
        return Has(add_condition(join.variables[variable].path, all_of(below)))

    roots = [n for n, v in enumerate(join.variables) if v.block == number and v.origin == MESSAGE]
    return all_of(map(exists, roots))
