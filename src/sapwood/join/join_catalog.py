"""Where the parts of every query go: definitions to the matcher, graphs to templates, windows to members."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.engine.index import Index
from sapwood.engine.limits import Tuning
from sapwood.join.catalog_entries import Filed, JoinEntry, Prefix, going_on
from sapwood.join.evaluation.bindings import block_pattern
from sapwood.join.evaluation.witnesses import Numbers, Witnesses
from sapwood.join.graph.graph_columns import Numbered, graph
from sapwood.join.graph.graph_reduction import Column, minor
from sapwood.join.graph.join_graph import Shape
from sapwood.join.graph.templates import Graph, Relations
from sapwood.join.state.windows import Members, Waiting
from sapwood.lang.xscl.model import Join


class Filing:
    """The parts of all entries. Whatever is equal in several is there once."""

    def __init__(self, index: Index, tuning: Tuning) -> None:
        self._shared = tuning.share_joins
        self._share_values = tuning.share_values
        self.numbers = Numbers()
        self.witnesses = Witnesses(index, self.numbers)
        self.together = Relations()
        self.apart: dict[Shape, Relations] = {}  # if templates are not evaluated together
        self.members = Members()
        self.targets: dict[int, JoinEntry | Prefix] = {}  # of the members that are parts of chains
        self.waiting = Waiting()
        self.prefixes: dict[object, Prefix] = {}
        self.keys_going_on: dict[bytes, int] = {}  # the numbers of what goes on, by what others call it
        self.watched: dict[int, dict[int, JoinEntry]] = {}  # definition → entries of single blocks

    def prefixes_filed(self) -> Iterator[Filed]:
        """The links within chains."""
        for prefix in self.prefixes.values():
            assert prefix.filed is not None
            yield prefix.filed

    def file(self, entry: JoinEntry) -> None:
        """Files an entry; what of it was filed before something failed can be unfiled."""
        join = entry.join
        if not join.links:
            _, [column] = _columns(join, 0, {join.blocks[0].selected})
            entry.watched = self.witnesses.watch(column.definition)
            self.watched.setdefault(entry.watched, {})[entry.number] = entry
            return
        before: Prefix | None = None
        for number in range(len(join.links)):
            last = number == len(join.links) - 1
            if last:
                filed = self._file_link(join, number, before, entry.since, entry)
                entry.filed.append(filed)
            else:
                before = self._use_prefix(entry, number, before)
                entry.prefixes.append(before)

    def _use_prefix(self, entry: JoinEntry, link: int, before: Prefix | None) -> Prefix:
        join = entry.join
        places, first = going_on(join, link + 2)
        key = first if self._shared else (entry.number, link)
        prefix = self.prefixes.get(key)
        if prefix is None:
            numbers = {place: self.numbers.take() for place in places.values()}
            prefix = Prefix(key, join, link + 2, places, numbers, self.numbers.take())
            self.prefixes[key] = prefix
            self.keys_going_on.update((name, number) for number, name in prefix.keys.items())
            # The last link knows since when its query is there, and sees the first message of all.
            prefix.filed = self._file_link(join, link, before, 0, prefix)
        prefix.uses += 1
        return prefix

    def _file_link(
        self, join: Join, number: int, before: Prefix | None, since: int, target: JoinEntry | Prefix
    ) -> Filed:
        link = join.links[number]
        definitions: list[tuple[int, bool]] = []
        compared = {c.left for c in link.comparisons}
        if before is None:
            left = self._side(join, 0, compared, definitions)
        else:
            left = _composite(join, before, compared)
        compared = {c.right for c in link.comparisons}
        right = self._side(join, number + 1, compared, definitions)
        found = graph(left, right, link.comparisons)
        alone = isinstance(target, JoinEntry) and len(join.blocks) == 2
        entry = target.number if isinstance(target, JoinEntry) and alone else -1
        member = self.members.add(link.ordered, link.window, since, entry)
        if not alone:
            self.targets[member] = target
        relations = self._relations(found) if self._shared else None
        row = relations.add(found, member) if relations is not None else -1
        filed = Filed(found, relations, row, member, link.ordered, link.window, definitions)
        self._wait(filed, add=True)
        return filed

    def _side(
        self, join: Join, block: int, compared: set[int], definitions: list[tuple[int, bool]]
    ) -> list[Numbered]:
        """A block as a side of a graph; its definitions are used from now on."""
        numbers, columns = _columns(join, block, compared)
        side: list[Numbered] = []
        for column in columns:
            variable = numbers[column.variable]
            valued = variable in compared
            number = self.witnesses.add(column.definition, valued)
            definitions.append((number, valued))
            side.append(Numbered(variable, column.parent, number))
        return side

    def _relations(self, found: Graph) -> Relations:
        return self.together if self._share_values else self.apart.setdefault(found.shape, Relations())

    def _wait(self, filed: Filed, add: bool) -> None:
        """Sees to it that values are kept for as long as the link may want them."""
        waiting, found = self.waiting, filed.graph
        wait = waiting.add if add else waiting.remove
        follow = waiting.add_follower if add else waiting.remove_follower
        for left, _, right in found.shape.edges:
            wait(found.left[left], filed.window)
            if filed.ordered:
                follow(found.right[right])
            else:
                wait(found.right[right], filed.window)

    def unfile(self, entry: JoinEntry) -> None:
        """Frees all that only this entry uses."""
        if entry.watched >= 0:
            watching = self.watched[entry.watched]
            del watching[entry.number]
            if not watching:
                del self.watched[entry.watched]
            self.witnesses.unwatch(entry.watched)
        for filed in entry.filed:
            self._unfile_link(filed)
        for prefix in reversed(entry.prefixes):
            self._release(prefix)

    def _release(self, prefix: Prefix) -> None:
        prefix.uses -= 1
        if prefix.uses:
            return
        del self.prefixes[prefix.key]
        for name in prefix.keys.values():
            self.keys_going_on.pop(name, None)
        assert prefix.filed is not None
        self._unfile_link(prefix.filed)
        for number in (*prefix.numbers.values(), prefix.root):
            self.numbers.give_back(number)

    def _unfile_link(self, filed: Filed) -> None:
        self._wait(filed, add=False)
        if filed.relations is not None:
            filed.relations.remove(filed.row, filed.member)
            if not self._share_values and not len(filed.relations):
                del self.apart[filed.graph.shape]
        self.members.remove(filed.member)
        self.targets.pop(filed.member, None)
        for number, valued in filed.definitions:
            self.witnesses.remove(number, valued)


def _columns(join: Join, block: int, compared: set[int]) -> tuple[list[int], tuple[Column, ...]]:
    """The variables of a block, and its minor in terms of their places among them."""
    variables = join.variables
    numbers = [n for n, variable in enumerate(variables) if variable.block == block]
    pattern = block_pattern(variables, block, compared)
    return numbers, minor(
        join.blocks[block].stream, pattern.origins, pattern.paths, pattern.wanted, pattern.numeric
    )


def _composite(join: Join, prefix: Prefix, compared: set[int]) -> list[Numbered]:
    """The side that the first blocks of a chain are to the next link."""
    places, _ = going_on(join, prefix.blocks)
    columns = [Numbered(variable, 0, prefix.numbers[places[variable]]) for variable in compared]
    if len(columns) == 1:
        return [columns[0]._replace(parent=-1)]
    return [Numbered(-1, -1, prefix.root), *columns]
