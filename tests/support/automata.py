"""The automaton behind a matcher, to look at its structures."""

from __future__ import annotations

from sapwood import Tuning
from sapwood.engine.automaton.automaton import Automaton
from sapwood.engine.automaton.relative_paths import RelativePaths
from sapwood.engine.index import Index

IN_PYTHON = Tuning(kernel=False)
"""Tuning for tests that look into the automaton in Python."""

_NO_QUERIES = {
    "slots": 0,
    "names": 3,  # which are reserved
    "states": 1,  # the root
    "predicate_indexes": 0,
    "constants": 0,
    "twigs": 0,
    "anchorings": 0,
}


def python_automaton(index: Index) -> Automaton:
    """Return the automaton of an index, which has to be the one in Python."""
    assert isinstance(index.automaton, Automaton)
    return index.automaton


def kernel_sizes(index: Index) -> dict[str, int] | None:
    """Return the sizes of the automaton of an index if it is the compiled one."""
    sizes: dict[str, int] | None = getattr(index.automaton, "sizes", None)
    return sizes


def is_empty(index: Index) -> bool:
    """Return whether nothing is registered in the automaton of an index."""
    sizes = kernel_sizes(index)
    if sizes is not None:
        paths: RelativePaths = index.automaton._relative_paths  # type: ignore[attr-defined]
        return {name: sizes[name] for name in _NO_QUERIES} == _NO_QUERIES and not len(paths)
    automaton = python_automaton(index)
    only_root = len(automaton.path_trie) == 1
    return only_root and not automaton.dataguide.postings and not len(automaton.relative_paths)


def trie_states(index: Index) -> int:
    """Return how many states the path trie has."""
    sizes = kernel_sizes(index)
    return sizes["states"] if sizes is not None else len(python_automaton(index).path_trie)


def guide_nodes(index: Index) -> int:
    """Return how many guide nodes there are."""
    sizes = kernel_sizes(index)
    return sizes["guide_nodes"] if sizes is not None else len(python_automaton(index).dataguide)
