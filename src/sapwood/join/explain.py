"""How a join is evaluated: what is left of its graph, its template, and what is shared with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isinf

from sapwood.engine.diagnostics import notebook_html
from sapwood.join.catalog_entries import Filed, JoinEntry, Prefix
from sapwood.join.evaluation.witnesses import Witnesses
from sapwood.lang.xscl.model import MESSAGE, Join, Link


@dataclass(frozen=True, slots=True)
class JoinExplanation:
    """How a join is evaluated; `str()` of it is for people."""

    query: str
    blocks: tuple[str, ...]
    """every block with its variables, constants and branches as conditions"""
    links: tuple[str, ...]
    """what must hold between blocks, in normal form, and when"""
    compared: tuple[str, ...]
    """what is left of the blocks once the matcher has done its part, and in how many graphs it is used"""
    templates: tuple[str, ...]
    """of each link the shape that it is a row of, and how many rows that has"""
    kept: tuple[str, ...]
    """for how long messages are kept for it"""

    def _parts(self) -> list[tuple[str, tuple[str, ...]]]:
        parts = [("query", (self.query,)), ("blocks", self.blocks), ("links", self.links)]
        parts += [("compared", self.compared), ("templates", self.templates), ("kept", self.kept)]
        return parts

    def __str__(self) -> str:
        return "\n".join(
            f"{title if not i else '':<10}{line}"
            for title, lines in self._parts()
            for i, line in enumerate(lines)
        )

    def _repr_html_(self) -> str:
        return notebook_html.sections(self._parts())


def explain(entry: JoinEntry, witnesses: Witnesses) -> JoinExplanation:
    """Explains an entry of the joins."""
    join = entry.join
    filed = [_filed(prefix) for prefix in entry.prefixes] + entry.filed
    return JoinExplanation(
        join.text,
        tuple(_blocks(join)),
        tuple(_link(join, link) for link in join.links),
        tuple(_compared(filed, witnesses)),
        tuple(_template(one) for one in filed),
        tuple(_kept(join)),
    )


def _filed(prefix: Prefix) -> Filed:
    assert prefix.filed is not None
    return prefix.filed


def _blocks(join: Join) -> Iterator[str]:
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


def _link(join: Join, link: Link) -> str:
    held = " and ".join(f"{_name(join, c.left)} {c.op} {_name(join, c.right)}" for c in link.comparisons)
    window = "at any time" if isinf(link.window) else f"{link.window:g} s"
    if link.ordered:
        return f"{held}, {'later' if isinf(link.window) else f'at most {window} later'}"
    return f"{held}, {window if isinf(link.window) else f'at most {window} apart'}"


def _compared(filed: list[Filed], witnesses: Witnesses) -> Iterator[str]:
    for number in dict.fromkeys(number for one in filed for number, _ in one.definitions):
        definition = witnesses.definition(number)
        start = definition.stream if definition.origin is None else "…"
        uses = witnesses.uses(number)
        path = f"number({start}{definition.path})" if definition.numeric else f"{start}{definition.path}"
        yield f"{path}: used {uses:,} time{'s' if uses > 1 else ''}"


def _template(filed: Filed) -> str:
    rows = len(filed.relations.templates[filed.graph.shape].rows) if filed.relations is not None else 1
    return f"{filed.graph.shape}: {rows:,} row{'s' if rows > 1 else ''}"


def _kept(join: Join) -> Iterator[str]:
    for link in join.links:
        if isinf(link.window):
            yield "for ever: the window has no end"
        elif link.ordered:
            yield f"what is first {link.window:g} s, what follows as long as what is first may be late"
        else:
            yield f"both sides {link.window:g} s"
