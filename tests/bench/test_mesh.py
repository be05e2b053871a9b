"""The suite of the mesh at its smoke scale: what it reports and writes."""

from __future__ import annotations

import pytest

from sapwood.bench.suites import MESH
from tests.bench.support import (
    Run,
    assert_helps,
    assert_written,
    find_chart,
    find_figures,
    print_report,
    smoke_run,
)
from tests.bench.test_link_formats import FORMAT_CHARTS
from tests.support.mesh.trees import need_nats

_MEASURES = (
    "transport of a message",
    "CPU of a message against its parts",
    "subscriptions confirmed",
    "link messages against flooding",
    "link messages of processes against the fewest",
    "simulation of a mesh",
    "messages through two links",
    "durable deliveries",
    "subscribe to confirmed, 99 %",
    "latency beside a slow subscriber",
    "inner broker dead to flow",
    "hub leader dead to flow",
    "time through a broker with local work",
)

pytestmark = [pytest.mark.long, pytest.mark.server]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Run:
    need_nats()
    return smoke_run(MESH, tmp_path_factory.mktemp("bench") / "out")


def test_everything_is_measured(everything: Run) -> None:
    report = everything[0]
    assert not report.skipped
    for measure in _MEASURES:
        figures = find_figures(report, measure)
        assert figures and all(figure.value > 0 for figure in figures), measure
        assert all(figure.met is None for figure in figures)  # nothing is promised about the smallest scale


def test_links_of_processes_carry_what_is_computed(everything: Run) -> None:
    [figure] = find_figures(everything[0], "link messages of processes against the fewest")
    assert figure.value == pytest.approx(1)
    for figure in find_figures(everything[0], "link messages against the fewest"):
        assert figure.value >= 1


def test_figures_are_printed_and_written(everything: Run) -> None:
    assert "transport of a message" in print_report(everything[0])
    assert find_chart(everything[0], "links").series
    assert_written(everything[1], "mesh", {"links", *FORMAT_CHARTS}, everything[0])
    assert_helps(MESH, "--nitf")
