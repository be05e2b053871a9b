"""Messages and queries of an astronomical archive, in the shape of the second workload of Tian et al.
(SIGMOD 2004).

They had 2,433 descriptions of datasets from NASA, 23 MB with 357,000 values on only 73 distinct tag paths,
and up to 2.7 million branching subscriptions of two to ten predicates. Our messages follow `observatory.dtd`:
it says what may stand where, and the tables here how often, and with which values.

    //dataset[.//author/last = 'Holmer' and published/year > 1990]//field[@unit = 'mag']/name/text() = 'magV'

A query is cut from one document: its branching points are elements there, its predicates compare values below
these, and its paths are those of the document, some steps blurred to // or *. Bounds are values of the same
tag path in any document, on the right side. So all of a query holds there, unless a predicate goes astray:
one in twelve is an equality with the value of any document. Five subscriptions of a kind follow each other:
the others have the values of other documents in the same places.

    rows    values that queries may compare, in the document's order      r r r r r r r r r r
    nodes   elements with two rows or more, in the document's order       (dataset          )
            The rows of a node follow each other, and so do the nodes       (author) (table )
            within it: a start and a length tell which they are.                      (field)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from random import Random

from sapwood.workload import parameter_checks
from sapwood.workload.messages.value_distributions import pick
from sapwood.workload.studies.observation_documents import (
    Draws,
    ObservationDocument,
    ObservationNode,
    ObservationRow,
    ObservationWriter,
    Slot,
)

DOCUMENTS = 2_433

# -- queries -------------------------------------------------------------------------------------------

_SIZES = [2] * 2 + [3] * 4 + [4] * 7 + [5] * 9 + [6] * 14 + [7] * 20 + [8] * 19 + [9] * 15 + [10] * 10
_UNEQUAL = 0.2  # the share of predicates with another operator than =
_ASTRAY = 1 / 12
_ELSEWHERE = 0.3  # the share of queries that start at any node, not at the root, if it has enough rows
_NESTING = 0.25  # the share of branches that branch again
_ABOVE = (">", ">", ">=", ">=", "!=")
_BELOW = ("<", "<", "<=", "<=", "!=")
_AT = ("<=", ">=")

# Nearly all write a path in one of a few ways, most of them plain. One in a hundred writes as he pleases, and
# makes up most of the distinct paths. These are then as many as in the paper, where 0.13 million queries have
# 6,565 and 2.7 million have 42,271.
_PLAIN_WAYS, _BLURRED_WAYS = 7, 1
_WAYS = _PLAIN_WAYS + _BLURRED_WAYS
_BLUR = (0.5, 0.25)  # P(//) and P(*) of a step
_FILLED_IN = 5  # subscriptions that differ in their values only: people fill in forms
_FREELY = 0.05
_FREE_BLUR = (0.5, 0.5)
_AS_ELEMENT = 0.25  # the share of texts that are compared as the element that holds them


class ObservationWorkload:
    """Messages, and subscriptions whose values come from them; the same for the same seed."""

    def __init__(self, seed: int = 0, documents: int = DOCUMENTS) -> None:
        parameter_checks.at_least(1, documents=documents)
        self._seed = seed
        self._count = documents

    def messages(self) -> Iterator[bytes]:
        """All documents, each one line. They are written anew at every call, and not kept."""
        writer = ObservationWriter(Random(3 * self._seed).random)
        return (writer.document().text for _ in range(self._count))

    def queries(self, n: int) -> Iterator[str]:
        """The first n of an endless sequence of subscriptions. The same may come again, but hardly does."""
        return islice(self._endless(), n)

    def _endless(self) -> Iterator[str]:
        random, documents = Random(3 * self._seed + 1).random, self._documents
        cutter = _Cutter(random)
        while True:
            form = cutter.form(documents[int(random() * len(documents))])
            yield form.text
            for _ in range(_FILLED_IN - 1):
                yield form.filled(documents[int(random() * len(documents))], random)

    @cached_property
    def _documents(self) -> list[ObservationDocument]:
        """The documents without texts, from which queries are taken."""
        writer = ObservationWriter(Random(3 * self._seed).random)
        documents = [writer.document() for _ in range(self._count)]
        for document in documents:
            document.text = b""  # 23 MB that nobody would ask for
        random = Random(3 * self._seed + 2).random
        for place in writer.root:
            place.ways = [_usual_ways(place, depth, random) for depth in range(place.depth + 1)]
        return documents


class _Form:
    """A query with blanks for its values, and the rows whose values it was cut with."""

    def __init__(self, pieces: list[str], rows: list[ObservationRow]) -> None:
        self._pieces = pieces
        self._rows = rows

    @property
    def text(self) -> str:
        return self._with([row.literal for row in self._rows])

    def filled(self, document: ObservationDocument, random: Draws) -> str:
        """The same query with the values that another document has in these places, or else any has."""
        values = []
        for row in self._rows:
            rows = document.by_place.get(row.place) or row.place.rows
            other = rows[int(random() * len(rows))]
            comparable = row.number is None or other.number is not None
            values.append((other if comparable else row).literal)
        return self._with(values)

    def _with(self, values: list[str]) -> str:
        parts = [self._pieces[0]]
        for value, piece in zip(values, self._pieces[1:], strict=True):
            parts += (value, piece)
        return "".join(parts)


class _Cutter:
    """Cuts queries from documents."""

    def __init__(self, random: Draws) -> None:
        self._random = random
        self._used: set[ObservationRow] = set()  # by the query so far
        self._freely = False

    def form(self, document: ObservationDocument) -> _Form:
        """A query that the document matches, if nothing goes astray, and its like."""
        random = self._random
        self._used.clear()
        self._asked: list[ObservationRow] = []
        self._freely = random() < _FREELY
        size, number = _SIZES[int(random() * 100)], 0
        if random() < _ELSEWHERE:
            number = int(random() * len(document.nodes))
            if document.nodes[number].rows < size:
                number = 0
        text = self._way(document.nodes[number].place, 0) + self._branches(document, number, size)
        return _Form(text.split("\0"), self._asked)

    def _branches(self, document: ObservationDocument, number: int, size: int) -> str:
        """Format `size` predicates below a node: all but the last in brackets."""
        random, node = self._random, document.nodes[number]
        depth, within = node.place.depth, node.within
        parts: list[str] = []
        while size:
            if within and size > 1 and random() < _NESTING:
                inner = number + 1 + int(random() * within)
                place, _, rows, _, _, _ = document.nodes[inner]
                taken = 2 + int(random() * (size - 1))
                if taken > rows:
                    taken = rows
                parts.append(self._way(place, depth) + self._branches(document, inner, taken))
                size -= taken
            else:
                parts.append(self._predicate(document, node, depth))
                size -= 1
        last = parts.pop()
        if not parts:
            return last
        return f"[{' and '.join(['.' + p if p[1] == '/' else p[1:] for p in parts])}]{last}"

    def _predicate(self, document: ObservationDocument, node: ObservationNode, depth: int) -> str:
        """A comparison with one of the node's rows. The hottest lines: seven times a query."""
        random, used = self._random, self._used
        _, first, count, first_number, numbers, _ = node
        rows, kind = document.rows, random()
        if kind < _UNEQUAL and numbers:
            rows, first, count = document.numbers, first_number, numbers
        row = rows[first + int(random() * count)]
        if row in used:
            row = next((other for other in rows[first : first + count] if other not in used), row)
        used.add(row)
        place = row.place
        way = self._way(place, depth) if self._freely else place.ways[depth][int(random() * _WAYS)]
        if kind > _UNEQUAL + _ASTRAY:
            self._asked.append(row)
            return f"{way} = \0"
        other = place.rows[int(random() * len(place.rows))]
        self._asked.append(other)
        return f"{way} {'=' if kind > _UNEQUAL else self._operator(row, other)} \0"

    def _operator(self, row: ObservationRow, other: ObservationRow) -> str:
        """An operator other than `=` that holds between the two; for equal texts there is none that does."""
        value, bound = row.number, other.number
        if value is None or bound is None:
            return "!="
        return pick(_ABOVE if value > bound else _BELOW if value < bound else _AT, self._random())

    def _way(self, place: Slot, depth: int) -> str:
        """A way down to a place from its ancestor element of this depth."""
        if self._freely:
            return _way(place, depth, self._random, *_FREE_BLUR)
        return place.ways[depth][int(self._random() * _WAYS)]


def _usual_ways(place: Slot, depth: int, random: Draws) -> list[str]:
    """The few that nearly all use, each as often as it is listed."""
    plain = [_way(place, depth, random) for _ in range(_PLAIN_WAYS)]
    return plain + [_way(place, depth, random, *_BLUR) for _ in range(_BLURRED_WAYS)]


def _way(place: Slot, depth: int, random: Draws, deep: float = 0.0, any_name: float = 0.0) -> str:
    """Steps from an ancestor element of this depth to a place, each blurred with these probabilities."""
    names = place.names[depth : place.depth]
    way, at = "", 0
    while at < len(names):
        slash = "/"
        if random() < deep:
            slash = "//"
            at += int(random() ** 6 * (len(names) - at))  # mostly none, seldom more than one level
        way += slash + ("*" if random() < any_name else names[at])
        at += 1
    leaf = place.names[-1]
    if place.element is not None or (leaf == "text()" and names and random() < _AS_ELEMENT):
        return way
    # `//@id` also finds the attribute of the element itself: as a pattern it would be two.
    return f"{way}//{leaf}" if leaf == "text()" and random() < deep else f"{way}/{leaf}"
