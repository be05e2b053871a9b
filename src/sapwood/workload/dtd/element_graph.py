"""The few graph questions a DTD raises, over a plain mapping of node → successors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

INFINITE = math.inf

Graph = Mapping[str, tuple[str, ...]]


def reachable(graph: Graph, start: str, avoid: set[str] | None = None) -> tuple[str, ...]:
    """The nodes on any walk from `start` past none of `avoid`, in breadth-first order."""
    found = [start]
    seen = {start} | (avoid or set())
    for node in found:  # grows while it is read
        for successor in graph[node]:
            if successor not in seen:
                seen.add(successor)
                found.append(successor)
    return tuple(found)


def reverse(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The same edges, backwards; predecessors stand in the graph's order."""
    into: dict[str, list[str]] = {node: [] for node in graph}
    for node, successors in graph.items():
        for successor in dict.fromkeys(successors):
            into[successor].append(node)
    return {node: tuple(predecessors) for node, predecessors in into.items()}


def cycles(graph: Graph) -> tuple[frozenset[str], ...]:
    """The strongly connected components that hold a cycle: several nodes, or one with a self-loop."""
    return tuple(
        frozenset(component)
        for component in components(graph)
        if len(component) > 1 or component[0] in graph[component[0]]
    )


def components(graph: Graph) -> Iterator[tuple[str, ...]]:
    """All strongly connected components, by Kosaraju's two passes.

    Of the nodes still left, the one that finished last in a depth-first search lies in a component that no
    other leads into. So whatever leads to it is that component.
    """
    backwards = reverse(graph)
    done: set[str] = set()
    for node in reversed(_finish_order(graph)):
        if node not in done:
            component = reachable(backwards, node, avoid=done)
            done.update(component)
            yield component


def _finish_order(graph: Graph) -> list[str]:
    """The nodes in the order in which a depth-first search leaves them.

    With a stack of its own: a chain of a thousand elements would overflow Python's.
    """
    order: list[str] = []
    seen: set[str] = set()
    work = [(node, False) for node in graph]
    while work:
        node, leaving = work.pop()
        if leaving:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            work.append((node, True))
            work.extend((successor, False) for successor in graph[node])
    return order
