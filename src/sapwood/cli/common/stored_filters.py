"""The filters of a store, for commands that match: what is loaded, refused and left out."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sapwood.cli.common.console import counting, note, report

if TYPE_CHECKING:
    from sapwood import Matcher
    from sapwood.store import SubscriptionStore

_REPORTED = 50
"""refused subscriptions that are told one by one"""


@contextmanager
def opened_store(store: str) -> Iterator[SubscriptionStore]:
    """A store that must be there."""
    from sapwood.store import SubscriptionStore

    with SubscriptionStore(store, create=False) as found:
        yield found


class Refusals:
    """Subscriptions that were refused: told one by one as long as they are not too many, and counted."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, id: Hashable, error: ValueError) -> None:
        self.count += 1
        if self.count <= _REPORTED:
            report(f"subscription {id}", str(error))

    def finish(self) -> int:
        """How many there were."""
        if self.count > _REPORTED:
            note(f"and {self.count - _REPORTED:,} more subscriptions were refused")
        return self.count


def load_store(matcher: Matcher, store: SubscriptionStore) -> int:
    """Subscribes the active filters of a store's newest version; how many were refused."""
    from sapwood.lang.languages import XPATH, detect_language

    def pairs() -> Iterator[tuple[str, str]]:
        for id, query in store.at(store.version):
            if detect_language(query) == XPATH:
                yield id, query
            progress.advance(task)

    refusals = Refusals()
    matcher.declare(store.namespaces)
    with counting(rate=True) as progress:
        task = progress.add_task("loading subscriptions", total=None)
        matcher.add_many(pairs(), refusals.add)
    return refusals.finish()


def tell_left_out(store: SubscriptionStore) -> None:
    """Tells how many active subscriptions of a store are no filters."""
    from sapwood.lang.languages import LANGUAGES, XPATH

    counts = {
        language: sum(1 for _ in store.subscriptions(active=True, language=language))
        for language in LANGUAGES
        if language != XPATH
    }
    told = " and ".join(f"{count:,} in {language}" for language, count in counts.items() if count)
    if told:
        note(f"only filters are matched; subscriptions left out: {told}")
