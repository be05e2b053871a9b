"""An index of linear paths that finds those which match each of many tag paths.

The linear paths are inserted into a path trie, and the sorted tag paths are run through it, so that a prefix
shared by several of either is processed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sapwood.engine.automaton.dataguide import name_tests_of
from sapwood.engine.automaton.path_trie import DESCENDANT, ROOT, PathTrie
from sapwood.lang.pattern import TEXT, Axis
from sapwood.relational.paths.linear_path import LinearPath, TagPath, escape_element_name


class PathIndex:
    """Linear paths by id in a path trie."""

    def __init__(self, paths: Mapping[int, LinearPath]) -> None:
        self._trie = PathTrie()
        self._ending: dict[int, list[int]] = {}
        for id, path in paths.items():
            state, _ = self._trie.insert(_iter_symbols(path))
            self._ending.setdefault(state, []).append(id)

    def match(self, tags: Iterable[TagPath]) -> Iterator[tuple[TagPath, list[int]]]:
        """Yield the tag paths that some linear path matches, with the ids of these."""
        active = [self._enter(ROOT)]  # by depth, the states after the names so far
        previous: TagPath = ()
        for tag in sorted(tags):
            shared = 0
            for name, other in zip(tag, previous, strict=False):
                if name != other:
                    break
                shared += 1
            del active[shared + 1 :]
            for name in tag[shared:]:
                active.append(self._advance(active[-1], name))
            previous = tag
            ids = [id for state in active[-1] for id in self._ending.get(state, ())]
            if ids:
                yield tag, ids

    def _advance(self, states: set[int], name: str) -> set[int]:
        trie = self._trie
        symbols = _accepted_symbols(name)
        after: set[int] = set()
        for state in states:
            if state in trie.deep:
                after.add(state)
            row = trie.edges[state]
            if row is not None:
                for symbol in symbols:
                    if symbol in row:
                        after |= self._enter(row[symbol])
        return after

    def _enter(self, state: int) -> set[int]:
        row = self._trie.edges[state]
        return {state, row[DESCENDANT]} if row is not None and DESCENDANT in row else {state}


def _iter_symbols(path: LinearPath) -> Iterator[str]:
    """Yield the path's symbols in the trie, attributes with an `@` as in tag paths."""
    for axis, test in path.steps:
        if axis is Axis.DESCENDANT:
            yield DESCENDANT
        yield f"@{test}" if axis is Axis.ATTRIBUTE else escape_element_name(test)


def _accepted_symbols(name: str) -> list[str]:
    """Return the symbols of the trie that a name of a tag path passes."""
    if name == TEXT:
        return [TEXT]
    if name[0] == "@":
        return [f"@{test}" for test in name_tests_of(name[1:])]
    return [escape_element_name(test) for test in name_tests_of(name.removeprefix("}"))]
