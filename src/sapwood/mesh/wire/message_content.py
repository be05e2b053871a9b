"""A message as it travels between brokers."""

from __future__ import annotations

from typing import NamedTuple


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
