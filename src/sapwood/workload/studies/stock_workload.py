"""Messages and queries of stock quotes, flat and many: the first workload of Tian et al. (SIGMOD 2004).

    <stock><symbol>YHOO</symbol><price>70.20</price><open>50.00</open><change>20.20</change>
      <low>47.20</low><high>74.50</high><volume>10000</volume></stock>                      (in one line)

    /stock/symbol/text() = 'YHOO' and /stock/price/text() > 50.25 and /stock/open/text() < 38.10
      and /stock/high/text() > 80.00 and /stock/volume/text() > 20000                       (in one line)

The paper varies one thing, the number of notifications. So numbers are uniform and independent of each other,
unlike those of a market: the share of messages that a bound lets through is then known exactly, and bounds
can be drawn for as many notifications as wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from sapwood.errors import ArgumentError
from sapwood.workload import parameter_checks
from sapwood.workload.messages.value_distributions import Distribution, pick

SYMBOLS = 5_000

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LENGTHS = Distribution(5, [1, 6, 48, 40, 5])  # per cent of the tickers with one letter to five
_MOST_SYMBOLS = 1_000_000  # about one in twelve of all there can be: redraws stay rare
_SPREAD = 0.8  # how far the share that a bound lets through lies from the mean, at most, relative to it

_PRICES = range(100, 50_100)  # in cents
_CHANGES = range(-2_000, 2_001)
_VOLUMES = range(10_000_000)


class StockWorkload:
    """Messages and subscriptions over a number of symbols, all equally likely; the same for the same seed."""

    def __init__(self, symbols: int = SYMBOLS, seed: int = 0) -> None:
        parameter_checks.at_least(1, symbols=symbols)
        if symbols > _MOST_SYMBOLS:
            raise ArgumentError(f"symbols must be at most {_MOST_SYMBOLS:,}, not {symbols!r}")
        self._seed = seed
        self._symbols = _tickers(symbols)
        # Written once, not millions of times. A bound can also lie just below or above all prices.
        self._bounds = [_decimal(cents) for cents in range(_PRICES.start - 1, _PRICES.stop + 1)]
        self._prices = self._bounds[1:-1]
        self._changes = [_decimal(cents) for cents in _CHANGES]

    def messages(self, n: int) -> Iterator[bytes]:
        """The first n messages."""
        random = Random(2 * self._seed).random
        symbols, prices, changes = self._symbols, self._prices, self._changes
        for _ in range(n):
            yield (
                f"<stock><symbol>{pick(symbols, random())}</symbol>"
                f"<price>{pick(prices, random())}</price><open>{pick(prices, random())}</open>"
                f"<change>{pick(changes, random())}</change>"
                f"<low>{pick(prices, random())}</low><high>{pick(prices, random())}</high>"
                f"<volume>{pick(_VOLUMES, random())}</volume></stock>"
            ).encode()

    def queries(self, n: int, messages: int, notifications: int) -> Iterator[str]:
        """Yield n subscriptions that together expect `notifications` matches from `messages` messages.

        The bounds of each subscription are drawn anew, around what lets the needed share of messages through.
        Raises ValueError where even bounds that let all through would give fewer.
        """
        parameter_checks.at_least(1, n=n, messages=messages)
        parameter_checks.at_least(0, notifications=notifications)
        # All symbols are equally frequent; each of the four ranges lets the same share of a symbol's messages
        # through.
        passing = notifications * len(self._symbols) / (n * messages)
        if passing > 1:
            raise ArgumentError(
                f"{messages:,} messages with {len(self._symbols):,} symbols give at most "
                f"{n * messages // len(self._symbols):,} notifications to {n:,} subscriptions, "
                f"not {notifications:,}: ask for fewer, or take fewer symbols"
            )
        return self._queries(n, passing**0.25, Random(2 * self._seed + 1).random)

    def _queries(self, n: int, share: float, random: Callable[[], float]) -> Iterator[str]:
        """Each range lets a share of its own through, uniform around `share`.

        The four are independent, so the mean of their product is the product of their means.
        """
        symbols, bounds = self._symbols, self._bounds
        spread = min(_SPREAD * share, 1 - share)
        least, more = share - spread, 2 * spread
        # Of p prices, `> bounds[p - k]` and `< bounds[k + 1]` let k through.
        prices, volumes = len(_PRICES), len(_VOLUMES)
        above, below = (1 - least) * prices + 0.5, least * prices + 1.5
        busiest = (1 - least) * volumes - 0.5
        prices_more, volumes_more = more * prices, more * volumes
        for _ in range(n):
            yield (
                f"/stock/symbol/text() = '{symbols[int(random() * len(symbols))]}'"
                f" and /stock/price/text() > {bounds[int(above - prices_more * random())]}"
                f" and /stock/open/text() < {bounds[int(below + prices_more * random())]}"
                f" and /stock/high/text() > {bounds[int(above - prices_more * random())]}"
                f" and /stock/volume/text() > {int(busiest - volumes_more * random())}"
            )


def _tickers(count: int) -> list[str]:
    """Return `count` different symbols, always the same: a market does not change with the seed."""
    random = Random(0).random
    found: dict[str, None] = {}
    while len(found) < count:
        length = 1 + _LENGTHS.rank(random())
        found["".join([pick(_LETTERS, random()) for _ in range(length)])] = None
    return list(found)


def _decimal(cents: int) -> str:
    return f"{cents / 100:.2f}"
