"""The broker: filters, transformations and joins together, in one process."""

from sapwood.broker.broker import Broker

__all__ = ["Broker"]
