"""`sapwood bench join` at sizes that take no time: what it reports and writes, and that all ways agree."""

from __future__ import annotations

import gc
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sapwood import Broker
from sapwood.bench import join_pairs
from sapwood.bench.join import EXPERIMENTS, Options, run
from sapwood.bench.join_contenders import ALONE, SHARED, STREAM, WAYS, Contender, Results, Way, joined
from sapwood.bench.join_feed_run import Mark, Run, measure, stream
from sapwood.bench.join_setting import FULL, JoinSetting, Workload, flat, levels
from sapwood.bench.report import Chart, Figure, Listing, Report, Role
from sapwood.bench.sources import BenchError
from sapwood.workload import FeedGenerator
from tests.bench.support import TINY_JOIN, assert_helps, assert_written, shown

PAIR_CHARTS = {"flat", "levels", "leaves", "equalities", "flat-skew", "levels-skew"}
CHARTS = PAIR_CHARTS | {"feed", "feed-memory", "feed-growth", "feed-ways"}
LISTINGS = {"flat-counts", "levels-counts", "equalities-templates", "feed-counts"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    out = tmp_path_factory.mktemp("bench") / "out"
    return run(Options(scale=TINY_JOIN, out=out), Console(file=StringIO())), out


def figures(report: Report, measure: str) -> list[Figure]:
    return [figure for figure in report.figures if figure.measure == measure]


def chart(report: Report, name: str) -> Chart:
    return next(chart for chart in report.charts if chart.name == name)


def listing(report: Report, name: str) -> Listing:
    return next(listing for listing in report.listings if listing.name == name)


# -- what is reported ----------------------------------------------------------------------------------


def test_all_queries_at_once_are_compared_with_one_at_a_time(everything: tuple[Report, Path]) -> None:
    report = everything[0]
    few = figures(report, "all queries at once, against one at a time")
    many = figures(report, "one query at a time, against all at once")
    apart = figures(report, "without sharing values, against sharing them")
    assert [figure.workload for figure in few] == ["flat, 5 queries", "levels, 5 queries"]
    assert [figure.workload for figure in many] == ["flat, 40 queries", "levels, 40 queries"]
    assert all(figure.bar == join_pairs.NOISE and not figure.at_least for figure in few)
    assert all(figure.bar == 100 and figure.at_least for figure in many)
    assert all(figure.bar == 1 and figure.at_least for figure in apart)
    assert all(figure.value > 0 for figure in (*few, *many, *apart))
    assert many[0].details["distinct"] == (count := len(set(flat().queries(40))))
    distinct = figures(report, "one distinct query at a time, against all at once")
    assert distinct[0].workload == f"flat, {count} of 40 queries"


def test_the_curves_of_pairs(everything: tuple[Report, Path]) -> None:
    for name in PAIR_CHARTS:
        labels = [series.label for series in chart(everything[0], name).series]
        assert labels == [*(way.label for way in WAYS), join_pairs.MATCHING]
    sizes = {series.label: [p.x for p in series.points] for series in chart(everything[0], "flat").series}
    assert all(xs == [5, 40] for xs in sizes.values())
    assert "paper" in chart(everything[0], "leaves").note


def test_templates_stand_beside_those_of_the_paper(everything: tuple[Report, Path]) -> None:
    counts = listing(everything[0], "equalities-templates")
    ours, paper, distinct = counts.rows
    assert paper.cells == (2, 6) and paper.published
    assert ours.cells[0] == 2
    assert all(cell is not None and cell > 0 for cell in distinct.cells)
    for row in listing(everything[0], "flat-counts").rows:
        distinct_queries, templates, _, met, deliveries = row.cells
        assert distinct_queries and templates and met and deliveries
        assert templates <= 6
        assert met <= distinct_queries and met <= deliveries


def test_feeds_are_timed_and_weighed(everything: tuple[Report, Path]) -> None:
    report = everything[0]
    (flat_rate,) = figures(report, "items a second, queries repeated")
    assert flat_rate.workload == "feed, 40 queries against 20"
    assert flat_rate.at_least and flat_rate.value > 0
    assert len(figures(report, "memory an item")) == 2
    assert all(figure.value > 0 for figure in figures(report, "memory an item, as the broker counts"))
    linear = figures(report, "memory, second half of the growth against the first")
    assert [figure.bar for figure in linear] == [1.25, 1.25]
    rows = listing(report, "feed-counts").rows
    assert [row.cells[2] for row in rows] == [80, 30, 80]
    quarters = chart(report, "feed-memory").series
    assert all([point.x for point in series.points] == [20, 40, 60, 80] for series in quarters)
    assert {series.label for series in chart(report, "feed-growth").series} == {"40 queries", "5 queries"}


def test_ways_are_compared_on_feeds(everything: tuple[Report, Path]) -> None:
    ways = chart(everything[0], "feed-ways")
    assert [series.label for series in ways.series] == [way.label for way in WAYS]
    against = [figure for figure in everything[0].figures if "all queries at once, against" in figure.measure]
    assert {figure.workload for figure in against if figure.workload.startswith("feed")} == {
        "feed, 40 queries, 20 items"
    }


def test_every_chart_and_listing_is_filled(everything: tuple[Report, Path]) -> None:
    report = everything[0]
    assert {chart.name for chart in report.charts} == CHARTS
    assert {listing.name for listing in report.listings} == LISTINGS
    for each in report.charts:
        assert Role.SAPWOOD in [series.role for series in each.series]
        assert all(point.y > 0 for series in each.series for point in series.points)
    assert gc.isenabled()


def test_nothing_is_judged_at_other_scales(everything: tuple[Report, Path]) -> None:
    assert all(figure.met is None for figure in everything[0].figures)
    report = Report("", False)
    setting = JoinSetting(report, True, FULL)
    setting.figure("one query at a time, against all at once", "flat", 120, "times", 1)
    assert report.missed  # a promise, here not kept


def test_files_are_written(everything: tuple[Report, Path]) -> None:
    report, out = everything
    assert_written(out, "join", set(CHARTS), report)


def test_tables_show_everything(everything: tuple[Report, Path]) -> None:
    assert " 1.6 " in shown(everything[0])  # a skew, not rounded


# -- how it is measured --------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", [flat(), levels()], ids=["flat", "levels"])
@pytest.mark.parametrize("way", WAYS, ids=[way.label for way in WAYS])
def test_a_pair_meets_for_the_queries_that_equate_a_leaf_with_itself(way: Way, workload: Workload) -> None:
    asked = workload.queries(400)
    contender = Contender(way, workload.schema, asked)
    expected = [query for query in asked if _sides_alike(query)]
    assert len(set(expected)) < len(expected)
    for _ in range(3):  # nothing is left of one pair when the next comes
        found = contender.results()
        assert found.deliveries == len(expected)
        assert found.distinct == len(expected if way is ALONE else set(expected))
        contender.matching_pass()
        contender.joining_pass()


def _sides_alike(query: str) -> bool:
    left, right = query.split(" FOLLOWED BY{")[0], query.rpartition("} ")[2]
    return left == right.replace("->w", "->v")


def test_what_is_remembered_does_not_grow_from_pair_to_pair() -> None:
    contender = Contender(SHARED, flat().schema, flat().queries(50))
    messages = set()
    for _ in range(10):
        contender.joining_pass()
        messages.add(contender.broker.state().messages)
    assert max(messages) <= 3


def test_ways_that_do_not_agree_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contender, "results", lambda self: Results(1, 1 if self.way is ALONE else 2))
    with pytest.raises(BenchError, match="do not agree"):
        run(Options(scale=TINY_JOIN, out=None, only=["flat"]))


