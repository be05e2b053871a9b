"""The requests and answers of the API that concern a mesh."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sapwood.store.text_checks import LONGEST_ID

BrokerName = Annotated[str, Field(min_length=1, max_length=60, description="the name of a broker")]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


# -- the state ---------------------------------------------------------------------------------------------


class BrokerState(BaseModel):
    """What a broker tells of itself; figures of its links are by neighbour."""

    model_config = ConfigDict(extra="allow")

    mesh: str
    broker: str
    parent: str | None = Field(description="null for the root, and for one that has not joined")
    connected: bool = Field(description="whether it has a connection to a NATS server of its site")
    directory: bool = Field(description="whether it reaches the hub")
    problem: str | None = Field(description="why it is not in the mesh at present")
    topology: int = Field(description="the version of the tree that it knows")
    draining: bool = Field(description="whether publishers are refused, because it is to leave")
    confirmed: int = Field(description="the version of its subscriptions that all brokers have; -1: none yet")
    links: dict[str, dict[str, Any]] = {}
    counters: dict[str, int] = {}
    unsettled: int = Field(0, description="messages that are not known to have arrived wherever wanted")
    unconfirmed: int = Field(0, description="changes that not all brokers have")


class BrokerAnswer(BaseModel):
    """A broker of the mesh."""

    broker: str
    parent: str | None
    lease_age: float | None = Field(description="seconds since it renewed its lease; null: never seen")
    url: str | None = Field(description="of its API, as far as it tells")
    host: str | None = Field(None, description="the machine it runs on")
    process: int | None = Field(None, description="its process id there")
    error: str | None = Field(description="why its state is not known")
    status: BrokerState | None


class BrokerList(BaseModel):
    """All brokers of the mesh."""

    version: int = Field(description="of the tree")
    brokers: list[BrokerAnswer]


class LinkAnswer(BaseModel):
    """One direction of a link; null: not known."""

    sender: str
    receiver: str
    open: bool | None
    messages_per_second: float | None = Field(description="over the last seconds")
    bytes_per_second: float | None
    messages: int | None = Field(description="since the sender was started")
    bytes: int | None
    format: str | None = Field(None, description="in which bodies of messages are sent at present")
    text_bytes: int | None = Field(None, description="of the messages that were sent, without what was cut")
    body_bytes: int | None = Field(None, description="of these in the formats in which they were sent")
    cut_messages: int | None = Field(None, description="from which parts were cut that nobody beyond reads")
    cut_bytes: int | None = Field(None, description="of these parts")
    outbox: int | None = Field(description="frames that the receiver has not acknowledged")
    unsettled: int | None = Field(description="messages that are not settled on the receiver's side")
    queue_age: float | None = Field(description="seconds that the oldest message waits for the receiver")
    queue_bytes: int | None
    routes: int | None = Field(description="that are wanted on the receiver's side")
    generalised: int | None = Field(None, description="routes among them that stand for several others")
    table_known: bool | None = Field(description="false: everything is sent")
    table_version: int | None
    table_lag: int | None = Field(description="versions of the table that are not confirmed")


class TreeBroker(BaseModel):
    """A broker in the tree."""

    broker: str
    parent: str | None
    lease_age: float | None
    url: str | None
    error: str | None
    subscriptions: int | None


class TopologyAnswer(BaseModel):
    """The tree of brokers, and its links."""

    version: int
    root: str | None
    parents: dict[str, str | None]
    brokers: list[TreeBroker]
    links: list[LinkAnswer]


class RouteAnswer(BaseModel):
    """A condition that messages have to meet to be sent to a side."""

    key: str
    tenant: str
    stream: str | None = Field(description="null: any")
    condition: str
    exact: bool = Field(description="false: the query may refuse some messages that meet it")
    reads: list[str] | None = Field(
        None, description="the elements that the query reads; null: the whole message"
    )


class RoutePage(BaseModel):
    """What is wanted on one side of a broker."""

    broker: str
    link: str | None = Field(description="the neighbour on whose side; null: by subscriptions of the broker")
    routes: list[RouteAnswer]
    count: int = Field(description="of all routes")
    next: int | None = Field(description="for `after`, if there are more")


class FindingAnswer(BaseModel):
    """Something that is wrong, or may be."""

    severity: Literal["error", "warning"]
    where: str
    what: str
    advice: str


class CheckAnswer(BaseModel):
    """Whether the mesh is consistent."""

    consistent: bool
    brokers: int
    findings: list[FindingAnswer]


# -- subscriptions and messages ----------------------------------------------------------------------------


class ProjectionAnswer(BaseModel):
    """What a broker cuts from the messages of a stream, and why."""

    stream: str
    is_cut: bool
    reason: str = Field(description="why it is cut, or why not")
    reads: list[str] = Field(description="the elements that are kept, with all that they are inside of")
    saved: float | None = Field(description="the share of the bytes that is cut; null: not tried yet")
    seconds: float | None = Field(description="that cutting a message takes; null: not tried yet")


class RouteHolder(BaseModel):
    """A broker, and whether it sends what a subscription wants towards its host."""

    broker: str
    side: str | None = Field(description="`local`, or the neighbour on the way to the host")
    has: bool | None = Field(description="whether it has all routes; null: not known")
    table_version: int | None = Field(None, description="the version of the table that it has of that side")
    entries: list[RouteAnswer] = Field(
        [], description="that stand for its routes, where tables are generalised"
    )
    projection: list[ProjectionAnswer] = Field(
        [], description="what it cuts from messages on the way to that side, by stream"
    )
    error: str | None = None


class HostAnswer(BaseModel):
    """A subscription at the broker that delivers for it."""

    broker: str
    query: str
    language: str
    subscriber: str
    streams: list[str]
    active: bool
    version: int
    confirmed: bool = Field(description="whether all brokers have its routes")
    routes: list[RouteAnswer]
    brokers: list[RouteHolder]


class ExplainAnswer(BaseModel):
    """Where a subscription stands."""

    id: str
    tenant: str
    hosts: list[HostAnswer]
    silent: dict[str, str] = Field(description="brokers that have not answered")


class ChosenLink(BaseModel):
    """A link that a message was sent by, and why, as far as the routes of now tell."""

    link: str
    count: int = Field(description="of the routes that it meets; 0: they are gone, or everything was sent")
    routes: list[RouteAnswer] = Field(description="some of them")


class HopAnswer(BaseModel):
    """A message at a broker."""

    broker: str
    id: str
    stream: str
    seq: int
    came_by: str | None = Field(description="the neighbour that sent it; null: it was published here")
    received: float = Field(description="seconds since the epoch, by the clock of the broker")
    version: int = Field(description="of the subscriptions that it was matched with")
    deliveries: int
    matched_here: bool = Field(description="false: it only passed, or was known")
    chosen: list[ChosenLink] | None = Field(description="null: not decided yet")
    not_chosen: list[str]


class TracedMessage(BaseModel):
    """A message, hop by hop from its root broker."""

    source: str = Field(description="its root broker")
    number: int = Field(description="among the messages that were published there")
    hops: list[HopAnswer]


class RefusedHop(BaseModel):
    """A broker that has refused a message."""

    broker: str
    stream: str
    received: float
    reason: str
    line: int | None
    column: int | None


class TraceAnswer(BaseModel):
    """The ways of the messages with an id."""

    id: str
    tenant: str
    messages: list[TracedMessage]
    refused: list[RefusedHop]
    silent: dict[str, str]


# -- changes -----------------------------------------------------------------------------------------------


class MoveBrokerRequest(_Request):
    """Another parent for a broker."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"broker": "zurich", "parent": "basel"}]})

    broker: BrokerName
    parent: BrokerName


