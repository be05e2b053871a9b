"""A stream to test with: an inbox of generated messages, a store, a pipeline, and what to expect of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from sapwood import Broker, MessageError
from sapwood.store import NewSubscription, SubscriptionStore
from sapwood.workload import MessageGenerator, QueryGenerator, TransformationGenerator, load_dtd

BROKEN = (b"<news><head>never closed</news>", b"<news>&undeclared;</news>", b"not XML at all")
MADE = (
    "for $p in //place return <made>{$p}</made>",
    "<all>{for $n in /news, $b in $n//* where $b/@* return $b}</all>",
    "for $n in /* where count($n//*) > 30 return <n size='{count($n//*)}'/>",
)
"""transformations that share, that have several variables, and that lxml decides"""
_SETTINGS = """
name = "test"
[source]
path = "inbox"
files_per_batch = {files_per_batch}
[subscriptions]
store = "subscriptions.db"
[deliveries]
path = "deliveries"
shape = "{shape}"
options = {{ {options} }}
[rejects]
path = "rejects"
format = "json"
[run]
checkpoint = "checkpoint"
trigger = "{trigger}"
partitions = 2
"""

Delivery = tuple[str, str, str | None, int, int]
"""message, subscription, body, version, batch"""


def delivered_by(broker: Broker, message: bytes | str) -> list[tuple[str, str | None]]:
    """The subscriptions of a message's deliveries, with the bodies of transformations; None for filters."""
    return [
        (str(id), None if id in broker.filters else body.decode())
        for id, _, body, _ in broker.publish(message)
    ]


@dataclass
class Stream:
    """A folder with all of it."""

    SETTINGS: ClassVar[str] = _SETTINGS
    folder: Path
    files_per_batch: int = 1
    shape: str = "pairs"
    trigger: str = "available-now"
    options: str = ""
    """of the deliveries' sink; workers write the files themselves if there are none"""
    messages: dict[str, bytes] = field(default_factory=dict)
    _published: int = 0

    def __post_init__(self) -> None:
        self.inbox.mkdir(parents=True)
        self.settings.write_text(
            self.SETTINGS.format(
                files_per_batch=self.files_per_batch,
                shape=self.shape,
                trigger=self.trigger,
                options=self.options,
            )
        )
        self._generator = MessageGenerator(load_dtd("news"), seed=11)

    @property
    def inbox(self) -> Path:
        return self.folder / "inbox"

    @property
    def settings(self) -> Path:
        return self.folder / "pipeline.toml"

    def store(self) -> SubscriptionStore:
        return SubscriptionStore(str(self.folder / "subscriptions.db"))

    def subscribe(self, count: int, seed: int = 1, transformations: int = 10) -> None:
        news = load_dtd("news")
        queries = QueryGenerator(news, seed=seed, predicates=1).take(count - transformations - 2)
        queries += TransformationGenerator(news, seed=seed, predicate_paths=0).take(transformations)
        queries += ["count(//*) > 40", "//body"]
        with self.store() as store:
            store.import_many(NewSubscription(f"s{seed}-{i}", query) for i, query in enumerate(queries))

    def publish(self, files: int, messages_each: int = 20, broken_each: int = 2) -> None:
        """Puts more files into the inbox, each all at once."""
        for _ in range(files):
            bodies = self._generator.take(messages_each)
            for i in range(broken_each):
                bodies.insert(7 * i % len(bodies), BROKEN[(self._published + i) % len(BROKEN)])
            self.publish_these(bodies)

    def publish_these(self, bodies: Iterable[bytes]) -> None:
        """Puts a file with these messages into the inbox."""
        name = f"{self._published:04}.xmll"
        self._published += 1
        offset = 0
        unfinished = self.inbox / f".{name}"
        with unfinished.open("wb") as file:
            for body in bodies:
                self.messages[f"{name}@{offset}"] = body
                offset += file.write(body + b"\n")
        unfinished.rename(self.inbox / name)

    def change_subscriptions(self, round: int) -> None:
        """Other subscriptions than before, of both kinds, in six versions."""
        with self.store() as store:
            store.add(f"late-{round}", "//*")
            store.add(f"made-{round}", MADE[round % len(MADE)])
            store.remove(f"s1-{round}")
            store.replace(f"s1-{round + 100}", "/news")
            store.replace(f"s1-{round + 110}", MADE[(round + 1) % len(MADE)])
            if round > 0:
                store.replace(f"made-{round - 1}", "//body")

    # -- what it ought to deliver ----------------------------------------------------------------------

    def batches(self) -> dict[str, int]:
        """Which batch each file was in, as Spark has it on record.

        A batch goes up to some entry of the source's log, usually the next one, but after a crash before the
        batch was noted, the next two.
        """
        spark = self.folder / "checkpoint/spark"
        offsets = [path for path in (spark / "offsets").iterdir() if path.name.isdigit()]
        last = {int(p.name): json.loads(p.read_text().splitlines()[-1])["logOffset"] for p in offsets}
        found: dict[str, int] = {}
        for log in (spark / "sources/0").iterdir():
            if not log.name.startswith("."):
                for line in log.read_text().splitlines()[1:]:
                    entry = json.loads(line)
                    name = Path(unquote(urlparse(entry["path"]).path)).name
                    found[name] = min(batch for batch in last if last[batch] >= entry["batchId"])
        return found

    def versions(self) -> dict[int, int]:
        """Which version each batch was planned with."""
        planned = (self.folder / "checkpoint/sapwood/planned").iterdir()
        return {int(p.name): json.loads(p.read_text())["version"] for p in planned if p.name.isdigit()}

    def expected(self) -> tuple[Counter[Delivery], Counter[tuple[str, str, bytes]]]:
        """Every delivery, and every reject with its reason and body, by a broker in this process."""
        batches, versions = self.batches(), self.versions()
        deliveries: Counter[Delivery] = Counter()
        rejects: Counter[tuple[str, str, bytes]] = Counter()
        with self.store() as store:
            brokers: dict[int, Broker] = {}
            for name, body in self.messages.items():
                batch = batches[name.split("@")[0]]
                version = versions[batch]
                if version not in brokers:
                    brokers[version] = Broker(store.namespaces)
                    brokers[version].subscribe_many(store.at(version))
                try:
                    delivered = delivered_by(brokers[version], body)
                except MessageError as error:
                    rejects[name, error.reason, body] += 1
                else:
                    deliveries.update((name, id, made, version, batch) for id, made in delivered)
        return deliveries, rejects

    def delivered(self, spark: SparkSession) -> Counter[Delivery]:
        rows = spark.read.parquet(str(self.folder / "deliveries"))
        if self.shape == "messages":
            both = "arrays_zip(subscriptions, coalesce(bodies, array()))"  # null where all are filters
            rows = rows.selectExpr("*", f"inline({both}) AS (subscription, body)")
        found = rows.select("message_id", "subscription", "body", "version", "batch").collect()
        return Counter((row[0], row[1], row[2], row[3], row[4]) for row in found)

    def rejected(self, spark: SparkSession) -> Counter[tuple[str, str, bytes]]:
        found = spark.read.json(str(self.folder / "rejects")).select("message_id", "reason", "body").collect()
        return Counter((row[0], row[1], row[2].encode()) for row in found)

    def assert_exact(self, spark: SparkSession) -> None:
        """Every message was served exactly once, with the version that its batch was planned with."""
        deliveries, rejects = self.expected()
        assert sum(deliveries.values()) > len(self.messages)
        assert any(body is not None for _, _, body, _, _ in deliveries)
        assert self.delivered(spark) == deliveries
        assert self.rejected(spark) == rejects
