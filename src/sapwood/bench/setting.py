"""What every experiment is given: sources, sizes, and the report to write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sapwood import Matcher
from sapwood.bench import timing
from sapwood.bench.report import Chart, Detail, Figure, Listing, Report
from sapwood.bench.scale import Scale
from sapwood.bench.sources import Source
from sapwood.bench.timing import Timing

AnySetting = TypeVar("AnySetting")


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar that is not simply the most that is promised."""

    value: float
    at_least: bool = False
    """more is better"""
    promised: bool = True
    """False: for reference, whatever is judged elsewhere"""


@dataclass(slots=True)
class Notebook:
    """Where an experiment puts what it has measured."""

    report: Report
    judged: bool
    """whether the bars are promises about this workload at this scale"""

    def figure(
        self,
        measure: str,
        workload: str,
        value: float,
        unit: str,
        bar: float | Bar | None = None,
        **details: Detail,
    ) -> None:
        """Reports a figure."""
        if not isinstance(bar, Bar):
            judged = self.judged and bar is not None
            figure = Figure(measure, workload, value, unit, bar, judged, details)
        else:
            judged = self.judged and bar.promised
            figure = Figure(measure, workload, value, unit, bar.value, judged, details, bar.at_least)
        self.report.figures.append(figure)

    def chart(self, chart: Chart) -> Chart:
        """Puts an empty chart into the report, to be filled while measuring."""
        self.report.charts.append(chart)
        return chart

    def listing(self, listing: Listing) -> Listing:
        """Puts an empty listing into the report, to be filled while measuring."""
        self.report.listings.append(listing)
        return listing


@dataclass(slots=True)
class Setting(Notebook):
    """The surroundings of an experiment with filters."""

    source: Source
    scale: Scale

    def warm(self, matcher: Matcher, messages: Sequence[bytes]) -> Timing:
        """Matching messages that were seen before, as carefully as the scale says."""
        return timing.warm(matcher, messages, least=self.scale.rounds, seconds=self.scale.seconds)


@dataclass(frozen=True, slots=True)
class Experiment(Generic[AnySetting]):
    """Something to measure. `steps` measures it, and says before each step what comes next."""

    name: str
    about: str
    steps: Callable[[AnySetting], Iterator[str]]


def details(timing: Timing, **more: Detail) -> dict[str, Detail]:
    """A timing as JSON has it."""
    return {
        "microseconds": round(timing.microseconds, 1),
        "raw_microseconds": round(timing.raw_microseconds, 1),
        "lowest": round(timing.spread[0], 2),
        "highest": round(timing.spread[1], 2),
        "rounds": len(timing.own),
        **more,
    }
