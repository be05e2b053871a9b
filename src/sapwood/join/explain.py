"""Explanations of join queries: the reduced join graph, its template, and what is shared with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isinf

from sapwood.engine.diagnostics.explanation_sections import Section, SectionedExplanation
from sapwood.join.evaluation.witnesses import VariableIndex
from sapwood.join.join_catalog import CatalogLink, ChainPrefix, JoinEntry
from sapwood.lang.xscl.model import MESSAGE, Join, Link


@dataclass(frozen=True, slots=True)
class JoinExplanation(SectionedExplanation):
    """The evaluation of a join query; `str()` of it is for people."""

    query: str
    blocks: tuple[str, ...]
    """the variables of all blocks, with constants and branches as conditions"""
    links: tuple[str, ...]
    """the comparisons between blocks in normal form, and their windows"""
    compared: tuple[str, ...]
    """the variables of the reduced blocks, and the number of join graphs that use each"""
    templates: tuple[str, ...]
    """for each link its template, and the number of rows of that"""
    kept: tuple[str, ...]
    """how long messages are in the state because of it"""

    def _parts(self) -> list[Section]:
        parts = [("query", (self.query,)), ("blocks", self.blocks), ("links", self.links)]
        parts += [("compared", self.compared), ("templates", self.templates), ("state", self.kept)]
        return parts


def explain(entry: JoinEntry, witnesses: VariableIndex) -> JoinExplanation:
    """Explain how an entry of the join engine is evaluated."""
    join = entry.join
    links = [_prefix_link(prefix) for prefix in entry.prefixes] + entry.links
    return JoinExplanation(
        join.text,
        tuple(_format_variables(join)),
        tuple(_format_link(join, link) for link in join.links),
        tuple(_format_compared(links, witnesses)),
        tuple(_format_template(link) for link in links),
        tuple(_format_retention(join)),
    )


def _prefix_link(prefix: ChainPrefix) -> CatalogLink:
    assert prefix.link is not None
    return prefix.link


def _format_variables(join: Join) -> Iterator[str]:
    for number, variable in enumerate(join.variables):
        if variable.numeric:
            continue
        stream = join.blocks[variable.block].stream or "messages without a stream"
        start = stream if variable.origin == MESSAGE else _name(join, variable.origin)
        yield f"{_name(join, number)} in {start}{variable.path}"


def _name(join: Join, number: int) -> str:
    if join.variables[number].numeric:
        return f"number({_name(join, join.variables[number].origin)})"
    return join.variables[number].name or f"({number})"


def _format_link(join: Join, link: Link) -> str:
    comparisons = " and ".join(
        f"{_name(join, c.left)} {c.op} {_name(join, c.right)}" for c in link.comparisons
    )
    window = "at any time" if isinf(link.window) else f"{link.window:g} s"
    if link.ordered:
        return f"{comparisons}, {'later' if isinf(link.window) else f'at most {window} later'}"
    return f"{comparisons}, {window if isinf(link.window) else f'at most {window} apart'}"


def _format_compared(links: list[CatalogLink], witnesses: VariableIndex) -> Iterator[str]:
    for number in dict.fromkeys(number for link in links for number, _ in link.definitions):
        definition = witnesses.definition(number)
        start = definition.stream if definition.origin is None else "…"
        uses = witnesses.uses(number)
        path = f"number({start}{definition.path})" if definition.numeric else f"{start}{definition.path}"
        yield f"{path}: used {uses:,} time{'s' if uses > 1 else ''}"


def _format_template(link: CatalogLink) -> str:
    graph = link.graph.template_graph
    rows = len(link.relations.templates[graph].rows) if link.relations is not None else 1
    return f"{graph}: {rows:,} row{'s' if rows > 1 else ''}"


def _format_retention(join: Join) -> Iterator[str]:
    for link in join.links:
        if isinf(link.window):
            yield "all messages, without end: the window is INF"
        elif link.ordered:
            yield f"the earlier message {link.window:g} s, the later one while earlier ones may be late"
        else:
            yield f"messages of both sides {link.window:g} s"
