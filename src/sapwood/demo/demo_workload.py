"""The workload of the demo: news, some of them malformed, subscriptions, and changes of subscriptions."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path

from sapwood.store import NewSubscription, SubscriptionStore
from sapwood.workload import MessageGenerator, QueryGenerator, TransformationGenerator, load_dtd

NAME = "news demo"
_MALFORMED = (
    b"<news><head>never closed</news>",
    b"<news>&undeclared;</news>",
    b"not XML at all",
    b"<news id='1' id='2'/>",
    b"<news><head/></news><news/>",
    b"<news><story>cut off in the middle of a se",
    b"<x:news/>",
)
_FALLBACK = {
    "long-lists": "/news[@urgency=1]//list[count(item) > 3]",
    "long-leads": "/news[@urgency=2]/story/lead[string-length(.) > 20]",
    "heavy-stories": "/news[@urgency=1]//story[sum(.//@order) > 40]",
    "same-topic": "/news[@urgency=2]//subject[topic = ../keyword and count(topic) = 2]",
}
"""Subscriptions that are evaluated by lxml, on messages that pass the rest of the query."""

_CONFIG = """\
# The pipeline of Sapwood's demo. Run it again: sapwood run {file}
# It continues where it ended, so put another file into the inbox first. Paths are relative to this file.

name = "{name}"

[source]
path = "inbox"                      # *.xml is a message, *.xmll has one in each line
files_per_batch = 4

[subscriptions]
store = "subscriptions.db"          # sapwood subscriptions list --store {store}

[deliveries]
path = "deliveries"                 # Parquet, a folder for each batch

[rejects]
path = "rejects"

[run]
checkpoint = "checkpoint"           # remove it, deliveries and rejects to start from the beginning
trigger = "available-now"           # or "5 seconds", to wait for more; Ctrl-C stops it
master = "local[2]"
"""


def write_inbox(inbox: Path, files: int, messages: int) -> int:
    """Write files of messages, some of them malformed; return the number of messages."""
    inbox.mkdir(parents=True)
    generator = MessageGenerator(load_dtd("news"), seed=1)
    malformed = cycle(_MALFORMED)
    for number in range(files):
        bodies = list(islice(malformed, 1 + number % 3))
        bodies = [*generator.take(messages - len(bodies)), *bodies]
        lines = [body.replace(b"\n", b" ").strip() + b"\n" for body in bodies]
        (inbox / f"news-{number:02}.xmll").write_bytes(b"".join(lines))
    return files * messages


def write_subscriptions(file: Path, count: int) -> int:
    """Write a store of subscriptions; return their number.

    One in twenty is a for-where-return query, and one in twenty a plain path. Half each of the others are
    paths with two value predicates, and nested paths with two; a few more need lxml."""
    dtd = load_dtd("news")
    few = max(1, count // 20)
    others = count - len(_FALLBACK) - 2 * few
    plain = QueryGenerator(dtd, seed=2).take(few)
    with_values = QueryGenerator(dtd, seed=3, predicates=2).take(others - others // 2)
    nested = QueryGenerator(dtd, seed=4, nested=1, predicates=2).take(others // 2)
    made = TransformationGenerator(dtd, seed=6, values=20).take(few)
    kinds = {"path": plain, "value": with_values, "nested": nested, "made": made}
    rows = [NewSubscription(id, query, "desk") for id, query in _FALLBACK.items()]
    for kind, queries in kinds.items():
        rows += [NewSubscription(f"{kind}-{i}", query, "reader") for i, query in enumerate(queries, 1)]
    with SubscriptionStore(str(file)) as store:
        return store.import_many(rows).added


def write_config(out: Path) -> Path:
    """Write the pipeline file, with comments."""
    path = out / "pipeline.toml"
    path.write_text(_CONFIG.format(name=NAME, file=path, store=out / "subscriptions.db"), "utf-8")
    return path


class SubscriptionChurn:
    """Changes of the subscriptions while the pipeline runs."""

    def __init__(self, store: SubscriptionStore, each: int = 20) -> None:
        self._store = store
        self._each = each
        self._queries = QueryGenerator(load_dtd("news"), seed=5, predicates=1, nested=1)
        self.changes = 0

    def apply(self) -> str:
        """Add and replace some subscriptions, and remove fewer; return a line that says so."""
        self.changes += 1
        first = self.changes * self._each
        replaced = [f"value-{number}" for number in range(first, first + self._each)]
        removed = [f"nested-{number}" for number in range(first, first + self._each // 2)]
        new = [f"late-{number}" for number in range(first, first + self._each)]
        queries = iter(self._queries.take(2 * self._each))
        changed = [
            NewSubscription(id, next(queries)) for id in [*replaced, *new] if id in self._store or id in new
        ]
        done = self._store.import_many(changed, replace=True)
        existing = [id for id in removed if id in self._store]
        version = self._store.remove(*existing)
        return (
            f"{done.added} subscriptions added, {done.replaced} replaced, {len(existing)} removed;"
            f" the next batch uses version {version}"
        )
