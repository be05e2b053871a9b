"""What takes the messages of a node: the batch that is being built."""

from __future__ import annotations

from typing import Protocol

from sapwood.errors import MessageError
from sapwood.serve.tenants.evaluation import Deferred, Evaluation, Publication


class MessageSink(Protocol):
    """Takes messages that did not come from a publisher of this service."""

    def store_received(self, message: Publication, mark: bytes, evaluation: Evaluation) -> None:
        """Store a message with its deliveries."""

    def reject_received(self, message: Publication, error: MessageError) -> None:
        """Record a message that is refused."""

    def store_evaluation(self, deferred: Deferred, evaluation: Evaluation) -> None:
        """Store the deliveries of a message that was stored without them."""
