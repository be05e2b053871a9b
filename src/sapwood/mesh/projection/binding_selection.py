"""Bound elements that do not meet the conditions of their binding: they are cut from messages as a whole.

    for $i in //item where $i/@gift return <got>{$i/@sku}{$i/note}</got>

    <order>  <item gift="yes"> <note/> </item>   <item> <note/> </item>   <total/>  </order>
             selected: kept, with what is read   not selected: cut        not read: cut

An element is cut if nothing is read in it, where paths with a binding are followed only inside of elements
that it selects. One that is not selected, but has something in it that is read, keeps all that any path
reads: so the receiver finds out as well that it is not selected, be it by a condition with not().
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.mesh.projection.path_state import PathState, step_paths

if TYPE_CHECKING:
    from sapwood.engine.message.document import Document
    from sapwood.lang.pattern import Path
    from sapwood.mesh.routing.read_paths import ReadPath

_MOST_STATES = 20_000
"""that are remembered, since other sites choose the names in messages"""


class _ReadState:
    """What is read in an element, given which bindings select the elements around it."""

    __slots__ = ("arrivals", "is_read", "is_whole", "positions")

    def __init__(self, paths: Sequence[ReadPath], positions: PathState, is_inside: bool) -> None:
        self.positions = positions
        self.arrivals: dict[str, _Arrival] = {}
        """by name, what is reached at children"""
        ended = [paths[path] for path, step in positions if step == len(paths[path].steps)]
        self.is_whole = is_inside or any(path.is_whole for path in ended)
        """whether all that is inside is read"""
        self.is_read = self.is_whole or bool(ended)


class _Arrival:
    """The states of children with one name, by which of the bindings that end there select them."""

    __slots__ = ("bindings", "reached", "states")

    def __init__(self, bindings: tuple[int, ...], reached: PathState) -> None:
        self.bindings = bindings
        self.reached = reached
        self.states: dict[int, _ReadState] = {}
        """by the bindings that select the child, as bits"""


class BindingSelection:
    """The bindings of read paths, ready to cut what they do not select."""

    def __init__(self, paths: Sequence[ReadPath]) -> None:
        self._paths = paths
        self._bindings: list[Path] = list(dict.fromkeys(p.binding for p in paths if p.binding is not None))
        numbers = {binding: number for number, binding in enumerate(self._bindings)}
        self._ends: dict[tuple[int, int], int] = {
            (place, len(path.binding.steps)): numbers[path.binding]
            for place, path in enumerate(paths)
            if path.binding is not None
        }
        """by the position in a path where its binding ends, the number of the binding"""
        self._states: dict[PathState, _ReadState] = {}
        self._inside = _ReadState(paths, frozenset(), True)
        self._root = _ReadState(paths, frozenset((place, 0) for place in range(len(paths))), False)

    def cut(self, document: Document[Any], kept: bytearray) -> None:
        """Take from the kept elements of a message those in which nothing is read."""
        evaluator = PatternEvaluator(document)
        selected = [
            {node for node in evaluator.select(binding) if isinstance(node, int)}
            for binding in self._bindings
        ]
        parents, ends, names = document.parents, document.ends, document.names
        states: list[_ReadState] = [self._root] * len(parents)
        is_selected = bytearray(b"\1" * len(parents))
        """whether all bindings that end at an element select it"""
        is_needed = bytearray(len(parents))
        """whether anything is read in an element"""
        for element in range(1, len(parents)):
            if not kept[element]:
                continue
            state, is_selected[element] = self._step(
                states[parents[element]], names[element], element, selected
            )
            states[element] = state
            if state.is_read:
                around = element
                while around > 0 and not is_needed[around]:
                    is_needed[around] = 1
                    around = parents[around]
        element, last = 2, len(parents)  # the root element stays
        if not is_selected[1]:
            return
        while element < last:
            if kept[element] and not is_needed[element]:
                kept[element : ends[element]] = bytes(ends[element] - element)
            if not kept[element] or not is_selected[element] or states[element].is_whole:
                element = ends[element]
            else:
                element += 1

    def _step(
        self, state: _ReadState, name: str, element: int, selected: Sequence[Set[int]]
    ) -> tuple[_ReadState, bool]:
        """Return what is read in a child, and whether all bindings that end there select it."""
        if state.is_whole:
            return self._inside, True
        arrival = state.arrivals.get(name)
        if arrival is None:
            reached = step_paths(self._paths, state.positions, name)
            bindings = tuple(sorted({self._ends[at] for at in reached if at in self._ends}))
            arrival = _Arrival(bindings, reached)
            if len(self._states) < _MOST_STATES:
                state.arrivals[name] = arrival
        chosen = 0
        for binding in arrival.bindings:
            if element in selected[binding]:
                chosen |= 1 << binding
        found = arrival.states.get(chosen)
        if found is None:
            found = arrival.states[chosen] = self._find_state(arrival.reached, chosen)
        return found, chosen.bit_count() == len(arrival.bindings)

    def _find_state(self, reached: PathState, chosen: int) -> _ReadState:
        """Return the state of an element without the paths whose bindings end there and do not select it."""
        ends = self._ends
        positions = frozenset(at for at in reached if at not in ends or chosen >> ends[at] & 1)
        found = self._states.get(positions)
        if found is None:
            found = _ReadState(self._paths, positions, False)
            if len(self._states) < _MOST_STATES:
                self._states[positions] = found
        return found
