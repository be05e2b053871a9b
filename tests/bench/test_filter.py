"""The filter suite at its smoke scale: what it reports and writes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from lxml import etree

from sapwood import Matcher, Matches
from sapwood.bench.filter import (
    fallback_cost,
    matching_contenders,
    matching_cost,
    query_parameters,
    recursive_messages,
    small_messages,
    thread_scaling,
)
from sapwood.bench.filter.matcher_memory import load_and_match
from sapwood.bench.filter.matching_cost import READERS
from sapwood.bench.filter.order_messages import generate_order_queries, generate_orders
from sapwood.bench.filter.recursive_messages import growth_degree, nested_message
from sapwood.bench.harness import timer
from sapwood.bench.harness.benchmark_report import Role
from sapwood.bench.harness.datasets import generate_messages
from sapwood.bench.harness.engines import ENGINES, KERNEL, KERNEL_EXPAT, PYTHON, UNCLASSED, Engine
from sapwood.bench.harness.experiments import BenchError
from sapwood.bench.harness.isolation import stream_isolated
from sapwood.bench.harness.runner import Options, run_suite
from sapwood.bench.harness.timer import Timing
from sapwood.bench.suites import FILTER
from sapwood.engine.automaton.automaton import Automaton
from sapwood.workload import load_dtd
from tests.bench.support import (
    Run,
    assert_filled,
    assert_helps,
    assert_written,
    find_chart,
    find_figures,
    find_listing,
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
    "orders",
}
INDEXES = [engine for engine in ENGINES if engine is not KERNEL_EXPAT]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return smoke_run(FILTER, tmp_path_factory.mktemp("bench") / "deep" / "out")


# -- results -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_every_figure_is_measured(everything: Run) -> None:
    figures = everything[0].figures
    measures = [figure.measure for figure in figures]
    count = sum(not engine.missing for engine in ENGINES)
    assert measures.count("warm") == 5 * count  # few, many, with duplicates, with predicates, nested
    for measure in ("loading", "loading a query"):
        assert measures.count(measure) == 4 * count
    for measure in ("first pass", "churn, an add and a remove per message"):
        assert measures.count(measure) == count
    for measure in ("warm, small messages", "small messages, against lxml one by one", "new values"):
        assert measures.count(measure) == 2 * count
    assert measures.count("memory a query") == 3 * sum(not each.missing for each in INDEXES)
    assert measures.count("loading, garbage collector off") == 2
    assert gc.isenabled()
    assert measures.count("resident memory, warm") == 1
    assert measures.count("recursion, degree") == 4
    assert measures.count("compile time, degree") == 5
    # Degrees may be negative; the growth of this process, which has grown before, may be nothing.
    others = [each for each in figures if not each.measure.endswith(("degree", "memory a query"))]
    assert all(figure.value > 0 for figure in others)


@pytest.mark.long
def test_engines_that_cannot_be_measured_are_named_once(everything: Run) -> None:
    named = [reason for reason in everything[0].skipped if reason.startswith("engine ")]
    assert named == [f"engine {each.label}: {each.missing}" for each in ENGINES if each.missing]


@pytest.mark.long
def test_every_way_to_read_matches_is_listed(everything: Run) -> None:
    listing = find_listing(everything[0], "warm")
    assert listing.columns == tuple(engine.label for engine in ENGINES if not engine.missing)
    assert len(listing.rows) == 5 * len(READERS)
    assert all(cell is not None and cell > 0 for row in listing.rows for cell in row.cells)


@pytest.mark.long
def test_bars_are_not_judged_on_generated_workloads(everything: Run) -> None:
    figures = everything[0].figures
    assert any(figure.bar is not None for figure in figures)
    assert all(figure.met is None for figure in figures)
    assert everything[0].missed == []


@pytest.mark.long
def test_every_chart_has_its_curves(everything: Run) -> None:
    report = everything[0]
    assert_filled(report, CHARTS, {"warm"})
    for chart in report.charts:
        if chart.name not in ("recursion", "fallback"):
            assert Role.BASELINE in [series.role for series in chart.series]
    assert [point.x for point in find_chart(report, "depth").series[0].points] == [6, 7]
    for name in ("predicates", "ranges"):
        assert {Role.OTHER, Role.TWIN} < {series.role for series in find_chart(report, name).series}


def test_the_predicate_index_is_compared_with_its_twin_in_the_same_automaton() -> None:
    tunings = query_parameters.INDEXED, query_parameters.TESTED
    assert [tuning.index_values for tuning in tunings] == [True, False]
    assert all(isinstance(Matcher(tuning=tuning).index.automaton, Automaton) for tuning in tunings)


@pytest.mark.long
def test_files_are_written(everything: Run) -> None:
    assert_written(everything[1], "filter", CHARTS, everything[0])


@pytest.mark.long
def test_tables_show_everything(everything: Run) -> None:
    text = print_report(everything[0])
    for chart in everything[0].charts:
        assert chart.x_label in text  # one has brackets, which rich would read as markup
    assert "for reference" in text


def test_a_folder_of_published_workloads(tmp_path: Path) -> None:
    options = Options(nitf_folder(tmp_path), out=None, scale="smoke", only=["paths", "growth-queries"])
    report = run_suite(FILTER, options)
    assert report.workload == "published NITF workload"
    measured = {figure.workload for figure in report.figures}
    assert measured >= {f"{n} distinct paths, {ENGINES[0].label}" for n in (10, 60)}
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
    assert 1 < others["before_loading"] <= others["loaded"] <= warm <= others["peak"] < 1_000


def test_memory_that_a_query_adds(tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("\n".join(f"/a/b{number}" for number in range(5_000)), encoding="utf-8")
    (used,) = stream_isolated(load_and_match, queries, [b"<a/>"], UNCLASSED.tuning)
    assert not isinstance(used, str)
    growth = used[1]["loaded"] - used[1]["before_loading"]
    assert 50 < growth * 1e6 / 5_000 < 10_000


@pytest.fixture
def every_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that all engines are there: what `Tuning` does not have stays off."""
    monkeypatch.setattr(Engine, "missing", "")


