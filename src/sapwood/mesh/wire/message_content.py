"""A message as it travels between brokers."""

from __future__ import annotations

from typing import NamedTuple

from sapwood.mesh.projection.pruning_plan import PruningPlan
from sapwood.mesh.wire.bodies.body_format import EncodedBody
from sapwood.mesh.wire.skeletons.skeleton import Skeleton


class Projection(NamedTuple):
    """What was cut of a message on its way."""

    plan: PruningPlan
    """what was kept"""
    original: bytes
    """the digest of the message as it was published"""


MOST_HITS, SOME_HITS = 8, 4
"""up to how many are listed for a message, and how many of those of one that has more: a key takes 16 bytes,
unless other messages of the payload have it"""


class Hits(NamedTuple):
    """Which routes of a table a message meets. That holds of the message and the table, wherever they are."""

    table: int
    """the digest of the table"""
    keys: tuple[int, ...]
    """of routes that the message meets, at least one"""
    is_complete: bool
    """whether it meets no others"""


class MessageContent(NamedTuple):
    """What was published, and where."""

    tenant: str
    stream: str
    id: str
    time: float | None
    """the event time, if the publisher gave one"""
    body: bytes
    is_unique: bool = False
    """whether the id was made for this message, so that no other has it"""
    encoded: EncodedBody | None = None
    """the body as it came over a link, or as it was sent over one"""
    skeleton: Skeleton | None = None
    """what inner brokers may decide on"""
    projection: Projection | None = None
    """what was cut of the body; None: nothing"""
    hits: Hits | None = None
    """which routes it meets of the table that the receiver has told, if it forwards messages to others"""
