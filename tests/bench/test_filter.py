"""The filter suite at its smoke scale: what it reports and writes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from lxml import etree

from sapwood import Matcher
from sapwood.bench.filter import fallback_cost, matching_contenders, recursive_messages
from sapwood.bench.filter.matcher_memory import load_and_match
from sapwood.bench.filter.recursive_messages import growth_degree, nested_message
from sapwood.bench.harness.benchmark_report import Role
from sapwood.bench.harness.datasets import generate_messages
from sapwood.bench.harness.experiments import BenchError
from sapwood.bench.harness.isolation import stream_isolated
from sapwood.bench.harness.runner import Options, run_suite
from sapwood.bench.harness.timer import Timing
from sapwood.bench.suites import FILTER
from sapwood.workload import load_dtd
from tests.bench.support import (
    Run,
    assert_filled,
    assert_helps,
    assert_written,
    find_chart,
    make_bench,
    nitf_folder,
    print_report,
    smoke_run,
)

CHARTS = {
    "recursion",
    "fallback",
    "queries",
    "depth",
    "wildcards",
    "descendants",
    "nesting",
    "inserts",
    "predicates",
    "ranges",
    "compile",
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return smoke_run(FILTER, tmp_path_factory.mktemp("bench") / "deep" / "out")


# -- results -------------------------------------------------------------------------------------------


def test_every_figure_is_measured(everything: Run) -> None:
    figures = everything[0].figures
    measures = [figure.measure for figure in figures]
    assert measures.count("warm") == 5  # few, many, with duplicates, with predicates, nested
    assert measures.count("loading") == 2
    assert measures.count("loading, garbage collector off") == 2
    assert gc.isenabled()
    for measure in ("first pass", "churn, an add and a remove per message", "resident memory, warm"):
        assert measures.count(measure) == 1
    assert measures.count("recursion, degree") == 4
    assert measures.count("compile time, degree") == 5
    assert all(figure.value > 0 for figure in figures if not figure.measure.endswith("degree"))


def test_bars_are_not_judged_on_generated_workloads(everything: Run) -> None:
    figures = everything[0].figures
    assert any(figure.bar is not None for figure in figures)
    assert all(figure.met is None for figure in figures)
    assert everything[0].missed == []


def test_every_chart_has_its_curves(everything: Run) -> None:
    report = everything[0]
    assert_filled(report, CHARTS, set())
    for chart in report.charts:
        if chart.name not in ("recursion", "fallback"):
            assert Role.BASELINE in [series.role for series in chart.series]
    assert [point.x for point in find_chart(report, "depth").series[0].points] == [6, 7]
    assert Role.TWIN in [series.role for series in find_chart(report, "predicates").series]
    assert Role.TWIN in [series.role for series in find_chart(report, "ranges").series]


def test_files_are_written(everything: Run) -> None:
    assert_written(everything[1], "filter", CHARTS, everything[0])


def test_tables_show_everything(everything: Run) -> None:
    text = print_report(everything[0])
    for chart in everything[0].charts:
        assert chart.x_label in text  # one has brackets, which rich would read as markup
    assert "for reference" in text


def test_a_folder_of_published_workloads(tmp_path: Path) -> None:
    options = Options(nitf_folder(tmp_path), out=None, scale="smoke", only=["paths", "growth-queries"])
    report = run_suite(FILTER, options)
    assert report.workload == "published NITF workload"
    assert {figure.workload for figure in report.figures} >= {"10 distinct paths", "60 distinct paths"}
    assert [chart.name for chart in report.charts] == ["queries"]


def test_only_and_groups() -> None:
    assert [e.name for e in FILTER.choose(["memory", "paths"])] == ["paths", "memory"]
    growth = [experiment.name for experiment in FILTER.choose(["growth"])]
    assert growth and all(name.startswith("growth-") for name in growth)
    bars = [experiment.name for experiment in FILTER.choose(["bars"])]
    assert [*bars, *growth] == [experiment.name for experiment in FILTER.choose([])]
    with pytest.raises(BenchError, match="no experiment speed: choose from bars, growth, paths"):
        FILTER.choose(["paths", "speed"])


def test_the_full_scale_needs_the_published_workload(tmp_path: Path) -> None:
    assert FILTER.scale(Options()) == "generated"
    assert FILTER.scale(Options(nitf=tmp_path)) == "full"
    assert FILTER.scale(Options(nitf=tmp_path, quick=True)) == "quick"


def test_the_command() -> None:
    assert_helps(FILTER, "--nitf")


# -- measurement ---------------------------------------------------------------------------------------


def test_memory_of_a_new_process(tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("//a\n/é[. = 'é']", encoding="utf-8")
    (used,) = stream_isolated(load_and_match, queries, ["<é>é</é>".encode(), b"<a/>"])
    assert not isinstance(used, str)
    warm, others = used
    assert 1 < others["before_loading"] <= warm <= others["peak"] < 1_000


def test_lxml_is_scaled_up_to_all_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_round(own_pass: Callable[[], float], messages: list[bytes], least: int) -> Timing:
        return Timing((own_pass(),), (1.0,), len(messages))

    ticks = count()  # one second between two readings: for parsing, and for evaluating all of the sample
    monkeypatch.setattr(matching_contenders, "clock", lambda: float(next(ticks)))
    monkeypatch.setattr(matching_contenders, "time_rounds", one_round)
    queries = [f"/news/x{number}" for number in range(5_000)] * 2
    precision = matching_contenders.Precision(1, 0.0, sampled_queries=5, sampled_messages=2)
    cost = matching_contenders.cost_one_by_one(queries, generate_messages(load_dtd("news"), 3), precision)
    assert cost == 2 * (1 + 5_000 / 5)


def test_queries_for_lxml_have_the_same_matches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench, steps = make_bench(tmp_path), fallback_cost.measure_fallback.steps
    list(steps(bench, 2, 20, 1, (0, 100)))
    (curve,) = find_chart(bench.report, "fallback").series
    assert len({point.details["matched"] for point in curve.points}) == 1
    matcher = Matcher()
    matcher.add(1, f"//a{fallback_cost._ALWAYS_TRUE}")
    assert matcher.explain(1).decided_by == "xpath"
    monkeypatch.setattr(fallback_cost, "_ALWAYS_TRUE", "[count(*) > 100]")
    with pytest.raises(BenchError, match="do not agree"):
        list(steps(bench, 2, 20, 1, (0, 100)))


def test_the_nested_message() -> None:
    tree = etree.fromstring(nested_message(200)).getroottree()
    assert tree.xpath("count(//a)") == 200
    assert tree.xpath(f"boolean({recursive_messages.PLAIN})") is True


@pytest.mark.parametrize("kind", ["plain", "predicate", "nested"])
def test_recursive_queries_are_distinct_and_right(kind: str) -> None:
    queries: list[str] = getattr(recursive_messages, f"{kind}_queries")(40)
    assert len(set(queries)) == 40
    message = nested_message(12)
    tree = etree.fromstring(message).getroottree()
    matcher = Matcher()
    matcher.add_many((query, query) for query in queries)
    assert list(matcher.match(message)) == [query for query in queries if tree.xpath(query)]


def test_the_degree_of_growth() -> None:
    assert growth_degree({50: 0.1, 100: 1.0, 200: 8.0}) == pytest.approx(3.0)
