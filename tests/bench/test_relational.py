"""`sapwood bench relational` at sizes that take no time: what it reports and writes, and that ways agree."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from signal import SIGINT, raise_signal
from typing import Any, TypeVar, cast

import pytest
from rich.console import Console

from sapwood.bench import (
    relational_crossing,
    relational_growth,
    relational_observations,
    relational_setting,
    relational_spark,
    relational_stocks,
)
from sapwood.bench.relational import EXPERIMENTS, Options, run
from sapwood.bench.relational_automaton import stocks_by_automaton
from sapwood.bench.relational_crossing import crossing_point
from sapwood.bench.relational_findings import Loaded, Matched, Served, check_agreed, digest
from sapwood.bench.relational_run import measure, told
from sapwood.bench.relational_setting import FULL, QUICK, RelationalScale, RelationalSetting
from sapwood.bench.relational_work import load_stocks, match_by_plans, serve_stocks
from sapwood.bench.report import Chart, Figure, Listing, Report, Role
from sapwood.bench.sources import BenchError
from sapwood.relational import Plan
from tests.bench.support import assert_helps, assert_written, shown

TINY = RelationalScale(
    rounds=1,
    messages=40,
    subscriptions=200,
    notifications=(160, 1_000),
    growth_sizes=(20, 200),
    growth_rounds=1,
    large=300,
    crossing_sizes=(20,),
    crossing_beyond=(200,),
    news_sizes=(5, 30),
    news=4,
    batch=20,
    singles=1,
    documents=12,
    document_batch=5,
    observation_sizes=(30, 60),
    observation_shared=30,
    observation_rounds=1,
    symbols=5,
)
CROSSING = {"crossing-stocks", "crossing-news"}
CHARTS = {"stocks", "growth", "observations"} | {
    f"{of}-{what}" for of in CROSSING for what in ("cost", "memory")
}
LISTINGS = {"stocks", "stocks-files", "large", "observations", "observations-paths"} | CROSSING
MODULES = (
    relational_crossing,
    relational_growth,
    relational_observations,
    relational_setting,
    relational_spark,
    relational_stocks,
)
Said = TypeVar("Said")


def here(work: Callable[..., Iterator[Said]], *args: object, **options: object) -> Iterator[Said]:
    """As `measure`, in this process, which takes no time to start."""
    return work(*args, **options)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Report, Path]]:
    out = tmp_path_factory.mktemp("bench") / "out"
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "measure", here)
        yield run(Options(scale=TINY, out=out), Console(file=StringIO())), out


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES:
        monkeypatch.setattr(module, "measure", here)


def figures(report: Report, measure: str) -> list[Figure]:
    return [figure for figure in report.figures if figure.measure == measure]


def chart(report: Report, name: str) -> Chart:
    return next(chart for chart in report.charts if chart.name == name)


def listing(report: Report, name: str) -> Listing:
    return next(listing for listing in report.listings if listing.name == name)


def points(chart: Chart) -> dict[str, list[float]]:
    return {series.label: [point.x for point in series.points] for series in chart.series}


# -- what is reported ----------------------------------------------------------------------------------


def test_plans_are_timed_beside_those_of_the_paper(everything: tuple[Report, Path]) -> None:
    report = everything[0]
    asked = list(TINY.notifications)
    curves = points(chart(report, "stocks"))
    assert set(curves) == {"shared", "buckets", "unrolled", "paper: unrolled", "paper: shared"}
    assert all(xs == asked for xs in curves.values())
    rows = listing(report, "stocks").rows
    assert [row.published for row in rows] == [False, True] * 2
    assert [row.cells[:3] for row in rows if row.published] == [(56, 107, 26), (61, 154, 45)]
    for row, notifications in zip(rows[::2], TINY.notifications, strict=True):
        *seconds, reading, found = row.cells
        assert all(each is not None and each > 0 for each in (*seconds, reading))
        assert found is not None and notifications / 2 <= found <= notifications * 2
    assert len(figures(report, "plan shared, against unrolled")) == 2 + 1  # and of observations
    assert figures(report, "plan buckets, against unrolled")[1].details["paper"] == 0.74


def test_files_are_weighed_and_their_filing_is_timed(everything: tuple[Report, Path]) -> None:
    files = listing(everything[0], "stocks-files")
    assert len(files.rows) == 2
    for row in files.rows:
        assert all(cell is not None and cell > 0 for cell in row.cells)


def test_growth_is_at_the_same_selectivity(everything: tuple[Report, Path]) -> None:
    report = everything[0]
    grown = {plan: figures(report, f"growth of the cost, {plan.value}")[0] for plan in Plan}
    assert [grown[plan].bar for plan in (Plan.SHARED, Plan.BUCKETS, Plan.UNROLLED)] == [None, None, 1.5]
    few, many = cast(list[float], grown[Plan.UNROLLED].details["notifications"])
    assert few < many and TINY.notifications_at(20) * 10 == TINY.notifications_at(200) == 160
    assert all(figure.workload == "200 subscriptions against 20" for figure in grown.values())
    curves = points(chart(report, "growth"))
    assert list(curves) == ["shared", "buckets", "unrolled", "paper: unrolled"]
    assert all(xs == [20, 200] for xs in curves.values())


def test_a_large_file_is_weighed(everything: tuple[Report, Path]) -> None:
    rows = listing(everything[0], "large").rows
    assert rows[0].label == "predicates" and rows[0].cells == (1_500,)
    assert all(cell is not None and cell > 0 for row in rows for cell in row.cells)
    (matching,) = figures(everything[0], "memory at most, DuckDB limited to 512MB, matching")
    (loading,) = figures(everything[0], "memory at most, DuckDB limited to 512MB, loading")
    assert matching.value >= cast(int, matching.details["resident"]) - 1 and loading.value > 0
    assert figures(everything[0], "loading a subscription")[0].value > 0


def test_observations_stand_beside_those_of_the_paper(everything: tuple[Report, Path]) -> None:
    report = everything[0]
    rows = listing(report, "observations-paths").rows
    labels = ["30 subscriptions", "60 subscriptions"]
    assert [row.label for row in rows if not row.published] == labels
    few, many = rows[0].cells, rows[1].cells
    assert few[0] < many[0] and few[1] < many[1]  # type: ignore[operator]
    assert [row.cells[1] for row in rows if row.published] == [6_565, 21_637, 32_159, 38_026, 42_271]
    rows = listing(report, "observations").rows
    assert [row.label for row in rows] == labels
    assert rows[1].cells[1] is None  # too many for the plan shared
    assert all(
        cell is not None and cell > 0 for cell in (*rows[0].cells, rows[1].cells[0], *rows[1].cells[2:])
    )
    curves = points(chart(report, "observations"))
    assert curves["path match from scratch"] == curves["unrolled"] == [30, 60] and curves["shared"] == [30]
    assert len(curves["paper: path match"]) == 5
    (path_match,) = figures(report, "path match from scratch")
    assert path_match.details["paper"] == 37 and path_match.details["matches"] > 0  # type: ignore[operator]


def test_engines_are_compared(everything: tuple[Report, Path]) -> None:
    report = everything[0]
    assert points(chart(report, "crossing-stocks-cost")) == {
        "tables, batches of 20": [20, 200],
        "tables, one at a time": [20, 200],
        "automaton": [20],
    }
    assert points(chart(report, "crossing-stocks-memory")) == {"tables": [20, 200], "automaton": [20]}
    assert points(chart(report, "crossing-news-memory")) == {"tables": [5, 30], "automaton": [5, 30]}
    rows = listing(report, "crossing-stocks").rows
    assert [row.cells.count(None) for row in rows] == [0, 1]
    compared = figures(report, "memory, the automaton against tables")
    assert [each.workload for each in compared] == ["stocks, 20 subscriptions", "news, 30 subscriptions"]


def test_every_chart_and_listing_is_filled(everything: tuple[Report, Path]) -> None:
    report = everything[0]
    assert {chart.name for chart in report.charts} == CHARTS
    assert {listing.name for listing in report.listings} == LISTINGS
    for each in report.charts:
        assert Role.SAPWOOD in [series.role for series in each.series]
        assert all(point.y > 0 for series in each.series for point in series.points)
    for listed in report.listings:
        assert all(len(row.cells) == len(listed.columns) for row in listed.rows)


def test_nothing_is_judged_at_other_scales(everything: tuple[Report, Path], tmp_path: Path) -> None:
    assert all(figure.met is None for figure in everything[0].figures)
    report = Report("", False)
    setting = RelationalSetting(report, True, FULL, tmp_path)
    setting.figure("growth of the cost", "stocks", 1.6, "times", relational_growth.FLAT)
    assert report.missed  # a promise, here not kept


def test_files_are_written(everything: tuple[Report, Path]) -> None:
    report, out = everything
    assert_written(out, "relational", set(CHARTS), report)


def test_tables_show_everything(everything: tuple[Report, Path]) -> None:
    assert "growth of the cost, unrolled" in shown(everything[0])


def test_scales_have_the_selectivities_of_the_paper() -> None:
    for scale in (FULL, QUICK):
        pairs = scale.subscriptions * scale.messages
        shares = [notifications * 10**10 // pairs for notifications in scale.notifications]
        assert tuple(shares) == relational_stocks.PUBLISHED_NOTIFICATIONS
        assert scale.notifications_at(scale.subscriptions) in scale.notifications  # one file for both
        assert scale.subscriptions == scale.growth_sizes[-1]
    assert FULL.growth_sizes == tuple(relational_growth.PUBLISHED)
    assert FULL.observation_sizes == tuple(relational_observations.PUBLISHED)


# -- how it is measured --------------------------------------------------------------------------------


def matched(**changes: object) -> Matched:
    found = Matched("f", "shared", 10, 0.0, [2.0, 3.0, 8.0], 0.1, 5, 7, 1.0, 1.0)
    return replace(found, **changes)  # type: ignore[arg-type]


def test_ways_that_do_not_agree_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, quickly: None, tmp_path: Path
) -> None:
    check_agreed("nothing", matched(), matched(plan="unrolled"))
    for other in ({"notifications": 6}, {"digest": 8}):
        with pytest.raises(BenchError, match="agree on stocks"):
            check_agreed("stocks", matched(), matched(**other))

    def wrong(files: list[str], ways: list[tuple[str, int]], *_: int) -> Iterator[str | Matched]:
        for count, (plan, batch) in enumerate(ways):
            yield matched(file=files[0], plan=plan, batch=batch, notifications=count)

    monkeypatch.setattr(relational_stocks, "match_by_plans", wrong)
    with pytest.raises(BenchError, match="agree on 160 notifications"):
        run(Options(scale=TINY, out=None, only=["stocks"]))


def test_a_digest_tells_who_is_notified_of_what() -> None:
    assert digest([["1", "2"], ["3"]]) == digest([[2, 1], [3]])
    others = [[["1"], ["2", "3"]], [["1", "2", "3"], []], [["12"], ["3"]], [["1", "2"], ["3"], []]]
    assert len({digest(answers) for answers in [*others, [["1", "2"], ["3"]]]}) == 5


def test_rounds_are_compared_one_by_one() -> None:
    assert matched().best == 2
    assert matched().times(matched(seconds=[1.0, 3.0, 2.0])) == 2  # of 2, 1 and 4


def test_where_curves_cross() -> None:
    assert crossing_point({100: (1, 10), 10_000: (10, 1)}) == pytest.approx(1_000)
    assert crossing_point({10_000: (20, 10), 10: (1, 10), 1_000: (10, 10)}) == pytest.approx(1_000)
    assert crossing_point({10: (1, 10), 1_000: (9, 10)}) is None
    assert crossing_point({10: (11, 10), 1_000: (90, 10)}) is None


def test_a_file_is_made_once(quickly: None, tmp_path: Path) -> None:
    setting = RelationalSetting(Report("", True), False, TINY, tmp_path)
    said = list(setting.selective_file(50))
    assert said[-1] == "50 of 50 subscriptions loaded"
    assert not list(setting.selective_file(50))
    (file,) = tmp_path.iterdir()
    with pytest.raises(StopIteration) as ended:
        next(setting.selective_file(50))
    setting.drop(ended.value.value)
    assert not file.exists()
    assert list(setting.selective_file(50)) == said


def test_a_fresh_process_finds_the_same(tmp_path: Path) -> None:
    file = str(tmp_path / "stocks.duckdb")
    *said, loaded = measure(load_stocks, file, 5, 50, 40, 200)
    assert said == ["50 of 50 subscriptions loaded"]
    assert isinstance(loaded, Loaded) and loaded.predicates == 250 and loaded.file == file
    found = _only(serve_stocks(file, 5, 40, 2, 1))
    other = _only(measure(stocks_by_automaton, 5, 50, 40, 200, 40, rounds=1))
    assert isinstance(found, Served) and isinstance(other, Served)
    check_agreed("stocks", found, other)
    assert found.notifications > 0 and found.duckdb > 0 and other.batched is None


def _only(work: Iterator[Any]) -> object:
    telling = told(work)
    while True:
        try:
            next(telling)
        except StopIteration as ended:
            return ended.value


def test_files_take_turns(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("few", "many")]
    for file, size in zip(files, (10, 40), strict=True):
        list(load_stocks(file, 2, size, 20, 2 * size))
    ways = [("buckets", 20), ("unrolled", 7)]
    found = [said for said in match_by_plans(files, ways, 2, 20, 2) if isinstance(said, Matched)]
    assert [(each.file, each.plan, each.batch) for each in found] == [
        (file, *way) for way in ways for file in files
    ]
    assert all(len(each.seconds) == 2 and each.reading > 0 for each in found)
    check_agreed("few", found[0], found[2])
    check_agreed("many", found[1], found[3])


def test_a_process_that_ends_otherwise_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        list(measure(cast(Any, int), "nonsense"))
    assert "ValueError" in capfd.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        list(measure(cast(Any, raise_signal), int(SIGINT)))


def test_spark_is_left_out_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, quickly: None, tmp_path: Path
) -> None:
    monkeypatch.setattr(relational_spark, "find_spec", lambda name: None)
    scale = replace(TINY, spark_subscriptions=20)
    setting = RelationalSetting(Report("", True), False, scale, tmp_path)
    (said,) = relational_spark.spark(setting)
    assert "in a clone of Sapwood, pip install '.[spark]'" in said
    assert not setting.report.listings


# -- the command ---------------------------------------------------------------------------------------


def test_an_unknown_experiment_is_refused_with_the_known_ones() -> None:
    names = ", ".join(experiment.name for experiment in EXPERIMENTS)
    with pytest.raises(BenchError, match=f"no experiment speed: choose from {names}"):
        run(Options(only=("speed",), out=None))


def test_the_command() -> None:
    assert_helps("relational", EXPERIMENTS)


def test_without_duckdb_one_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['duckdb'] = None; from sapwood.cli import main; main()"
    command = [sys.executable, "-c", code, "bench", "relational"]
    ended = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert ended.returncode == 2
    assert "in a clone of Sapwood, pip install '.[relational]'" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr
