"""The display of a running pipeline, on a terminal and elsewhere, and its signals."""

from __future__ import annotations

import io
import json
import os
import signal
from dataclasses import dataclass

import pytest
from rich.console import Console

from sapwood.spark.monitoring.display import JsonLines, LiveDisplay, PlainLines, sparkline, summary_table
from sapwood.spark.monitoring.totals import Totals, format_duration
from sapwood.spark.pipeline.pipeline_signals import PipelineSignals
from tests.support.spark.outcomes import outcome


@dataclass
class Running:
    current_batch: int | None = None


def terminal() -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=True, width=100, color_system=None), written


# -- JSON lines ----------------------------------------------------------------------------------------


def test_a_json_line_a_batch_and_one_for_all() -> None:
    out = io.StringIO()
    with JsonLines(out) as display:
        display.tick(Running(0))
        display.batch(outcome(0))
        display.batch(outcome(1, version=4, reasons={"a\nb": 2}))
    display.summary([outcome(0), outcome(1, version=4)])
    first, second, last = (json.loads(line) for line in out.getvalue().splitlines())
    record = outcome(0).as_record()
    del record["by_subscription"], record["by_subscriber"]  # which are long, and in the report
    assert first == {
        **record,
        "messages_per_second": 200.0,
        "deliveries_per_second": 500.0,
    }
    assert second["reasons"] == {"a\nb": 2}
    assert last["summary"]["messages"] == 200
    assert last["summary"]["messages_per_second"] == 200
    assert last["summary"]["versions"] == [1, 4]


def test_notes_do_not_mix_with_the_json() -> None:
    out, notes = io.StringIO(), io.StringIO()
    JsonLines(out, Console(file=notes)).note("the file [bold] is gone")
    assert out.getvalue() == ""
    assert notes.getvalue() == "the file [bold] is gone\n"


def test_the_summary_of_nothing() -> None:
    out = io.StringIO()
    JsonLines(out).summary([])
    summary = json.loads(out.getvalue())["summary"]
    assert summary["batches"] == 0
    assert summary["messages_per_second"] == 0
    assert summary["versions"] is None


# -- a terminal ----------------------------------------------------------------------------------------


def test_the_live_display_shows_the_current_and_past_batches() -> None:
    console, written = terminal()
    pipeline = Running(7)
    with LiveDisplay(console, "news [1]") as display:
        display.tick(pipeline)
        display.batch(outcome(5, seconds=1.0))
        display.batch(outcome(6, version=2, subscriptions=12))
        console.print(display._render())
        pipeline.current_batch = None
        console.print(display._render())
    text = written.getvalue()
    assert "news [1]" in text
    assert "batch 7 running for" in text
    assert "waiting for" in text
    assert "200/s in the last batch, 133/s on average" in text
    assert "500 ms last, 750 ms on average, 1.0 s for 95 of 100" in text
    assert "12 in version 2" in text
    assert "▅█  up to 200" in text or "▄█  up to 200" in text


def test_the_live_display_begins_before_there_is_anything_to_tell() -> None:
    console, written = terminal()
    with LiveDisplay(console, "news"):
        pass
    assert "0 done" in written.getvalue()


def test_leaving_twice_is_leaving_once() -> None:
    console, _ = terminal()
    with LiveDisplay(console, "news") as display:
        display.close()


def test_plain_lines() -> None:
    written = io.StringIO()
    with PlainLines(Console(file=written, width=60)) as display:
        display.batch(outcome(3))
        display.batch(outcome(4, rejects=0))
    assert written.getvalue().splitlines() == [
        "batch 3: 100 messages, 250 deliveries, 2 rejects in 0.5 s, version 1",
        "batch 4: 100 messages, 250 deliveries in 0.5 s, version 1",
    ]


def test_failures_of_single_queries_are_shown() -> None:
    console, written = terminal()
    with LiveDisplay(console, "news") as display:
        display.batch(outcome(0, failures=1_234))
    assert "1,234" in written.getvalue()
    console, written = terminal()
    with PlainLines(console) as lines:
        lines.batch(outcome(0, failures=1_234))
    assert "1,234 failures" in written.getvalue()
    console, written = terminal()
    console.print(summary_table(Totals([outcome(0, failures=1_234)])))
    assert "1,234 of single queries" in written.getvalue()


@pytest.mark.parametrize("display", [LiveDisplay, PlainLines])
def test_the_table_at_the_end(display: type[LiveDisplay] | type[PlainLines]) -> None:
    console, written = terminal()
    shown = LiveDisplay(console, "news") if display is LiveDisplay else PlainLines(console)
    shown.summary([outcome(0), outcome(1, version=9, subscriptions=11)])
    text = written.getvalue()
    assert "200, 200 a second" in text
    assert "11, versions 1 to 9" in text


def test_the_table_of_nothing() -> None:
    console, written = terminal()
    console.print(summary_table(Totals()))
    assert "none" in written.getvalue()


def test_sparklines() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([0, 50, 100]) == "▁▅█"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0 ms"), (0.0854, "85 ms"), (2.44, "2.4 s"), (185, "3 min 05 s"), (7_260, "2 h 01 min")],
)
def test_durations(seconds: float, told: str) -> None:
    assert format_duration(seconds) == told


def test_the_95th_percentile_is_a_latency_that_occurred() -> None:
    tally = Totals(outcome(n, seconds=float(n)) for n in range(1, 101))
    assert tally.latency_95 == 95
    assert tally.latency == 50.5


# -- signals -------------------------------------------------------------------------------------------


@dataclass
class Seen:
    stopped: int = 0
    left: int = 0
    notes: str = ""

    def stop(self) -> None:
        self.stopped += 1

    def leave(self) -> None:
        self.left += 1

    def tell(self, text: str) -> None:
        self.notes += text + "\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_first_signal_stops_gently(number: signal.Signals, code: int) -> None:
    seen, before = Seen(), signal.getsignal(number)
    with PipelineSignals(seen.stop, seen.tell, seen.leave) as interrupts:
        assert interrupts.exit_code == 0
        os.kill(os.getpid(), number)
    assert seen == Seen(1, 0, "stopping after the current batch; again to stop at once\n")
    assert interrupts.received == number
    assert interrupts.exit_code == code
    assert signal.getsignal(number) == before


def test_a_second_ctrl_c_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    seen = Seen()
    with PipelineSignals(seen.stop, seen.tell, seen.leave):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert not ended
        os.kill(os.getpid(), signal.SIGINT)
    assert ended == [130]
    assert (seen.stopped, seen.left) == (1, 1)
