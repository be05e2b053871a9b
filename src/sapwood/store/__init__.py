"""A versioned store of subscriptions in SQLite or PostgreSQL.

    with SubscriptionStore("subscriptions.db") as store:        # or postgresql://user@host/database
        version = store.add("stocks", "//tobject.subject[@type='Stock']", subscriber="anna")
        store.add("titles", "for $b in //body where $b/@lang = 'en' return <titles>{$b//title}</titles>")
        store.deactivate("stocks")
        list(store.at(version))                                 # what was active then
        store.changes(version, store.version).removed           # and what has gone since

Several processes may read and change one store at once. Every change makes a version, and a reader of a
version sees all of it and nothing else.
"""

from sapwood.lang.languages import LANGUAGES
from sapwood.store.store import SubscriptionStore
from sapwood.store.subscription import Changes, ImportReport, NewSubscription, Subscription

__all__ = [
    "LANGUAGES",
    "Changes",
    "ImportReport",
    "NewSubscription",
    "Subscription",
    "SubscriptionStore",
]
