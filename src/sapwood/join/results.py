"""Join results: messages that satisfy a query together, held as numbers until they are read."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.join.evaluation.bindings import Binding
from sapwood.join.join_catalog import ChainPrefix, JoinEntry
from sapwood.join.output import LoadedMessage, MessageCache, load_message
from sapwood.join.state.message_state import RecordStore, StoredMessage

Records = tuple[StoredMessage, ...]


@dataclass(frozen=True, slots=True)
class LinkMatches:
    """The members that the current item satisfies, with the items of the state on the other side."""

    members: Ints
    entries: Ints
    """-1 for links of chains"""
    items: Ints
    stored: RecordStore
    """the messages of all items of the state"""
    current: Records
    state_is_left: bool

    def records(self, item: int) -> Records:
        """Return the messages of a match in the order of their blocks."""
        return self.stored[item] + self.current if self.state_is_left else self.current + self.stored[item]


class ResultContext:
    """The messages of some results and their output, shared by queries with the same bindings."""

    def __init__(self, cache: MessageCache) -> None:
        self._cache = cache
        self._current: tuple[StoredMessage, PatternEvaluator] | None = None
        self._loaded: LoadedMessage | None = None  # the current message, if it is needed
        self._pieces: dict[tuple[object, ...], list[bytes]] = {}

    def set_current(self, record: StoredMessage, evaluator: PatternEvaluator) -> None:
        """Use the current message as it was just parsed."""
        self._current = record, evaluator
        self._loaded = None

    def load(self, record: StoredMessage) -> LoadedMessage:
        """Return a parsed message."""
        if self._current is None or self._current[0] is not record:
            return self._cache.load(record)
        if self._loaded is None:
            self._loaded = load_message(self._current[1])
        return self._loaded

    def pieces(
        self, entry: JoinEntry, records: Records, messages: list[LoadedMessage], bindings: list[Binding]
    ) -> list[bytes]:
        """Return the output for each binding; queries with equal templates share it."""
        key = entry.output_key, records, tuple(bindings)
        known = self._pieces.get(key)
        if known is None:
            known = self._pieces[key] = entry.output.build(messages, bindings)
        return known


class Meeting:
    """A join result: the messages that satisfy a query together, and the output built from them.

    A pickled copy has the ids of the messages, the nodes and the time, but not the output.
    """

    def __init__(self, context: ResultContext, entry: JoinEntry, records: Records) -> None:
        self._context = context
        self.entry = entry
        self.records = records

    @cached_property
    def messages(self) -> tuple[Hashable, ...]:
        """The ids of the messages, in the order of the query's blocks."""
        return tuple(record.id for record in self.records)

    @cached_property
    def time(self) -> float:
        """The time of the latest message."""
        return max(record.time for record in self.records)

    @cached_property
    def nodes(self) -> tuple[dict[str, int], ...]:
        """The nodes that the output is built from, by variable, for each binding: numbers of elements in
        document order, root 1; for an attribute or text, its element's. Empty for a query without a template,
        which delivers the message itself."""
        if self.entry.join.template is None:
            return ()
        return tuple(
            {name: node if isinstance(node, int) else node.element for name, node in binding.items()}
            for binding in self.entry.output.named(self._bindings)
        )

    @property
    def pieces(self) -> list[bytes]:
        """The XML output, one piece for each binding."""
        if self.entry.join.template is None:
            return [self.records[0].data]
        return self._context.pieces(self.entry, self.records, self._loaded, self._bindings)

    @property
    def made(self) -> list[Message]:
        """The pieces as messages, to be published."""
        made = [Message(piece) for piece in self.pieces]
        if self.entry.join.template is None:
            made[0].encoding = self.records[0].encoding
        return made

    @property
    def body(self) -> bytes:
        """All pieces of the output."""
        pieces = self.pieces
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @cached_property
    def _bindings(self) -> list[Binding]:
        return self.entry.output.bindings(self._loaded)

    @cached_property
    def _loaded(self) -> list[LoadedMessage]:
        return [self._context.load(record) for record in self.records]

    def __getstate__(self) -> dict[str, object]:
        return {"messages": self.messages, "nodes": self.nodes, "time": self.time}

    def __repr__(self) -> str:
        return f"<Meeting of {', '.join(map(repr, self.messages))}>"


class Meetings:
    """All join results of one message, in the order found. Results of queries that were removed before they
    are read are skipped."""

    def __init__(self, cache: MessageCache, entries: Mapping[int, JoinEntry]) -> None:
        self.context = ResultContext(cache)
        self._entries = entries
        self._numbers: list[Ints] = []
        self._matches: list[tuple[LinkMatches, Ints]] = []
        self._single: list[tuple[int, StoredMessage]] = []
        self._chained: dict[tuple[int, Records], None] = {}
        self.partial: dict[tuple[ChainPrefix, Records], None] = {}
        """partial matches of chains that the caller has to continue, see `JoinEngine.join_partition`"""
        self.problems: dict[int, str] = {}
        """entries of chains that could not be continued, and the reason"""

    def __len__(self) -> int:
        """The number of results, each distinct query counted once."""
        return len(self._single) + len(self._chained) + sum(map(len, self._numbers))

    @property
    def deliveries(self) -> int:
        """The number of results, each subscription counted."""
        alone = [number for number, _ in (*self._single, *self._chained)]
        every = np.concatenate([*self._numbers, np.array(alone, np.int32)])
        numbers, counts = np.unique(every, return_counts=True)
        entries = [self._entries.get(number) for number in numbers.tolist()]
        return sum(entry.uses * count for entry, count in zip(entries, counts.tolist(), strict=True) if entry)

    # -- collecting ------------------------------------------------------------------------------------

    def add_single(self, entry: int, record: StoredMessage) -> None:
        """Add the result of a query over one block."""
        self._single.append((entry, record))

    def add(
        self, matches: LinkMatches, chain_targets: Mapping[int, JoinEntry | ChainPrefix]
    ) -> list[tuple[ChainPrefix, Records]]:
        """Add matches of links, and return those that are partial matches of chains."""
        chained = matches.entries < 0
        if not chained.any():
            self._numbers.append(matches.entries)
            self._matches.append((matches, matches.items))
            return []
        self._numbers.append(matches.entries[~chained])
        self._matches.append((matches, matches.items[~chained]))
        partial: list[tuple[ChainPrefix, Records]] = []
        members, items = matches.members[chained].tolist(), matches.items[chained].tolist()
        for member, item in zip(members, items, strict=True):
            target, records = chain_targets[member], matches.records(item)
            if len(set(records)) < len(records):
                continue  # no message joins with itself
            if isinstance(target, ChainPrefix):
                partial.append((target, records))
            else:
                self._chained[target.number, records] = None
        return partial

    # -- reading ---------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Meeting]:
        entries = self._entries
        for number, records in self._found():
            if number in entries:
                yield Meeting(self.context, entries[number], records)

    def _found(self) -> Iterator[tuple[int, Records]]:
        for number, record in self._single:
            yield number, (record,)
        for numbers, (matches, items) in zip(self._numbers, self._matches, strict=True):
            for number, item in zip(numbers.tolist(), items.tolist(), strict=True):
                yield number, matches.records(item)
        yield from self._chained
