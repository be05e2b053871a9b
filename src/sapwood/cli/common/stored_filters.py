"""The filters of a store for commands that match: loading, refusals, and skipped subscriptions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sapwood.cli.common.bounded_output import BoundedOutput
from sapwood.cli.common.console import make_progress, note, report
from sapwood.cli.common.extras import require_extra

if TYPE_CHECKING:
    from sapwood import Matcher
    from sapwood.store import SubscriptionStore

MOST_REPORTED = 50
"""subscriptions that are reported one by one"""


@contextmanager
def open_store(
    store: str, create: bool = False, command: str = "--store", tenant: str = ""
) -> Iterator[SubscriptionStore]:
    """Open a store, which must exist unless it may be created; `command` is what needs the extra."""
    with require_extra("store", command):
        from sapwood.store import SubscriptionStore  # here, because other commands need no database

    with SubscriptionStore(store, create=create, tenant=tenant) as found:
        yield found


def make_refusal_output() -> BoundedOutput[[Hashable, ValueError]]:
    """Return an output that reports refused subscriptions by their ids."""
    return BoundedOutput(
        MOST_REPORTED,
        lambda id, error: report(f"subscription {id}", str(error)),
        lambda rest: note(f"{rest} subscriptions were refused"),
    )


def load_store(matcher: Matcher, store: SubscriptionStore) -> int:
    """Subscribe the active filters of a store's newest version; return how many were refused."""
    from sapwood.lang.languages import XPATH, detect_language

    def pairs() -> Iterator[tuple[str, str]]:
        for id, query in store.at(store.version):
            if detect_language(query) == XPATH:
                yield id, query
            progress.advance(task)

    refusals = make_refusal_output()
    matcher.declare(store.namespaces)
    with make_progress(rate=True) as progress:
        task = progress.add_task("loading subscriptions", total=None)
        matcher.add_many(pairs(), refusals.add)
    return refusals.finish()


def report_skipped(store: SubscriptionStore) -> None:
    """Print how many active subscriptions of a store are not filters, or restricted to streams."""
    from sapwood.lang.languages import LANGUAGES, XPATH

    counts = {
        language: sum(1 for _ in store.subscriptions(active=True, language=language))
        for language in LANGUAGES
        if language != XPATH
    }
    skipped = " and ".join(f"{count:,} in {language}" for language, count in counts.items() if count)
    if skipped:
        note(f"only filters are matched; skipped subscriptions: {skipped}")
    if restricted := store.restricted(store.version):
        note(f"{restricted:,} subscriptions are restricted to streams: 'sapwood serve' alone evaluates them")
