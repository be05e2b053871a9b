"""The reduction of a block's variables to those that the join graph needs.

Of the variables of a block, those that are compared stay, and those at which the paths to them branch:

    S//book->b[.//isbn->i][info->f[author->a]]      compared: a
    ⇒  //book[.//isbn]/info/author                   one variable

    compared: i and a
    ⇒  //book, from it //isbn, and from it /info/author

The others become steps or conditions of the remaining paths, so the shared matcher decides them before any
value is compared. Two variables of different queries with equal paths, all the way down from the stream, are
one `VariableDefinition`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sapwood.lang.pattern import TRUE, Condition, Has, Path, Step, add_condition, all_of, canonical_text
from sapwood.lang.xscl.model import MESSAGE


@dataclass(frozen=True, slots=True)
class VariableDefinition:
    """A variable without its name: its path, and the definition that the path starts from."""

    stream: str
    origin: VariableDefinition | None
    """None: the document node"""
    path: Path
    numeric: bool = False
    """whether its values are numbers"""

    @property
    def key(self) -> str:
        """A text that identifies the definition in every process."""
        start = self.origin.key if self.origin is not None else repr(self.stream)
        return f"{start} {canonical_text(self.path)}{' number' if self.numeric else ''}"


@dataclass(frozen=True, slots=True)
class ReducedColumn:
    """A variable of the reduced block."""

    variable: int
    """its position in the block"""
    parent: int
    """the column that its path starts from; -1 if it starts at the document node"""
    definition: VariableDefinition


@lru_cache(maxsize=10_000)
def reduce_block(
    stream: str,
    origins: tuple[int, ...],
    paths: tuple[Path, ...],
    compared: tuple[int, ...],
    numeric: frozenset[int] = frozenset(),
) -> tuple[ReducedColumn, ...]:
    """Return the columns of a block, parents first; variables are given by their positions in the block."""
    return tuple(_Reduction(stream, origins, paths, set(compared), numeric).columns())


class _Reduction:
    """The reduction of one block."""

    def __init__(
        self,
        stream: str,
        origins: tuple[int, ...],
        paths: tuple[Path, ...],
        compared: set[int],
        numeric: frozenset[int],
    ) -> None:
        self._stream = stream
        self._numeric = numeric
        self._paths = paths
        self._compared = compared
        self._children: dict[int, list[int]] = {place: [] for place in (MESSAGE, *range(len(paths)))}
        for place, origin in enumerate(origins):
            self._children[origin].append(place)
        self._needed: set[int] = set()  # the compared variables and their ancestors
        for place in compared:
            while place != MESSAGE and place not in self._needed:
                self._needed.add(place)
                place = origins[place]
        self._columns: list[ReducedColumn] = []

    def columns(self) -> list[ReducedColumn]:
        [top] = self._children[MESSAGE]
        self._add(top, -1, None, ())
        return self._columns

    def _needed_children(self, number: int) -> list[int]:
        return [child for child in self._children[number] if child in self._needed]

    def _add(
        self, number: int, parent: int, origin: VariableDefinition | None, steps: tuple[Step, ...]
    ) -> None:
        """Add the column of a variable; one without comparison or branch is merged into its only child."""
        path = Path((*steps, *self._add_conditions(number).steps))
        children = self._needed_children(number)
        if number not in self._compared and len(children) == 1:
            self._add(children[0], parent, origin, path.steps)
            return
        definition = VariableDefinition(self._stream, origin, path, number in self._numeric)
        column = len(self._columns)
        self._columns.append(ReducedColumn(number, parent, definition))
        for child in children:
            self._add(child, column, definition, ())

    def _add_conditions(self, number: int) -> Path:
        """Return a variable's path, with the branches that are not needed as conditions."""
        others = [child for child in self._children[number] if child not in self._needed]
        return add_condition(self._paths[number], all_of([self._exists(child) for child in others]))

    def _exists(self, number: int) -> Condition:
        if number in self._numeric:
            return TRUE  # it exists where its origin does
        below = all_of([self._exists(child) for child in self._children[number]])
        return Has(add_condition(self._paths[number], below))
