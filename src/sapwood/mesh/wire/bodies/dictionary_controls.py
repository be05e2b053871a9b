"""What brokers tell each other about dictionaries and plans; each may be lost, repeated, and late."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OfferDictionary:
    """A dictionary that the sender would like to use, as bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class OfferPlan:
    """A plan of projection that the sender would like to name, as bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class HaveDictionary:
    """The sender has a dictionary or plan."""

    identity: bytes


@dataclass(frozen=True, slots=True)
class NeedDictionary:
    """The sender has got frames that it cannot read without a dictionary or plan."""

    identity: bytes


@dataclass(frozen=True, slots=True)
class LackDictionary:
    """The sender was asked for a dictionary or plan that it has forgotten: to wait for it is of no use."""

    identity: bytes


DictionaryControl = OfferDictionary | OfferPlan | HaveDictionary | NeedDictionary | LackDictionary
