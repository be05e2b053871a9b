"""Filters, transformations and joins together, in one process: `Broker`, and what it delivers."""

from sapwood.broker.broker import Broker

__all__ = ["Broker"]
