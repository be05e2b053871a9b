"""`sapwood bench transform` at sizes that take no time: what it reports and writes, and how it ends."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sapwood import Broker
from sapwood.bench import transform as bench
from sapwood.bench import transform_bars
from sapwood.bench.contenders import OPTIMISED, SHARED, SHARINGS, plan_each, shared
from sapwood.bench.report import Figure, Listing, Report, Role
from sapwood.bench.setting import Experiment
from sapwood.bench.sources import BenchError
from sapwood.bench.transform import EXPERIMENTS, Options, run
from sapwood.bench.transform_setting import FULL, Kind, TransformSetting, bibliography, book, compiled
from sapwood.bench.writing import asked_for, write
from sapwood.engine.message.message_reader import Message
from sapwood.transform.shared_plan import SharedPlan
from tests.bench.support import TINY_TRANSFORM, assert_written, nitf_folder, shown

CHARTS = {"sharing", "predicates", "returns", "descendant", "growth"}
LISTINGS = {
    "approaches",
    "operators-costs",
    "operators-counts",
    "recursive-approaches",
    "recursive-operators-costs",
    "recursive-operators-counts",
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    out = tmp_path_factory.mktemp("bench") / "out"
    return run(Options(scale=TINY_TRANSFORM, out=out), Console(file=StringIO())), out


def figures(report: Report, measure: str) -> list[Figure]:
    return [figure for figure in report.figures if figure.measure == measure]


def listing(report: Report, name: str) -> Listing:
    return next(listing for listing in report.listings if listing.name == name)


# -- what is reported ----------------------------------------------------------------------------------


def test_sharing_is_compared_on_the_same_messages(everything: tuple[Report, Path]) -> None:
    groups, bodies = figures(everything[0], "a plan for each query, against the shared network")
    assert groups.bar == 9 and groups.at_least and bodies.bar is None
    assert groups.value > 0 and bodies.value > 0
    assert groups.workload == "40 queries, until the last group"
    assert groups.details["messages"] == TINY_TRANSFORM.messages
    (more,) = figures(everything[0], "shared network, queries added to it")
    assert more.value > 0 and more.workload == "60 queries against 40"


def test_the_curves_of_sharing(everything: tuple[Report, Path]) -> None:
    chart = next(chart for chart in everything[0].charts if chart.name == "sharing")
    sizes = {series.label: [point.x for point in series.points] for series in chart.series}
    assert sizes["shared, until the last group"] == sizes["shared, until all is written"] == [20, 40, 60]
    assert sizes["a plan each, until the last group"] == [20, 40]
    assert len(sizes["thesis, a plan each"]) == 5
    published = {series.role for series in chart.series if "thesis" in series.label}
    assert published == {Role.PUBLISHED, Role.PUBLISHED_BASELINE}


def test_writing_is_a_part_of_publishing(everything: tuple[Report, Path]) -> None:
    (rest,) = figures(everything[0], "publishing, but for writing")
    (whole,) = figures(everything[0], "publishing")
    (writing,) = figures(everything[0], "writing results")
    assert rest.bar == 15 and not rest.at_least
    assert writing.value > 0
    assert rest.value < whole.value
    share = whole.details["share"]
    assert isinstance(share, float) and 0 <= share <= 1


def test_changes_are_timed_among_few_and_many(everything: tuple[Report, Path]) -> None:
    for measure in ("adding a query", "removing a query"):
        (figure,) = figures(everything[0], measure)
        assert figure.bar == 5 and figure.value > 0
        assert figure.details["changes"] == TINY_TRANSFORM.arriving
    assert len(figures(everything[0], "the message right after a query came")) == 2


def test_nothing_is_hashed_where_nothing_nests(everything: tuple[Report, Path]) -> None:
    for measure in ("hash joins that the DTD leaves", "DupElims that the DTD leaves"):
        (figure,) = figures(everything[0], measure)
        assert figure.value == figure.bar == 0
    ours = listing(everything[0], "operators-counts").rows[0]  # not optimised
    semi_hash, semi_merge, outer_hash, outer_merge, dup_elims = ours.cells
    queries = TINY_TRANSFORM.bibliography_queries
    assert semi_hash is not None and 0 < semi_hash <= queries
    assert (semi_merge, outer_hash, outer_merge, dup_elims) == (0, queries, 0, 3 * queries)


def test_the_thesis_stands_below_what_was_measured(everything: tuple[Report, Path]) -> None:
    for name in ("operators-costs", "recursive-operators-counts"):
        rows = listing(everything[0], name).rows
        assert [row.label for row in rows[::2]] == list(OPTIMISED.values())
        assert [row.published for row in rows] == [False, True] * 3
        assert all(len(row.cells) == 5 for row in rows)
    assert listing(everything[0], "operators-costs").rows[1].cells == (28, 61, 451, 140, 235)


def test_approaches_are_listed_beside_the_network(everything: tuple[Report, Path]) -> None:
    for name in ("approaches", "recursive-approaches"):
        rows = listing(everything[0], name).rows
        assert [row.label for row in rows] == [*SHARINGS, SHARED]
        assert all(cell is not None and cell > 0 for row in rows for cell in row.cells)
        assert [len(row.cells) for row in rows] == [3, 3, 3, 1]


def test_every_chart_and_listing_is_filled(everything: tuple[Report, Path]) -> None:
    report = everything[0]
    assert {chart.name for chart in report.charts} == CHARTS
    assert {listing.name for listing in report.listings} == LISTINGS
    for chart in report.charts:
        assert Role.SAPWOOD in [series.role for series in chart.series]
        assert all(point.y > 0 for series in chart.series for point in series.points)
        assert all(series.points for series in chart.series)


def test_nothing_is_judged_at_other_scales(everything: tuple[Report, Path]) -> None:
    assert all(figure.met is None for figure in everything[0].figures)
    assert gc.isenabled()


def test_files_are_written(everything: tuple[Report, Path]) -> None:
    report, out = everything
    assert_written(out, "transform", set(CHARTS), report)


def test_tables_show_everything(everything: tuple[Report, Path]) -> None:
    text = shown(everything[0])
    assert "thesis, of 5,000" in text
    assert "15,000" in text


# -- what is promised ----------------------------------------------------------------------------------


def test_published_messages_are_judged_and_generated_ones_are_not(tmp_path: Path) -> None:
    report = run(Options(nitf=nitf_folder(tmp_path), scale=TINY_TRANSFORM, out=None, only=["cost"]))
    published, generated = figures(report, "publishing, but for writing")
    assert "published NITF messages" in published.workload and "book" in generated.workload
    assert "published NITF workload" in report.workload
    setting = TransformSetting(report, True, FULL, None)
    steps = transform_bars._cost(setting, "some", book().queries(20), book().messages(2), promised=True)
    assert len(list(steps)) == 2
    assert figures(report, "publishing, but for writing")[-1].met is not None


# -- how it is measured --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [book(), bibliography()], ids=["book", "bibliography"])
def test_all_ways_find_the_same(kind: Kind) -> None:
    sent, asked = kind.messages(4), compiled(kind.queries(60))
    ways = [plan_each(kind.dtd, sharing, optimise) for sharing in SHARINGS for optimise in OPTIMISED]
    ways.append(shared())
    for way in ways:
        way.load(asked[:30])
        way.groups_pass(sent)
        way.load(asked[30:])  # some come when messages have been seen
    matched = {way.matched(sent) for way in ways}
    assert len(matched) == 1
    assert matched.pop() > 0
    assert all(way.groups_pass(sent) > 0 and way.bodies_pass(sent) > 0 for way in ways)


@pytest.mark.parametrize(
    "message", [*book().messages(3), b"<book xmlns:p='u'><index><entry page='1'/></index></book>"]
)
def test_what_is_written_apart_is_what_the_network_writes(message: bytes) -> None:
    network = shared()
    network.load(compiled(book().queries(300)))
    network.load(compiled(["for $b in //section return <r t='{$b/title}'>{$b/title}{string($b)}</r>"]))
    plans, source = network.plans, Message(message)
    assert isinstance(plans, SharedPlan)
    found = network.index.find(source)
    apart = write(network.index, plans, source, found, asked_for(plans, source, found))
    assert apart
    assert set(apart) == {body for _, body in plans.bodies(source, found)}


def test_messages_are_as_large_as_those_of_the_thesis() -> None:
    for kind, elements in ((bibliography(), 149), (book(), 83)):
        sent = kind.messages(180)
        count = sum(message.count(b"</") + message.count(b"/>") for message in sent) / len(sent)
        assert 0.8 < count / elements < 1.25


def test_about_one_query_in_a_hundred_makes_something() -> None:
    kind = book()
    with Broker() as broker:
        broker.subscribe_many(enumerate(kind.queries(1_000, predicates=2, values=25)))
        sent = kind.messages(100, values=25)
        made = sum(len(broker.publish(message)) for message in sent)
    assert 0.005 < made / len(sent) / len(broker) < 0.02


# -- how it ends ---------------------------------------------------------------------------------------


def test_ctrl_c_keeps_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(setting: TransformSetting) -> Iterator[str]:
        yield "first half"
        setting.figure("adding a query", "half of it", 2.0, "times", 5)
        setting.listing(Listing("half", "Half", ("a",))).add("one", 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "EXPERIMENTS", (Experiment("test", "a test", interrupted),))
    report = run(Options(scale=TINY_TRANSFORM, out=tmp_path))
    assert report.interrupted
    written = json.loads((tmp_path / "transform.json").read_text(encoding="utf-8"))
    assert written["interrupted"]
    assert written["figures"][0]["value"] == 2.0
    assert written["listings"][0]["rows"][0]["cells"] == [1]


def test_an_unknown_experiment_is_refused_with_the_known_ones() -> None:
    names = ", ".join(experiment.name for experiment in EXPERIMENTS)
    with pytest.raises(BenchError, match=f"no experiment speed: choose from {names}"):
        run(Options(only=("speed",), out=None))


def test_the_command() -> None:
    helped = _sapwood("--help")
    assert helped.returncode == 0
    assert all(option in helped.stdout for option in ("--nitf", "--quick", "--only", "--out", "--json"))
    text = " ".join(helped.stdout.replace("│", " ").split())
    assert all(experiment.name in text for experiment in EXPERIMENTS)
    refused = _sapwood("--only", "speed")
    assert refused.returncode != 0
    assert "no experiment speed" in " ".join(refused.stderr.replace("│", " ").split())


def _sapwood(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sapwood.cli", "bench", "transform", *arguments]
    wide = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False, env=wide)
