"""The join state in the memory of Spark's Python workers: a bucket of the message log's messages each.

Every message belongs to one bucket, by its position in the log. A new message is joined with all buckets at
once, each in a worker of its own (see `join_plan`), and inserted into one: so each pair of messages meets
once, buckets are equally large, and what is done for a pair is done where the older message is. The state is
what one process would have in memory, but for the messages themselves, which stay in the log.

A bucket is a copy of a part of the log, and its version is the position that it was read to. A worker that is
behind, because another had the bucket meanwhile, or none, reads on from there; one that is ahead, because a
batch is repeated, reads the bucket anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sapwood.join.state.message_state import StoredMessage
from sapwood.join.state.portable_state import StatePartition
from sapwood.spark.distribution.match_worker import LiveBroker
from sapwood.spark.distribution.worker_cache import WORKER_CACHE
from sapwood.spark.joins.message_log import LogFile, LoggedRecords, LogReader, Positions
from sapwood.spark.joins.schema import deserialize_ways

_log = logging.getLogger(__name__)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""multiples of it are spread evenly over 64 bits, those of consecutive numbers most of all"""


def buckets_of(positions: Positions, buckets: int) -> NDArray[np.int64]:
    """The buckets that the messages at some positions belong to."""
    spread = (positions.astype(np.uint64) * _SPREAD) >> np.uint64(32)
    return (spread % np.uint64(buckets)).astype(np.int64)


class BucketVersion(NamedTuple):
    """One bucket of the join state at a moment: all of the log is read to a position, and evicted."""

    bucket: int
    buckets: int
    files: Sequence[LogFile]
    """of the message log, also those of the batch itself"""
    end: int
    """the position"""
    watermark: float
    """in seconds, behind which state is evicted"""


@dataclass(slots=True)
class BucketState:
    """One bucket of the join state, and the position in the log that it was read to."""

    live: LiveBroker
    bucket: int
    buckets: int
    reader: LogReader
    partition: StatePartition = field(init=False)
    end: int | None = 0
    """None while it is being changed, and after that has failed"""

    def __post_init__(self) -> None:
        self.partition = self.live.distributed.open_partition(LoggedRecords(self.reader))

    def close(self) -> None:
        self.live.distributed.close_partition(self.partition)

    def catch_up(self, files: Sequence[LogFile], end: int) -> None:
        """Read the log from where this bucket is to a position."""
        before = self.end
        assert before is not None
        self.end = None
        if before < end:
            for file in files:
                if before < file.end <= end:
                    for batch, positions in self.reader.open(file).iter_batches(before):
                        self._insert(batch, positions)
            _log.debug("bucket %d: messages from %d to %d read from the log", self.bucket, before, end)
        self.end = end

    def _insert(self, batch: pa.RecordBatch, positions: Positions) -> None:
        rows = np.flatnonzero(buckets_of(positions, self.buckets) == self.bucket)
        names = ("ways", "time", "version", "chain", "records")
        taken = [batch.column(name).take(pa.array(rows)).to_pylist() for name in names]
        broker = self.live.distributed
        for position, ways, time, version, chain, records in zip(
            positions[rows].tolist(), *taken, strict=True
        ):
            if ways:
                of_item = tuple([_unloaded(each, time, version) for each in records or (position,)])
                items = broker.restore_items(of_item, time, version, deserialize_ways(ways), bool(chain))
                broker.insert(self.partition, items)

    def evict(self, watermark: float) -> None:
        """Evict what is behind a watermark, in seconds, and what only removed queries needed."""
        self.live.distributed.evict(self.partition, watermark)

    @property
    def values(self) -> int:
        """The number of values in it."""
        return int(self.partition.state.live.sum())


def _unloaded(position: int, time: float, version: int) -> StoredMessage:
    """A message of which only the position matters, since `LoggedRecords` keeps nothing else."""
    return StoredMessage(None, "", time, version, b"", None, position)


class WorkerState:
    """The buckets that a worker has, with their reader of the log; a worker usually has one bucket."""

    def __init__(self) -> None:
        self.reader = LogReader()
        self._buckets: dict[int, BucketState] = {}

    def load(self, live: LiveBroker, wanted: BucketVersion) -> BucketState:
        """Return a bucket at a version."""
        bucket, buckets, files, end, watermark = wanted
        self.reader.use(files)
        for other in [each for each in self._buckets.values() if each.buckets != buckets]:
            self._drop(other, live)  # it has other messages than a bucket of this number has now
        state = self._buckets.get(bucket)
        if state is None or state.live is not live or state.end is None or state.end > end:
            if state is not None:
                self._drop(state, live)
            state = self._buckets[bucket] = BucketState(live, bucket, buckets, self.reader)
        state.evict(watermark)  # before it grows: what it then reads and nobody needs is not inserted
        state.catch_up(files, end)
        return state

    def _drop(self, state: BucketState, live: LiveBroker) -> None:
        del self._buckets[state.bucket]
        if state.live is live:  # else its broker is gone, and with it the state
            state.close()


def load_bucket(run: str, live: LiveBroker, wanted: BucketVersion) -> BucketState:
    """Return this worker's bucket, in a run of a pipeline, at a version."""
    return WORKER_CACHE.get_or_create(WorkerState, run, WorkerState).load(live, wanted)
