"""The matcher: subscriptions to XPath queries, and the messages that match them."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.engine.automaton.protocol import MatchedAhead, MatchedSlots
from sapwood.engine.bulk_load import OnError, add_all
from sapwood.engine.closeable import Closeable
from sapwood.engine.diagnostics.explain import Explanation, explain
from sapwood.engine.diagnostics.why import Why, explain_match
from sapwood.engine.failures import FailureKind, QueryProblem
from sapwood.engine.index import Index
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.matches import Matches, Node, Selected, UnreadMatches, failures
from sapwood.engine.message.message_reader import Message
from sapwood.engine.message.message_source import Source as Source
from sapwood.engine.node_selection import Selection
from sapwood.engine.parallel_matches import ParallelMatches
from sapwood.engine.serialization import pack, unpack
from sapwood.engine.subscriptions import ListedNumbers, load_subscriptions, make_subscriptions
from sapwood.engine.thread_lock import synchronized
from sapwood.errors import ArgumentError, SapwoodError
from sapwood.lang.namespaces import Namespaces, declare
from sapwood.lang.pattern import use_prefixes

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
        self.lock = RLock()
        self._namespaces: dict[str, str] = {}
        declare(self._namespaces, namespaces or {})
        self._limits = limits or Limits()
        self._tuning = tuning or Tuning()
        self._index = Index(self._limits, self._tuning, self._namespaces)
        self._subscriptions = make_subscriptions(self._tuning)
        self._next_number = 0
        self._unread = UnreadMatches()

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
        self._subscribe(id, query, self._next_number)
        self._next_number += 1

    @synchronized
    def add_numbered(self, id: Hashable, query: str, number: int) -> None:
        """Subscribe `id` with a number from `new_number`, which is its position in the order."""
        if id in self._subscriptions:
            raise ArgumentError(f"{id!r} is subscribed already; replace() changes its query")
        self._subscribe(id, query, number)

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
        if id not in self._subscriptions:
            raise KeyError(id)
        self.freeze_unread()
        self._release(*self._subscriptions.remove(id))

    @synchronized
    def replace(self, id: Hashable, query: str) -> None:
        """Change the query of a subscription, which keeps its position in the order; resume it if it was
        suspended."""
        if id not in self._subscriptions:
            raise KeyError(id)
        self.freeze_unread()
        slot = self._index.register_filter(query)
        before, left = self._subscriptions.move(id, slot, self._own_text(slot, query))
        self._index.set_weight(slot, self._subscriptions.count(slot))
        if before != slot:
            self._release(before, left)
        self.resume(id)

    @synchronized
    def resume(self, id: Hashable) -> None:
        """Have the query of a subscription evaluated again if it was suspended for exceeding its budget.

        This holds for all subscriptions to the same query.
        """
        self._index.fallback.resume(self._slot(id))

    @synchronized
    def query(self, id: Hashable) -> str:
        """Return the query that `id` is subscribed to."""
        _, slot, text = self._subscriptions.get(id)
        return text if text is not None else self._index.text(slot)

    @synchronized
    def number(self, id: Hashable) -> int:
        """Return the number of a subscription in `Matches.numbers`; numbers ascend in the order added."""
        return self._subscriptions.get(id)[0]

    @property
    def numbers_given(self) -> int:
        """How many numbers have been given: all are below."""
        return self._next_number

    @synchronized
    def new_number(self) -> int:
        """Return the next number, for a subscription here or of another owner of the index."""
        self._next_number += 1
        return self._next_number - 1

    @synchronized
    def numbered(self) -> tuple[list[Hashable], NDArray[np.int64]]:
        """Return all ids, in the order added, and their numbers."""
        columns = self._subscriptions.columns()
        return list(columns.ids), columns.numbers

    @synchronized
    def __contains__(self, id: Hashable) -> bool:
        return id in self._subscriptions

    def __len__(self) -> int:
        return len(self._subscriptions)

    @synchronized
    def __iter__(self) -> Iterator[Hashable]:
        """Iterate over the ids, in the order added."""
        return iter(self._subscriptions.columns().ids)

    def _subscribe(self, id: Hashable, query: str, number: int) -> None:
        if self._unread:
            self.freeze_unread()
        slot = self._index.register_filter(query)
        count = self._subscriptions.add(id, number, slot, self._own_text(slot, query))
        self._index.set_weight(slot, count)

    def _own_text(self, slot: int, query: str) -> str | None:
        """Return a query if it is written otherwise than that of its slot: equal texts are stored once."""
        return query if query != self._index.text(slot) else None

    def _release(self, slot: int, left: int) -> None:
        """Drop one of the subscriptions of a slot."""
        if left:
            self._index.set_weight(slot, left)
        else:
            self._index.unregister(slot)

    def _slot(self, id: Hashable) -> int:
        return self._subscriptions.get(id)[1]

    @synchronized
    def freeze_unread(self) -> None:
        """List the ids of unread matches now, because the slots that they refer to are about to change."""
        self._unread.freeze()

    # -- messages --------------------------------------------------------------------------------------

    def match(self, message: Source) -> Matches:
        """Return the subscriptions that a message matches; raise MessageError if it is refused."""
        source = Message(message)
        ahead = None
        if not self.lock.acquire(blocking=False):  # rather than wait, do what can be done without it
            ahead = self._index.match_ahead((source,))[0]
            self.lock.acquire()
        try:
            found = self._index.find(source, ahead=ahead)
            return self.matches(found.matched, found.problems)
        finally:
            self.lock.release()

    @synchronized
    def matches(self, matched: MatchedSlots, problems: Mapping[int, QueryProblem] | None = None) -> Matches:
        """Return the subscriptions of matched slots; later changes of subscriptions do not affect them."""
        matches = Matches(self._subscriptions, self.lock, matched, problems)
        self._unread.add(matches)
        return matches

    def match_many(self, messages: Iterable[Source], threads: int = 1) -> Iterator[Matches]:
        """Return an iterator over the matches of each message, in order.

        Each message is read when its matches are asked for. With more than one thread, up to a few hundred
        are read ahead; that is worth while with the compiled kernel, which runs in parallel.
        """
        if threads < 1:
            raise ArgumentError(f"threads must be at least 1, not {threads}")
        return map(self.match, messages) if threads == 1 else ParallelMatches(self, messages, threads)

    @synchronized
    def list_numbers(self, messages: Sequence[Source], ordered: bool = True) -> ListedNumbers | None:
        """Return the numbers of the subscriptions that messages match, ascending within each message; any
        other order takes less time.

        It is faster than `match` for messages that match many. None if they have to be matched one by one:
        without the kernel, and where one of them is refused or takes more than the automaton.
        """
        found = self._index.match_at_once([Message(message) for message in messages])
        if found is None:
            return None
        return self._subscriptions.numbers_of_many(found, ordered)._replace(matched=found)

    def match_batch(self, messages: Sequence[Source]) -> list[Matches | SapwoodError]:
        """Return the matches of each message, or why it was refused, each as of one moment."""
        sources = [_read(message) for message in messages]
        waiting = deque([source for source in sources if isinstance(source, Message)])
        found: list[Matches | SapwoodError] = []
        while waiting:
            ahead = self._index.match_ahead(waiting)
            for start in range(0, len(ahead), _AT_ONCE):
                with self.lock:  # for a few messages, so that changes need not wait for all
                    some = ahead[start : start + _AT_ONCE]
                    found += [self._complete(waiting.popleft(), each) for each in some]
                    if not self._index.is_current(some[-1]):
                        break  # the others were matched before the same change: match them again
        matched = iter(found)
        return [source if isinstance(source, SapwoodError) else next(matched) for source in sources]

    def _complete(self, message: Message, ahead: MatchedAhead | None) -> Matches | SapwoodError:
        try:
            found = self._index.find(message, ahead=ahead)
        except SapwoodError as error:
            return error
        return self.matches(found.matched, found.problems)

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
        ids = self._subscriptions.ids(np.array(list(nodes), np.int32))
        selected = Selected((id, nodes[self._slot(id)]) for id in ids)
        selected.undecided = failures(self._subscriptions, problems)
        return selected

    def _match_slots(self, source: Message) -> tuple[list[int], dict[int, QueryProblem]]:
        found = self._index.find(source)
        return found.slots.tolist(), found.problems

    # -- explanations ----------------------------------------------------------------------------------

    @synchronized
    def explain(self, id: Hashable) -> Explanation:
        """Explain how a subscription is evaluated: pattern, paths, sharing, what lxml decides and why."""
        slot = self._slot(id)
        query = self._index.query(slot)
        plan = self._index.plan(query)
        suspended = self._index.fallback.is_suspended(slot)
        with use_prefixes(self._namespaces):
            return explain(query, plan, self._subscriptions.count(slot), suspended)

    @synchronized
    def why(self, id: Hashable, message: Source) -> Why:
        """Explain why a message matches a subscription, step by step and node by node, or how far it gets."""
        slot = self._slot(id)
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
        return {self._ids(slot)[0]: spent / 1e9 for slot, spent in costs.items()}

    @synchronized
    def failure_counts(self) -> dict[Hashable, dict[FailureKind, int]]:
        """Return, for each subscription that failed on messages, on how many, by kind of failure."""
        return {id: dict(counts) for slot, counts in self._index.problems.items() for id in self._ids(slot)}

    def _ids(self, slot: int) -> list[Hashable]:
        return self._subscriptions.ids(np.array([slot], np.int32))

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
        changed = {"_subscriptions": self._subscriptions.columns(), "_unread": None, "lock": None}
        return self.__dict__ | changed

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = RLock()
        self._subscriptions = load_subscriptions(state["_subscriptions"], self._tuning)
        self._unread = UnreadMatches()

    # -- closing ---------------------------------------------------------------------------------------

    @synchronized
    def close(self) -> None:
        """Release the processes that evaluate queries with lxml; they end with the last matcher."""
        self._index.close()


_AT_ONCE = 8
"""Messages of a batch that are completed before others have their turn."""


def _read(message: Source) -> Message | SapwoodError:
    try:
        return Message(message)
    except SapwoodError as error:
        return error
