"""A broker's operations for runtimes that hold the join state themselves, as Spark does.

In one process `Broker.publish` extracts the witnesses of a message, joins them with the state, updates the
state and builds the deliveries. A distributed runtime runs these steps in different processes, and divides
the state into partitions: each message is joined with all of them, and inserted into one.

    extract ──► portable values ──► restore ──► join, insert ──► deliveries, failures, feedback
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sapwood.broker.broker import Broker
from sapwood.broker.delivery import Delivery, GroupedDelivery, Published, PublishResult
from sapwood.engine.bulk_load import OnError
from sapwood.engine.failures import Failure
from sapwood.engine.index import IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.join.results import Meetings
from sapwood.join.state.message_state import CurrentItem, MessageState, RecordStore, StoredMessage
from sapwood.join.state.portable_state import (
    EquatedVariables,
    PortableMessage,
    PortableValue,
    StatePartition,
)


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

    def restore(self, message: PortableMessage) -> list[CurrentItem]:
        """Return a message that was stored elsewhere as items that can be joined and inserted."""
        return self.restore_items(
            message.records, message.time, message.visible_from, message.ways, bool(message.chain)
        )

    def restore_items(
        self,
        records: tuple[StoredMessage, ...],
        time: float,
        visible_from: int,
        ways: Sequence[Sequence[PortableValue]],
        is_chain: bool,
    ) -> list[CurrentItem]:
        """Return the values of a message, or of a partial match of a chain, as items."""
        return self._joins.restore_items(records, time, visible_from, ways, is_chain)

    def open_partition(self, records: RecordStore) -> StatePartition:
        """Return an empty part of the join state, whose messages are in a store of the caller."""
        return self._joins.open_partition(MessageState(records=records))

    def close_partition(self, partition: StatePartition) -> None:
        """Drop a part of the join state."""
        self._joins.close_partition(partition)

    def join(self, partition: StatePartition, items: Sequence[CurrentItem]) -> Meetings:
        """Return the join results of a message with a part of the state."""
        return self._joins.join_partition(partition, items)

    def insert(self, partition: StatePartition, items: Sequence[CurrentItem]) -> None:
        """Insert a message into a part of the state."""
        self._joins.insert_partition(partition, items)

    def evict(self, partition: StatePartition, watermark: float) -> None:
        """Evict from a part of the state what is behind the watermark, or of removed queries only."""
        self._joins.evict_partition(partition, watermark)

    def match_single_blocks(self, queries: Sequence[int], message: StoredMessage) -> Meetings:
        """Return the results of queries over one block that `extract` found for a message."""
        return self._joins.match_single_blocks(queries, message)

    def grouped_deliveries(self, results: Meetings, failures: list[Failure]) -> Iterator[GroupedDelivery]:
        """Yield join results with their output and all subscriptions that receive it; failures as below."""
        return self.broker.grouped_deliveries(results, failures)

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
