"""The requests and answers of the API, with examples."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from sapwood.serve.webhooks.webhook_settings import WebhookSettings
from sapwood.store import Subscription
from sapwood.store.text_checks import LONGEST_ID

Language = Literal["xpath", "for-where-return", "xscl"]
Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
StreamName = Annotated[str, Field(min_length=1, max_length=200)]
_QUERY = "/order[total > 100]"


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


# -- publishing --------------------------------------------------------------------------------------------


class PublishAnswer(BaseModel):
    """A message that is in the log."""

    id: str
    stream: str
    seq: int = Field(description="its position in the log")
    version: int = Field(description="the version of the subscriptions that it was matched with")
    deliveries: int = Field(description="entered into inboxes")
    duplicate: bool = Field(description="true if it was published before: nothing was done again")
    failures: int = Field(0, description="subscriptions whose query failed on it; see /v1/failures")
    late: str | None = Field(None, description="why joins did not receive it")
    delivered: bool | None = Field(
        None, description="with wait=delivered: whether all deliveries were acknowledged in time"
    )


class PublishManyAnswer(BaseModel):
    """What became of the messages of a request, in order."""

    messages: list[dict[str, Any]] = Field(
        description="for each message what a single one is answered with, or its id and `error`"
    )
    published: int
    duplicates: int
    refused: int
    deliveries: int
    delivered: bool | None = None


# -- subscriptions -----------------------------------------------------------------------------------------


class SubscriptionFields(_Request):
    """A subscription to put under an id."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": _QUERY, "subscriber": "desk", "streams": ["orders"]}]}
    )

    query: str = Field(description="an XPath filter, a for-where-return query, or a join in XSCL")
    subscriber: Annotated[str, Field(max_length=LONGEST_ID)] = Field(
        "", description="whose inbox gets the deliveries; nobody's, if empty"
    )
    streams: list[StreamName] = Field([], description="the streams whose messages it gets; all, if empty")
    active: bool = True
    language: Language | None = Field(None, description="if absent, the one that the query looks like")


class NewSubscriptionRequest(SubscriptionFields):
    """A subscription to create."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"id": "large-orders", "query": _QUERY, "subscriber": "desk"}]}
    )

    id: Id | None = Field(None, description="if absent, one is made")


class SubscriptionPatch(_Request):
    """The fields of a subscription that change."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"active": False}]})

    query: str | None = None
    subscriber: Annotated[str, Field(max_length=LONGEST_ID)] | None = None
    streams: list[StreamName] | None = None
    active: bool | None = None
    language: Language | None = None


class SubscriptionAnswer(BaseModel):
    """A subscription."""

    id: str
    query: str
    subscriber: str
    language: str
    active: bool
    streams: list[str]
    version: int = Field(description="the version in which it got this state; its ETag")
    confirmed: bool | None = Field(
        None,
        description="after a change in a mesh: whether all brokers have it, so that no message which is "
        "published anywhere is missed; null otherwise",
    )


class SubscriptionPage(BaseModel):
    """Subscriptions in the order added."""

    subscriptions: list[SubscriptionAnswer]
    next: str | None = Field(description="the cursor of the next page, for `after`")
    version: int = Field(description="of all subscriptions")


class VersionAnswer(BaseModel):
    """The version of the subscriptions after a change."""

    version: int


class RefusedLine(BaseModel):
    """A line that was refused."""

    line: int
    id: str | None
    error: dict[str, Any]


class ImportAnswer(BaseModel):
    """The report of an import."""

    added: int
    replaced: int
    unchanged: int
    refused: int
    version: int
    errors: list[RefusedLine]
    confirmed: bool | None = Field(None, description="in a mesh, whether all brokers have the changes")


class Namespaces(_Request):
    """Prefixes that queries may use."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"namespaces": {"cbc": "urn:example:components"}}]}
    )

    namespaces: dict[str, str]


def to_answer(subscription: Subscription, confirmed: bool | None = None) -> SubscriptionAnswer:
    """Return a subscription as it is answered with."""
    return SubscriptionAnswer(
        id=subscription.id,
        query=subscription.query,
        subscriber=subscription.subscriber,
        language=subscription.language,
        active=subscription.active,
        streams=list(subscription.streams),
        version=subscription.since,
        confirmed=confirmed,
    )


# -- subscribers -------------------------------------------------------------------------------------------


class SubscriberSettings(_Request):
    """How a subscriber gets its deliveries."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"limit": 10000, "policy": "drop-oldest", "merge": True}]}
    )

    limit: Annotated[int, Field(ge=1, le=10**12)] | None = Field(
        None, description="deliveries that may be unacknowledged; the server's default, if absent"
    )
    policy: Literal["wait", "drop-oldest", "suspend"] | None = Field(
        None, description="what happens at the limit"
    )
    merge: bool = Field(False, description="one delivery for all subscriptions that get the same")
    webhook: WebhookSettings | None = None


