"""The matching of messages one by one in a Python worker of Spark, for the real-time trigger.

Spark passes rows to Python in Arrow batches, and a batch goes on its way when it is known that there is a row
after it. So each message is followed by a row that is none, and batches have one row (see `real_time`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sapwood.spark.distribution.match_result import MatchResult, Rejection
from sapwood.spark.distribution.match_worker import LiveBroker
from sapwood.spark.distribution.snapshot_feed import FeedFollower
from sapwood.spark.distribution.worker_cache import WORKER_CACHE
from sapwood.spark.io.message_text import decode_text

REJECT = pa.struct(
    [("reason", pa.string()), ("line", pa.int32()), ("column", pa.int32()), ("body", pa.binary())]
)
REJECT_COLUMN = "_sapwood_reject"
RESULT = pa.schema(
    [
        ("subscription", pa.string()),
        ("subscriber", pa.string()),
        ("body", pa.string()),
        ("version", pa.int64()),
        (REJECT_COLUMN, REJECT),
    ]
)
"""The columns that matching adds: those of a delivery, and one that is not null in a reject."""
_Group = tuple[pa.Array, list[str | None] | None, Sequence[str | bytes] | None, list[dict[str, Any]] | None]
"""ids, subscribers, bodies and rejects of some rows; None where all are null"""
_ROWS_PER_BATCH = 10_000
_BYTES_PER_BATCH = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RealTimePartition:
    """A function for `mapInArrow`: messages in, a row out for each delivery, reject, and failed subscription.

    The last three columns of a row are the body, the reason why a message is rejected unread, and whether the
    row is a message.
    """

    folder: str
    """the folder of the feed"""
    text: bool
    """whether deliveries of filters have a body: the message itself"""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        follower = WORKER_CACHE.get_or_create(FeedFollower, self.folder, lambda: FeedFollower(self.folder))
        with follower:
            for batch in batches:
                body, problem, is_message = batch.columns[-3:]
                for row in range(batch.num_rows):
                    if is_message[row].as_py():
                        passed = [column.slice(row, 1) for column in batch.columns[:-3]]
                        names = batch.schema.names[:-3]
                        for columns in self._match(follower, body[row].as_py(), problem[row].as_py()):
                            yield _join_columns(names, passed, columns)

    def _match(
        self, follower: FeedFollower, body: bytes | str | None, problem: str | None
    ) -> Iterator[list[pa.Array]]:
        """Match a message, and yield columns of its rows."""
        with follower.lock:
            live = follower.live
            if problem is not None or body is None:
                result = MatchResult(rejection=Rejection(problem or "the message is null"))
            else:
                result = live.match(body)
            version = live.version
            groups = list(self._group(live, body, result))
        for ids, names, bodies, rejects in groups:
            count = len(ids)
            yield [
                ids,
                pa.array(names, pa.string()) if names else pa.nulls(count, pa.string()),
                pa.array(bodies, pa.string()) if bodies else pa.nulls(count, pa.string()),
                pa.array([version] * count, pa.int64()),
                pa.array(rejects, REJECT) if rejects else pa.nulls(count, REJECT),
            ]

    def _group(self, live: LiveBroker, body: bytes | str | None, result: MatchResult) -> Iterator[_Group]:
        """Yield ids, subscribers, bodies and rejects of rows, not too many at a time."""
        if result.rejection is not None:
            raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
            yield pa.nulls(1, pa.string()), None, None, [{**result.rejection._asdict(), "body": raw}]
            return
        text = decode_text(body) if self.text and len(result.filters) else None
        step = max(1, min(_ROWS_PER_BATCH, _BYTES_PER_BATCH // (len(text or "") + 1)))
        for start in range(0, len(result.filters), step):
            ids = live.ids_of(result.filters[start : start + step])
            bodies = None if text is None else [text] * len(ids)
            yield ids, _find_names(ids, live.subscribers), bodies, None
        if result.bodies:
            parts = np.cumsum([len(made) for made in result.bodies]) // _BYTES_PER_BATCH
            for part in np.unique(parts):
                chosen = np.flatnonzero(parts == part)
                ids = live.ids_of(result.transformations[chosen])
                yield ids, _find_names(ids, live.subscribers), [result.bodies[i] for i in chosen], None
        if result.failures:
            ids = pa.array([failure["subscription"] for failure in result.failures], pa.string())
            yield (
                ids,
                None,
                None,
                [{"reason": f"{each['kind']}: {each['reason']}"} for each in result.failures],
            )


def _find_names(ids: pa.Array, subscribers: dict[str, str]) -> list[str | None] | None:
    return [subscribers.get(id) or None for id in ids.to_pylist()] if subscribers else None


def _join_columns(names: list[str], passed: list[pa.Array], columns: list[pa.Array]) -> pa.RecordBatch:
    """Repeat the columns of a message for each of its rows."""
    count = len(columns[0])
    if count > 1:
        repeat = pa.array(np.zeros(count, np.int64))
        passed = [column.take(repeat) for column in passed]
    return pa.RecordBatch.from_arrays([*passed, *columns], [*names, *RESULT.names])
