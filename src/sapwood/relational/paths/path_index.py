"""Which of many linear paths match which of many tag paths.

The linear paths are put into the automaton's prefix tree, and the tag paths are walked through it in order,
so that each beginning which several of either have in common is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sapwood.engine.automaton.dataguide import name_tests_of
from sapwood.engine.automaton.path_trie import DESCENDANT, ROOT, PathTrie
from sapwood.lang.pattern import TEXT, Axis
from sapwood.relational.paths.linear_path import LinearPath, TagPath, element_tag


class PathMatches:
    """Linear paths by their numbers, ready to be matched."""

    def __init__(self, paths: Mapping[int, LinearPath]) -> None:
        self._tree = PathTrie()
        self._ending: dict[int, list[int]] = {}
        for id, path in paths.items():
            state, _ = self._tree.insert(_symbols(path))
            self._ending.setdefault(state, []).append(id)

    def of(self, tags: Iterable[TagPath]) -> Iterator[tuple[TagPath, list[int]]]:
        """The tag paths that some linear path matches, and the numbers of those."""
        active = [self._entered(ROOT)]  # by depth, the states after the names so far
        before: TagPath = ()
        for tag in sorted(tags):
            shared = 0
            for name, other in zip(tag, before, strict=False):
                if name != other:
                    break
                shared += 1
            del active[shared + 1 :]
            for name in tag[shared:]:
                active.append(self._after(active[-1], name))
            before = tag
            ids = [id for state in active[-1] for id in self._ending.get(state, ())]
            if ids:
                yield tag, ids

    def _after(self, states: set[int], name: str) -> set[int]:
        tree = self._tree
        symbols = _symbols_passed_by(name)
        after: set[int] = set()
        for state in states:
            if state in tree.deep:
                after.add(state)
            row = tree.edges[state]
            if row is not None:
                for symbol in symbols:
                    if symbol in row:
                        after |= self._entered(row[symbol])
        return after

    def _entered(self, state: int) -> set[int]:
        row = self._tree.edges[state]
        return {state, row[DESCENDANT]} if row is not None and DESCENDANT in row else {state}


def _symbols(path: LinearPath) -> Iterator[str]:
    """The path as the prefix tree has it, attributes with an `@` as in tag paths."""
    for axis, test in path.steps:
        if axis is Axis.DESCENDANT:
            yield DESCENDANT
        yield f"@{test}" if axis is Axis.ATTRIBUTE else element_tag(test)


def _symbols_passed_by(name: str) -> list[str]:
    """The symbols that a name of a tag path is led on by."""
    if name == TEXT:
        return [TEXT]
    if name[0] == "@":
        return [f"@{test}" for test in name_tests_of(name[1:])]
    return [element_tag(test) for test in name_tests_of(name.removeprefix("}"))]
