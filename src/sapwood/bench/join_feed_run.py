"""A stream of feed items through one broker, in a process that does nothing else.

    python -m sapwood.bench.join_feed_run < SPECIFICATION

The specification and the result are JSON objects: see `measure`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice

from sapwood import Broker
from sapwood.bench.join_contenders import STREAM, WAYS, joined
from sapwood.bench.memory import resident
from sapwood.bench.timing import clock
from sapwood.workload import FeedGenerator, JoinGenerator, feed_schema

_BATCH = 100  # items that are made before they are published, and counted after: few, not to weigh much


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the stream had come, from its beginning on."""

    items: int
    seconds: float
    """of publishing; making the items is left out"""
    results: int
    """pairs of items that met for a query, each distinct query counted once; not so one query at a time"""
    deliveries: int
    """the same, each query counted"""
    megabytes: float
    """of the process, resident"""


@dataclass(frozen=True, slots=True)
class Run:
    """All marks, the first before any item."""

    marks: tuple[Mark, ...]
    distinct: int
    templates: int
    state_bytes: int
    """as the broker counts, in the end, what it remembers; not at each mark, because counting takes memory"""

    def rate(self, items: int | None = None) -> float:
        """Items a second, over the first so many of them or all."""
        reached = [mark for mark in self.marks if items is None or mark.items <= items]
        return reached[-1].items / max(reached[-1].seconds, 1e-9)


def measure(queries: int, marks: Sequence[int], way: str = WAYS[0].label) -> Run:
    """Publishes as many items as the last of the marks says, in a fresh process, and tells of each mark."""
    run = subprocess.run(
        [sys.executable, "-m", "sapwood.bench.join_feed_run"],
        input=json.dumps({"queries": queries, "marks": list(marks), "way": way}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(run.stdout)
    return Run(**found | {"marks": tuple(Mark(**mark) for mark in found["marks"])})


def stream(queries: int, marks: Sequence[int], way: str) -> Run:
    """What the fresh process does."""
    asked = JoinGenerator(feed_schema(), seed=1).take(queries)
    (tuning,) = (each.tuning for each in WAYS if each.label == way)
    items = FeedGenerator(seed=1)
    with Broker(tuning=tuning) as broker:
        broker.subscribe_many(enumerate(asked))
        found = tuple(_published(broker, items, marks))
        state = broker.state()
    return Run(found, len(set(asked)), len(state.templates), state.bytes)


def _published(broker: Broker, items: Iterator[bytes], marks: Sequence[int]) -> Iterator[Mark]:
    answer = broker.answer
    time, seconds, results, deliveries = 0, 0.0, 0, 0
    yield Mark(time, seconds, results, deliveries, resident())
    for mark in marks:
        while time < mark:
            batch = list(islice(items, min(_BATCH, mark - time)))
            found = []
            start = clock()
            for item in batch:
                time += 1  # a second from item to item: times only have to increase
                found.append(joined(answer(item, stream=STREAM, time=time)))
                results += len(found[-1])
            seconds += clock() - start
            deliveries += sum(met.deliveries for met in found)
            del found
        yield Mark(time, seconds, results, deliveries, resident())


def main() -> int:
    try:
        found = stream(**json.load(sys.stdin))
    except KeyboardInterrupt:  # the parent has it too, and says so
        return 130
    print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
