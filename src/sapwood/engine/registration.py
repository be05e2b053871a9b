"""Owners of the queries that share an index, and their requirements on the message reader."""

from __future__ import annotations

from enum import Flag, IntEnum, auto
from typing import NamedTuple


class Owner(IntEnum):
    """The part of a broker on behalf of which a query is registered."""

    FILTER = 0
    TRANSFORMATION = 1
    JOIN = 2
    LINK = 3
    """a link to another broker, which wants the messages that meet a condition; see `Index.__getstate__`"""


class Needs(Flag):
    """Requirements of an owner on the message reader, besides the guide nodes that a message passes."""

    NOTHING = 0
    TEXT = auto()
    """text nodes, and so string-values"""
    SOURCE = auto()
    """the message in UTF-8 with its namespace declarations, from which elements are copied"""


class Binding(NamedTuple):
    """The slot of a path that was registered for the elements that it reaches."""

    slot: int
    exact: bool
    """False: the elements reported are candidates, to be checked with the conditions of the last step"""