class TreeAnswer(BaseModel):
    """The tree after a change."""

    version: int
    parents: dict[str, str | None]


class DrainRequest(_Request):
    """A broker that is to leave."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"broker": "zurich"}]})

    broker: BrokerName
    force: bool = Field(False, description="also if it hosts subscriptions, or does not answer")
    wait: float = Field(60.0, ge=0, le=3_600, description="seconds until all has arrived")


class DrainAnswer(BaseModel):
    """What became of a broker that was to leave."""

    broker: str
    removed: bool
    settled: bool = Field(description="whether all that was published there has arrived where it is wanted")
    reason: str | None = Field(description="why it is not removed")


class MoveSubscriptionsRequest(_Request):
    """Subscriptions that another broker is to host."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": ["large-orders"], "to": "basel"}]})

    ids: list[Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]] = Field(
        min_length=1, max_length=1_000
    )
    to: BrokerName
    tenant: Annotated[str, Field(max_length=LONGEST_ID)] = ""


class MovedSubscription(BaseModel):
    """A subscription that another broker hosts now."""

    id: str
    source: str
    target: str
    deliveries: int = Field(description="that it got with the move, which its former host has not made")


class MoveSubscriptionsAnswer(BaseModel):
    """Subscriptions that were moved."""

    moved: list[MovedSubscription]
