"""The join suite at its smoke scale: what it reports and writes, and that all methods agree."""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from sapwood import Broker
from sapwood.bench.harness.experiments import BenchError, at_most
from sapwood.bench.harness.isolation import stream_isolated
from sapwood.bench.harness.runner import Options, run_suite
from sapwood.bench.join import feed_items, message_pairs
from sapwood.bench.join.feed_items import FeedRun, StreamMark, publish_feed
from sapwood.bench.join.join_workload import (
    METHODS,
    ONE_BY_ONE,
    SHARED,
    STREAM,
    JoinMethod,
    JoinWorkload,
    PairJoiner,
    PairResults,
    flat,
    get_joined,
    levels,
)
from sapwood.bench.suites import JOIN
from sapwood.workload import FeedGenerator
from tests.bench.support import (
    Run,
    assert_filled,
    assert_helps,
    assert_written,
    find_chart,
    find_figures,
    find_listing,
    make_bench,
    points_by_label,
    print_report,
    smoke_run,
)

PAIR_CHARTS = {"flat", "levels", "leaves", "equalities", "flat-skew", "levels-skew"}
CHARTS = PAIR_CHARTS | {"feed", "feed-memory", "feed-growth", "feed-ways"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return smoke_run(JOIN, tmp_path_factory.mktemp("bench") / "out")


# -- results -------------------------------------------------------------------------------------------


def test_all_queries_at_once_are_compared_with_one_at_a_time(everything: Run) -> None:
    report = everything[0]
    few = find_figures(report, "all queries at once, against one at a time")
    many = find_figures(report, "one query at a time, against all at once")
    apart = find_figures(report, "without sharing values, against sharing them")
    assert [figure.workload for figure in few] == ["flat, 5 queries", "levels, 5 queries"]
    assert [figure.workload for figure in many] == ["flat, 40 queries", "levels, 40 queries"]
    assert all(figure.bar == message_pairs.NOISE and not figure.at_least for figure in few)
    assert all(figure.bar == 100 and figure.at_least for figure in many)
    assert all(figure.bar == 1 and figure.at_least for figure in apart)
    assert all(figure.value > 0 for figure in (*few, *many, *apart))
    assert many[0].details["distinct"] == (count := len(set(flat().queries(40))))
    distinct = find_figures(report, "one distinct query at a time, against all at once")
    assert distinct[0].workload == f"flat, {count} of 40 queries"


def test_the_curves_of_pairs(everything: Run) -> None:
    for name in PAIR_CHARTS:
        labels = [series.label for series in find_chart(everything[0], name).series]
        assert labels == [*(method.label for method in METHODS), message_pairs.MATCHING]
    assert all(xs == [5, 40] for xs in points_by_label(find_chart(everything[0], "flat")).values())
    assert "paper" in find_chart(everything[0], "leaves").note


def test_templates_are_listed_beside_those_of_the_paper(everything: Run) -> None:
    equalities = find_listing(everything[0], "equalities-counts").rows
    assert [row.cells[2] for row in equalities] == [2, 6]
    assert equalities[0].cells[1] == 2
    for row in find_listing(everything[0], "flat-counts").rows:
        distinct_queries, templates, _, met, deliveries = row.cells
        assert distinct_queries and templates and met and deliveries
        assert templates <= 6
        assert met <= distinct_queries and met <= deliveries


def test_rate_and_memory_of_feeds(everything: Run) -> None:
    report = everything[0]
    (rate,) = find_figures(report, "items a second")
    (cost,) = find_figures(report, "cost of an item")
    assert rate.workload == cost.workload == "feed, 40 queries, 80 items"
    assert rate.bar == feed_items.LEAST_RATE and rate.at_least
    assert rate.value == pytest.approx(80 / cast(float, cost.details["seconds"]), rel=1e-2)
    assert cost.value > 1  # an item is parsed before it is joined
    (flat_rate,) = find_figures(report, "items a second, queries repeated")
    assert flat_rate.workload == "feed, 40 queries against 20"
    assert flat_rate.at_least and flat_rate.value > 0
    estimates = [each.details["estimated_by_the_broker"] for each in find_figures(report, "memory an item")]
    assert len(estimates) == 2 and all(isinstance(bytes_, float) and bytes_ > 0 for bytes_ in estimates)
    linear = find_figures(report, "memory, second half of the growth against the first")
    assert [figure.bar for figure in linear] == [1.25, 1.25]
    every_tenth = list(range(8, 81, 8))
    assert all(xs == every_tenth for xs in points_by_label(find_chart(report, "feed-memory")).values())
    first, all_items = find_chart(report, "feed").series
    assert [point.x for point in first.points] == [5, 20, 40] and first.points[2].details["distinct"] == 37
    assert all(cast(float, point.details["deliveries_an_item"]) > 0 for point in all_items.points)
    assert set(points_by_label(find_chart(report, "feed-growth"))) == {"40 queries", "5 queries"}


def test_methods_are_compared_on_feeds(everything: Run) -> None:
    chart = find_chart(everything[0], "feed-ways")
    assert [series.label for series in chart.series] == [method.label for method in METHODS]
    against = [figure for figure in everything[0].figures if "all queries at once, against" in figure.measure]
    assert {figure.workload for figure in against if figure.workload.startswith("feed")} == {
        "feed, 40 queries, 20 items"
    }


def test_every_chart_and_listing_is_filled(everything: Run) -> None:
    assert_filled(everything[0], CHARTS, {f"{name}-counts" for name in PAIR_CHARTS})
    assert gc.isenabled()


def test_bars_are_judged_at_full_scale_only(everything: Run, tmp_path: Path) -> None:
    assert all(figure.met is None for figure in everything[0].figures)
    bench = make_bench(tmp_path, JOIN.scale(Options()))
    bench.figure("one query at a time, against all at once", "flat", 120, "times", at_most(1))
    assert bench.report.missed


def test_files_are_written(everything: Run) -> None:
    assert_written(everything[1], "join", CHARTS, everything[0])


def test_tables_show_everything(everything: Run) -> None:
    assert " 1.6 " in print_report(everything[0])  # a skew, not rounded


# -- measurement ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", [flat(), levels()], ids=["flat", "levels"])
@pytest.mark.parametrize("method", METHODS, ids=[method.label for method in METHODS])
def test_a_pair_joins_for_the_queries_that_equate_a_leaf_with_itself(
    method: JoinMethod, workload: JoinWorkload
) -> None:
    queries = workload.queries(400)
    joiner = PairJoiner(method, workload.schema, queries)
    expected = [query for query in queries if _sides_alike(query)]
    assert len(set(expected)) < len(expected)
    for _ in range(3):  # a pair leaves nothing to the next one
        found = joiner.results()
        assert found.deliveries == len(expected)
        assert found.distinct == len(expected if method is ONE_BY_ONE else set(expected))
        joiner.matching_pass()
        joiner.joining_pass()


def _sides_alike(query: str) -> bool:
    left, right = query.split(" FOLLOWED BY{")[0], query.rpartition("} ")[2]
    return left == right.replace("->w", "->v")


def test_the_state_does_not_grow_from_pair_to_pair() -> None:
    joiner = PairJoiner(SHARED, flat().schema, flat().queries(50))
    messages = set()
    for _ in range(10):
        joiner.joining_pass()
        messages.add(joiner.broker.state().messages)
    assert max(messages) <= 3


def test_methods_that_do_not_agree_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        PairJoiner, "results", lambda self: PairResults(1, 1 if self.method is ONE_BY_ONE else 2)
    )
    with pytest.raises(BenchError, match="do not agree"):
        run_suite(JOIN, Options(scale="smoke", out=None, only=["flat"]))


