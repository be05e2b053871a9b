"""The automaton behind a matcher, to look at its structures."""

from __future__ import annotations

from sapwood.engine.automaton.automaton import Automaton
from sapwood.engine.index import Index


def python_automaton(index: Index) -> Automaton:
    """Return the automaton of an index, which has to be the one in Python."""
    assert isinstance(index.automaton, Automaton)
    return index.automaton


def is_empty(index: Index) -> bool:
    """Return whether nothing is registered in the automaton of an index."""
    automaton = python_automaton(index)
    only_root = len(automaton.path_trie) == 1
    return only_root and not automaton.dataguide.postings and not len(automaton.relative_paths)
