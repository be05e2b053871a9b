"""Nested loops: the reference evaluation of a for-where-return query over what the evaluator selects.

Plans use it where streams do not pay, and tests as an oracle.
"""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.engine.message.document import ContextNode, Document
from sapwood.engine.pattern_evaluator import DOCUMENT as DOCUMENT_NODE
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.lang.fwr.model import DOCUMENT, BoundVariable, JointCondition, Transformation
from sapwood.lang.pattern import Path
from sapwood.transform.result_groups import MOST_GROUPS, Group, TooManyGroups

Bound = tuple[ContextNode, ...]


def groups(transformation: Transformation, evaluator: PatternEvaluator, document: Document) -> list[Group]:
    """Return all groups of an exact query, in the order of its loops; raise TooManyGroups past a limit."""
    holes = transformation.holes
    of_document = {
        number: select_nodes(hole.paths, DOCUMENT_NODE, evaluator, document)
        for number, hole in enumerate(holes)
        if hole.origin == DOCUMENT
    }
    groups: list[Group] = []
    for bound in _bindings(transformation.variables, (), evaluator, document):
        if all(_meets(joint, bound, evaluator) for joint in transformation.joints):
            lists = [
                of_document[number]
                if number in of_document
                else select_nodes(hole.paths, start(hole.origin, bound), evaluator, document)
                for number, hole in enumerate(holes)
            ]
            groups.append(Group(bound, tuple(lists)))
            if len(groups) > MOST_GROUPS:
                raise TooManyGroups(transformation.text)
    return groups


def start(origin: int, bound: Bound) -> ContextNode:
    """Return the node that paths of this origin start from."""
    return DOCUMENT_NODE if origin == DOCUMENT else bound[origin]


def select_nodes(
    paths: tuple[Path, ...], node: ContextNode, evaluator: PatternEvaluator, document: Document
) -> list[ContextNode]:
    """Return the nodes that any of the paths reaches from a node, each once, in document order."""
    if len(paths) == 1:
        return evaluator.select(paths[0], node)
    found = {reached for path in paths for reached in evaluator.select(path, node)}
    return sorted(found, key=document.order)


def _bindings(
    variables: tuple[BoundVariable, ...], bound: Bound, evaluator: PatternEvaluator, document: Document
) -> Iterator[Bound]:
    if len(bound) == len(variables):
        yield bound
        return
    variable = variables[len(bound)]
    for node in select_nodes(variable.paths, start(variable.origin, bound), evaluator, document):
        yield from _bindings(variables, (*bound, node), evaluator, document)


def _meets(joint: JointCondition, bound: Bound, evaluator: PatternEvaluator) -> bool:
    match joint.op:
        case "and":
            return all(_meets(item, bound, evaluator) for item in joint.items)
        case "or":
            return any(_meets(item, bound, evaluator) for item in joint.items)
        case "not":
            return not _meets(joint.items[0], bound, evaluator)
    assert joint.condition is not None
    return evaluator.holds(joint.condition, start(joint.origin, bound))