def test_methods_that_do_not_agree_on_feeds_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counts = iter((1, 2, 2))

    def run_wrongly(*_: object) -> Generator[str, None, FeedRun]:
        yield ""
        return FeedRun((StreamMark(1, 1.0, 1, next(counts), 1.0),), 1, 1, 1)

    monkeypatch.setattr(feed_items, "run_isolated", run_wrongly)
    with pytest.raises(BenchError, match="do not agree on 5 queries over feeds"):
        list(feed_items.measure_methods.steps(make_bench(tmp_path), (5,), 10))


def _publish(queries: int, marks: list[int], method: JoinMethod) -> FeedRun:
    (run,) = publish_feed(queries, marks, method)
    assert isinstance(run, FeedRun)
    return run


def test_a_stream_is_measured_at_each_mark() -> None:
    found = _publish(60, [10, 300], SHARED)
    assert [mark.items for mark in found.marks] == [0, 10, 300]
    assert found.marks[0].seconds == 0 < found.marks[1].seconds < found.marks[2].seconds
    assert found.marks[0].results == 0 < found.marks[2].results
    assert found.state_bytes > 0
    assert found.templates <= 5


def test_items_join_with_all_before_them() -> None:
    query = "S/item->v0[channel_url->v1] FOLLOWED BY{v1=w1, INF} S/item->w0[channel_url->w1]"
    with Broker() as broker:
        broker.subscribe(1, query)
        met = sum(
            len(get_joined(broker.answer(item, stream=STREAM, time=time)))
            for time, item in enumerate(FeedGenerator(channels=1).take(30))
        )
    assert met == 30 * 29 / 2


def test_a_new_process_finds_the_same() -> None:
    ours = _publish(40, [50], ONE_BY_ONE)
    (theirs,) = stream_isolated(publish_feed, 40, [50], ONE_BY_ONE)
    assert isinstance(theirs, FeedRun)
    assert theirs.marks[-1].deliveries == ours.marks[-1].deliveries
    assert _publish(40, [50], SHARED).marks[-1].deliveries == ours.marks[-1].deliveries
    assert (theirs.distinct, theirs.templates) == (ours.distinct, ours.templates)


def test_a_rate_is_of_the_first_items_or_all() -> None:
    marks = tuple(
        StreamMark(items, seconds, 0, 0, 1.0) for items, seconds in ((0, 0.0), (10, 1.0), (40, 8.0))
    )
    found = FeedRun(marks, 1, 1, 1)
    assert (found.rate(10), found.rate(39), found.rate()) == (10, 10, 5)


def test_the_command() -> None:
    assert_helps(JOIN)
