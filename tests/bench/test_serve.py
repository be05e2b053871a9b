"""The suite of the service at its smoke scale: what it reports and writes."""

from __future__ import annotations

import pytest

from sapwood.bench.suites import SERVE
from tests.bench.support import Run, assert_helps, assert_written, find_figures, print_report, smoke_run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return smoke_run(SERVE, tmp_path_factory.mktemp("bench") / "out")


def test_publishing_is_compared_with_a_broker_in_one_process(everything: Run) -> None:
    [figure] = find_figures(everything[0], "durable publishing against one process")
    assert figure.at_least
    assert figure.bar == 0.4
    assert figure.met is None  # nothing is promised about the smallest scale
    assert figure.value == pytest.approx(
        float(str(figure.details["server_messages_per_second"]))
        / float(str(figure.details["broker_messages_per_second"])),
        rel=0.01,
    )


def test_everything_is_measured(everything: Run) -> None:
    report = everything[0]
    assert not report.skipped
    for measure in (
        "deliveries into the log",
        "publish to SSE, median",
        "publish to SSE, 99 %",
        "deliveries over SSE",
        "start of the server",
        "kill to first delivery",
    ):
        figures = find_figures(report, measure)
        assert figures and all(figure.value > 0 for figure in figures)


def test_figures_are_printed_and_written(everything: Run) -> None:
    assert "durable publishing" in print_report(everything[0])
    assert_written(everything[1], "serve", set(), everything[0])
    assert_helps(SERVE, "--nitf")
