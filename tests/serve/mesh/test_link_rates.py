"""The rates of links are differences over the last seconds."""

from __future__ import annotations

from sapwood.serve.mesh.administration.link_rates import LinkRates


def counters(messages: int) -> dict[str, dict[str, int]]:
    return {"b": {"messages in": messages, "bytes in": 10 * messages, "messages out": 0, "bytes out": 0}}


def test_a_rate_is_the_mean_of_the_last_seconds() -> None:
    rates = LinkRates()
    assert rates.get("b")["messages in"] == 0.0
    for second in range(20):
        rates.add(float(second), counters(100 * second if second < 10 else 900))
    assert rates.get("b") == dict.fromkeys(("messages in", "bytes in", "messages out", "bytes out"), 0.0)
    rates.add(20.0, counters(1_400))
    assert rates.get("b")["messages in"] == 100.0
    assert rates.get("b")["bytes in"] == 1_000.0


def test_counters_that_begin_anew_give_no_negative_rate() -> None:
    rates = LinkRates()
    rates.add(0.0, counters(500))
    rates.add(1.0, counters(3))
    assert rates.get("b")["messages in"] == 0.0
    rates.clear()
    rates.add(2.0, counters(3))
    rates.add(3.0, counters(7))
    assert rates.get("b")["messages in"] == 4.0


def test_a_new_link_begins_with_no_rate() -> None:
    rates = LinkRates()
    rates.add(0.0, {})
    rates.add(1.0, counters(500))
    assert rates.get("b")["messages in"] == 0.0
