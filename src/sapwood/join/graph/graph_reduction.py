"""The join graph of two sides, reduced to what values have to decide.

Of the variables of a block, those that are compared stay, and those at which the ways to them part:

    S//book->b[.//isbn->i][info->f[author->a]]      compared: a
    ⇒  //book[.//isbn]/info/author                   one variable

    compared: i and a
    ⇒  //book, from it //isbn, and from it /info/author

What is dropped lives on in the paths, as steps or as conditions; so the shared matcher has decided it before
any value is looked at. Two variables of different queries with equal paths, all the way down from the stream,
are one `Definition`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sapwood.lang.pattern import TRUE, Condition, Has, Path, Step, add_condition, all_of, canonical_text
from sapwood.lang.xscl.model import MESSAGE


@dataclass(frozen=True, slots=True)
class Definition:
    """What a variable is, but for its name: its path, and where that starts."""

    stream: str
    origin: Definition | None
    """None: the document node"""
    path: Path
    numeric: bool = False
    """whether its values are numbers"""

    @property
    def key(self) -> str:
        """A text that no other definition has, in any process."""
        start = self.origin.key if self.origin is not None else repr(self.stream)
        return f"{start} {canonical_text(self.path)}{' number' if self.numeric else ''}"


@dataclass(frozen=True, slots=True)
class Column:
    """A variable that is left."""

    variable: int
    """its place in the block"""
    parent: int
    """the column that its path starts from; -1 if it starts at the document node"""
    definition: Definition


@lru_cache(maxsize=10_000)
def minor(
    stream: str,
    origins: tuple[int, ...],
    paths: tuple[Path, ...],
    compared: tuple[int, ...],
    numeric: frozenset[int] = frozenset(),
) -> tuple[Column, ...]:
    """The columns of a block, parents first. Of its variables, by their places, those compared matter."""
    return tuple(_Minor(stream, origins, paths, set(compared), numeric).columns())


class _Minor:
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
        self._kept: set[int] = set()
        for place in compared:
            while place != MESSAGE and place not in self._kept:
                self._kept.add(place)
                place = origins[place]
        self._columns: list[Column] = []

    def columns(self) -> list[Column]:
        [top] = self._children[MESSAGE]
        self._add(top, -1, None, ())
        return self._columns

    def _kept_below(self, number: int) -> list[int]:
        return [child for child in self._children[number] if child in self._kept]

    def _add(self, number: int, parent: int, origin: Definition | None, steps: tuple[Step, ...]) -> None:
        """Adds the column of a variable, or goes on to the only one below it."""
        path = Path((*steps, *self._narrowed(number).steps))
        below = self._kept_below(number)
        if number not in self._compared and len(below) == 1:
            self._add(below[0], parent, origin, path.steps)
            return
        definition = Definition(self._stream, origin, path, number in self._numeric)
        column = len(self._columns)
        self._columns.append(Column(number, parent, definition))
        for child in below:
            self._add(child, column, definition, ())

    def _narrowed(self, number: int) -> Path:
        """A variable's path, with the branches that are dropped as conditions."""
        dropped = [child for child in self._children[number] if child not in self._kept]
        return add_condition(self._paths[number], all_of([self._exists(child) for child in dropped]))

    def _exists(self, number: int) -> Condition:
        if number in self._numeric:
            return TRUE  # as its origin does
        below = all_of([self._exists(child) for child in self._children[number]])
        return Has(add_condition(self._paths[number], below))
