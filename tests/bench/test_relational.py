"""The relational suite at its smoke scale: what it reports and writes, and that contenders agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sapwood.bench.harness import isolation
from sapwood.bench.harness.experiments import BenchError, at_most
from sapwood.bench.harness.isolation import stream_isolated
from sapwood.bench.harness.runner import Options, run_suite
from sapwood.bench.relational import observation_queries, stock_quotes
from sapwood.bench.relational.automaton_run import serve_automaton
from sapwood.bench.relational.database_runs import load_database, match_by_plans, serve_database
from sapwood.bench.relational.engine_comparison import find_crossing
from sapwood.bench.relational.stock_databases import STOCKS, drop_database, open_database
from sapwood.bench.relational.subscription_workloads import NewsPaths, StockQuotes
from sapwood.bench.relational.table_measurements import (
    LoadedFile,
    PlanRounds,
    ServingCost,
    check_agreement,
    digest_answers,
)
from sapwood.bench.suites import RELATIONAL
from sapwood.relational import Plan
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
    run_in_process,
    smoke_run,
)

FULL, QUICK, SMOKE = STOCKS
CROSSING = {"crossing-stocks", "crossing-news"}
CHARTS = {"stocks", "growth", "observations"} | {
    f"{of}-{what}" for of in CROSSING for what in ("cost", "memory")
}
LISTINGS = {"large", "observations", "stocks"} | CROSSING


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return smoke_run(RELATIONAL, tmp_path_factory.mktemp("bench") / "out")


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_stream_process", run_in_process)


# -- results -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_plans_are_timed_beside_those_of_the_paper(everything: Run) -> None:
    report = everything[0]
    curves = points_by_label(find_chart(report, "stocks"))
    assert set(curves) == {"shared", "buckets", "unrolled", "reading", "paper: unrolled", "paper: shared"}
    assert all(xs == list(SMOKE.notifications) for xs in curves.values())
    assert [point.y for point in find_chart(report, "stocks").series[-1].points] == [107, 154]
    for series in find_chart(report, "stocks").series[:3]:
        for point, notifications in zip(series.points, SMOKE.notifications, strict=True):
            assert notifications / 2 <= cast(int, point.details["found"]) <= notifications * 2
    assert len(find_figures(report, "plan shared, against unrolled")) == 2 + 1  # and of observations
    assert find_figures(report, "plan buckets, against unrolled")[1].details["paper"] == 0.74


def test_growth_is_at_the_same_selectivity(everything: Run) -> None:
    report = everything[0]
    grown = {plan: find_figures(report, f"growth of the cost, {plan.value}")[0] for plan in Plan}
    assert [grown[plan].bar for plan in (Plan.SHARED, Plan.BUCKETS, Plan.UNROLLED)] == [None, None, 1.5]
    few, many = find_chart(report, "growth").series[0].points
    assert cast(int, few.details["notifications"]) < cast(int, many.details["notifications"])
    assert SMOKE.notifications_at(20) * 10 == SMOKE.notifications_at(200) == 160
    assert all(figure.workload == "200 subscriptions against 20" for figure in grown.values())
    curves = points_by_label(find_chart(report, "growth"))
    assert list(curves) == ["shared", "buckets", "unrolled", "paper: unrolled"]
    assert all(xs == [20, 200] for xs in curves.values())


def test_a_large_database_is_measured(everything: Run) -> None:
    rows = find_listing(everything[0], "large").rows
    assert rows[0].label == "predicates" and rows[0].cells == (1_500,)
    assert all(cell is not None and cell > 0 for row in rows for cell in row.cells)


def test_observations_are_listed_beside_those_of_the_paper(everything: Run) -> None:
    report = everything[0]
    rows = find_listing(report, "observations").rows
    ours = [row for row in rows if not row.published]
    assert [row.label for row in ours] == ["30 subscriptions", "60 subscriptions"]
    assert all(cell is not None and cell > 0 for row in ours for cell in row.cells)
    few, many = (row.cells for row in ours)
    assert few[0] < many[0] and few[1] < many[1]  # type: ignore[operator]
    assert [row.cells[1] for row in rows if row.published] == [6_565, 21_637, 32_159, 38_026, 42_271]
    assert [row.cells[4] for row in rows if row.published] == [7, 20, 29, 35, 37]
    curves = points_by_label(find_chart(report, "observations"))
    assert curves["path match from scratch"] == curves["unrolled"] == [30, 60] and curves["shared"] == [30]
    assert len(curves["paper: path match"]) == 5


def test_engines_are_compared(everything: Run) -> None:
    report = everything[0]
    assert points_by_label(find_chart(report, "crossing-stocks-cost")) == {
        "tables, batches of 20": [20, 200],
        "tables, one at a time": [20, 200],
        "automaton": [20],
    }
    memory = points_by_label(find_chart(report, "crossing-stocks-memory"))
    assert memory == {"tables": [20, 200], "automaton": [20]}
    memory = points_by_label(find_chart(report, "crossing-news-memory"))
    assert memory == {"tables": [5, 30], "automaton": [5, 30]}
    rows = find_listing(report, "crossing-stocks").rows
    assert [row.cells.count(None) for row in rows] == [0, 1]
    compared = find_figures(report, "memory, the automaton against tables")
    assert [each.workload for each in compared] == ["stocks, 20 subscriptions", "news, 30 subscriptions"]


def test_every_chart_and_listing_is_filled(everything: Run) -> None:
    assert_filled(everything[0], CHARTS, LISTINGS)
    for listing in everything[0].listings:
        assert all(len(row.cells) == len(listing.columns) for row in listing.rows)


def test_bars_are_judged_at_full_scale_only(everything: Run, tmp_path: Path) -> None:
    assert all(figure.met is None for figure in everything[0].figures)
    bench = make_bench(tmp_path, RELATIONAL.scale(Options()))
    bench.figure("growth of the cost", "stocks", 1.6, "times", at_most(stock_quotes.FLAT))
    assert bench.report.missed


def test_files_are_written(everything: Run) -> None:
    assert_written(everything[1], "relational", CHARTS, everything[0])


def test_tables_show_everything(everything: Run) -> None:
    assert "growth of the cost, unrolled" in print_report(everything[0])


def test_scales_have_the_selectivities_of_the_paper() -> None:
    full_sizes, quick_sizes, _ = stock_quotes.measure_growth.table["subscriptions"]
    for stocks, sizes in (
        (FULL, full_sizes),
        (QUICK, quick_sizes),
    ):
        pairs = stocks.subscriptions * stocks.messages
        shares = [notifications * 10**10 // pairs for notifications in stocks.notifications]
        assert shares == list(stock_quotes.PUBLISHED)
        assert stocks.notifications_at(stocks.subscriptions) in stocks.notifications  # one file for both
        assert stocks.subscriptions == sizes[-1]
    assert full_sizes == (100_000, 200_000, 1_000_000)
    sizes = observation_queries.measure_observations.table["sizes"]
    assert sizes[0] == tuple(observation_queries.PUBLISHED)


# -- measurement ---------------------------------------------------------------------------------------


def plan_rounds(**changes: Any) -> PlanRounds:
    return replace(PlanRounds("f", "shared", 10, [2.0, 3.0, 8.0], 0.1, 5, 7, 1.0), **changes)


def test_contenders_that_do_not_agree_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, in_process: None
) -> None:
    check_agreement("nothing", plan_rounds(), plan_rounds(plan="unrolled"))
    for other in ({"notifications": 6}, {"digest": 8}):
        with pytest.raises(BenchError, match="agree on stocks"):
            check_agreement("stocks", plan_rounds(), plan_rounds(**other))

    def wrong(files: list[str], plans: list[tuple[str, int]], *_: object) -> Iterator[str | PlanRounds]:
        for count, (plan, batch) in enumerate(plans):
            yield plan_rounds(file=files[0], plan=plan, batch=batch, notifications=count)

    monkeypatch.setattr(stock_quotes, "match_by_plans", wrong)
    with pytest.raises(BenchError, match="agree on 160 notifications"):
        run_suite(RELATIONAL, Options(scale="smoke", out=None, only=["stocks"]))


def test_a_digest_depends_on_the_subscriptions_of_each_message() -> None:
    assert digest_answers([["1", "2"], ["3"]]) == digest_answers([[2, 1], [3]])
    others = [[["1"], ["2", "3"]], [["1", "2", "3"], []], [["12"], ["3"]], [["1", "2"], ["3"], []]]
    assert len({digest_answers(answers) for answers in [*others, [["1", "2"], ["3"]]]}) == 5


def test_rounds_are_compared_one_by_one() -> None:
    assert plan_rounds().best == 2
    assert plan_rounds().ratio_to(plan_rounds(seconds=[1.0, 3.0, 2.0])) == 2  # of 2, 1 and 4


def test_where_curves_cross() -> None:
    assert find_crossing({100: (1, 10), 10_000: (10, 1)}) == pytest.approx(1_000)
    assert find_crossing({10_000: (20, 10), 10: (1, 10), 1_000: (10, 10)}) == pytest.approx(1_000)
    assert find_crossing({10: (1, 10), 1_000: (9, 10)}) is None
    assert find_crossing({10: (11, 10), 1_000: (90, 10)}) is None


def test_a_database_is_loaded_once(in_process: None, tmp_path: Path) -> None:
    bench, quotes = make_bench(tmp_path), SMOKE.quotes(50)
    steps = list(open_database(bench, quotes))
    assert steps[-1] == "50 of 50 subscriptions loaded"
    assert not list(open_database(bench, quotes))
    (file,) = tmp_path.iterdir()
    drop_database(bench, quotes)
    assert not file.exists()
    assert list(open_database(bench, quotes)) == steps


def _result(running: Iterator[Any]) -> Any:
    *_, result = running
    return result


def test_a_new_process_finds_the_same(tmp_path: Path) -> None:
    file, quotes = str(tmp_path / "stocks.duckdb"), StockQuotes(5, 50, 40, 200)
    *steps, loaded = stream_isolated(load_database, file, quotes)
    assert steps == ["50 of 50 subscriptions loaded"]
    assert isinstance(loaded, LoadedFile) and loaded.predicates == 250 and loaded.file == file
    bodies = quotes.messages(40)
    found = _result(serve_database(file, bodies, 2, 1))
    other = _result(stream_isolated(serve_automaton, quotes, bodies, rounds=1))
    assert isinstance(found, ServingCost) and isinstance(other, ServingCost)
    check_agreement("stocks", found, other)
    assert found.notifications > 0 and found.duckdb > 0 == other.duckdb


def test_databases_are_visited_in_each_round(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("few", "many")]
    for file, size in zip(files, (10, 40), strict=True):
        list(load_database(file, StockQuotes(2, size, 20, 2 * size)))
    plans = [("buckets", 20), ("unrolled", 7)]
    bodies = StockQuotes(2, 0, 20, 0).messages(20)
    found = [item for item in match_by_plans(files, plans, bodies, 2) if isinstance(item, PlanRounds)]
    assert [(each.file, each.plan, each.batch) for each in found] == [
        (file, *plan) for plan in plans for file in files
    ]
    assert all(len(each.seconds) == 2 and each.reading > 0 for each in found)
    check_agreement("few", found[0], found[2])
    check_agreement("many", found[1], found[3])


def test_too_few_distinct_queries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(NewsPaths(20).queries())) == 20
    monkeypatch.setattr("sapwood.bench.harness.datasets.GeneratedDataset.queries", lambda *_: ["//a"])
    with pytest.raises(BenchError, match="only 1 distinct queries, not 20"):
        NewsPaths(20).queries()


def test_the_command() -> None:
    assert_helps(RELATIONAL)
