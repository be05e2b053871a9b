"""The join engine: all join queries of a broker, and the state that they share.

    message ── witness extraction ──► current item ──► templates × state ──► join results
                                           │                  └─ partial matches of chains: current items, too
                                           └──► state

See `graph/templates` and `evaluation/shared_evaluation` for how all queries are evaluated at once, and
`state/message_state` for the state and its eviction.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from math import inf

import numpy as np

from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.limits import Tuning
from sapwood.engine.message.message_reader import Message
from sapwood.errors import QueryError
from sapwood.join.evaluation.bindings import compared_value
from sapwood.join.evaluation.per_query_evaluation import PerQueryEvaluator
from sapwood.join.evaluation.shared_evaluation import find_equal_pairs, match_rows
from sapwood.join.evaluation.window_check import WindowCheck
from sapwood.join.evaluation.witnesses import VariableIndex, Witness
from sapwood.join.explain import JoinExplanation, explain
from sapwood.join.graph.templates import TemplateRelations
from sapwood.join.join_catalog import CatalogLink, ChainPrefix, JoinCatalog, JoinEntry
from sapwood.join.output import MessageCache
from sapwood.join.results import LinkMatches, Meetings, Records
from sapwood.join.state.message_state import CurrentItem, MessageState, StoredMessage
from sapwood.join.state.portable_state import (
    EquatedVariables,
    PortableMessage,
    PortableValue,
    StatePartition,
    equated_variables,
)
from sapwood.join.state.state_stats import State, measure_state
from sapwood.join.stream_graph import StreamGraph, describe_cycle
from sapwood.lang.xscl.model import Join
from sapwood.transform.result_groups import TooManyGroups

_FEW_ROWS, _FEW_RUNS = 16, 128
"""the maximal number of template rows, and of runs, for which row by row is faster than arrays"""
_MOST_RELEASED = 64
"""numbers of removed variables whose values may still be in the state, before it is cleaned"""
_BEFORE_ALL = -1e300
"""a watermark before all messages, at which values that no query needs are expired"""
_log = logging.getLogger(__name__)


class JoinEngine:
    """Evaluates join queries over one index. Equal queries are one entry with several uses."""

    def __init__(self, index: Index, lateness: float, tuning: Tuning) -> None:
        """`lateness` is how many seconds the watermark is behind the newest message."""
        self._catalog = JoinCatalog(index, tuning)
        self._cache = MessageCache(index)
        self._lateness = lateness
        self._shared = tuning.share_joins
        self._share_values = tuning.share_values
        self._state = MessageState(cached=tuning.share_values)
        self._streams = StreamGraph()
        self._entries: dict[int, JoinEntry] = {}
        self._number_of: dict[object, int] = {}
        self._recent: dict[str, int] = {}  # by text, those added since the last message
        self._next = 0
        self._since_eviction = 0  # messages
        self._retention_changed = False  # since the last eviction
        self._removals = 0  # of queries, ever
        self._partitions: list[StatePartition] = []
        self._version = 0  # of the subscriptions, see `StoredMessage.visible_from`
        self._latest = -inf

    def __len__(self) -> int:
        """The number of distinct queries."""
        return len(self._entries)

    @property
    def witnesses(self) -> VariableIndex:
        """The variable definitions of all queries."""
        return self._catalog.witnesses

    def entry(self, number: int) -> JoinEntry:
        """Return a distinct query by its number."""
        return self._entries[number]

    # -- registration ----------------------------------------------------------------------------------

    def add(self, join: Join, instead_of: int | None = None) -> int:
        """Add one use of a join, and return the number of its entry. QueryError if streams would form a cycle
        after a use of another entry was removed."""
        key: object = (self._version, join.key) if self._shared else self._next
        number = self._number_of.get(key)
        if number is None:
            self._check_streams(join, instead_of)
            number = self._next
            entry = JoinEntry(number, key, join, self._version)
            try:
                self._catalog.add(entry)
            except BaseException:
                self._catalog.remove(entry)
                raise
            self._next += 1
            self._number_of[key] = number
            self._entries[number] = entry
            self._streams.add(join.streams, join.publish, bool(join.links))
        self._entries[number].uses += 1
        self._recent[join.text] = number
        return number

    def add_again(self, text: str) -> int | None:
        """Add one more use of a join that was added since the last message; None if it was not."""
        number = self._recent.get(text) if self._shared else None
        if number is not None:
            self._entries[number].uses += 1
        return number

    def _check_streams(self, join: Join, instead_of: int | None) -> None:
        other = self._entries[instead_of] if instead_of is not None else None
        if other is not None and other.uses == 1:
            self._streams.remove(other.join.streams, other.join.publish, bool(other.join.links))
        cycle = self._streams.cycle(join.streams, join.publish)
        if other is not None and other.uses == 1:
            self._streams.add(other.join.streams, other.join.publish, bool(other.join.links))
        if cycle:
            position = join.text.rfind(join.publish)
            hint = "publish to a stream that none of these is made of"
            raise QueryError(describe_cycle(cycle), join.text, position, hint)

    def remove(self, number: int) -> None:
        """Remove one use of an entry, and unregister all that no other entry uses."""
        entry = self._entries[number]
        entry.uses -= 1
        if entry.uses:
            return
        del self._entries[number], self._number_of[entry.key]
        self._recent.clear()
        self._streams.remove(entry.join.streams, entry.join.publish, bool(entry.join.links))
        self._catalog.remove(entry)
        self._retention_changed = True
        self._removals += 1
        if len(self._catalog.numbers.released) > _MOST_RELEASED or not self._entries:
            self._evict()

    def _evict(self) -> None:
        """Evict from the state what no query can reach any more."""
        if self._retention_changed:
            self._state.limit_expiry(self._catalog.retention.expiry)
            self._retention_changed = False
        before = len(self._state.records)
        self._state.evict_expired(self.watermark)
        _log.debug(
            "watermark %s after %d more messages: %d of %d items remain in the join state",
            self.watermark,
            self._since_eviction,
            len(self._state.records),
            before,
        )
        self._since_eviction = 0
        for partition in self._partitions:  # whose values have the same numbers
            self.evict_partition(partition, partition.watermark)
        self._catalog.numbers.reuse_released()

    # -- messages --------------------------------------------------------------------------------------

    @property
    def watermark(self) -> float:
        """The event time before which messages are late."""
        return self._latest - self._lateness

    @property
    def latest(self) -> float:
        """The largest event time of a message."""
        return self._latest

    def observe_time(self, time: float) -> None:
        """Move the watermark on by the event time of a message; from time to time, evict expired state."""
        self._latest = max(self._latest, time)
        self._since_eviction += 1
        if self._since_eviction * 8 > len(self._state.records) + 1_024:
            self._evict()

    def is_late(self, stream: str, time: float) -> bool:
        """Return whether a message is late for the joins that read its stream."""
        return time < self.watermark and self._streams.joined(stream)

    def why_late(self, time: float) -> str:
        """Return the reason why a message is late, for people."""
        behind = self._latest - time
        return (
            f"too late for joins: {behind:g} s older than the newest message, and {self._lateness:g} s of"
            " lateness are allowed"
        )

    def receive(
        self, message: Message, found: IndexMatches, id: Hashable, stream: str, time: float
    ) -> Meetings:
        """Join a message with the state, add it to the state, and return the results. A late message only
        matches queries over one block."""
        late = self.is_late(stream, time)
        self.observe_time(time)
        version = self._version
        self._version += 1
        self._recent.clear()
        results = Meetings(self._cache, self._entries)
        extracted = self.witnesses.extract(found, stream)
        if not extracted.witnesses and not extracted.watched:
            return results
        record = StoredMessage(id, stream, time, version, message.data, message.encoding, arrival=version)
        results.context.set_current(record, found.evaluator)
        for watched in extracted.watched:
            for number in self._catalog.single_blocks[watched]:
                results.add_single(number, record)
        if extracted.witnesses and not late:
            self._join(CurrentItem((record,), time, version, extracted.witnesses), results)
        return results

    def _join(self, first: CurrentItem, results: Meetings) -> None:
        """Join an item with the state, then the partial matches that follow; all are added to the state."""
        pending = deque([first])
        followed: set[tuple[object, Records]] = set()
        while pending:
            current = pending.popleft()
            for matches in self._match(current, self._state):
                for prefix, records in results.add(matches, self._catalog.chain_targets):
                    if (prefix.key, records) not in followed:
                        followed.add((prefix.key, records))
                        pending += self._partial_items(prefix, records, results)
            expiry = self._catalog.retention.expiry(current.variable, current.time)
            self._state.insert(current, expiry, self.watermark)

    def _match(self, current: CurrentItem, state: MessageState) -> Iterator[LinkMatches]:
        """Yield the members that the current item and an item of the state satisfy."""
        sides = [True]
        if self._catalog.windows.unordered or state.latest > current.time:
            sides.append(False)
        if not self._shared:
            yield from self._match_link_by_link(current, state, sides)
        elif not self._share_values:
            for relations in self._catalog.separate.values():
                yield from self._match_shared(relations, current, state, sides)
        elif len(self._catalog.relations) <= _FEW_ROWS and state.has_at_most(_FEW_RUNS, current):
            yield from self._match_row_by_row(current, state, sides)
        else:
            yield from self._match_shared(self._catalog.relations, current, state, sides)

    def _match_shared(
        self, relations: TemplateRelations, current: CurrentItem, state: MessageState, sides: list[bool]
    ) -> Iterator[LinkMatches]:
        common = state.find_common(current)
        for state_is_left in sides:
            equal = find_equal_pairs(relations, current, common, state_is_left) if common else None
            if not equal:
                continue
            check = WindowCheck(self._catalog.windows, current, state, state_is_left)
            matched = match_rows(relations, equal, check)
            for row, items in matched.frequent:
                yield from check.match_row(relations, row, items)
            if len(matched.rows):
                yield check.match_rows(relations, matched.rows, matched.items)

    def _match_row_by_row(
        self, current: CurrentItem, state: MessageState, sides: list[bool]
    ) -> Iterator[LinkMatches]:
        evaluator = PerQueryEvaluator(current, state)
        relations = self._catalog.relations
        for state_is_left in sides:
            graphs = relations.graphs()
            found = [(row, item) for graph, row in graphs for item in evaluator.items(graph, state_is_left)]
            if found:
                rows, items = np.array(found, np.int32).T
                check = WindowCheck(self._catalog.windows, current, state, state_is_left)
                yield check.match_rows(relations, rows, items)

    def _match_link_by_link(
        self, current: CurrentItem, state: MessageState, sides: list[bool]
    ) -> Iterator[LinkMatches]:
        """Evaluate each link of each query by itself, its window included: nothing is shared."""
        evaluator = PerQueryEvaluator(current, state)
        for state_is_left, link in product(sides, self._iter_links()):
            items = np.fromiter(evaluator.items(link.graph, state_is_left), np.int32)
            if len(items):
                members = np.full(len(items), link.member, np.int32)
                check = WindowCheck(self._catalog.windows, current, state, state_is_left)
                yield check.match_members(members, items)

    def _iter_links(self) -> Iterator[CatalogLink]:
        yield from self._catalog.prefix_links()
        for entry in self._entries.values():
            yield from entry.links

    def _partial_items(
        self, prefix: ChainPrefix, records: Records, results: Meetings
    ) -> Iterator[CurrentItem]:
        """Yield a partial match of a chain as items that the next link joins, one for each binding."""
        time, visible_from = max(r.time for r in records), min(r.visible_from for r in records)
        for witnesses in self._partial_witnesses(prefix, records, results):
            yield CurrentItem(records, time, visible_from, witnesses)

    def _partial_witnesses(
        self, prefix: ChainPrefix, records: Records, results: Meetings
    ) -> Iterator[list[Witness]]:
        """Yield the witnesses of the carried variables of a partial match, for each binding."""
        messages = [results.context.load(record) for record in records]
        documents = [message.document for message in messages]
        carried = prefix.bindings.wanted
        numbers = [prefix.numbers[prefix.carried[variable]] for variable in carried]
        variables = [prefix.join.variables[variable] for variable in carried]
        try:
            bindings = prefix.bindings.enumerate(messages)
        except TooManyGroups as error:
            affected = [number for number, entry in self._entries.items() if prefix in entry.prefixes]
            results.problems.update(dict.fromkeys(affected, f"its chain is not followed: {error}"))
            return
        for binding in bindings:
            values = [
                compared_value(documents[variable.block], node, variable.numeric)
                for variable, node in zip(variables, binding, strict=True)
            ]
            bound = enumerate(zip(numbers, values, strict=True), 1)
            yield [Witness(number, value, (at, 0)) for at, (number, value) in bound if value is not None]

    # -- portable state, see `distributed_broker` ------------------------------------------------------

    def set_visible_from(self, version: int) -> None:
        """Let queries that are added from now on see only messages that are visible from a version on."""
        self._version = version
        self._recent.clear()

    def extract_portable(self, found: IndexMatches, stream: str) -> tuple[list[PortableValue], list[int]]:
        """Return the portable values of a message, and the entries over one block that it matches."""
        extracted = self.witnesses.extract(found, stream)
        single = [number for w in extracted.watched for number in self._catalog.single_blocks[w]]
        key = self.witnesses.key
        return [PortableValue(key(v), value, nodes) for v, value, nodes in extracted.witnesses], single

    @property
    def has_feedback(self) -> bool:
        """True if results may have to be processed again: there are chains, or queries that publish."""
        return bool(self._catalog.prefixes) or self._streams.has_publishers

    def open_partition(self, state: MessageState) -> StatePartition:
        """Add a part of the join state that the caller joins and evicts, until it closes it."""
        partition = StatePartition(state, removals=self._removals)
        self._partitions.append(partition)
        return partition

    def close_partition(self, partition: StatePartition) -> None:
        """Remove a part of the join state."""
        self._partitions.remove(partition)

    def join_partition(self, partition: StatePartition, items: Sequence[CurrentItem]) -> Meetings:
        """Return the results of a restored message with a part of the state; `Meetings.partial` are partial
        matches of chains. `visible_from` of the messages says which queries see them."""
        results = Meetings(self._cache, self._entries)
        state = partition.state
        for item in items:
            if len(item) and len(state):
                for matches in self._match(item, state):
                    results.partial.update(dict.fromkeys(results.add(matches, self._catalog.chain_targets)))
        return results

    def insert_partition(self, partition: StatePartition, items: Sequence[CurrentItem]) -> None:
        """Insert a restored message into a part of the state, unless no query needs it there."""
        for item in items:
            expiry = self._catalog.retention.expiry(item.variable, item.time)
            partition.state.insert(item, expiry, max(partition.watermark, _BEFORE_ALL))

    def evict_partition(self, partition: StatePartition, watermark: float) -> None:
        """Evict from a part of the state what no message at or after the watermark can reach, and what only
        queries needed that are removed."""
        if partition.removals < self._removals:
            partition.state.limit_expiry(self._catalog.retention.expiry)
            partition.removals = self._removals
        partition.watermark = max(partition.watermark, watermark)
        partition.state.evict_expired(max(partition.watermark, _BEFORE_ALL))

    def iter_partial_matches(self, results: Meetings) -> Iterator[PortableMessage]:
        """Yield the partial matches of chains, to be stored like messages."""
        for prefix, records in results.partial:
            ways = [
                [PortableValue(prefix.keys[number], value, nodes) for number, value, nodes in witnesses]
                for witnesses in self._partial_witnesses(prefix, records, results)
            ]
            if ways:
                yield PortableMessage(records, ways, prefix.name)

    def restore_items(
        self,
        records: tuple[StoredMessage, ...],
        time: float,
        visible_from: int,
        ways: Sequence[Sequence[PortableValue]],
        is_chain: bool,
    ) -> list[CurrentItem]:
        """Return a message, or a partial match of a chain, as items, with the values that queries compare."""
        number_of = self._catalog.carried_keys if is_chain else self.witnesses.by_key()
        return [
            CurrentItem(
                records,
                time,
                visible_from,
                [Witness(number_of[key], value, nodes) for key, value, nodes in way if key in number_of],
            )
            for way in ways
        ]

    def reads(self, stream: str) -> bool:
        """Return whether any query reads a stream."""
        return self._streams.read(stream)

    def joins(self, stream: str) -> bool:
        """Return whether any query joins messages of a stream with others, so that they can be late."""
        return self._streams.joined(stream)

    def equated_variables(self) -> dict[bytes, EquatedVariables]:
        """Return the variables that each variable is equated with, and for how long its values are needed."""
        carried = {number: key for key, number in self._catalog.carried_keys.items()}

        def key(number: int) -> bytes:
            return carried[number] if number in carried else self.witnesses.key(number)

        return equated_variables(self._iter_links(), key)

    def match_single_blocks(self, entries: Sequence[int], record: StoredMessage) -> Meetings:
        """Return the results of queries over one block that a message matches."""
        results = Meetings(self._cache, self._entries)
        for number in entries:
            results.add_single(number, record)
        return results

    # -- statistics ------------------------------------------------------------------------------------

    def explain(self, number: int) -> JoinExplanation:
        """Explain how an entry is evaluated."""
        return explain(self._entries[number], self.witnesses)

    @property
    def stored_messages(self) -> int:
        """The number of messages that are kept for later ones."""
        return len(self._state.records)

    def state(self) -> State:
        """Return the size of the state, after eviction."""
        self._evict()
        relations = [self._catalog.relations, *self._catalog.separate.values()]
        watermark = self.watermark if self._latest > -inf else None
        return measure_state(self._state, relations, watermark)
