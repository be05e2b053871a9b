"""All joins of a broker, and the messages they remember.

    message ── witnesses ──► arrival ──► relations × past ──► meetings ──► what is made of them
                                │                     └─ of the first blocks of chains: arrivals, too
                                └──► past

See `relations` for how all queries are evaluated at once, `past` for what is kept and for how long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.limits import Tuning
from sapwood.engine.message.message_reader import Message
from sapwood.errors import QueryError
from sapwood.join.catalog_entries import Filed, JoinEntry, Prefix
from sapwood.join.evaluation.bindings import compared_value
from sapwood.join.evaluation.per_query_evaluation import OneByOne
from sapwood.join.evaluation.shared_evaluation import equal_pairs, rows_met
from sapwood.join.evaluation.witnesses import Witness, Witnesses
from sapwood.join.explain import JoinExplanation, explain
from sapwood.join.graph.templates import Relations
from sapwood.join.join_catalog import Filing
from sapwood.join.output import Library
from sapwood.join.results import Meetings, Met
from sapwood.join.state.message_state import Arrival, MessageState, StoredMessage
from sapwood.join.state.portable_state import (
    EquatedVariables,
    PortableMessage,
    PortableValue,
    equated_variables,
)
from sapwood.join.state.state_stats import State, TemplateState
from sapwood.join.stream_graph import StreamGraph, describe_cycle
from sapwood.lang.xscl.model import Join
from sapwood.transform.result_groups import TooManyGroups

_FEW_ROWS, _FEW_RUNS = 16, 128
_RETIRED = 64
"""variables that nobody uses any more, but whose values are still there"""


class JoinEngine:
    """The joins over one index. Equal ones are one entry, counted by how many use it."""

    def __init__(self, index: Index, lateness: float, tuning: Tuning) -> None:
        """`lateness`: seconds that a message may be older than the newest one."""
        self._filing = Filing(index, tuning)
        self._library = Library(index)
        self._lateness = lateness
        self._shared = tuning.share_joins
        self._share_values = tuning.share_values
        self._past = MessageState(remember=tuning.share_values)
        self._streams = StreamGraph()
        self._entries: dict[int, JoinEntry] = {}
        self._number_of: dict[object, int] = {}
        self._recent: dict[str, int] = {}  # by text, those added since the last message
        self._next = 0
        self._unswept = 0  # messages since the last sweep
        self._left = False  # whether a query has, since the last sweep
        self._sequence = 0
        self._latest = -inf

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def witnesses(self) -> Witnesses:
        """The definitions of all variables."""
        return self._filing.witnesses

    def entry(self, number: int) -> JoinEntry:
        return self._entries[number]

    # -- the population --------------------------------------------------------------------------------

    def add(self, join: Join, instead_of: int | None = None) -> int:
        """Adds one use of a join: the number of its entry. QueryError if streams would feed themselves, once
        a use of another is taken back."""
        key: object = (self._sequence, join.key) if self._shared else self._next
        number = self._number_of.get(key)
        if number is None:
            self._check_streams(join, instead_of)
            number = self._next
            entry = JoinEntry(number, key, join, self._sequence)
            try:
                self._filing.file(entry)
            except BaseException:
                self._filing.unfile(entry)
                raise
            self._next += 1
            self._number_of[key] = number
            self._entries[number] = entry
            self._streams.add(join.streams, join.publish, bool(join.links))
        self._entries[number].uses += 1
        self._recent[join.text] = number
        return number

    def add_again(self, text: str) -> int | None:
        """Adds one more use of a join that was added since the last message; None if it was not."""
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
        """Takes back one use of an entry, and frees all that only it used."""
        entry = self._entries[number]
        entry.uses -= 1
        if entry.uses:
            return
        del self._entries[number], self._number_of[entry.key]
        self._recent.clear()
        self._streams.remove(entry.join.streams, entry.join.publish, bool(entry.join.links))
        self._filing.unfile(entry)
        self._left = True
        if len(self._filing.numbers.retired) > _RETIRED or not self._entries:
            self._sweep()

    def _sweep(self) -> None:
        """Forgets what nobody waits for any more."""
        self._unswept = 0
        if self._left:
            self._past.shorten(self._filing.waiting.until)
            self._left = False
        self._past.sweep(self.watermark)
        self._filing.numbers.forgotten()

    # -- messages --------------------------------------------------------------------------------------

    @property
    def watermark(self) -> float:
        """No message before this time is taken any more."""
        return self._latest - self._lateness

    @property
    def latest(self) -> float:
        """The largest time of a message."""
        return self._latest

    def note(self, time: float) -> None:
        """Notes the time of a message; now and then, forgets what no message from now on can reach."""
        self._latest = max(self._latest, time)
        self._unswept += 1
        if self._unswept * 8 > len(self._past.records) + 1_024:
            self._sweep()

    def is_late(self, stream: str, time: float) -> bool:
        """Whether a message comes too late for joins that read its stream."""
        return time < self.watermark and self._streams.joined(stream)

    def why_late(self, time: float) -> str:
        behind = self._latest - time
        return (
            f"too late for joins: {behind:g} s older than the newest message, and {self._lateness:g} s of"
            " lateness are allowed"
        )

    def claimed(self, slots: Ints) -> NDArray[np.bool_]:
        """Which of the index's slots are those of joins."""
        return self.witnesses.claimed(slots)

    def receive(
        self, message: Message, found: IndexMatches, id: Hashable, stream: str, time: float
    ) -> Meetings:
        """Takes in a message: all that it meets, and from now on it may be met. One that is too late meets
        single blocks only."""
        late = self.is_late(stream, time)
        self.note(time)
        sequence = self._sequence
        self._sequence += 1
        self._recent.clear()
        meetings = Meetings(self._library, self._entries)
        seen = self.witnesses.of(found, stream)
        if not seen.witnesses and not seen.watched:
            return meetings
        record = StoredMessage(id, stream, time, sequence, message.data, message.encoding)
        assert found.evaluator is not None
        meetings.table.arrived(record, found.evaluator)
        for watched in seen.watched:
            for number in self._filing.watched[watched]:
                meetings.single(number, record)
        if seen.witnesses and not late:
            self._join(Arrival((record,), time, sequence, seen.witnesses), meetings)
        return meetings

    def _join(self, first: Arrival, meetings: Meetings) -> None:
        """Brings an arrival together with the past, and then what comes of that."""
        arrivals = deque([first])
        followed: set[tuple[object, tuple[StoredMessage, ...]]] = set()
        while arrivals:
            arrival = arrivals.popleft()
            for met in self._met(arrival, self._past):
                for prefix, records in meetings.add(met, self._filing.targets):
                    if (prefix.key, records) not in followed:
                        followed.add((prefix.key, records))
                        arrivals += self._going_on(prefix, records, meetings)
            until = self._filing.waiting.until(arrival.variable, arrival.time)
            self._past.keep(arrival, until, self.watermark)

    def _met(self, arrival: Arrival, past: MessageState) -> Iterator[Met]:
        """The members that an arrival and an earlier item meet."""
        sides = [True]
        if self._filing.members.unordered or past.latest > arrival.time:
            sides.append(False)
        if not self._shared:
            yield from self._met_one_by_one(arrival, past, sides)
            return
        if not self._share_values:
            for relations in self._filing.apart.values():
                yield from self._met_together(relations, arrival, past, sides)
        elif len(self._filing.together) <= _FEW_ROWS and past.at_most(_FEW_RUNS, arrival):
            yield from self._met_row_by_row(arrival, past, sides)
        else:
            yield from self._met_together(self._filing.together, arrival, past, sides)

    def _met_together(
        self, relations: Relations, arrival: Arrival, past: MessageState, sides: list[bool]
    ) -> Iterator[Met]:
        common = past.common(arrival)
        if not len(common.runs):
            return
        for past_is_left in sides:
            equal = equal_pairs(relations, arrival, common, past_is_left)
            rows, items = rows_met(relations, equal, arrival, past, past_is_left)
            members, source = relations.members(rows)
            yield self._in_time(members, items.take(source), arrival, past, past_is_left)

    def _met_row_by_row(self, arrival: Arrival, past: MessageState, sides: list[bool]) -> Iterator[Met]:
        """Few rows and few values are looked at faster one by one than in arrays."""
        evaluator = OneByOne(arrival, past)
        for past_is_left in sides:
            met = [
                (row, item)
                for graph, row in self._filing.together.graphs()
                for item in evaluator.items(graph, past_is_left)
            ]
            if met:
                rows, items = np.array(met, np.int32).T
                members, source = self._filing.together.members(rows)
                yield self._in_time(members, items.take(source), arrival, past, past_is_left)

    def _met_one_by_one(self, arrival: Arrival, past: MessageState, sides: list[bool]) -> Iterator[Met]:
        evaluator = OneByOne(arrival, past)
        for past_is_left in sides:
            for filed in self._filed():
                items = np.fromiter(evaluator.items(filed.graph, past_is_left), np.int32)
                if len(items):
                    members = np.full(len(items), filed.member, np.int32)
                    yield self._in_time(members, items, arrival, past, past_is_left)

    def _filed(self) -> Iterator[Filed]:
        yield from self._filing.prefixes_filed()
        for entry in self._entries.values():
            yield from entry.filed

    def _in_time(
        self, members: Ints, items: Ints, arrival: Arrival, past: MessageState, past_is_left: bool
    ) -> Met:
        times = past.item_time.take(items)
        first = np.minimum(past.item_sequence.take(items), arrival.sequence)
        before, after = (times, arrival.time) if past_is_left else (arrival.time, times)
        held = self._filing.members.hold(members, before, after, first)
        members = members[held]
        entries = self._filing.members.entry.take(members)
        return Met(members, entries, items[held], past.records, arrival.records, past_is_left)

    def _going_on(
        self, prefix: Prefix, records: tuple[StoredMessage, ...], meetings: Meetings
    ) -> Iterator[Arrival]:
        """The first messages of a chain, as what the next link sees of them."""
        time, sequence = max(r.time for r in records), min(r.sequence for r in records)
        for witnesses in self._witnesses_of(prefix, records, meetings):
            yield Arrival(records, time, sequence, witnesses)

    def _witnesses_of(
        self, prefix: Prefix, records: tuple[StoredMessage, ...], meetings: Meetings
    ) -> Iterator[list[Witness]]:
        """For each way to bind what goes on together, its values."""
        loaded = [meetings.table.load(record) for record in records]
        documents = [message.document for message in loaded]
        meaning, variables = prefix.meaning, prefix.join.variables
        numbers = [prefix.numbers[prefix.going_on[variable]] for variable in meaning.wanted]
        wanted = [variables[variable] for variable in meaning.wanted]
        try:
            ways = meaning.ways(loaded)
        except TooManyGroups as error:
            going_on = [number for number, entry in self._entries.items() if prefix in entry.prefixes]
            meetings.problems.update(dict.fromkeys(going_on, f"its chain is not followed: {error}"))
            return
        for way in ways:
            values = [
                compared_value(documents[variable.block], node, variable.numeric)
                for variable, node in zip(wanted, way, strict=True)
            ]
            bound = enumerate(zip(numbers, values, strict=True), 1)
            yield [Witness(number, value, (at, 0)) for at, (number, value) in bound if value is not None]

    # -- for those who keep messages themselves --------------------------------------------------------

    def begin(self, sequence: int) -> None:
        """Queries that are added from now on see only messages from this sequence number on."""
        self._sequence = sequence
        self._recent.clear()

    def testify(self, found: IndexMatches, stream: str) -> tuple[list[PortableValue], list[int]]:
        """What a message has to say in a form that other processes understand, and the entries of single
        blocks that it meets by itself."""
        seen = self.witnesses.of(found, stream)
        alone = [number for watched in seen.watched for number in self._filing.watched[watched]]
        return [
            PortableValue(self.witnesses.key(v), value, nodes) for v, value, nodes in seen.witnesses
        ], alone

    @property
    def going_on(self) -> bool:
        """Whether what is met may go on: there are chains, or queries that publish."""
        return bool(self._filing.prefixes) or self._streams.fed

    def meet(self, now: PortableMessage, earlier: Sequence[PortableMessage]) -> Meetings:
        """The meetings of a message with some that came before it; `Meetings.begun` are chains that go on.

        The records' sequence numbers say which queries they may take part in.
        """
        meetings = Meetings(self._library, self._entries)
        past = MessageState(remember=False)
        for kept in earlier:
            for arrival in self._arrivals(kept):
                past.keep(arrival, np.full(len(arrival), inf), -inf)
        for arrival in self._arrivals(now):
            if len(arrival) and len(past):
                for met in self._met(arrival, past):
                    meetings.begun.update(dict.fromkeys(meetings.add(met, self._filing.targets)))
        return meetings

    def go_on(self, meetings: Meetings) -> Iterator[PortableMessage]:
        """What chains that have begun have to say to their next links: each is kept like a message."""
        for prefix, records in meetings.begun:
            ways = [
                [PortableValue(prefix.keys[number], value, nodes) for number, value, nodes in witnesses]
                for witnesses in self._witnesses_of(prefix, records, meetings)
            ]
            if ways:
                yield PortableMessage(records, ways, prefix.name)

    def _arrivals(self, kept: PortableMessage) -> Iterator[Arrival]:
        number_of = self._filing.keys_going_on if kept.chain else self.witnesses.by_key()
        for way in kept.ways:
            known = [Witness(number_of[key], value, nodes) for key, value, nodes in way if key in number_of]
            yield Arrival(kept.records, kept.time, kept.sequence, known)

    def reads(self, stream: str) -> bool:
        """Whether any query reads a stream."""
        return self._streams.read(stream)

    def joins(self, stream: str) -> bool:
        """Whether any query joins messages of a stream with others, so that they can come too late."""
        return self._streams.joined(stream)

    def partners(self) -> dict[bytes, EquatedVariables]:
        """What each variable is equated with, and for how long it waits."""
        going_on = {number: key for key, number in self._filing.keys_going_on.items()}

        def key(number: int) -> bytes:
            return going_on[number] if number in going_on else self.witnesses.key(number)

        return equated_variables(self._filed(), key)

    def single(self, entries: Sequence[int], record: StoredMessage) -> Meetings:
        """What single blocks make of a message that meets them."""
        meetings = Meetings(self._library, self._entries)
        for number in entries:
            meetings.single(number, record)
        return meetings

    # -- reporting -------------------------------------------------------------------------------------

    def explain(self, number: int) -> JoinExplanation:
        """How an entry is evaluated."""
        return explain(self._entries[number], self.witnesses)

    def state(self) -> State:
        """What is kept now."""
        self._sweep()
        past = self._past
        living = np.flatnonzero(past.living).astype(np.int32)
        held = past.messages(living)
        return State(
            messages=len(held),
            rows=int(past.run_count[living].sum()),
            values=len({past.run_value[run] for run in living.tolist()}),
            bytes=past.bytes(living, held),
            watermark=self.watermark if self._latest > -inf else None,
            templates=tuple(self._template_states(living)),
        )

    def _template_states(self, living: Ints) -> Iterator[TemplateState]:
        past = self._past
        for relations in (self._filing.together, *self._filing.apart.values()):
            for template in relations.templates.values():
                graphs = [relations.graph(row) for row in template.rows]
                variables = {v for g in graphs for left, right in g.pairs for v in (left, right)}
                runs = living[np.isin(past.run_variable[living], np.array(sorted(variables), np.int32))]
                held = past.messages(runs)
                yield TemplateState(
                    shape=str(template.shape),
                    queries=len(graphs),
                    messages=len(held),
                    rows=int(past.run_count[runs].sum()),
                    bytes=past.bytes(runs, held),
                )
