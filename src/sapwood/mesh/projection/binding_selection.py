"""Bound elements that do not meet the conditions of their binding: they are cut from messages as a whole.

    for $i in //item where $i/@gift return <got>{$i/@sku}{$i/note}</got>

    <order>  <item gift="yes"> <note/> </item>   <item> <note/> </item>   <total/>  </order>
             selected: kept, with what is read   not selected: cut        not read: cut

An element is cut if nothing is read in it, where paths with a binding are followed only inside of elements
that it selects. One that is not selected, but has something in it that is read, stays: then the paths of its
binding are followed in it, too, so that the receiver finds out as well that it is not selected, be it by a
condition with not().
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
        self._arrivals = 0
        self._inside = _ReadState(paths, frozenset(), True)
        self._root = _ReadState(paths, frozenset((place, 0) for place in range(len(paths))), False)

    def cut(self, document: Document[Any], kept: bytearray) -> None:
        """Take from the kept elements of a message those in which nothing is read."""
        evaluator = PatternEvaluator(document)
        followed = [
            {node for node in evaluator.select(binding) if isinstance(node, int)}
            for binding in self._bindings
        ]
        """by binding, the elements inside of which its paths are followed"""
        while True:
            is_needed, passed = self._find_needed(document, kept, followed)
            if not self._follow(passed, is_needed, followed):
                break
        ends = document.ends
        element, last = 2, len(kept)  # the root element stays
        while element < last:
            if kept[element] and not is_needed[element]:
                kept[element : ends[element]] = bytes(ends[element] - element)
            element = element + 1 if kept[element] else ends[element]

    def _find_needed(
        self, document: Document[Any], kept: bytearray, followed: Sequence[Set[int]]
    ) -> tuple[bytearray, list[tuple[int, int]]]:
        """Return, by element, whether anything is read in it, and the elements where bindings end whose paths
        are not followed there, with the number of the binding."""
        parents, names = document.parents, document.names
        states: list[_ReadState] = [self._root] * len(parents)
        is_needed = bytearray(len(parents))
        is_needed[1] = 1
        passed: list[tuple[int, int]] = []
        for element in range(1, len(parents)):
            if not kept[element]:
                continue
            state = states[parents[element]]
            if state.is_whole:
                state = self._inside
            else:
                arrival = self._find_arrival(state, names[element])
                chosen = 0
                for binding in arrival.bindings:
                    if element in followed[binding]:
                        chosen |= 1 << binding
                    else:
                        passed.append((element, binding))
                state = self._choose(arrival, chosen)
            states[element] = state
            if state.is_read:
                around = element
                while around > 0 and not is_needed[around]:
                    is_needed[around] = 1
                    around = parents[around]
        return is_needed, passed

    @staticmethod
    def _follow(
        passed: Sequence[tuple[int, int]], is_needed: bytearray, followed: Sequence[set[int]]
    ) -> bool:
        """Follow the paths of bindings in elements that stay although they are not selected, for the receiver
        to find out the same; return whether there is any."""
        staying = [(element, binding) for element, binding in passed if is_needed[element]]
        for element, binding in staying:
            followed[binding].add(element)
        return bool(staying)

    def _find_arrival(self, state: _ReadState, name: str) -> _Arrival:
        """Return what is reached at the children with a name."""
        arrival = state.arrivals.get(name)
        if arrival is None:
            reached = step_paths(self._paths, state.positions, name)
            bindings = tuple(sorted({self._ends[at] for at in reached if at in self._ends}))
            arrival = _Arrival(bindings, reached)
            if self._arrivals < _MOST_STATES:
                self._arrivals += 1
                state.arrivals[name] = arrival
        return arrival

    def _choose(self, arrival: _Arrival, chosen: int) -> _ReadState:
        """Return what is read in a child, without the paths of bindings that end there and are not chosen."""
        found = arrival.states.get(chosen)
        if found is None:
            ends = self._ends
            positions = frozenset(at for at in arrival.reached if at not in ends or chosen >> ends[at] & 1)
            found = arrival.states[chosen] = self._find_state(positions)
        return found

    def _find_state(self, positions: PathState) -> _ReadState:
        found = self._states.get(positions)
        if found is None:
            found = _ReadState(self._paths, positions, False)
            if len(self._states) < _MOST_STATES:
                self._states[positions] = found
        return found
