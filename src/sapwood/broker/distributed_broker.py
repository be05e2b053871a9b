"""A broker's operations for runtimes that hold the join state themselves, as Spark does.

In one process `Broker.publish` extracts the witnesses of a message, joins them with the state, updates the
state and builds the deliveries. A distributed runtime runs these steps in different processes, with its own
state store in between:

    extract ──► portable values ──► state store ──► join ──► deliveries, failures, feedback
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sapwood.broker.broker import Broker
from sapwood.broker.delivery import Delivery, Published, PublishResult
from sapwood.engine.bulk_load import OnError
from sapwood.engine.failures import Failure
from sapwood.engine.index import IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.join.results import Meetings
from sapwood.join.state.message_state import StoredMessage
from sapwood.join.state.portable_state import EquatedVariables, PortableMessage, PortableValue


class DistributedBroker:
    """A facade over a broker whose join state is stored elsewhere. The broker's own state stays empty."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._index = broker.filters.index
        self._joins = broker.network_of_joins

    # -- subscriptions ---------------------------------------------------------------------------------

    @property
    def namespaces(self) -> Mapping[str, str]:
        """The namespace prefixes that queries and paths may use."""
        return self.broker.filters.namespaces

    def subscribe_from(
        self, version: int, pairs: Iterable[tuple[str, str]], on_error: OnError | None = None
    ) -> None:
        """Subscribe to queries whose joins see messages that are visible from a version on."""
        self._joins.set_visible_from(version)
        self.broker.subscribe_many(pairs, on_error)

    @property
    def has_feedback(self) -> bool:
        """True if join results may have to be processed again: there are chains, or queries that publish."""
        return self._joins.has_feedback

    # -- extraction ------------------------------------------------------------------------------------

    def find(self, message: Message, with_text: bool = False) -> IndexMatches:
        """Match a message against the index that all subscriptions share; see `Index.find`."""
        return self._index.find(message, with_text)

    def match(self, message: Message, found: IndexMatches) -> PublishResult:
        """Return the filters that match a message, and the output of transformations."""
        return self.broker.answer_found(message, found)

    @property
    def has_costs(self) -> bool:
        """True if `Broker.take_costs` has anything to return."""
        return bool(self._index.costs)

    def is_read(self, stream: str) -> bool:
        """Return whether any join query reads a stream."""
        return self._joins.reads(stream)

    def is_joined(self, stream: str) -> bool:
        """Return whether any query joins messages of a stream with others, so that they can be late."""
        return self._joins.joins(stream)

    def extract(self, found: IndexMatches, stream: str) -> tuple[list[PortableValue], list[int]]:
        """Return the portable values of a message, and the queries over one block that it matches."""
        return self._joins.extract_portable(found, stream)

    def equated_variables(self) -> dict[bytes, EquatedVariables]:
        """Return, for each variable, those it is equated with and for how long its values are needed."""
        return self._joins.equated_variables()

    # -- results ---------------------------------------------------------------------------------------

    def join(self, current: PortableMessage, earlier: Sequence[PortableMessage]) -> Meetings:
        """Return the join results of a restored message with earlier ones."""
        return self._joins.join_portable(current, earlier)

    def match_single_blocks(self, queries: Sequence[int], message: StoredMessage) -> Meetings:
        """Return the results of queries over one block that `extract` found for a message."""
        return self._joins.match_single_blocks(queries, message)

    def deliveries(self, results: Meetings, failures: list[Failure]) -> Iterator[Delivery]:
        """Yield the deliveries of join results; subscriptions whose query fails are added to `failures`."""
        return self.broker.deliveries(results, None, failures)

    def chain_failures(self, results: Meetings) -> Iterator[Failure]:
        """Yield the subscriptions to chains that could not be continued from these results."""
        return self.broker.chain_failures(results, None)

    def published(self, results: Meetings) -> Iterator[Published]:
        """Yield the messages that queries publish from join results."""
        return self.broker.published(results)

    def partial_matches(self, results: Meetings) -> Iterator[PortableMessage]:
        """Yield the partial matches of chains, to be stored like messages."""
        return self._joins.iter_partial_matches(results)
