"""The order of the deliveries of one message: equal ones together, those of a subscription as they are."""

from __future__ import annotations

from collections import Counter, deque

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def order_deliveries(subscriptions: Ints, outputs: Ints) -> Ints:
    """Return positions in an order in which equal outputs are adjacent, so that one delivery may carry them
    for several subscriptions of an inbox, and the outputs of each subscription stay in order.

    Where subscriptions get the same outputs in contrary orders, some equal outputs are apart.
    """
    by_subscription = np.argsort(subscriptions, kind="stable")
    owners, sequence = subscriptions[by_subscription], outputs[by_subscription]
    descends = (owners[1:] == owners[:-1]) & (sequence[1:] < sequence[:-1])
    if not descends.any():  # nearly always: few subscriptions get several outputs of one message
        return np.argsort(outputs, kind="stable")
    return _merge(subscriptions.tolist(), outputs.tolist())


def _merge(subscriptions: list[int], outputs: list[int]) -> Ints:
    """Merge the sequences of subscriptions: of the outputs that are next in some of them, one is taken that
    no other still waits for, or else the first."""
    waiting: dict[int, deque[int]] = {}
    for position, subscription in enumerate(subscriptions):
        waiting.setdefault(subscription, deque()).append(position)
    left = Counter(outputs)
    heads: dict[int, list[int]] = {}
    """by output, the positions that are next in their subscription"""
    ready: deque[int] = deque()
    """outputs of which all that are left are next"""

    def advance(subscription: int) -> None:
        if waiting[subscription]:
            position = waiting[subscription].popleft()
            output = outputs[position]
            heads.setdefault(output, []).append(position)
            if len(heads[output]) == left[output]:
                ready.append(output)

    for subscription in list(waiting):
        advance(subscription)
    order: list[int] = []
    while heads:
        output = ready.popleft() if ready else next(iter(heads))
        taken = heads.pop(output, ())
        left[output] -= len(taken)
        order += taken
        for position in taken:
            advance(subscriptions[position])
    return np.array(order, np.int64)
