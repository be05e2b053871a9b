"""Messages that would make a join take for ever, or for everything there is."""

from __future__ import annotations

from time import perf_counter

import pytest

from sapwood import Broker, Failure, FailureKind, Tuning

LINES = "S/order->o[line->l[sku->s][currency->c]] FOLLOWED BY{s = t AND c = d, INF} " + (
    "S/order->p[line->m[sku->t][currency->d]]"
)


def order(lines: int, prefix: str) -> str:
    every = (f"<line><sku>{prefix}{n}</sku><currency>EUR</currency></line>" for n in range(lines))
    return f"<order>{''.join(every)}</order>"


@pytest.mark.parametrize("tuning", [Tuning(), Tuning(share_joins=False), Tuning(share_values=False)])
def test_a_value_that_is_everywhere(tuning: Tuning) -> None:
    """Two thousand lines in the same currency: four million pairs, of which one matters."""
    broker = Broker(tuning=tuning)
    broker.subscribe("lines", LINES)
    broker.publish(order(2_000, "a"), 1, stream="S", time=1)
    started = perf_counter()
    assert broker.publish(order(2_000, "b"), 2, stream="S", time=2) == []
    last = order(1_999, "c").replace("</order>", "<line><sku>a7</sku><currency>EUR</currency></line></order>")
    [delivery] = broker.publish(last, 3, stream="S", time=3)
    assert delivery.meeting is not None and delivery.meeting.messages == (1, 3)
    assert perf_counter() - started < 20


def test_a_value_that_is_everywhere_and_fits() -> None:
    broker = Broker()
    broker.subscribe("lines", LINES.replace("sku", "currency"))
    broker.publish(order(1_500, "a"), 1, stream="S", time=1)
    [delivery] = broker.publish(order(1_500, "b"), 2, stream="S", time=2)
    assert len(delivery.body) > 1_000


def test_a_chain_that_cannot_be_continued_is_a_failure() -> None:
    broker = Broker()
    blocks = "S/order[line/sku->s][line/currency->c] JOIN{c = d, INF} S/order[line/sku->t][line/currency->d]"
    broker.subscribe("chain", f"{blocks} JOIN{{s = u AND t = v, INF}} T/end[a->u][b->v]")
    broker.subscribe("fine", "S/order[line/sku->s] JOIN{s = t, INF} S/order[line/sku->t]")
    broker.publish(order(1_200, "a"), 1, stream="S", time=1)
    deliveries = broker.publish(order(1_200, "a"), 2, stream="S", time=1)
    assert {delivery.subscription for delivery in deliveries} == {"fine"}
    reason = "its chain is not followed: more than 100,000 groups"
    assert deliveries.failures == [Failure("chain", FailureKind.FAILED, reason, 2)]


def test_a_query_that_makes_too_much_makes_nothing() -> None:
    broker = Broker()
    blocks = "S/order[line/sku->s][line/currency->c] JOIN{c = d, INF} S/order[line/sku->t][line/currency->d]"
    broker.subscribe("all", f"SELECT <x>{{$s}}{{$t}}</x> FROM {blocks}")
    broker.subscribe("fine", "S/order[line/sku->s] JOIN{s = t, INF} S/order[line/sku->t]")
    broker.publish(order(1_200, "a"), 1, stream="S", time=1)
    deliveries = broker.publish(order(1_200, "a"), 2, stream="S", time=1)
    assert {delivery.subscription for delivery in deliveries} == {"fine"}
    failure = Failure("all", FailureKind.FAILED, "more than 100,000 groups", 2)
    assert deliveries.failures == [failure]
    assert broker.failure_counts() == {"all": {FailureKind.FAILED: 1}}
