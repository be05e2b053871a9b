"""The filters of a store for commands that match: loading, refusals, and skipped subscriptions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sapwood.cli.common.console import make_progress, note, report
from sapwood.cli.common.extras import require_extra

if TYPE_CHECKING:
    from sapwood import Matcher
    from sapwood.store import SubscriptionStore

_REPORTED = 50
"""refused subscriptions that are reported one by one"""


@contextmanager
def open_store(store: str) -> Iterator[SubscriptionStore]:
    """Open a store that must exist."""
    with require_extra("store", "--store"):
        from sapwood.store import SubscriptionStore

    with SubscriptionStore(store, create=False) as found:
        yield found


class Refusals:
    """Counts refused subscriptions and reports the first of them one by one."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, id: Hashable, error: ValueError) -> None:
        self.count += 1
        if self.count <= _REPORTED:
            report(f"subscription {id}", str(error))

    def finish(self) -> int:
        """Return the number of refusals, and print how many were not reported."""
        if self.count > _REPORTED:
            note(f"and {self.count - _REPORTED:,} more subscriptions were refused")
        return self.count


def load_store(matcher: Matcher, store: SubscriptionStore) -> int:
    """Subscribe the active filters of a store's newest version; return how many were refused."""
    from sapwood.lang.languages import XPATH, detect_language

    def pairs() -> Iterator[tuple[str, str]]:
        for id, query in store.at(store.version):
            if detect_language(query) == XPATH:
                yield id, query
            progress.advance(task)

    refusals = Refusals()
    matcher.declare(store.namespaces)
    with make_progress(rate=True) as progress:
        task = progress.add_task("loading subscriptions", total=None)
        matcher.add_many(pairs(), refusals.add)
    return refusals.finish()


def report_skipped(store: SubscriptionStore) -> None:
    """Print how many active subscriptions of a store are not filters."""
    from sapwood.lang.languages import LANGUAGES, XPATH

    counts = {
        language: sum(1 for _ in store.subscriptions(active=True, language=language))
        for language in LANGUAGES
        if language != XPATH
    }
    skipped = " and ".join(f"{count:,} in {language}" for language, count in counts.items() if count)
    if skipped:
        note(f"only filters are matched; skipped subscriptions: {skipped}")
