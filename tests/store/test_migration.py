"""A store that was made before there were tenants and streams is brought to the present schema."""

from __future__ import annotations

from sqlalchemy import create_engine, text

from sapwood.store import Changes, SubscriptionStore
from sapwood.store.store_location import locate

_SCHEMA_1 = """
CREATE TABLE sapwood_subscriptions (
    place BIGINT NOT NULL, since BIGINT NOT NULL, until BIGINT, id TEXT NOT NULL, query TEXT NOT NULL,
    language TEXT NOT NULL, subscriber TEXT NOT NULL, active BOOLEAN NOT NULL,
    PRIMARY KEY (place, since), CONSTRAINT sapwood_subscriptions_last CHECK (until > since));
CREATE UNIQUE INDEX sapwood_subscriptions_current ON sapwood_subscriptions (id) WHERE until IS NULL;
CREATE INDEX sapwood_subscriptions_since ON sapwood_subscriptions (since);
CREATE INDEX sapwood_subscriptions_until ON sapwood_subscriptions (until) WHERE until IS NOT NULL;
CREATE TABLE sapwood_namespaces (prefix TEXT NOT NULL, uri TEXT NOT NULL, PRIMARY KEY (prefix));
CREATE TABLE sapwood_state (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1), layout INTEGER NOT NULL, version BIGINT NOT NULL,
    oldest BIGINT NOT NULL, places BIGINT NOT NULL);
INSERT INTO sapwood_state VALUES (1, 1, 3, 0, 2);
INSERT INTO sapwood_namespaces VALUES ('p', 'urn:one');
INSERT INTO sapwood_subscriptions VALUES (1, 1, 3, 'a', '//a', 'xpath', 'anna', true);
INSERT INTO sapwood_subscriptions VALUES (1, 3, NULL, 'a', '//p:a', 'xpath', 'anna', true);
INSERT INTO sapwood_subscriptions VALUES (2, 2, NULL, 'b', '//b', 'xpath', '', false)
"""


def test_a_store_of_schema_1_keeps_its_versions(location: str) -> None:
    engine = create_engine(locate(location))
    with engine.begin() as connection:
        for statement in _SCHEMA_1.split(";"):
            connection.execute(text(statement))
    engine.dispose()
    for _ in range(2):  # the second time there is nothing to do
        with SubscriptionStore(location, create=False) as store:
            assert store.namespaces == {"p": "urn:one"}
            assert [(s.id, s.query, s.active) for s in store.subscriptions()] == [
                ("a", "//p:a", True),
                ("b", "//b", False),
            ]
            assert store.changes(1, 3) == Changes([], [("a", "//p:a")])
    with SubscriptionStore(location, tenant="acme") as other:
        assert other.add("a", "//x", streams=["news"]) == 4
        assert len(other) == 1
