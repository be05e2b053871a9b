"""The diagram of packages and their imports in docs/explanation, drawn from the import graph.

    python -m tests.support.docs.generated_docs      writes it anew

An arrow leads from a package to one that it imports. Imports that follow from others are not drawn: if a
imports b and b imports c, an import of c by a adds nothing to the order. Packages are placed in rows, each
below all packages that import it; the longest chain of imports is the first column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from html import escape

import grimp

Graph = dict[str, frozenset[str]]
"""what each package imports"""
Cell = tuple[int, int]
"""row, column"""

_WIDTH, _HEIGHT = 112, 34
_STEP_X, _STEP_Y = 140, 68
_MARGIN = 16
_STYLE = """
    rect { fill: #f4f1ea; stroke: #7a6a4f; stroke-width: 1.2 }
    text { font: 14px sans-serif; fill: #222; text-anchor: middle; dominant-baseline: central }
    path { fill: none; stroke: #7a6a4f; stroke-width: 1.4 }
    marker path { fill: #7a6a4f; stroke: none }"""


def import_graph() -> Graph:
    """Return what each package of Sapwood imports; a module beside the packages counts as one."""
    graph = grimp.build_graph("sapwood", cache_dir=None)
    imports: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules - {"sapwood"}:
        package = module.split(".")[1]
        imports[package] |= {
            imported.split(".")[1]
            for imported in graph.find_modules_directly_imported_by(module)
            if imported != "sapwood"
        } - {package}
    return {package: frozenset(imported) for package, imported in sorted(imports.items())}


def reduce_transitively(graph: Graph) -> Graph:
    """Return the graph without the edges that a longer path implies."""
    return {node: children - _reachable(graph, children) for node, children in graph.items()}


def _reachable(graph: Graph, start: Iterable[str]) -> set[str]:
    """Return the nodes that can be reached from others by one step or more."""
    found: set[str] = set()
    open_nodes = list(start)
    while open_nodes:
        for child in graph[open_nodes.pop()] - found:
            found.add(child)
            open_nodes.append(child)
    return found


def draw(graph: Graph) -> str:
    """Return the graph as SVG."""
    rows = _rows(graph)
    edges = reduce_transitively(graph)
    cells = _place(edges, rows)
    lines = [_line(run, cells) for run in _route(edges, cells)]
    width = 2 * _MARGIN + max(column for _, column in cells.values()) * _STEP_X + _WIDTH
    width = max(width, max(x for line in lines for x in line[1]) + _MARGIN)
    height = 2 * _MARGIN + max(row for row, _ in cells.values()) * _STEP_Y + _HEIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
            ' aria-label="The packages of Sapwood and their imports">',
            "  <style>" + _STYLE,
            "  </style>",
            '  <defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
            ' orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>',
            *(f'  <path marker-end="url(#arrow)" d="{line}"/>' for line, _ in lines),
            *_boxes(cells),
            "</svg>",
            "",
        ]
    )


def _boxes(cells: dict[str, Cell]) -> Iterator[str]:
    for name, (row, column) in sorted(cells.items(), key=lambda item: item[1]):
        x, y = _MARGIN + column * _STEP_X, _MARGIN + row * _STEP_Y
        yield f'  <rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="5"/>'
        yield f'  <text x="{x + _WIDTH // 2}" y="{y + _HEIGHT // 2}">{escape(name)}</text>'


def _place(edges: Graph, rows: dict[str, int]) -> dict[str, Cell]:
    """Return a cell for each node, the longest chain in column 0."""
    chain = _longest_chain(edges, rows)
    cells = {node: (rows[node], 0) for node in chain}
    taken = set(cells.values())
    for node in sorted(edges.keys() - set(chain), key=lambda name: (rows[name], -len(edges[name]), name)):
        row = rows[node]
        column = next(number for number in range(1, len(edges) + 1) if (row, number) not in taken)
        cells[node] = row, column
        taken.add((row, column))
    return cells


def _rows(edges: Graph) -> dict[str, int]:
    """Return the row of each node, below all of its importers."""
    importers: dict[str, set[str]] = {node: set() for node in edges}
    for node, children in edges.items():
        for child in children:
            importers[child].add(node)
    rows: dict[str, int] = {}
    while len(rows) < len(edges):
        ready = [node for node in edges if node not in rows and importers[node] <= rows.keys()]
        if not ready:
            raise ValueError(f"imports form a cycle among {', '.join(sorted(edges.keys() - rows.keys()))}")
        rows |= {node: 1 + max((rows[above] for above in importers[node]), default=-1) for node in ready}
    return rows


def _longest_chain(edges: Graph, rows: dict[str, int]) -> list[str]:
    node = max(sorted(rows), key=lambda name: rows[name])
    chain = [node]
    while rows[node]:
        node = min(above for above in edges if node in edges[above] and rows[above] == rows[node] - 1)
        chain.append(node)
    return chain


Run = tuple[str, str, int]
"""importer, imported, and the column in which the line passes the rows in between"""


def _route(edges: Graph, cells: dict[str, Cell]) -> Iterator[Run]:
    """Choose for each edge a column that no box blocks, and no line to another package."""
    taken: dict[Cell, str] = dict.fromkeys(cells.values(), "")
    for node in sorted(edges, key=cells.__getitem__):
        row, column = cells[node]
        for child in sorted(edges[node], key=cells.__getitem__):
            child_row, child_column = cells[child]
            between = range(row + 1, child_row)
            found = next(
                number
                for number in (child_column, column, *range(1, 2 * len(cells)))
                if all(taken.get((passed, number), child) == child for passed in between)
            )
            taken |= {(passed, found): child for passed in between}
            yield node, child, found if between else child_column


def _line(run: Run, cells: dict[str, Cell]) -> tuple[str, tuple[int, ...]]:
    """Return an edge as the path of an SVG, and its x coordinates."""
    node, child, passing = run
    (row, column), (child_row, child_column) = cells[node], cells[child]
    start, through, end = (
        _MARGIN + number * _STEP_X + _WIDTH // 2 for number in (column, passing, child_column)
    )
    top = _MARGIN + row * _STEP_Y + _HEIGHT
    bottom = _MARGIN + child_row * _STEP_Y
    gap = _STEP_Y - _HEIGHT
    if child_row == row + 1:
        bend = (top + bottom) // 2
        return f"M{start} {top} C{start} {bend} {end} {bend} {end} {bottom}", (start, end)
    first, last = top + gap, bottom - gap
    return (
        f"M{start} {top} C{start} {top + gap // 2} {through} {top + gap // 2} {through} {first} V{last}"
        f" C{through} {last + gap // 2} {end} {last + gap // 2} {end} {bottom}",
        (start, through, end),
    )