class SubscriberAnswer(BaseModel):
    """A subscriber and its inbox."""

    name: str
    backlog: int = Field(description="deliveries that are not acknowledged")
    last: int = Field(description="the number of the last delivery")
    acknowledged: int
    dropped: int = Field(description="the number of the last delivery that was dropped unacknowledged")
    suspended: bool
    settings: dict[str, Any]
    webhook: dict[str, Any] | None = Field(None, description="how its webhook goes")


class SubscriberPage(BaseModel):
    """Subscribers by name."""

    subscribers: list[SubscriberAnswer]
    next: str | None


class DeliveryPage(BaseModel):
    """Deliveries in order."""

    deliveries: list[dict[str, Any]]
    cursor: int = Field(description="the number to acknowledge, and to read on after")
    backlog: int
    gaps: list[dict[str, Any]] = Field(description="what was dropped before these")


class AckRequest(_Request):
    """The deliveries that were received: all up to one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"upto": 17}]})

    upto: StrictInt | str = Field(description="the number of a delivery, or its id")


class AckAnswer(BaseModel):
    """How far an inbox is acknowledged."""

    acknowledged: int
    backlog: int


class GapList(BaseModel):
    """What a subscriber has missed."""

    gaps: list[dict[str, Any]]


class DeadLetterPage(BaseModel):
    """Deliveries that a webhook's target refused for good."""

    dead_letters: list[dict[str, Any]]
    next: int | None


class ReplayRequest(_Request):
    """The dead letters to send again."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"numbers": [3, 4]}]})

    numbers: Annotated[list[Annotated[int, Field(ge=0, le=2**53)]], Field(max_length=1_000)] | None = Field(
        None, description="all of the subscriber's, up to a thousand, if absent"
    )


class ReplayAnswer(BaseModel):
    """What became of the dead letters that were sent again."""

    replayed: list[int]
    failed: list[dict[str, Any]]


# -- queries -----------------------------------------------------------------------------------------------


class ExplainRequest(_Request):
    """A query to explain."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": _QUERY}]})

    query: str


class ExplainAnswer(BaseModel):
    """How a query is evaluated."""

    query: str
    language: str
    text: str = Field(description="the explanation for people")
    native: bool = Field(description="false if lxml has to evaluate a part of it")
    cost: float = Field(description="what a quota on the cost of queries counts")
    refined: list[str] = Field(description="the parts that only lxml evaluates, and why")
    details: dict[str, Any]


class TryMessage(_Request):
    """A message to try a query on."""

    body: str
    stream: Annotated[str, Field(max_length=200)] = ""
    time: float | None = None


class TryRequest(_Request):
    """A query, and the messages to try it on in order."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": _QUERY, "message": "<order><total>250</total></order>"}]}
    )

    query: str
    message: str | None = None
    messages: Annotated[list[TryMessage], Field(max_length=20)] = []


class TryAnswer(BaseModel):
    """What a query makes of messages."""

    language: str
    matches: bool
    why: str = Field(description="why it matches, or what it lacks")
    nodes: list[dict[str, Any]] = Field([], description="for a filter: what it selects")
    results: list[str] = Field([], description="for others: what they make")


# -- operations --------------------------------------------------------------------------------------------


class NewKeyRequest(_Request):
    """A key to make."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"scopes": ["publish"], "name": "the web shop"}]}
    )

    scopes: Annotated[list[Literal["publish", "subscribe", "admin"]], Field(min_length=1, max_length=3)]
    name: Annotated[str, Field(max_length=200)] = ""
    tenant: Annotated[str, Field(max_length=LONGEST_ID)] | None = Field(
        None, description="only a key of the first tenant may make keys of others"
    )


class KeyAnswer(BaseModel):
    """A key, without its secret."""

    id: str
    tenant: str
    name: str
    scopes: list[str]
    created: float


class NewKeyAnswer(KeyAnswer):
    """A new key, with its text, which cannot be shown again."""

    key: str


class KeyList(BaseModel):
    """Keys in the order made."""

    keys: list[KeyAnswer]


class RejectPage(BaseModel):
    """Messages that were refused, the newest first."""

    rejects: list[dict[str, Any]]
    next: int | None


class FailureList(BaseModel):
    """Failures of queries on messages."""

    failures: list[dict[str, Any]]
    counts: dict[str, dict[str, int]] = Field(description="by subscription and kind")
    refused: dict[str, str] = Field(description="subscriptions that cannot be evaluated, and why")


class MessagePage(BaseModel):
    """Messages of the log, the newest first."""

    messages: list[dict[str, Any]]
    next: int | None


class StatsAnswer(BaseModel):
    """Counters and sizes, for a console."""

    version: int
    seq: int
    subscriptions: dict[str, int]
    subscribers: int
    backlog: int
    suspended: int
    published: float
    deliveries: float
    rejected: float
    failures: float
    engine: dict[str, Any]
    listeners: dict[str, float]
    join_state: dict[str, Any]


class Health(BaseModel):
    """Whether the server works."""

    status: str
    problem: str | None = None


class BackupRequest(_Request):
    """Where the server writes a copy of its database."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "sapwood-2026-11-17.db"}]})

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")] = Field(
        description="the name of a new file beside the database"
    )


class BackupAnswer(BaseModel):
    """A copy of the database."""

    file: str
    bytes: int
    seconds: float
