"""The matcher: subscriptions to XPath queries, and the messages that match them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.protocol import MatchedSlots
from sapwood.engine.automaton.query_planner import PlannedQuery
from sapwood.engine.automaton.ragged_array import RaggedArray
from sapwood.engine.bulk_load import OnError, add_all
from sapwood.engine.closeable import Closeable
from sapwood.engine.diagnostics.explain import Explanation, explain
from sapwood.engine.diagnostics.why import Why, explain_match
from sapwood.engine.failures import FailureKind, QueryProblem
from sapwood.engine.index import Index
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.matches import Matches, Node, Selected, failures
from sapwood.engine.message.message_reader import Message
from sapwood.engine.message.message_source import Source as Source
from sapwood.engine.node_selection import Selection
from sapwood.engine.serialization import pack, unpack
from sapwood.engine.thread_lock import synchronized
from sapwood.errors import ArgumentError
from sapwood.lang.namespaces import Namespaces, declare
from sapwood.lang.pattern import use_prefixes

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _Subscription:
    __slots__ = ("id", "number", "slot", "text")

    def __init__(self, id: Hashable, number: int, slot: int, text: str) -> None:
        self.id = id
        self.number = number
        self.slot = slot
        self.text = text


class Matcher(Closeable):
    """Matches messages against all subscriptions at once.

    Subscriptions may come and go between messages at any time. Several threads may use one matcher: their
    calls take turns.
    """

    def __init__(
        self,
        namespaces: Namespaces | None = None,
        limits: Limits | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        self.lock: AbstractContextManager[Any] = RLock()
        self._namespaces: dict[str, str] = {}
        declare(self._namespaces, namespaces or {})
        self._limits = limits or Limits()
        self._tuning = tuning or Tuning()
        self._index = Index(self._limits, self._tuning, self._namespaces)
        self._subscriptions: dict[Hashable, _Subscription] = {}
        self._by_number: dict[int, Hashable] = {}
        self._next_number = 0
        self._slot_of: dict[str, int] = {}  # by the query's key
        self._key_of: dict[int, str] = {}
        self._numbers_of = RaggedArray(np.int64)  # slot → numbers of its subscriptions
        self._unread: WeakSet[Matches] = WeakSet()

    @property
    def namespaces(self) -> Mapping[str, str]:
        """The prefixes that queries may use."""
        return self._namespaces

    @property
    def index(self) -> Index:
        """The index, in which other owners register their queries; they call `freeze_unread` before."""
        return self._index

    # -- subscriptions ---------------------------------------------------------------------------------

    @synchronized
    def declare(self, namespaces: Namespaces) -> None:
        """Declare further prefixes for coming queries; raise ArgumentError for one that is bound already.

        Whether names without a prefix match in any namespace must be declared before the first query.
        """
        declare(self._namespaces, namespaces, len(self._index))

    @synchronized
    def add(self, id: Hashable, query: str) -> None:
        """Subscribe `id` to a query; raise QueryError, with position and reason, if it is not XPath 1.0."""
        if id in self._subscriptions:
            raise ArgumentError(f"{id!r} is subscribed already; replace() changes its query")
        planned = self._index.planner.plan(query)
        self.freeze_unread()
        self._subscribe(id, planned, self.new_number())

    @synchronized
    def add_numbered(self, id: Hashable, query: str, number: int) -> None:
        """Subscribe `id` with a number from `new_number`, which is its position in the order."""
        planned = self._index.planner.plan(query)
        self.freeze_unread()
        self._subscribe(id, planned, number)

    def add_many(
        self,
        pairs: Iterable[tuple[Hashable, str]],
        on_error: OnError | None = None,
    ) -> None:
        """Subscribe many at once, in order.

        `on_error` is called with what cannot be subscribed, and the rest are added; without it, the error is
        raised with a note that names the subscription, and those before it stay.
        """
        add_all(pairs, self.add, on_error, self._clear_cache)

    @synchronized
    def _clear_cache(self) -> None:
        self._index.clear_cache()

    @synchronized
    def remove(self, id: Hashable) -> None:
        """End a subscription; raise KeyError if there is none."""
        subscription = self._subscriptions[id]
        self.freeze_unread()
        self._unsubscribe(subscription)

    @synchronized
    def replace(self, id: Hashable, query: str) -> None:
        """Change the query of a subscription, which keeps its position in the order; resume it if it was
        suspended."""
        subscription = self._subscriptions[id]
        planned = self._index.planner.plan(query)
        if planned.query is not None and not planned.exact and planned.key not in self._slot_of:
            self._index.fallback.check(planned.query)  # before anything is changed, since it may fail
        self.freeze_unread()
        self._unsubscribe(subscription)
        self._subscribe(id, planned, subscription.number)
        self.resume(id)

    @synchronized
    def resume(self, id: Hashable) -> None:
        """Have the query of a subscription evaluated again if it was suspended for exceeding its budget.

        This holds for all subscriptions to the same query.
        """
        self._index.fallback.resume(self._subscriptions[id].slot)

    @synchronized
    def query(self, id: Hashable) -> str:
        """Return the query that `id` is subscribed to."""
        return self._subscriptions[id].text

    @synchronized
    def number(self, id: Hashable) -> int:
        """Return the number of a subscription in `Matches.numbers`; numbers ascend in the order added."""
        return self._subscriptions[id].number

    @synchronized
    def new_number(self) -> int:
        """Return the next number, for a subscription here or of another owner of the index."""
        self._next_number += 1
        return self._next_number - 1

    @synchronized
    def numbered(self) -> tuple[list[Hashable], NDArray[np.int64]]:
        """Return all ids, in any order, and their numbers."""
        numbers = np.fromiter(self._by_number, np.int64, len(self._by_number))
        return list(self._by_number.values()), numbers

    @synchronized
    def __contains__(self, id: Hashable) -> bool:
        return id in self._subscriptions

    def __len__(self) -> int:
        return len(self._subscriptions)

    @synchronized
    def __iter__(self) -> Iterator[Hashable]:
        """Iterate over the ids, in the order added."""
        return iter(sorted(self._subscriptions, key=self.number))

    def _subscribe(self, id: Hashable, query: PlannedQuery, number: int) -> None:
        key = query.key
        slot = self._slot_of.get(key)
        if slot is None:
            slot = self._slot_of[key] = self._index.register_planned(query)
            self._key_of[slot] = key
        text = self._index.text(slot)
        self._index.set_weight(slot, self._numbers_of.append(slot, number))
        # equal texts are stored once
        self._subscriptions[id] = _Subscription(id, number, slot, text if text == query.text else query.text)
        self._by_number[number] = id

    def _unsubscribe(self, subscription: _Subscription) -> None:
        slot = subscription.slot
        del self._subscriptions[subscription.id]
        del self._by_number[subscription.number]
        left = self._numbers_of.remove(slot, subscription.number)
        self._index.set_weight(slot, left)
        if not left:
            del self._slot_of[self._key_of.pop(slot)]
            self._index.unregister(slot)

    @synchronized
    def freeze_unread(self) -> None:
        """List the ids of unread matches now, because the slots that they refer to are about to change."""
        if self._unread:
            for matches in list(self._unread):
                matches.freeze()
            self._unread.clear()

    # -- messages --------------------------------------------------------------------------------------

    @synchronized
    def match(self, message: Source) -> Matches:
        """Return the subscriptions that a message matches; raise MessageError if it is refused."""
        found = self._index.find(Message(message))
        return self.matches(found.matched, found.problems)

    @synchronized
    def matches(self, matched: MatchedSlots, problems: Mapping[int, QueryProblem] | None = None) -> Matches:
        """Return the subscriptions of matched slots; later changes of subscriptions do not affect them."""
        matches = Matches(self, matched, problems)
        self._unread.add(matches)
        return matches

    def match_many(self, messages: Iterable[Source]) -> Iterator[Matches]:
        """Yield the matches of each message, read when the next is asked for."""
        for message in messages:
            yield self.match(message)

    @synchronized
    def select(self, message: Source) -> Selected:
        """Return, for each subscription that the message matches, the nodes selected, in document order."""
        source = Message(message)
        slots, problems = self._match_slots(source)
        selection = Selection(source, self._index.read(source, all=True), self._index.fallback)
        queries = {slot: self._index.query(slot) for slot in slots}
        by_xpath = {slot: query for slot, query in queries.items() if not query.exact}
        nodes: dict[int, list[Node]] = {}
        for slot, found in (selection.select_by_xpath(by_xpath) if by_xpath else {}).items():
            if isinstance(found, QueryProblem):
                problems[slot] = found
                self._index.count_problem(slot, found)
            else:
                nodes[slot] = found
        for slot, query in queries.items():
            if query.exact:
                nodes[slot] = selection.select_by_pattern(query)
        ids = self.ids(self.numbers(np.array(list(nodes), np.int32)))
        selected = Selected((id, nodes[self._subscriptions[id].slot]) for id in ids)
        selected.undecided = failures(self, problems)
        return selected

    def _match_slots(self, source: Message) -> tuple[list[int], dict[int, QueryProblem]]:
        found = self._index.find(source)
        return found.slots.tolist(), found.problems

    # -- explanations ----------------------------------------------------------------------------------

    @synchronized
    def explain(self, id: Hashable) -> Explanation:
        """Explain how a subscription is evaluated: pattern, paths, sharing, what lxml decides and why."""
        slot = self._subscriptions[id].slot
        query = self._index.query(slot)
        plan = self._index.plan(query)
        suspended = self._index.fallback.is_suspended(slot)
        with use_prefixes(self._namespaces):
            return explain(query, plan, int(self._numbers_of.lengths[slot]), suspended)

    @synchronized
    def why(self, id: Hashable, message: Source) -> Why:
        """Explain why a message matches a subscription, step by step and node by node, or how far it gets."""
        slot = self._subscriptions[id].slot
        source = Message(message)
        slots, problems = self._match_slots(source)
        matched = slot in slots
        query = self._index.query(slot)
        selection = Selection(source, self._index.read(source, all=True), self._index.fallback)
        by_xpath = matched and not query.exact
        found = selection.select_by_xpath({slot: query})[slot] if by_xpath else problems.get(slot, [])
        if isinstance(found, QueryProblem):
            return Why(query.text, matched, f"{found.kind}: {found.reason}", ())
        with use_prefixes(self._namespaces):
            return explain_match(query, matched, selection, found)

    @synchronized
    def take_costs(self) -> dict[Hashable, float]:
        """Return the seconds spent on each subscription that is decided individually, since the last call.

        Subscriptions decided by shared structures are not listed. Of subscriptions with equal queries, which
        are decided together, the first is listed.
        """
        costs = {slot: spent for slot, spent in self._index.costs.items() if spent}
        self._index.costs.clear()
        first = {slot: int(self._numbers_of.gather(np.array([slot], np.int32))[0].min()) for slot in costs}
        return {self._by_number[first[slot]]: spent / 1e9 for slot, spent in costs.items()}

    @synchronized
    def failure_counts(self) -> dict[Hashable, dict[FailureKind, int]]:
        """Return, for each subscription that failed on messages, on how many, by kind of failure."""
        return {
            id: dict(counts)
            for slot, counts in self._index.problems.items()
            for id in self.ids(self.numbers(np.array([slot], np.int32)))
        }

    # -- queries of `Matches` --------------------------------------------------------------------------

    def numbers(self, slots: Ints) -> NDArray[np.int64]:
        numbers = self.unordered(slots).copy()
        numbers.sort()
        return numbers

    def unordered(self, slots: Ints) -> NDArray[np.int64]:
        return self._numbers_of.numbers(slots).astype(np.int64, copy=False)

    def ids(self, numbers: NDArray[np.int64]) -> Sequence[Hashable]:
        return [self._by_number[number] for number in numbers.tolist()]

    def slot(self, id: Hashable) -> int | None:
        subscription = self._subscriptions.get(id)
        return subscription.slot if subscription is not None else None

    # -- serialization ---------------------------------------------------------------------------------

    @synchronized
    def pack(self) -> bytes:
        """Return the compiled subscriptions as bytes."""
        return pack(self)

    @staticmethod
    def unpack(data: bytes) -> Matcher:
        """Return the matcher that was packed, in a fraction of the time it takes to compile its queries.

        Like any pickle, the bytes must come from a trusted source. Raise PackError if another version of
        Sapwood made them.
        """
        return unpack(data, Matcher)

    def save(self, path: str | Path) -> None:
        """Write the packed matcher to a file, atomically."""
        path = Path(path)
        unfinished = path.with_name(path.name + ".unfinished")
        unfinished.write_bytes(self.pack())
        unfinished.replace(path)

    @staticmethod
    def load(path: str | Path) -> Matcher:
        """Return the matcher that was saved to a file; see `unpack`."""
        return Matcher.unpack(Path(path).read_bytes())

    @synchronized
    def __getstate__(self) -> dict[str, Any]:
        self.freeze_unread()
        subscriptions = list(self._subscriptions.values())
        texts = {s.number: s.text for s in subscriptions if s.text != self._index.text(s.slot)}
        columns = (
            [s.id for s in subscriptions],
            [s.number for s in subscriptions],
            [s.slot for s in subscriptions],
        )
        changed = {"_subscriptions": (*columns, texts), "_by_number": None, "_unread": None, "lock": None}
        return self.__dict__ | changed

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = RLock()
        ids, numbers, slots, texts = state["_subscriptions"]
        text = self._index.text
        self._subscriptions = {
            id: _Subscription(id, number, slot, texts.get(number) or text(slot))
            for id, number, slot in zip(ids, numbers, slots, strict=True)
        }
        self._by_number = dict(zip(numbers, ids, strict=True))
        self._unread = WeakSet()

    # -- closing ---------------------------------------------------------------------------------------

    @synchronized
    def close(self) -> None:
        """Release the processes that evaluate queries with lxml; they end with the last matcher."""
        self._index.close()
