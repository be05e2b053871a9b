"""What a message meets, as numbers until somebody asks for more."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.join.catalog_entries import JoinEntry, Prefix
from sapwood.join.evaluation.bindings import Nodes
from sapwood.join.output import Library, Loaded
from sapwood.join.state.message_state import StoredMessage

Records = tuple[StoredMessage, ...]


@dataclass(frozen=True, slots=True)
class Met:
    """Members, and the earlier items with which the arrival meets them."""

    members: Ints
    entries: Ints
    """-1 for parts of chains"""
    items: Ints
    past: list[Records]
    now: Records
    past_is_left: bool

    def records(self, item: int) -> Records:
        """The messages in the order of their blocks."""
        return self.past[item] + self.now if self.past_is_left else self.now + self.past[item]


class Table:
    """The messages that come together, and what was made of them: the same for all queries that ask alike."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._arrived: tuple[StoredMessage, Loaded] | None = None
        self._pieces: dict[tuple[object, ...], list[bytes]] = {}

    def arrived(self, record: StoredMessage, evaluator: PatternEvaluator) -> None:
        """The message itself, which has just been read."""
        self._arrived = record, self._library.loaded(evaluator)

    def load(self, record: StoredMessage) -> Loaded:
        """The nodes of a message."""
        if self._arrived is not None and self._arrived[0] is record:
            return self._arrived[1]
        return self._library.load(record)

    def pieces(
        self, entry: JoinEntry, records: Records, loaded: list[Loaded], ways: list[Nodes]
    ) -> list[bytes]:
        """What queries with one template make of the same nodes is written once."""
        key = entry.template_key, records, tuple(ways)
        known = self._pieces.get(key)
        if known is None:
            known = self._pieces[key] = entry.maker.pieces(loaded, ways)
        return known


class Meeting:
    """Messages that meet in a query: which, and what is made of them.

    A copy of it, in another process say, still knows the messages, the nodes and the time.
    """

    def __init__(self, table: Table, entry: JoinEntry, records: Records) -> None:
        self._table = table
        self.entry = entry
        self.records = records

    @cached_property
    def messages(self) -> tuple[Hashable, ...]:
        """The ids of the messages, in the order of the query's blocks."""
        return tuple(record.id for record in self.records)

    @cached_property
    def time(self) -> float:
        """That of the latest message."""
        return max(record.time for record in self.records)

    @cached_property
    def nodes(self) -> tuple[dict[str, int], ...]:
        """The nodes that go into what is made, by variable, way by way: numbers of elements in document
        order, root 1; of an attribute or text, its element's. Empty if the message is delivered as it is."""
        if self.entry.join.template is None:
            return ()
        return tuple(
            {name: node if isinstance(node, int) else node.element for name, node in way.items()}
            for way in self.entry.maker.named(self._ways)
        )

    @property
    def pieces(self) -> list[bytes]:
        """The XML that the query makes, once for each way to bind what it speaks of."""
        if self.entry.join.template is None:
            return [self.records[0].data]
        return self._table.pieces(self.entry, self.records, self._loaded, self._ways)

    @property
    def made(self) -> list[Message]:
        """The pieces as messages, to be published."""
        made = [Message(piece) for piece in self.pieces]
        if self.entry.join.template is None:
            made[0].encoding = self.records[0].encoding
        return made

    @property
    def body(self) -> bytes:
        """All that the query makes."""
        pieces = self.pieces
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @cached_property
    def _ways(self) -> list[Nodes]:
        return self.entry.maker.ways(self._loaded)

    @cached_property
    def _loaded(self) -> list[Loaded]:
        return [self._table.load(record) for record in self.records]

    def __getstate__(self) -> dict[str, object]:
        return {"messages": self.messages, "nodes": self.nodes, "time": self.time}

    def __repr__(self) -> str:
        return f"<Meeting of {', '.join(map(repr, self.messages))}>"


class Meetings:
    """All meetings that one message brings about, in the order found. Those of queries that are gone by the
    time somebody asks are passed over."""

    def __init__(self, library: Library, entries: Mapping[int, JoinEntry]) -> None:
        self.table = Table(library)
        self._entries = entries
        self._numbers: list[Ints] = []
        self._met: list[tuple[Met, Ints]] = []
        self._single: list[tuple[int, StoredMessage]] = []
        self._chained: dict[tuple[int, Records], None] = {}
        self.begun: dict[tuple[Prefix, Records], None] = {}
        """chains that go on from here, if those who asked see to that themselves"""
        self.problems: dict[int, str] = {}
        """entries of chains that do not go on although they should, and why"""

    def __len__(self) -> int:
        """How many, each distinct query counted once."""
        return len(self._single) + len(self._chained) + sum(map(len, self._numbers))

    @property
    def deliveries(self) -> int:
        """How many, each subscription counted."""
        alone = [number for number, _ in (*self._single, *self._chained)]
        every = np.concatenate([*self._numbers, np.array(alone, np.int32)])
        numbers, counts = np.unique(every, return_counts=True)
        entries = [self._entries.get(number) for number in numbers.tolist()]
        return sum(entry.uses * count for entry, count in zip(entries, counts.tolist(), strict=True) if entry)

    # -- collecting ------------------------------------------------------------------------------------

    def single(self, entry: int, record: StoredMessage) -> None:
        self._single.append((entry, record))

    def add(self, met: Met, targets: Mapping[int, JoinEntry | Prefix]) -> list[tuple[Prefix, Records]]:
        """Adds what was met; what of it is the beginning of chains is returned instead."""
        chained = met.entries < 0
        if not chained.any():
            self._numbers.append(met.entries)
            self._met.append((met, met.items))
            return []
        self._numbers.append(met.entries[~chained])
        self._met.append((met, met.items[~chained]))
        going_on: list[tuple[Prefix, Records]] = []
        for member, item in zip(met.members[chained].tolist(), met.items[chained].tolist(), strict=True):
            target, records = targets[member], met.records(item)
            if len(set(records)) < len(records):
                continue  # no message meets itself
            if isinstance(target, Prefix):
                going_on.append((target, records))
            else:
                self._chained[target.number, records] = None
        return going_on

    # -- reading ---------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Meeting]:
        entries = self._entries
        for number, records in self._found():
            if number in entries:
                yield Meeting(self.table, entries[number], records)

    def _found(self) -> Iterator[tuple[int, Records]]:
        for number, record in self._single:
            yield number, (record,)
        for numbers, (met, items) in zip(self._numbers, self._met, strict=True):
            for number, item in zip(numbers.tolist(), items.tolist(), strict=True):
                yield number, met.records(item)
        yield from self._chained
