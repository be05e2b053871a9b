"""The catalog of join queries: each distinct query once, and where its parts are registered.

query ──► variable definitions   in the index of the matcher
      ──► join graphs            as rows of templates
      ──► windows                as members of the rows, and in the retention of variables
      ──► prefixes               of chains: shared by all queries with the same first blocks
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b

from sapwood.engine.index import Index
from sapwood.engine.limits import Tuning
from sapwood.join.evaluation.bindings import JoinBindings, block_pattern
from sapwood.join.evaluation.witnesses import VariableIndex, VariableNumbers
from sapwood.join.graph.canonical_graph import JoinGraph, NumberedColumn, TemplateGraph, build_graph
from sapwood.join.graph.graph_reduction import ReducedColumn, reduce_block
from sapwood.join.graph.templates import TemplateRelations
from sapwood.join.output import OutputBuilder
from sapwood.join.state.windows import LinkWindows, Retention
from sapwood.lang.fwr.model import template_key
from sapwood.lang.pattern import canonical_text
from sapwood.lang.xscl.model import Join

# -- entries -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CatalogLink:
    """A registered link of a query: its join graph, the row of that graph and the query's member there."""

    graph: JoinGraph
    relations: TemplateRelations | None
    """None: it is evaluated by itself"""
    row: int
    member: int
    ordered: bool
    window: float
    definitions: list[tuple[int, bool]]
    """the numbers of the variable definitions of its blocks, and whether their values are compared"""


@dataclass
class JoinEntry:
    """A distinct query."""

    number: int
    key: object
    join: Join
    since: int
    """the version of the subscriptions from which on it sees messages, see `StoredMessage.visible_from`"""
    uses: int = 0
    """the number of subscriptions"""
    links: list[CatalogLink] = field(default_factory=list)
    """the last link; those before it are in the prefixes"""
    prefixes: list[ChainPrefix] = field(default_factory=list)
    watched: int = -1
    """the number of the definition of a single block"""

    @cached_property
    def output(self) -> OutputBuilder:
        return OutputBuilder(self.join)

    @cached_property
    def query_key(self) -> object:
        """Equal for queries that mean the same, whenever they were subscribed."""
        return self.join.key

    @cached_property
    def output_key(self) -> object:
        """Equal for queries that build the same output from the same nodes of the same messages."""
        blocks = tuple([self.join.variables[hole.origin].block for hole in self.join.holes])
        return template_key(self.join.template or ()), blocks


@dataclass(eq=False)
class ChainPrefix:
    """The first blocks of chains. A partial match carries the values that later links compare.

    Every binding of these values is an item of its own, as if it were a message with one node for each
    variable.
    """

    key: object
    join: Join
    blocks: int
    carried: dict[int, int]
    """for each carried variable, its position in an order that all queries with this prefix share"""
    numbers: dict[int, int]
    """by these positions, the numbers of the variables in the next link"""
    root: int
    """the number of the variable above all of them"""
    link: CatalogLink | None = None
    uses: int = 0

    @cached_property
    def bindings(self) -> JoinBindings:
        return JoinBindings(self.join, self.blocks, self.carried)

    @cached_property
    def name(self) -> bytes:
        """Eight bytes that identify the prefix in every process."""
        _, key = carried_variables(self.join, self.blocks)
        return blake2b(canonical_text(key).encode(), digest_size=8).digest()

    @cached_property
    def keys(self) -> dict[int, bytes]:
        """By the numbers of carried variables, eight bytes that identify them in every process."""
        return {
            number: blake2b(b"%d " % place + self.name, digest_size=8).digest()
            for place, number in self.numbers.items()
        }


def carried_variables(join: Join, blocks: int) -> tuple[dict[int, int], object]:
    """Return the variables of the first blocks that later links compare, with their positions; and a key
    that is equal for chains whose first blocks can be evaluated together."""
    place_of, first = join.first_blocks(blocks)
    later = {c.left for link in join.links[blocks - 1 :] for c in link.comparisons}
    places = {n: place_of[n] for n in sorted(later) if join.variables[n].block < blocks}
    return places, (first, tuple(sorted(places.values())))


# -- the catalog -------------------------------------------------------------------------------------------


