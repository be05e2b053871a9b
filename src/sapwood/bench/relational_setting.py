"""What the experiments with tables are given: sizes, and files of tables that several of them use."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from sapwood.bench.relational_findings import Loaded
from sapwood.bench.relational_run import measure, told
from sapwood.bench.relational_work import load_news, load_stocks
from sapwood.bench.setting import Notebook
from sapwood.workload.studies.observation_workload import DOCUMENTS
from sapwood.workload.studies.stock_workload import SYMBOLS


@dataclass(frozen=True, slots=True)
class RelationalScale:
    """Sizes of all experiments. The bars are promises about `FULL` only."""

    rounds: int

    # Stock quotes.
    messages: int
    subscriptions: int
    notifications: tuple[int, ...]
    """as many in all as the paper has, or as many for each pair of message and subscription"""
    growth_sizes: tuple[int, ...]
    """subscriptions; at each, as many notifications for each pair"""
    growth_rounds: int
    large: int
    """subscriptions that are many times what fits into the memory that is allowed"""

    # Engines compared.
    crossing_sizes: tuple[int, ...]
    """subscriptions of both engines"""
    crossing_beyond: tuple[int, ...]
    """of tables only"""
    news_sizes: tuple[int, ...]
    """of both, for news"""
    news: int
    """messages of these, in one batch"""
    batch: int
    """messages in a batch where it is also told what a message by itself takes"""
    singles: int
    """of them by themselves, since this takes long with tables"""

    # Observations.
    documents: int
    document_batch: int
    """of these in a batch: thousands of facts hold of each, and those of a batch have to fit into memory"""
    observation_sizes: tuple[int, ...]
    observation_shared: int
    """subscriptions at most for the plan shared, for which they have to be filed anew, and once more after"""
    observation_rounds: int

    symbols: int = SYMBOLS
    spark_subscriptions: int = 0
    """on Spark; 0 leaves it out"""

    def notifications_at(self, subscriptions: int) -> int:
        """As many for each pair of message and subscription, whatever the number of subscriptions."""
        return subscriptions * self.notifications[_SELECTIVE] // self.subscriptions


_SELECTIVE = -2
"""which of the numbers of notifications is the one for experiments that vary something else"""

FULL = RelationalScale(
    rounds=3,
    messages=10_000,
    subscriptions=1_000_000,
    notifications=(1_000, 10_000, 100_000, 1_000_000),
    growth_sizes=(100_000, 200_000, 1_000_000),
    growth_rounds=5,
    large=2_000_000,
    crossing_sizes=(1_000, 10_000, 100_000, 300_000),
    crossing_beyond=(1_000_000,),
    news_sizes=(1_000, 10_000, 100_000),
    news=500,
    batch=1_000,
    singles=20,
    documents=DOCUMENTS,
    document_batch=100,
    observation_sizes=(130_000, 700_000, 1_400_000, 2_100_000, 2_700_000),
    observation_shared=700_000,
    observation_rounds=1,
    spark_subscriptions=100_000,
)

QUICK = RelationalScale(
    rounds=2,
    messages=2_000,
    subscriptions=20_000,
    notifications=(4, 40, 400, 4_000),
    growth_sizes=(2_000, 4_000, 20_000),
    growth_rounds=3,
    large=40_000,
    crossing_sizes=(1_000, 5_000),
    crossing_beyond=(20_000,),
    news_sizes=(1_000, 5_000),
    news=100,
    batch=500,
    singles=5,
    documents=150,
    document_batch=100,
    observation_sizes=(1_000, 2_000, 4_000),
    observation_shared=4_000,
    observation_rounds=1,
    spark_subscriptions=5_000,
)


@dataclass(slots=True)
class RelationalSetting(Notebook):
    """The surroundings of an experiment with tables."""

    scale: RelationalScale
    folder: Path
    """for files of tables"""
    _files: dict[tuple[int, int], Loaded] = field(default_factory=dict)

    def stock_file(self, subscriptions: int, notifications: int) -> Generator[str, None, Loaded]:
        """A file of subscriptions, filed by the plan unrolled, in a process of its own; as it was if it is
        there."""
        key = subscriptions, notifications
        if key not in self._files:
            file = self.folder / f"stocks-{subscriptions}-{notifications}.duckdb"
            scale = self.scale
            yield f"loading {subscriptions:,} subscriptions"
            self._files[key] = yield from told(
                measure(load_stocks, str(file), scale.symbols, subscriptions, scale.messages, notifications)
            )
        return self._files[key]

    def news_file(self, subscriptions: int) -> Generator[str, None, Loaded]:
        """A new file of paths through news."""
        file = self.folder / f"news-{subscriptions}.duckdb"
        return (yield from told(measure(load_news, str(file), subscriptions)))

    def selective_file(self, subscriptions: int) -> Generator[str, None, Loaded]:
        """One with as many notifications for each pair of message and subscription, whatever its size."""
        return self.stock_file(subscriptions, self.scale.notifications_at(subscriptions))

    def drop(self, loaded: Loaded) -> None:
        """Frees the disk of a file that nobody needs any more."""
        self._files = {key: file for key, file in self._files.items() if file is not loaded}
        Path(loaded.file).unlink()
