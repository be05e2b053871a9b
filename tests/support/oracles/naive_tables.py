"""A naive evaluator of linear paths and rules, which tries all embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sapwood import Limits
from sapwood.engine.automaton.dataguide import Dataguide
from sapwood.engine.automaton.path_trie import PathTrie
from sapwood.engine.automaton.predicate_index import passes
from sapwood.engine.message.message_reader import Message, read_document
from sapwood.lang.pattern import ANY_NAMESPACE, TEXT, Axis
from sapwood.relational.paths.linear_path import LinearPath, TagPath, escape_element_name
from sapwood.relational.rules.rule_form import Branch, Rule, RuleForm

NodeId = tuple[str, int]
Points = dict[int, NodeId]
"""the nodes at which branching points are"""


def name_passes(axis: Axis, test: str, name: str) -> bool:
    if (axis is Axis.ATTRIBUTE) != name.startswith("@"):
        return False
    if TEXT in (test, name):
        return test == name
    uri, _, local = name.removeprefix("@").removeprefix("}").rpartition("}")
    wanted_uri, brace, wanted_local = test.rpartition("}")
    if test == "*":
        return True
    return wanted_local in ("*", local) and (wanted_uri == uri or bool(brace and wanted_uri == ANY_NAMESPACE))


def embeddings(path: LinearPath, tag: TagPath, step: int = 0, at: int = 0) -> Iterator[tuple[int, ...]]:
    """Yield the positions of all steps, for every embedding of the path in the tag path."""
    if step == len(path.steps):
        if at == len(tag):
            yield ()
        return
    axis, test = path.steps[step]
    furthest = len(tag) if axis is Axis.DESCENDANT else min(at + 1, len(tag))
    for position in range(at + 1, furthest + 1):
        if name_passes(axis, test, tag[position - 1]):
            for rest in embeddings(path, tag, step + 1, position):
                yield (position, *rest)


@dataclass(frozen=True, slots=True)
class Value:
    """A node of a message: its tag path, the nodes from the root element down to it, its string-value."""

    tag: TagPath
    nodes: tuple[NodeId, ...]
    value: str


def values(message: str) -> list[Value]:
    """Return all elements, attributes and text nodes of a message."""
    document = read_document(Message(message), Limits(), Dataguide(PathTrie(), 0).root, with_text=True)
    elements = [Value((), (), "")]
    found: list[Value] = []
    for element in range(1, len(document)):
        above = elements[document.parents[element]]
        tag = (*above.tag, escape_element_name(document.names[element]))
        here = Value(tag, (*above.nodes, ("element", element)), document.string_value(element))
        elements.append(here)
        found.append(here)
        listed = document.attributes[element]
        for i in range(0, len(listed), 2):
            node = (f"attribute {i}", element)
            found.append(Value((*tag, f"@{listed[i]}"), (*here.nodes, node), listed[i + 1]))
    for number, parent in enumerate(document.text_parents):
        above = elements[parent]
        found.append(Value((*above.tag, TEXT), (*above.nodes, ("text", number)), document.texts[number]))
    return found


def holds(form: RuleForm, message: list[Value]) -> bool:
    """Return whether the message matches some rule."""
    return any(met_at(rule, message) for rule in form.rules)


def met_at(rule: Rule, message: list[Value]) -> list[Points]:
    """Return the nodes of the rule's branching points, for every way in which its branches meet."""
    met: list[Points] = [{}]
    for branch in rule.branches:
        rows = _rows(branch, message)
        joined = [one | other for one in met for other in rows if _agree(one, other)]
        met = [dict(row) for row in dict.fromkeys(tuple(sorted(points.items())) for points in joined)]
    return met


def _rows(branch: Branch, message: list[Value]) -> list[Points]:
    rows: dict[tuple[tuple[int, NodeId], ...], None] = {}
    for value in message:
        if branch.test is None or passes(value.value, branch.test):
            for positions in embeddings(branch.path, value.tag):
                row = [(point, value.nodes[positions[step - 1] - 1]) for point, step in branch.points]
                rows[tuple(row)] = None
    return [dict(row) for row in rows]


def _agree(one: Points, other: Points) -> bool:
    return all(other.get(point, node) == node for point, node in one.items())
