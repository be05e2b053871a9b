"""What the demo makes up: news with some broken messages in it, subscriptions, and changes of them."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path

from sapwood.store import NewSubscription, SubscriptionStore
from sapwood.workload import MessageGenerator, QueryGenerator, TransformationGenerator, load_dtd

NAME = "news demo"
_BROKEN = (
    b"<news><head>never closed</news>",
    b"<news>&undeclared;</news>",
    b"not XML at all",
    b"<news id='1' id='2'/>",
    b"<news><head/></news><news/>",
    b"<news><story>cut off in the middle of a se",
    b"<x:news/>",
)
_HARD = {
    "long-lists": "//list[count(item) > 3]",
    "long-leads": "/news/story/lead[string-length(.) > 20]",
    "many-topics": "/news/head[count(subject/topic) >= 5]/title",
    "heavy-stories": "//story[sum(.//@order) > 40]",
    "rich-paragraphs": "//para[count(.//em | .//strong | .//link) > 2]",
    "even-weights": "//subject[@weight mod 2 = 0][position() < last()]",
    "short-names": "//person[string-length(normalize-space(.)) < 2]",
    "same-topic": "//subject[topic = ../keyword and count(topic) = 2]",
}
"""Subscriptions that only lxml can decide, so that there is something to see among the slowest."""

_SETTINGS = """\
# A pipeline of Sapwood's demo. Run it again: sapwood run {file}
# It goes on where it ended, so put another file into the inbox first. Paths are relative to this file.

name = "{name}"

[source]
path = "inbox"                      # *.xml is a message, *.xmll has one on every line
files_per_batch = 2

[subscriptions]
store = "subscriptions.db"          # sapwood subscriptions list --store {store}

[deliveries]
path = "deliveries"                 # Parquet, a folder for each batch

[rejects]
path = "rejects"

[run]
checkpoint = "checkpoint"           # remove it, deliveries and rejects to start from the beginning
trigger = "available-now"           # or "5 seconds", to wait for more; Ctrl-C ends it
master = "local[2]"
"""


def write_inbox(inbox: Path, files: int, messages: int) -> int:
    """Files with so many messages each, the broken ones included; how many there are in all."""
    inbox.mkdir(parents=True)
    generator = MessageGenerator(load_dtd("news"), seed=1)
    broken = cycle(_BROKEN)
    for number in range(files):
        bodies = list(islice(broken, 1 + number % 3))
        bodies = [*generator.take(messages - len(bodies)), *bodies]
        lines = [body.replace(b"\n", b" ").strip() + b"\n" for body in bodies]
        (inbox / f"news-{number:02}.xmll").write_bytes(b"".join(lines))
    return files * messages


def write_subscriptions(file: Path, count: int) -> int:
    """A quarter each of plain paths, paths with a value, nested paths with one, and for-where-return queries;
    some hard ones."""
    dtd = load_dtd("news")
    quarter = max(1, (count - len(_HARD)) // 4)
    plain = QueryGenerator(dtd, seed=2).take(count - len(_HARD) - 3 * quarter)
    with_values = QueryGenerator(dtd, seed=3, predicates=1).take(quarter)
    nested = QueryGenerator(dtd, seed=4, nested=1, predicates=1).take(quarter)
    made = TransformationGenerator(dtd, seed=6, values=20).take(quarter)
    kinds = {"path": plain, "value": with_values, "nested": nested, "made": made}
    rows = [NewSubscription(id, query, "desk") for id, query in _HARD.items()]
    for kind, queries in kinds.items():
        rows += [NewSubscription(f"{kind}-{i}", query, "reader") for i, query in enumerate(queries, 1)]
    with SubscriptionStore(str(file)) as store:
        return store.import_many(rows).added


def write_config(out: Path) -> Path:
    """The pipeline file, with comments for those who look at it."""
    path = out / "pipeline.toml"
    path.write_text(_SETTINGS.format(name=NAME, file=path, store=out / "subscriptions.db"), "utf-8")
    return path


class SubscriptionChurn:
    """Changes of the subscriptions, as many people would make them while a pipeline runs."""

    def __init__(self, store: SubscriptionStore, each: int = 20) -> None:
        self._store = store
        self._each = each
        self._queries = QueryGenerator(load_dtd("news"), seed=5, predicates=1, nested=1)
        self.made = 0

    def make(self) -> str:
        """Adds some, replaces some and removes fewer; says so in a line."""
        self.made += 1
        first = self.made * self._each
        replaced = [f"path-{number}" for number in range(first, first + self._each)]
        removed = [f"nested-{number}" for number in range(first, first + self._each // 2)]
        new = [f"late-{number}" for number in range(first, first + self._each)]
        queries = iter(self._queries.take(2 * self._each))
        put = [
            NewSubscription(id, next(queries)) for id in [*replaced, *new] if id in self._store or id in new
        ]
        done = self._store.import_many(put, replace=True)
        gone = [id for id in removed if id in self._store]
        version = self._store.remove(*gone)
        return (
            f"{done.added} subscriptions added, {done.replaced} replaced, {len(gone)} removed;"
            f" version {version} serves the next batch"
        )
