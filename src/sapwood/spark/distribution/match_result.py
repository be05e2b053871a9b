"""The result of matching a message: the Arrow types of its columns, and a row before it becomes Arrow."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

BODIES = pa.list_(pa.string())
"""a body for each subscription: what a transformation makes, null for a filter"""
ERROR = pa.struct(
    [("reason", pa.string()), ("line", pa.int32()), ("column", pa.int32()), ("body", pa.binary())]
)
"""the reason why a message is rejected, where in it, and its body"""
FAILURES = pa.list_(pa.struct([(name, pa.string()) for name in ("subscription", "kind", "reason")]))
"""the subscriptions that have no result on a message"""
COSTS = pa.list_(pa.struct([("subscription", pa.string()), ("seconds", pa.float64())]))
"""the seconds spent on subscriptions that are evaluated one by one"""

Numbers = NDArray[np.int64]
NO_NUMBERS: Numbers = np.empty(0, np.int64)


class Rejection(NamedTuple):
    """The reason why a message is rejected, and the position in it."""

    reason: str
    line: int | None = None
    column: int | None = None


@dataclass(slots=True)
class MatchResult:
    """The subscriptions that a message matches, by the numbers that all workers give them at one version.

    Bytes instead of Arrow columns take it through a stateful plan: a row of this many nested columns takes
    ten kilobytes and 100 µs there and back, and these bytes a hundredth of that.
    """

    filters: Numbers = field(default_factory=lambda: NO_NUMBERS)
    transformations: Numbers = field(default_factory=lambda: NO_NUMBERS)
    bodies: list[bytes] = field(default_factory=list)
    """one for each of the transformations"""
    failures: list[dict[str, str]] | None = None
    rejection: Rejection | None = None
    costs: dict[str, float] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        filters, transformations = self.filters.tobytes(), self.transformations.tobytes()
        rejection = tuple(self.rejection) if self.rejection is not None else None
        row = (filters, transformations, self.bodies, self.failures, rejection, self.costs)
        return pickle.dumps(row, pickle.HIGHEST_PROTOCOL)

    @classmethod
    def from_bytes(cls, data: bytes) -> MatchResult:
        filters, transformations, bodies, failures, rejection, costs = pickle.loads(data)
        return cls(
            np.frombuffer(filters, np.int64),
            np.frombuffer(transformations, np.int64),
            bodies,
            failures,
            Rejection(*rejection) if rejection is not None else None,
            costs,
        )