def test_engines_are_measured_beside_each_other(every_engine: None, tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    list(matching_cost.measure_paths.run(bench))
    report, labels = bench.report, [engine.label for engine in ENGINES]
    assert report.skipped == []
    assert list(find_listing(report, "warm").columns) == labels
    bars = {figure.workload.rpartition(", ")[2]: figure.bar for figure in find_figures(report, "warm")}
    assert bars == {UNCLASSED.label: 6, PYTHON.label: 4, KERNEL_EXPAT.label: 1.35, KERNEL.label: 0.35}
    for reading, limits in (("numbers", [1.8, 0.8]), ("ids", [3, 2])):
        assert [figure.bar for figure in find_figures(report, f"warm, {reading} listed")] == limits
    first = find_figures(report, "first pass")
    assert [figure.bar for figure in first] == [100, 100, 10, 10]
    loading = find_figures(report, "loading a query")
    assert [figure.bar for figure in loading] == [None, None, None, 4]
    churn = find_figures(report, "churn, an add and a remove per message")
    assert [figure.bar for figure in churn] == [3, 3, 2, 2]
    for measure in ("warm", "first pass", "loading", "churn"):
        compared = find_figures(report, f"{measure}, Python with query classes against without")
        assert len(compared) == (2 if measure == "warm" else 1)
        assert all(figure.bar == 1.05 and not figure.at_least and figure.value > 0 for figure in compared)


def test_engines_that_do_not_agree_are_not_compared(
    every_engine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = iter((1.0, 1.0, 1.0, 2.0))
    monkeypatch.setattr(timer, "mean_matches", lambda matcher, messages: next(found))
    with pytest.raises(BenchError, match="engines do not agree on the matches of orders, 1 query"):
        list(small_messages.measure_orders.run(make_bench(tmp_path)))


def test_orders_and_their_queries() -> None:
    orders, queries = generate_orders(100), generate_order_queries(2_000)
    assert orders == generate_orders(100) and queries == generate_order_queries(2_000)
    assert len(set(queries)) == 2_000
    assert 900 < sum(map(len, orders)) / len(orders) < 1_100
    matcher = Matcher()
    matcher.add_many((query, query) for query in queries)
    assert all(matcher.explain(query).decided_by != "xpath" for query in queries)
    matched = [list(matcher.match(order)) for order in orders]
    assert 0.003 < sum(map(len, matched)) / len(orders) / len(queries) < 0.008
    for order, ours in zip(orders[:5], matched[:5], strict=True):
        tree = etree.fromstring(order).getroottree()
        assert ours == [query for query in queries if tree.xpath(f"boolean({query})")]


def test_threads_are_compared_where_there_are_any(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[int] = []

    def match_many(self: Matcher, messages: list[bytes], threads: int = 1) -> Iterator[Matches]:
        asked.append(threads)
        return map(self.match, messages)

    monkeypatch.setattr(Matcher, "match_many", match_many)
    bench = make_bench(tmp_path)
    list(thread_scaling.measure_threads.run(bench))
    assert asked[:4] == [1, 2, 2, 1]
    paths, predicates = bench.report.figures
    assert paths.workload == "60 distinct paths" and predicates.workload == "30 with an attribute predicate"
    assert all(figure.bar == 1.7 and figure.at_least and figure.value > 0 for figure in (paths, predicates))


def test_threads_are_skipped_where_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Matcher, "match_many", lambda self, messages: map(self.match, messages))
    bench = make_bench(tmp_path)
    assert list(thread_scaling.measure_threads.run(bench)) == []
    assert bench.report.skipped == ["threads: this version's match_many has no parameter threads"]


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
