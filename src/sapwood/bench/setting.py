"""What every experiment is given: sources, sizes, and the report to write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sapwood import Matcher
from sapwood.bench import timing
from sapwood.bench.report import Chart, Detail, Figure, Report
from sapwood.bench.scale import Scale
from sapwood.bench.sources import Source
from sapwood.bench.timing import Timing


@dataclass(frozen=True, slots=True)
class Setting:
    """The surroundings of an experiment."""

    source: Source
    scale: Scale
    report: Report
    judged: bool
    """whether the bars are promises about this source at this scale"""

    def figure(
        self,
        measure: str,
        workload: str,
        value: float,
        unit: str,
        bar: float | None = None,
        **details: Detail,
    ) -> None:
        """Reports a figure."""
        judged = self.judged and bar is not None
        self.report.figures.append(Figure(measure, workload, value, unit, bar, judged, details))

    def chart(self, chart: Chart) -> Chart:
        """Puts an empty chart into the report, to be filled while measuring."""
        self.report.charts.append(chart)
        return chart

    def warm(self, matcher: Matcher, messages: Sequence[bytes]) -> Timing:
        """Matching messages that were seen before, as carefully as the scale says."""
        return timing.warm(matcher, messages, least=self.scale.rounds, seconds=self.scale.seconds)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Something to measure. `steps` measures it, and says before each step what comes next."""

    name: str
    about: str
    steps: Callable[[Setting], Iterator[str]]


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
