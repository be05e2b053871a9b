"""The transform suite at its smoke scale: what it reports and writes, and that contenders agree."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from sapwood import Broker
from sapwood.bench.harness.benchmark_report import Role
from sapwood.bench.harness.engines import by_engine
from sapwood.bench.harness.runner import Options, run_suite
from sapwood.bench.suites import TRANSFORM
from sapwood.bench.transform import broker_cost, plan_optimisation, shared_plan_cost
from sapwood.bench.transform.evaluators import (
    OPTIMISED,
    SHARED,
    SHARINGS,
    per_query_evaluator,
    shared_evaluator,
)
from sapwood.bench.transform.result_cost import collect_results, find_reached, write_results
from sapwood.bench.transform.thesis_workload import ThesisWorkload, bibliography, book, compile_all
from sapwood.engine.message.message_reader import Message
from sapwood.transform.shared_plan import SharedPlan
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
    points_by_label,
    print_report,
    smoke_run,
)

CHARTS = {"sharing", "predicates", "returns", "descendant", "growth"}
LISTINGS = {
    "approaches",
    "operators-costs",
    "operators-counts",
    "recursive-approaches",
    "recursive-operators-costs",
    "recursive-operators-counts",
}
SMOKE = -1


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return smoke_run(TRANSFORM, tmp_path_factory.mktemp("bench") / "out")


# -- results ----------------------------------------------------------------------------------


def test_sharing_is_compared_on_the_same_messages(everything: Run) -> None:
    groups, bodies = find_figures(everything[0], "a plan for each query, against the shared network")
    assert groups.bar == 9 and groups.at_least and bodies.bar is None
    assert groups.value > 0 and bodies.value > 0
    assert groups.workload == "40 queries, until the last group"
    assert groups.details["messages"] == shared_plan_cost.measure_sharing.table["message_count"][SMOKE]


def test_the_curves_of_sharing(everything: Run) -> None:
    chart = find_chart(everything[0], "sharing")
    sizes = points_by_label(chart)
    assert sizes["shared, until the last group"] == sizes["shared, until all is written"] == [20, 40, 60]
    assert sizes["a plan each, until the last group"] == [20, 40]
    assert len(sizes["thesis, a plan each"]) == 5
    published = {series.role for series in chart.series if "thesis" in series.label}
    assert published == {Role.PUBLISHED, Role.PUBLISHED_BASELINE}


def test_writing_is_a_part_of_publishing(everything: Run) -> None:
    (rest,) = find_figures(everything[0], "publishing, without writing results")
    (whole,) = find_figures(everything[0], "publishing")
    (writing,) = find_figures(everything[0], "writing results")
    assert rest.bar == by_engine(5, 15) and not rest.at_least
    assert writing.value > 0
    assert rest.value < whole.value
    share = whole.details["share"]
    assert isinstance(share, float) and 0 <= share <= 1


def test_changes_are_timed_among_few_and_many(everything: Run) -> None:
    for measure in ("adding a query", "removing a query"):
        (figure,) = find_figures(everything[0], measure)
        assert figure.bar == 5 and figure.value > 0
        assert figure.details["changes"] == broker_cost.measure_changes.table["changes"][SMOKE]
    assert len(find_figures(everything[0], "first message after a query was added")) == 2


def test_nothing_is_hashed_without_recursion(everything: Run) -> None:
    for measure in ("hash joins left by the DTD", "DupElims left by the DTD"):
        (figure,) = find_figures(everything[0], measure)
        assert figure.value == figure.bar == 0
    ours = find_listing(everything[0], "operators-counts").rows[0]  # not optimised
    semi_hash, semi_merge, outer_hash, outer_merge, dup_elims = ours.cells
    queries = plan_optimisation.measure_operators.table["query_count"][SMOKE]
    assert semi_hash is not None and 0 < semi_hash <= queries
    assert (semi_merge, outer_hash, outer_merge, dup_elims) == (0, queries, 0, 3 * queries)


def test_the_thesis_is_listed_below_ours(everything: Run) -> None:
    for name in ("operators-costs", "recursive-operators-counts"):
        rows = find_listing(everything[0], name).rows
        assert [row.label for row in rows[::2]] == list(OPTIMISED.values())
        assert [row.published for row in rows] == [False, True] * 3
        assert all(len(row.cells) == 5 for row in rows)
    assert find_listing(everything[0], "operators-costs").rows[1].cells == (28, 61, 451, 140, 235)


def test_approaches_are_listed_beside_the_shared_plan(everything: Run) -> None:
    for name in ("approaches", "recursive-approaches"):
        rows = find_listing(everything[0], name).rows
        assert [row.label for row in rows] == [*SHARINGS, SHARED]
        assert all(cell is not None and cell > 0 for row in rows for cell in row.cells)
        assert [len(row.cells) for row in rows] == [3, 3, 3, 1]


def test_every_chart_and_listing_is_filled(everything: Run) -> None:
    assert_filled(everything[0], CHARTS, LISTINGS)


def test_bars_are_judged_at_full_scale_only(everything: Run) -> None:
    assert all(figure.met is None for figure in everything[0].figures)
    assert gc.isenabled()


def test_files_are_written(everything: Run) -> None:
    report, out = everything
    assert_written(out, "transform", set(CHARTS), report)


def test_tables_show_everything(everything: Run) -> None:
    text = print_report(everything[0])
    assert "thesis, of 5,000" in text
    assert "15,000" in text


# -- bars ----------------------------------------------------------------------------------


def test_published_messages_are_judged_and_generated_ones_are_not(tmp_path: Path) -> None:
    measure = "publishing, without writing results"
    folder = tmp_path / "nitf"
    folder.mkdir()
    report = run_suite(TRANSFORM, Options(nitf_folder(folder), out=None, scale="smoke", only=["cost"]))
    published, generated = find_figures(report, measure)
    assert "published NITF messages" in published.workload and "book" in generated.workload
    assert "published NITF workload" in report.workload
    bench = make_bench(tmp_path, TRANSFORM.scale(Options()))
    for promised in (True, False):
        queries, messages = book().queries(20), book().messages(2)
        steps = broker_cost.measure_cost(bench, "some", queries, messages, 2, promised=promised)
        assert len(list(steps)) == 2
        assert (find_figures(bench.report, measure)[-1].met is not None) == promised


# -- measurement --------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", [book(), bibliography()], ids=["book", "bibliography"])
def test_all_evaluators_find_the_same(workload: ThesisWorkload) -> None:
    messages, queries = workload.messages(4), compile_all(workload.queries(60))
    evaluators = [
        per_query_evaluator(workload.dtd, sharing, how) for sharing in SHARINGS for how in OPTIMISED
    ]
    evaluators.append(shared_evaluator())
    for evaluator in evaluators:
        evaluator.load(queries[:30])
        evaluator.groups_pass(messages)
        evaluator.load(queries[30:])  # some are added after the first messages
    matched = {evaluator.mean_results(messages) for evaluator in evaluators}
    assert len(matched) == 1
    assert matched.pop() > 0
    for evaluator in evaluators:
        assert evaluator.groups_pass(messages) > 0 and evaluator.results_pass(messages) > 0


@pytest.mark.parametrize(
    "message", [*book().messages(3), b"<book xmlns:p='u'><index><entry page='1'/></index></book>"]
)
def test_results_written_separately_are_those_of_the_shared_plan(message: bytes) -> None:
    shared = shared_evaluator()
    shared.load(compile_all(book().queries(300)))
    shared.load(compile_all(["for $b in //section return <r t='{$b/title}'>{$b/title}{string($b)}</r>"]))
    plans, source = shared.plans, Message(message)
    assert isinstance(plans, SharedPlan)
    found = shared.index.find(source)
    written = write_results(plans, found, find_reached(found), collect_results(plans, source, found))
    assert written
    assert set(written) == {body for _, body in plans.bodies(source, found)}


def test_messages_are_as_large_as_those_of_the_thesis() -> None:
    for workload, elements in ((bibliography(), 149), (book(), 83)):
        messages = workload.messages(180)
        count = sum(message.count(b"</") + message.count(b"/>") for message in messages) / len(messages)
        assert 0.8 < count / elements < 1.25


def test_about_one_query_in_a_hundred_has_a_result() -> None:
    workload = book()
    with Broker() as broker:
        broker.subscribe_many(enumerate(workload.queries(1_000, predicate_paths=2, values=25)))
        messages = workload.messages(100, values=25)
        results = sum(len(broker.publish(message)) for message in messages)
    assert 0.005 < results / len(messages) / len(broker) < 0.02


def test_the_command() -> None:
    assert_helps(TRANSFORM, "--nitf")
