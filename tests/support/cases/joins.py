"""Joins as tables: what is published, when, and which messages meet by it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from sapwood import Broker, Delivery, LateMessage
from tests.support.oracles.saxon import canonical

Row = tuple[float, str, str, str]
"""time, stream, message, and what is delivered: `1+2` for a meeting of the first and second message, in the
order of the blocks; with `q:` before it where the subscription is not `q`; `late` if the message is"""


def broker_of(queries: str | Mapping[str, str], lateness: float = 0, **options: object) -> Broker:
    broker = Broker(lateness=lateness, **options)  # type: ignore[arg-type]
    for id, query in ({"q": queries} if isinstance(queries, str) else queries).items():
        broker.subscribe(id, query)
    return broker


def check(broker: Broker, rows: Iterable[Row], first: int = 1) -> None:
    """Publishes messages, by the number of their row, and compares what they complete."""
    for id, (time, stream, message, expected) in enumerate(rows, first):
        try:
            got = told(broker.publish(message, id, stream=stream, time=time))
        except LateMessage:
            got = ["late"]
        assert got == sorted(expected.split()), f"at {time}: {message}"


def told(deliveries: Iterable[Delivery]) -> list[str]:
    return sorted(f"{'' if d.subscription == 'q' else f'{d.subscription}:'}{_met(d)}" for d in deliveries)


def _met(delivery: Delivery) -> str:
    messages = delivery.meeting.messages if delivery.meeting is not None else (delivery.message,)
    return "+".join(map(str, messages))


def bodies(deliveries: Iterable[Delivery]) -> dict[Hashable, str]:
    """What each subscription gets, in one spelling for all that is the same."""
    return {delivery.subscription: canonical(delivery.body) for delivery in deliveries}
