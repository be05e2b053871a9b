"""The flat workload: as many notifications as asked for, in expectation."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from lxml import etree

from sapwood import Matcher
from sapwood.lang.query import compile_query
from sapwood.workload import StockWorkload

LEAVES = ["symbol", "price", "open", "change", "low", "high", "volume"]
QUERY = re.compile(
    r"/stock/symbol/text\(\) = '([A-Z]{1,5})' and /stock/price/text\(\) > (\d+\.\d\d)"
    r" and /stock/open/text\(\) < (\d+\.\d\d) and /stock/high/text\(\) > (\d+\.\d\d)"
    r" and /stock/volume/text\(\) > (\d+)"
)


def bounds(query: str) -> tuple[str, list[float]]:
    """The symbol, and the bounds in the order of the query."""
    found = QUERY.fullmatch(query)
    assert found, query
    symbol, *numbers = found.groups()
    return symbol, [float(number) for number in numbers]


def share(query: str) -> float:
    """Of the messages with the symbol, those that pass: prices are 1.00 to 500.99, volumes 0 to 9,999,999."""
    price, opening, high, volume = bounds(query)[1]
    return (
        (500.99 - price)
        / 500
        * (opening - 1)
        / 500
        * (500.99 - high)
        / 500
        * (9_999_999 - volume)
        / 10_000_000
    )


# -- messages ------------------------------------------------------------------------------------------


def test_a_message_is_one_line_with_seven_values() -> None:
    for body in StockWorkload().messages(200):
        assert b"\n" not in body
        stock = etree.fromstring(body)
        assert stock.tag == "stock" and [leaf.tag for leaf in stock] == LEAVES
        symbol, *numbers = [leaf.text or "" for leaf in stock]
        assert re.fullmatch("[A-Z]{1,5}", symbol)
        assert all(re.fullmatch(r"-?\d+\.\d\d", number) for number in numbers[:-1])
        assert numbers[-1].isdecimal()


def test_symbols_are_as_many_as_asked_for_and_equally_likely() -> None:
    drawn = Counter(re.findall("[A-Z]+", body.decode())[0] for body in StockWorkload(40).messages(20_000))
    assert len(drawn) == 40
    assert min(drawn.values()) > 0.75 * 500 and max(drawn.values()) < 1.25 * 500


def test_numbers_are_uniform() -> None:
    messages = [etree.fromstring(body) for body in StockWorkload().messages(5_000)]
    for name, low, high in (("price", 1.0, 501.0), ("change", -20.0, 20.0), ("volume", 0.0, 1e7)):
        values = sorted(float(message.findtext(name) or "") for message in messages)
        assert low <= values[0] and values[-1] <= high
        for quantile in (0.1, 0.5, 0.9):
            expected = low + quantile * (high - low)
            assert values[int(quantile * 5_000)] == pytest.approx(expected, abs=0.03 * (high - low))


def test_the_same_seed_gives_the_same_workload() -> None:
    first, again, other = StockWorkload(seed=1), StockWorkload(seed=1), StockWorkload(seed=2)
    assert list(first.messages(50)) == list(again.messages(50)) != list(other.messages(50))
    assert list(first.messages(20)) == list(first.messages(50))[:20]
    asked = (50, 10_000, 10)
    assert list(first.queries(*asked)) == list(again.queries(*asked)) != list(other.queries(*asked))


def test_the_first_never_change() -> None:
    """Published figures are about these very messages and queries."""
    workload = StockWorkload()
    assert next(workload.messages(1)) == (
        b"<stock><symbol>JHTD</symbol><price>379.97</price><open>211.28</open><change>-9.65</change>"
        b"<low>256.63</low><high>203.46</high><volume>7837985</volume></stock>"
    )
    assert next(workload.queries(1_000_000, 10_000, 1_000)) == (
        "/stock/symbol/text() = 'EPA' and /stock/price/text() > 384.66 and /stock/open/text() < 107.32"
        " and /stock/high/text() > 455.52 and /stock/volume/text() > 8515572"
    )


# -- queries -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("notifications", [1_000, 10_000, 100_000, 1_000_000])
def test_queries_pass_as_often_as_the_experiments_of_the_paper_need(notifications: int) -> None:
    """As 10,000 messages to a million do: 1,250,000 to 8,000 are as many pairs."""
    n, messages = 8_000, 1_250_000
    queries = list(StockWorkload().queries(n, messages, notifications))
    expected = sum(map(share, queries)) * messages / 5_000
    assert expected == pytest.approx(notifications, rel=0.05)
    # No two are alike, and their bounds are spread.
    assert len(set(queries)) == n
    for column in zip(*(bounds(query)[1] for query in queries), strict=True):
        assert len(set(column)) > 2_000


def test_so_many_notifications_are_sent() -> None:
    workload = StockWorkload(symbols=20, seed=3)
    matcher = Matcher()
    matcher.add_many(enumerate(workload.queries(600, 400, 5_000)))
    sent = sum(len(matcher.match(message)) for message in workload.messages(400))
    assert sent == pytest.approx(5_000, rel=0.1)


def test_all_or_nothing() -> None:
    workload = StockWorkload(symbols=10)
    assert {share(query) for query in workload.queries(100, 100, 0)} == {0}
    assert [share(query) for query in workload.queries(100, 100, 1_000)] == pytest.approx([1] * 100)


def test_queries_compile() -> None:
    for query in StockWorkload().queries(100, 100_000, 500):
        assert compile_query(query).exact


def test_impossible_parameters_are_refused_at_once() -> None:
    workload = StockWorkload()
    with pytest.raises(ValueError, match=r"at most 200 notifications to 1,000 subscriptions, not 201"):
        workload.queries(1_000, 1_000, 201)
    assert workload.queries(1_000, 1_000, 200)
    for asked, says in (
        ((0, 1, 0), "n must be at least 1"),
        ((1, 0, 0), "messages must be at least 1"),
        ((1, 1, -1), "notifications must be at least 0"),
    ):
        with pytest.raises(ValueError, match=says):
            workload.queries(*asked)
    for symbols in (0, 1_000_001):
        with pytest.raises(ValueError, match="symbols must be at"):
            StockWorkload(symbols)
