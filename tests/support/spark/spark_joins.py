"""Two streams to join: files that say when things happened, and rows; and what to expect of them."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import floor, inf
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from sapwood import Broker, Delivery
from sapwood.broker.distributed_broker import DistributedBroker
from sapwood.engine.message.message_reader import Message as Source
from sapwood.join.state.message_state import StoredMessage
from sapwood.lang.languages import is_join
from sapwood.lang.xscl.compiler import compile_join
from sapwood.store import NewSubscription, SubscriptionStore
from tests.support.generators.join_queries import NAMESPACES, written
from tests.support.generators.join_strategies import random_message, random_query
from tests.support.oracles.saxon import canonical

START = 1_700_000_000.0
STREAMS = "S", "T"
_SETTINGS = """
name = "joined"
[[source]]
path = "S"
stream = "S"
time = "/*/@t"
files_per_batch = 1
[[source]]
path = "T"
stream = "T"
format = "json"
schema = "id STRING, xml STRING, ms BIGINT"
id = "id"
body = "CAST(xml AS BINARY)"
published_at = "timestamp_millis(ms)"
keep = ["concat(id, '!') AS marked"]
files_per_batch = 1
[subscriptions]
store = "subscriptions.db"
[deliveries]
path = "deliveries"
[rejects]
path = "rejects"
format = "json"
[run]
checkpoint = "checkpoint"
trigger = "available-now"
partitions = 1
[joins]
lateness = "{lateness} s"
buckets = 4
[spark]
"spark.sql.shuffle.partitions" = 2
"spark.default.parallelism" = 1
"""


class Message(NamedTuple):
    """In the order in which those of a batch are taken to have come."""

    ms: int
    stream: str
    id: str
    body: str


PUBLISHING = {
    "publishes": "S//*->x[.//b->p] JOIN{p = q, 2 s} T//*->z[.//b->q] PUBLISH P",
    "publishes it, too": "S//*->u[.//b->v] JOIN{v = w, 2 s} T//*->y[.//b->w] PUBLISH P",
    "publishes of that": "P//joined->x[.//b->p] FOLLOWED BY{p = q, 1 s} T//*->z[.//b->q] PUBLISH R",
    "reads that": "R//b->x",
    "joins that": "R//*->x[.//a->p] JOIN{p = q, 30 s} S//*->y[.//a->q]",
    "passes on": "S//c->x PUBLISH L",
    "reads what is passed on": "L//c->x",
    "gets it": "/joined/a",
    "makes of it": "for $j in /joined return <got>{$j//b}</got>",
    "five": (
        "S//*->x[.//b->p] JOIN{p = q, 2 s} T//*->y[.//b->q] FOLLOWED BY{q = r, 2 s} S//*->z[.//b->r]"
        " JOIN{p = s, 2 s} T//*->u[.//b->s] JOIN{r = t, 2 s} S//*->v[.//b->t]"
    ),
}
"""What goes on for up to four batches."""


class DeliveryRow(NamedTuple):
    """A delivery: messages in the order of the blocks, None for filters and transformations; a body only of
    queries that make one."""

    subscription: str
    message: str
    messages: tuple[str, ...] | None
    body: str | None
    version: int
    batch: int

    @property
    def normalized(self) -> DeliveryRow:
        """As it is in every process, though what goes on takes a batch for each step on Spark."""
        messages = self.messages or ()
        if len(messages) < 3 and not any("(" in name for name in (self.message, *messages)):
            return self
        return self._replace(message=self.message if len(messages) < 2 else "", version=-1, batch=-1)


def random_subscriptions(rng: Random, count: int) -> dict[str, str]:
    """Queries over up to three blocks, each of some of them subscribed to twice, among filters and others."""
    found: dict[str, str] = {}
    while len(found) < count:
        query = random_query(rng)
        streams = {block.stream for block in query.blocks}
        if streams <= set(STREAMS):
            found[f"q{len(found)}"] = written(query, rng)
    twice = {f"{id}-again": query for id, query in list(found.items())[::5]}
    others = {
        "differ": "S//*->x[.//b->p][.//b->u] JOIN{p = q AND u != v, 5 s} T//*->z[.//b->q][.//b->v]",
        "less": "T//*->x[.//b->p][.//b->u] FOLLOWED BY{p = q AND u < v, INF} S//*->z[.//b->q][.//b->v]",
        "filter": "//b",
        "slow": "count(//*) > 4",
        "made": "for $b in //b return <got>{$b}</got>",
    }
    return found | twice | others


def has_feedback(query: str) -> bool:
    """Whether there is more to do in the batches after that in which messages meet."""
    return is_join(query) and len(compile_join(query, NAMESPACES).blocks) > 2


@dataclass
class JoinedStreams:
    """A folder with all of it."""

    SETTINGS: ClassVar[str] = _SETTINGS
    folder: Path
    lateness: int = 20
    seed: int = 1
    messages: dict[tuple[str, str], list[Message]] = field(default_factory=dict)
    """by stream and file"""
    _files: int = 0

    def __post_init__(self) -> None:
        for stream in STREAMS:
            (self.folder / stream).mkdir(parents=True)
        self.settings.write_text(self.SETTINGS.format(lateness=self.lateness))
        self._rng = Random(self.seed)
        with self.store() as store:
            store.declare(NAMESPACES)

    @property
    def settings(self) -> Path:
        return self.folder / "pipeline.toml"

    def store(self) -> SubscriptionStore:
        return SubscriptionStore(str(self.folder / "subscriptions.db"))

    def subscribe(self, queries: dict[str, str]) -> None:
        with self.store() as store:
            store.import_many(NewSubscription(id, query) for id, query in queries.items())

    def publish(self, at: float, each: int = 10, spread: float = 12.0) -> None:
        """Puts a file into each stream: messages that happened from then on, in any order."""
        number = self._files
        self._files += 1
        for stream in STREAMS:
            times = [at + round(self._rng.uniform(0, spread), 3) for _ in range(each)]
            bodies = [random_message(self._rng) for _ in range(each)]
            write = self._write_lines if stream == "S" else self._write_rows
            write(number, list(zip(times, bodies, strict=True)))

    def _write_lines(self, number: int, made: list[tuple[float, str]]) -> None:
        name, offset, lines, messages = f"{number:03}.xmll", 0, [], []
        for time, text in made:
            # as seconds and as ISO 8601
            at = f"{time:.3f}" if offset % 2 else datetime.fromtimestamp(time, UTC).isoformat()
            body = re.sub(r"^<([\w:]+)", rf'<\1 t="{at}"', text)
            messages.append(Message(floor(round(time * 1000)), "S", f"{name}@{offset}", body))
            lines.append(body)
            offset += len(body.encode()) + 1
        self._put("S", name, "".join(f"{line}\n" for line in lines), messages)

    def _write_rows(self, number: int, made: list[tuple[float, str]]) -> None:
        name = f"{number:03}.json"
        messages = [
            Message(round(time * 1000), "T", f"{number}-{i}", body) for i, (time, body) in enumerate(made)
        ]
        rows = [json.dumps({"id": m.id, "xml": m.body, "ms": m.ms}) for m in messages]
        self._put("T", name, "".join(f"{row}\n" for row in rows), messages)

    def _put(self, stream: str, name: str, text: str, messages: list[Message]) -> None:
        path = self.folder / stream / f".{name}"
        path.write_text(text, "utf-8")
        os.utime(path, (START + self._files, START + self._files))  # the order in which Spark takes them
        path.rename(self.folder / stream / name)
        self.messages[stream, name] = messages

    # -- what it ought to deliver ----------------------------------------------------------------------

    def batches(self) -> dict[int, list[Message]]:
        """The messages of each batch, as Spark has it on record."""
        spark = self.folder / "checkpoint/spark"
        last: dict[int, list[int]] = {}
        for path in (spark / "offsets").iterdir():
            if path.name.isdigit():
                ends = [json.loads(line) for line in path.read_text().splitlines()[2:][: len(STREAMS)]]
                last[int(path.name)] = [end["logOffset"] if end is not None else -1 for end in ends]
        found: dict[int, list[Message]] = {batch: [] for batch in last}
        for number, stream in enumerate(STREAMS):
            for log in (spark / f"sources/{number}").iterdir():
                for line in [] if log.name.startswith(".") else log.read_text().splitlines()[1:]:
                    entry = json.loads(line)
                    name = Path(unquote(urlparse(entry["path"]).path)).name
                    batch = min(b for b in last if last[b][number] >= entry["batchId"])
                    found[batch] += self.messages[stream, name]
        return {batch: sorted(found[batch]) for batch in sorted(found)}

    def versions(self) -> dict[int, int]:
        planned = (self.folder / "checkpoint/sapwood/planned").iterdir()
        return {int(p.name): json.loads(p.read_text())["version"] for p in planned if p.name.isdigit()}

    def expected(self, unserved: Set[str]) -> tuple[Counter[DeliveryRow], set[str]]:
        """Every delivery, by a broker in this process, and the messages that are too late."""
        broker = Broker(NAMESPACES, lateness=1e12)
        deliveries: Counter[DeliveryRow] = Counter()
        late: set[str] = set()
        latest = dict.fromkeys(STREAMS, -inf)
        before, versions = 0, self.versions()
        with self.store() as store:
            for batch, messages in self.batches().items():
                version = versions[batch]
                _change(broker, store, before, version, unserved)
                before = version
                watermark = min(latest.values()) - self.lateness * 1000
                for ms, stream, id, body in messages:
                    is_late = ms < watermark
                    latest[stream] = max(latest[stream], ms)
                    late |= {id} if is_late else set()
                    read_as = "nobody's" if is_late else stream  # by filters, but no join
                    published = broker.publish(body.encode(), id, stream=read_as, time=ms / 1000)
                    if is_late:
                        published += _single_block_deliveries(broker, stream, id, body)
                    for made in published:
                        deliveries[_to_row(broker, made, version, batch).normalized] += 1
        return deliveries, late

    def delivered(self, spark: SparkSession) -> Counter[DeliveryRow]:
        rows = spark.read.parquet(str(self.folder / "deliveries"))
        marked = rows.selectExpr("marked <=> if(stream = 'T', concat(message_id, '!'), null) AS right")
        assert marked.distinct().collect() == [(True,)]
        return Counter(read_row(row.asDict()) for row in rows.collect())

    def too_late(self) -> set[str]:
        return {row["message_id"] for row in self.rejected()}

    def rejected(self) -> Iterator[dict[str, str]]:
        for path in (self.folder / "rejects").rglob("*.json"):
            yield from map(json.loads, path.read_text().splitlines())

    def assert_exact(self, spark: SparkSession, unserved: Set[str] = frozenset()) -> Counter[DeliveryRow]:
        """All that was delivered is what a broker in this process delivers, but for some subscriptions."""
        deliveries, late = self.expected(unserved)
        found = self.delivered(spark)
        assert found - deliveries == Counter()
        assert deliveries - found == Counter()
        assert self.too_late() == late
        assert all("too late for joins" in row["reason"] for row in self.rejected())
        return deliveries


def read_row(row: dict[str, Any]) -> DeliveryRow:
    """The delivery in a row of a sink."""
    return DeliveryRow(
        row["subscription"],
        row["message_id"],
        tuple(row["messages"]) if row["messages"] is not None else None,
        canonical(row["body"]) if row["body"] is not None else None,
        row["version"],
        row["batch"],
    ).normalized


def _change(broker: Broker, store: SubscriptionStore, since: int, until: int, unserved: Set[str]) -> None:
    begun = [(id, query) for id, query, _ in store.begun(since, until) if id not in unserved]
    for id in (*store.changes(since, until).removed, *(id for id, _ in begun)):
        if id in broker:
            broker.unsubscribe(id)
    broker.subscribe_many(begun)


def _single_block_deliveries(broker: Broker, stream: str, id: str, body: str) -> Iterator[Delivery]:
    """What single blocks get of a message, whatever its time; and others, of what these pass on."""
    distributed, data = DistributedBroker(broker), body.encode()
    _, alone = distributed.extract(distributed.find(Source(data)), stream)
    meetings = distributed.match_single_blocks(alone, StoredMessage(id, stream, 0.0, 0, data, None))
    yield from broker.deliveries(meetings, id, [])
    for made in broker.published(meetings):
        yield from broker.publish(made.message.data, made.id, stream=made.stream, time=made.time)


def _to_row(broker: Broker, made: Delivery, version: int, batch: int) -> DeliveryRow:
    id, message, body, meeting = made
    messages = tuple(map(str, meeting.messages)) if meeting is not None else None
    as_it_is = id in broker.filters or (is_join(broker.query(id)) and body == _source(made))
    return DeliveryRow(str(id), str(message), messages, None if as_it_is else canonical(body), version, batch)


def _source(made: Delivery) -> bytes | None:
    """The message itself, if the query makes nothing of its own."""
    if made.meeting is None or made.meeting.entry.join.template is not None:
        return None
    return made.meeting.records[0].data
