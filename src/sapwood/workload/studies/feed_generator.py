"""Items of many web feeds as one stream, in the shape of those that Hong et al. (SIGMOD 2007) had collected:
225,000 items of 418 channels from June to October 2006, with five leaves.

    <item><item_url>…</item_url><channel_url>…</channel_url><title>…</title>
      <timestamp>2006-06-01T00:00:58Z</timestamp><description>…</description></item>        (in one line)

What joins of items find depends on what repeats. Four things do, and at the default rates six items in a
hundred have a title that was there before, and three a description:

    channels        of all items; they are as popular as Zipf's law has it, exponent 0.8
    re-posts        2 %: a channel sends an item again, as readers' software does when an author saves it once
                    more: the same item_url and title; the description is edited in a third of them
    cross-posts     3 %: another channel carries a story of an agency or a planet of blogs: an item_url of its
                    own, the same title; the description is the same in half of them, else it is abridged anew
    columns         1 %: a title that a channel uses again and again ("Links of the day"), nothing else alike

The published feeds are lost, so the rates are guesses: aggregators of those years had to hide re-posts of one
or two per cent of the items they read, and planets and agencies about as many again. Re-posts and cross-posts
repeat something recent: of the last thousand items, the later the likelier. A story may thus be told often.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import log
from random import Random

from sapwood.errors import ArgumentError
from sapwood.workload import parameter_checks
from sapwood.workload.generator import Generator
from sapwood.workload.messages.value_distributions import Distribution, Values, pick, zipf
from sapwood.workload.queries.join_generator import FEED_LEAVES

CHANNELS = 418
ITEMS = 225_000

_START = datetime(2006, 6, 1, tzinfo=UTC)
_SECONDS_APART = 58.0  # on average: 225,000 items are five months
_RECENT = 1_000
_VOCABULARY = 5_000
_EDITED, _ABRIDGED = 1 / 3, 1 / 2


@dataclass(frozen=True, slots=True)
class _Item:
    """The parts of an item that a later one may repeat."""

    channel: int
    url: str
    title: str
    description: str


class FeedGenerator(Generator[bytes]):
    """An endless iterator of items, each one line of UTF-8; timestamps increase by a second at least.

    `channel_skew` is the Zipf exponent of the channels' popularity; `reposts`, `crossposts` and `columns` are
    shares of all items.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        channels: int = CHANNELS,
        channel_skew: float = 0.8,
        reposts: float = 0.02,
        crossposts: float = 0.03,
        columns: float = 0.01,
    ) -> None:
        parameter_checks.at_least(1, channels=channels)
        parameter_checks.at_least(0, channel_skew=channel_skew)
        parameter_checks.probabilities(reposts=reposts, crossposts=crossposts, columns=columns)
        if not reposts + crossposts + columns <= 1:
            raise ArgumentError(
                "reposts, crossposts and columns must be at most 1 together, "
                f"not {reposts + crossposts + columns:g}"
            )
        self._random = Random(seed).random
        self._channels = Distribution(channels, zipf(channels, channel_skew))
        self._reposts, self._crossposts, self._columns = reposts, crossposts, columns
        self._words = Values(_VOCABULARY, 0.0, numeric=False).text.values
        self._recent: deque[_Item] = deque(maxlen=_RECENT)
        self._seconds = 0
        self._number = 0

    def message(self) -> bytes:
        """The next item."""
        self._number += 1
        self._seconds += 1 + int(-log(1 - self._random()) * (_SECONDS_APART - 0.5))
        item = self._item()
        self._recent.append(item)
        time = (_START + timedelta(seconds=self._seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        values = (item.url, _channel_url(item.channel), item.title, time, item.description)
        leaves = "".join(f"<{name}>{value}</{name}>" for name, value in zip(FEED_LEAVES, values, strict=True))
        return f"<item>{leaves}</item>".encode()

    def __next__(self) -> bytes:
        return self.message()

    def _item(self) -> _Item:
        kind = self._random()
        if self._recent and kind < self._reposts:
            return self._reposted(self._earlier())
        kind -= self._reposts
        channel = self._channels.rank(self._random())
        if self._recent and 0 <= kind < self._crossposts:
            return self._crossposted(self._earlier(), channel)
        kind -= self._crossposts
        title = f"Column {channel + 1}" if 0 <= kind < self._columns else self._text(6, 5)
        return _Item(channel, self._url(channel), title, self._text(12, 20))

    def _reposted(self, item: _Item) -> _Item:
        description = self._text(12, 20) if self._random() < _EDITED else item.description
        return _Item(item.channel, item.url, item.title, description)

    def _crossposted(self, item: _Item, channel: int) -> _Item:
        """By another channel, where there is one."""
        if channel == item.channel:
            channel = (channel + 1) % self._channels.count
        description = self._text(12, 20) if self._random() < _ABRIDGED else item.description
        return _Item(channel, self._url(channel), item.title, description)

    def _earlier(self) -> _Item:
        back = int(self._random() ** 2 * len(self._recent))
        return self._recent[-1 - back]

    def _url(self, channel: int) -> str:
        return f"{_channel_url(channel)}{self._number}.html"

    def _text(self, least: int, more: int) -> str:
        """Words, from `least` to `least + more - 1` of them: enough that no two texts are alike by chance."""
        random, words = self._random, self._words
        count = least + int(random() * more)
        return " ".join([pick(words, random()) for _ in range(count)]).capitalize()


def _channel_url(channel: int) -> str:
    return f"http://feeds.example/{channel + 1}/"