def test_a_stream_of_items_is_told_of_at_each_mark() -> None:
    found = stream(60, [10, 300], SHARED.label)
    assert [mark.items for mark in found.marks] == [0, 10, 300]
    assert found.marks[0].seconds == 0 < found.marks[1].seconds < found.marks[2].seconds
    assert found.marks[0].results == 0 < found.marks[2].results
    assert found.state_bytes > 0
    assert found.templates <= 5


def test_items_meet_all_that_came_before() -> None:
    query = "S/item->v0[channel_url->v1] FOLLOWED BY{v1=w1, INF} S/item->w0[channel_url->w1]"
    with Broker() as broker:
        broker.subscribe(1, query)
        met = sum(
            len(joined(broker.answer(item, stream=STREAM, time=time)))
            for time, item in enumerate(FeedGenerator(channels=1).take(30))
        )
    assert met == 30 * 29 / 2


def test_a_fresh_process_finds_the_same() -> None:
    ours = stream(40, [50], ALONE.label)
    theirs = measure(40, [50], ALONE.label)
    assert theirs.marks[-1].deliveries == ours.marks[-1].deliveries
    assert stream(40, [50], SHARED.label).marks[-1].deliveries == ours.marks[-1].deliveries
    assert (theirs.distinct, theirs.templates) == (ours.distinct, ours.templates)


def test_a_rate_is_of_the_first_items_or_all() -> None:
    marks = tuple(Mark(items, seconds, 0, 0, 1.0) for items, seconds in ((0, 0.0), (10, 1.0), (40, 8.0)))
    found = Run(marks, 1, 1, 1)
    assert (found.rate(10), found.rate(39), found.rate()) == (10, 10, 5)


# -- the command ---------------------------------------------------------------------------------------


def test_an_unknown_experiment_is_refused_with_the_known_ones() -> None:
    names = ", ".join(experiment.name for experiment in EXPERIMENTS)
    with pytest.raises(BenchError, match=f"no experiment speed: choose from {names}"):
        run(Options(only=("speed",), out=None))


def test_the_command() -> None:
    assert_helps("join", EXPERIMENTS)