class JoinCatalog:
    """The registered parts of all entries. Parts that are equal in several entries are shared."""

    def __init__(self, index: Index, tuning: Tuning) -> None:
        self._shared = tuning.share_joins
        self._share_values = tuning.share_values
        self.numbers = VariableNumbers()
        self.witnesses = VariableIndex(index, self.numbers)
        self.relations = TemplateRelations()
        self.separate: dict[TemplateGraph, TemplateRelations] = {}
        """relations of their own for each template, if values are not shared"""
        self.windows = LinkWindows()
        self.chain_targets: dict[int, JoinEntry | ChainPrefix] = {}
        """of the members that are links of chains: the prefix or the query that they complete"""
        self.retention = Retention()
        self.prefixes: dict[object, ChainPrefix] = {}
        self.carried_keys: dict[bytes, int] = {}
        """the numbers of carried variables by their portable keys"""
        self.single_blocks: dict[int, dict[int, JoinEntry]] = {}
        """by watched definition, the queries over one block"""

    def prefix_links(self) -> Iterator[CatalogLink]:
        """Yield the links within prefixes."""
        for prefix in self.prefixes.values():
            assert prefix.link is not None
            yield prefix.link

    def add(self, entry: JoinEntry) -> None:
        """Register an entry. If that fails, `remove` unregisters the parts that were registered before."""
        join = entry.join
        if not join.links:
            _, [column] = _reduced_columns(join, 0, {join.blocks[0].selected})
            entry.watched = self.witnesses.watch(column.definition)
            self.single_blocks.setdefault(entry.watched, {})[entry.number] = entry
            return
        before: ChainPrefix | None = None
        for number in range(len(join.links) - 1):
            before = self._use_prefix(entry, number, before)
            entry.prefixes.append(before)
        entry.links.append(self._add_link(join, len(join.links) - 1, before, entry.since, entry))

    def _use_prefix(self, entry: JoinEntry, number: int, before: ChainPrefix | None) -> ChainPrefix:
        join = entry.join
        places, first = carried_variables(join, number + 2)
        key = first if self._shared else (entry.number, number)
        prefix = self.prefixes.get(key)
        if prefix is None:
            numbers = {place: self.numbers.allocate() for place in places.values()}
            prefix = ChainPrefix(key, join, number + 2, places, numbers, self.numbers.allocate())
            self.prefixes[key] = prefix
            self.carried_keys.update((name, number) for number, name in prefix.keys.items())
            # A prefix sees all messages: only the last link checks which the query may see.
            prefix.link = self._add_link(join, number, before, 0, prefix)
        prefix.uses += 1
        return prefix

    def _add_link(
        self, join: Join, number: int, before: ChainPrefix | None, since: int, target: JoinEntry | ChainPrefix
    ) -> CatalogLink:
        link = join.links[number]
        definitions: list[tuple[int, bool]] = []
        compared = {c.left for c in link.comparisons}
        if before is None:
            left = self._block_side(join, 0, compared, definitions)
        else:
            left = _prefix_side(join, before, compared)
        compared = {c.right for c in link.comparisons}
        right = self._block_side(join, number + 1, compared, definitions)
        graph = build_graph(left, right, link.comparisons)
        entry = target.number if isinstance(target, JoinEntry) and len(join.blocks) == 2 else -1
        member = self.windows.add(link.ordered, link.window, since, entry)
        if entry < 0:
            self.chain_targets[member] = target
        relations = self._relations_of(graph) if self._shared else None
        row = relations.add(graph, member) if relations is not None else -1
        added = CatalogLink(graph, relations, row, member, link.ordered, link.window, definitions)
        self._update_retention(added, add=True)
        return added

    def _block_side(
        self, join: Join, block: int, compared: set[int], definitions: list[tuple[int, bool]]
    ) -> list[NumberedColumn]:
        """Return the columns of a block as a side of a join graph, and register their definitions."""
        numbers, columns = _reduced_columns(join, block, compared)
        side: list[NumberedColumn] = []
        for column in columns:
            variable = numbers[column.variable]
            is_compared = variable in compared
            number = self.witnesses.add(column.definition, is_compared)
            definitions.append((number, is_compared))
            side.append(NumberedColumn(variable, column.parent, number))
        return side

    def _relations_of(self, graph: JoinGraph) -> TemplateRelations:
        if self._share_values:
            return self.relations
        return self.separate.setdefault(graph.template_graph, TemplateRelations())

    def _update_retention(self, link: CatalogLink, add: bool) -> None:
        """Retain values for as long as a link may need them, or no longer."""
        retention, graph = self.retention, link.graph
        update = retention.add if add else retention.remove
        update_follower = retention.add_follower if add else retention.remove_follower
        for left, _, right in graph.template_graph.edges:
            update(graph.left[left], link.window)
            if link.ordered:
                update_follower(graph.right[right])
            else:
                update(graph.right[right], link.window)

    def remove(self, entry: JoinEntry) -> None:
        """Unregister an entry and all parts that no other entry uses."""
        if entry.watched >= 0:
            entries = self.single_blocks[entry.watched]
            del entries[entry.number]
            if not entries:
                del self.single_blocks[entry.watched]
            self.witnesses.unwatch(entry.watched)
        for link in entry.links:
            self._remove_link(link)
        for prefix in reversed(entry.prefixes):
            self._release_prefix(prefix)

    def _release_prefix(self, prefix: ChainPrefix) -> None:
        prefix.uses -= 1
        if prefix.uses:
            return
        del self.prefixes[prefix.key]
        for name in prefix.keys.values():
            self.carried_keys.pop(name, None)
        assert prefix.link is not None
        self._remove_link(prefix.link)
        for number in (*prefix.numbers.values(), prefix.root):
            self.numbers.release(number)

    def _remove_link(self, link: CatalogLink) -> None:
        self._update_retention(link, add=False)
        if link.relations is not None:
            link.relations.remove(link.row, link.member)
            if not self._share_values and not len(link.relations):
                del self.separate[link.graph.template_graph]
        self.windows.remove(link.member)
        self.chain_targets.pop(link.member, None)
        for number, is_compared in link.definitions:
            self.witnesses.remove(number, is_compared)


def _reduced_columns(
    join: Join, block: int, compared: set[int]
) -> tuple[list[int], tuple[ReducedColumn, ...]]:
    """Return the variables of a block, and its reduced columns in terms of their positions among them."""
    variables = join.variables
    numbers = [n for n, variable in enumerate(variables) if variable.block == block]
    pattern = block_pattern(variables, block, compared)
    return numbers, reduce_block(
        join.blocks[block].stream, pattern.origins, pattern.paths, pattern.wanted, pattern.numeric
    )


def _prefix_side(join: Join, prefix: ChainPrefix, compared: set[int]) -> list[NumberedColumn]:
    """Return the carried variables of a prefix as the left side of the next link."""
    places, _ = carried_variables(join, prefix.blocks)
    columns = [NumberedColumn(variable, 0, prefix.numbers[places[variable]]) for variable in compared]
    if len(columns) == 1:
        return [columns[0]._replace(parent=-1)]
    return [NumberedColumn(-1, -1, prefix.root), *columns]
