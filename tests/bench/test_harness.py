"""The harness: datasets, timings, verdicts, isolation, memory, and how a run ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from inspect import signature
from io import StringIO
from math import isnan
from pathlib import Path
from signal import SIGINT, raise_signal
from typing import Any, cast

import pytest
from rich.console import Console

from sapwood import Matcher, Tuning
from sapwood.bench.harness import datasets, engines, isolation, memory_usage, timer
from sapwood.bench.harness.benchmark_report import BenchmarkReport, Figure, Listing
from sapwood.bench.harness.experiments import Bench, BenchError, ScaleName, at_least, at_most
from sapwood.bench.harness.isolation import run_isolated, stream_isolated
from sapwood.bench.harness.runner import Options, Suite, run_suite
from sapwood.bench.harness.terminal_tables import build_tables, format_number
from sapwood.bench.harness.timer import Timing
from sapwood.bench.suites import FILTER, JOIN, RELATIONAL, SPARK, TRANSFORM
from sapwood.engine import kernel
from sapwood.workload import QueriesExhausted, load_dtd
from tests.bench.support import (
    flatten,
    make_bench,
    nitf_folder,
    one_experiment_suite,
    run_command,
)

# -- datasets ------------------------------------------------------------------------------------------


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"there is no folder .*nowhere"):
        datasets.open_dataset(tmp_path / "nowhere")


def test_missing_files_are_named(tmp_path: Path) -> None:
    folder = nitf_folder(tmp_path)
    (folder / datasets.QUERY_FILES["nested"]).unlink()
    for message in (folder / datasets.MESSAGES).iterdir():
        message.unlink()
    with pytest.raises(BenchError, match=r"has no docs/\*\.xml, no queries-nested1-50k"):
        datasets.open_dataset(folder)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    folder = nitf_folder(tmp_path)
    (folder / datasets.QUERY_FILES["distinct"]).write_bytes(b"not compressed")
    with pytest.raises(BenchError, match=r"cannot read .*queries-153928"):
        datasets.open_dataset(folder).queries("distinct", 10)


def test_a_folder_returns_the_contents_of_its_files(tmp_path: Path) -> None:
    dataset = datasets.open_dataset(nitf_folder(tmp_path))
    made = datasets.GeneratedDataset(load_dtd("news"))
    assert dataset.queries("distinct", 20) == made.queries("distinct", 60)[:20]
    assert dataset.queries("repeated", 1_000) == made.queries("repeated", 80)
    assert dataset.messages(2) == made.messages(2)
    assert dataset.dtd.name == "news"  # the folder has no DTD of its own


def test_generated_queries_are_of_their_kind() -> None:
    dataset = datasets.open_dataset()
    assert len(set(dataset.queries("distinct", 200))) == 200
    assert len(set(dataset.queries("repeated", 2_000))) < 2_000
    assert all(query.count("[@") == 1 for query in dataset.queries("predicates", 20))
    assert all(query.count("[") == 1 and "@" not in query for query in dataset.queries("nested", 20))


def test_fewer_queries_where_there_are_no_more() -> None:
    few = datasets.generate_queries(load_dtd("quotes"), 100_000, wildcard=0.0, descendant=0.0)
    assert 0 < len(few) < 100_000
    with pytest.raises(QueriesExhausted):
        datasets.generate_queries(load_dtd("quotes"), 1, depth=1, nested=1)


# -- timings -------------------------------------------------------------------------------------------


def test_a_multiple_is_of_the_fastest_passes() -> None:
    timed = Timing(own=(3.0, 30.0, 4.0), raw=(2.0, 1.0, 4.0), messages=2)
    assert timed.multiple == 3.0
    assert timed.spread == (1.0, 30.0)
    assert timed.microseconds == 1.5e6
    assert timed.details()["raw_microseconds"] == 0.5e6
    assert timer.join_timings([timed, timed]).own == timed.own * 2


def test_rounds_go_on_until_the_time_is_up() -> None:
    passes: list[int] = []

    def one_pass() -> float:
        passes.append(1)
        return 0.5

    assert len(timer.time_rounds(one_pass, [b"<a/>"], least=2).own) == 2
    assert len(timer.time_rounds(one_pass, [b"<a/>"], least=2, seconds=1.9).own) == 4
    assert len(timer.time_rounds(one_pass, [b"<a/>"], least=2, seconds=1e9).own) == timer.MAX_ROUNDS
    passes.clear()
    assert len(timer.time_rounds(one_pass, [b"<a/>"], least=1, warm_up=3).own) == 1
    assert len(passes) == 4


def test_contenders_are_timed_in_the_same_rounds() -> None:
    turns: list[str] = []

    def one_pass(name: str, seconds: float) -> Callable[[], float]:
        def timed() -> float:
            turns.append(name)
            return seconds

        return timed

    passes = [one_pass("whole", 6.0), one_pass("part", 2.0)]
    whole, part = timer.time_interleaved(passes, [b"<a/>"], least=2, warm_up=1)
    assert turns == ["whole", "part", "whole", "part", "part", "whole"]  # the last round in reverse order
    assert whole.ratio_to(part) == 3.0
    assert whole.subtract(part).own == (4.0,)
    assert whole.raw == part.raw
    assert whole.subtract(part).raw == (min(whole.raw),)
    assert whole.milliseconds == 6e3


def test_counting() -> None:
    matcher = Matcher()
    matcher.add_many([(1, "//a"), (2, "//b"), (3, "/*")])
    assert timer.mean_matches(matcher, [b"<a/>", b"<r><a/><b/></r>"]) == 2.5


# -- results -------------------------------------------------------------------------------------------


def test_verdicts() -> None:
    report = BenchmarkReport("some", quick=False)
    report.figures += [
        Figure("warm", "met", 4.0, "×", 5, judged=True),
        Figure("warm", "missed", 6.0, "×", 5, judged=True),
        Figure("warm", "reference", 6.0, "×", 5),
    ]
    assert [figure.met for figure in report.figures] == [True, False, None]
    assert [figure.workload for figure in report.missed] == ["missed"]
    assert [entry["met"] for entry in json.loads(report.to_json())["figures"]] == [True, False, None]
    verdicts = [str(cell) for cell in build_tables(report)[0].columns[-1].cells]
    assert verdicts == ["yes", "no", "for reference"]


def test_bars_of_any_kind(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, "full")
    bench.figure("none", "", 4.0, "×")
    bench.figure("most", "", 4.0, "×", at_most(5))
    bench.figure("least", "", 4.0, "×", at_least(5))
    bench.figure("least", "", 5.0, "×", at_least(5))
    bench.figure("reference", "", 4.0, "×", at_most(3, promised=False), shown=1)
    assert [figure.met for figure in bench.report.figures] == [None, True, False, True, None]
    assert bench.report.figures[-1].details == {"shown": 1}


def test_an_engine_needs_its_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_KNOWN", {"cache"})
    monkeypatch.setattr(kernel, "KERNEL", object(), raising=False)
    assert engines.UNCLASSED.missing == ""
    assert engines.UNCLASSED.tuning == Tuning()
    assert engines.KERNEL.missing == "this version has no switch query_classes, kernel, tokenizer"
    assert engines.by_engine(1, 2) == 2
    monkeypatch.setattr(engines, "_KNOWN", {"query_classes", "kernel", "tokenizer"})
    assert [engine.missing for engine in engines.ENGINES] == ["", "", "", ""]
    assert engines.by_engine(1, 2) == 1
    monkeypatch.setattr(kernel, "KERNEL", None)
    monkeypatch.setattr(kernel, "REASON", "no compiler", raising=False)
    assert [engine.missing for engine in engines.ENGINES] == ["", "", "no compiler", "no compiler"]
    assert engines.by_engine(1, 2) == 2


def test_a_ratio_is_of_its_first_two_details(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, "full")
    bench.ratio("sooner", "some", at_least(2), theirs=6.0, ours=2, rounds=5)
    (figure,) = bench.report.figures
    assert (figure.value, figure.unit, figure.met) == (3.0, "times", True)
    assert figure.details == {"theirs": 6.0, "ours": 2, "rounds": 5}


@pytest.mark.parametrize("scale", ["generated", "quick", "smoke"])
def test_bars_are_judged_at_full_scale_only(scale: Any, tmp_path: Path) -> None:
    bench = make_bench(tmp_path, scale)
    bench.figure("most", "", 6.0, "×", at_most(5))
    assert bench.report.figures[0].met is None and bench.report.figures[0].bar == 5


def test_details_are_rounded(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    bench.figure("", "", 1 / 3, small=1 / 3, large=123456.7, counted=123456, some=[1 / 3], text="yes", no=0.0)
    (figure,) = bench.report.figures
    assert figure.value == 1 / 3
    assert figure.details == {
        "small": 0.3333,
        "large": 123457.0,
        "counted": 123456,
        "some": [0.3333],
        "text": "yes",
        "no": 0.0,
    }


def test_listings() -> None:
    report = BenchmarkReport("some", quick=False)
    report.listings += [Listing("empty", "Empty", ("a",)), Listing("some", "Some", ("a", "b"), "of [note]")]
    report.listings[1].add("ours", 1.5, None)
    report.listings[1].add_named("theirs", {"b": 0, "a": 12345}, published=True)
    (table,) = build_tables(report)
    assert [list(column.cells) for column in table.columns[1:]] == [["1.50", "12,345"], ["", "0"]]
    assert str(table.caption) == "of [note]"
    assert json.loads(report.to_json())["listings"][1]["rows"][1]["published"] is True


def test_an_empty_report_has_no_tables() -> None:
    report = BenchmarkReport("some", quick=True)
    assert build_tables(report) == []
    assert json.loads(report.to_json())["charts"] == []


@pytest.mark.parametrize(("value", "text"), [(0.123, "0.12"), (12.34, "12.3"), (12345.6, "12,346"), (0, "0")])
def test_numbers(value: float, text: str) -> None:
    assert format_number(value) == text


SCALES: tuple[ScaleName, ...] = "full", "generated", "quick", "smoke"
SUITES = FILTER, TRANSFORM, JOIN, RELATIONAL, SPARK


def test_scales(tmp_path: Path) -> None:
    benches = [make_bench(tmp_path, name) for name in SCALES]
    assert [bench.select((1, 2, 3)) for bench in benches] == [1, 1, 2, 3]
    assert [bench.select((1, 4, 2, 3)) for bench in benches] == [1, 4, 2, 3]


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_every_experiment_has_its_arguments_at_every_scale(suite: Suite, tmp_path: Path) -> None:
    assert suite.experiments
    for experiment in suite.experiments:
        given = []
        for name in SCALES:
            replaced = replace(experiment, steps=lambda bench, **scale: iter([scale]))
            (scale,) = cast(Any, replaced.run(make_bench(tmp_path, name)))
            signature(experiment.steps).bind(None, **scale)
            given.append(scale)
        assert given[0] != given[3] or not experiment.table


def test_an_experiment_is_skipped_where_a_library_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sapwood.bench.harness.experiments.find_spec", lambda name: None)
    bench = make_bench(tmp_path)
    needy = [experiment for suite in SUITES for experiment in suite.experiments if experiment.needs]
    assert not [step for experiment in needy for step in experiment.run(bench)]
    assert bench.report.skipped == [
        "feed-spark: Spark is missing: in a clone of Sapwood, pip install '.[spark]'",
        "spark: Spark is missing: in a clone of Sapwood, pip install '.[spark]'",
        "spark-large: Spark is missing: in a clone of Sapwood, pip install '.[spark]'",
        "latency: Spark is missing: in a clone of Sapwood, pip install '.[spark]'",
        "real-time: confluent-kafka is missing: in a clone of Sapwood, pip install '.[bench]'",
        "memory: psutil is missing: in a clone of Sapwood, pip install '.[bench]'",
    ]
    assert not bench.report.figures and not bench.report.charts


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_an_unknown_experiment_is_refused_with_the_known_ones(suite: Suite) -> None:
    names = ", ".join(experiment.name for experiment in suite.experiments)
    with pytest.raises(BenchError, match=rf"no experiment speed: choose from .*{names}"):
        run_suite(suite, Options(only=("speed",), out=None))


# -- processes -----------------------------------------------------------------------------------------


def test_an_isolated_function_yields_texts_and_results() -> None:
    running = run_isolated(announce_and_return, "some", value=Figure("a", "b", 1.0, "c"))
    assert next(running) == "next: some"
    with pytest.raises(StopIteration) as ended:
        next(running)
    assert ended.value.value == Figure("a", "b", 1.0, "c")


def announce_and_return(name: str, value: Figure) -> Iterator[str | Figure]:
    print("not a result")
    yield f"next: {name}"
    yield value


@pytest.mark.parametrize(
    "module", ["filter.matcher_memory", "join.feed_items", "relational.automaton_run", "harness.isolation"]
)
def test_measured_processes_load_little(module: str) -> None:
    heavy = ["rich", "matplotlib", "psutil", "duckdb", "pyarrow", "pyspark"]
    code = f"import sys, sapwood.bench.{module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_process_that_fails_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        list(stream_isolated(cast(Any, int), "nonsense"))
    assert "ValueError" in capfd.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        list(stream_isolated(cast(Any, raise_signal), int(SIGINT)))


def test_a_process_that_is_not_waited_for_ends() -> None:
    running = cast(Any, stream_isolated(count_for_ever))
    assert next(running) == "0"
    running.close()


def count_for_ever() -> Iterator[str]:
    number = 0
    while True:
        yield str(number)
        number += 1


def test_memory_without_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = memory_usage.resident_megabytes()
    assert measured > 1
    monkeypatch.setattr(memory_usage, "_psutil", lambda: None)
    assert 0.5 < memory_usage.resident_megabytes() / measured < 2
    assert memory_usage.peak_megabytes() >= measured / 2
    monkeypatch.setattr(memory_usage, "_STATUS", Path("/nowhere"))
    with pytest.raises(BenchError, match=r"needs psutil: in a clone of Sapwood, pip install '\.\[bench\]'"):
        memory_usage.resident_megabytes()


def test_memory_of_children() -> None:
    script = "print('running', flush=True); input()"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert (
            child.stdout is not None and child.stdout.readline()
        )  # its command line can be read from now on
        assert memory_usage.largest_child_megabytes(script) > 1
        child.kill()
    assert isnan(memory_usage.largest_child_megabytes(script))


# -- how a run ends ------------------------------------------------------------------------------------


def test_ctrl_c_keeps_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(bench: Bench) -> Iterator[str]:
        yield "first half"
        bench.figure("warm", "half of it", 2.0, "× raw parsing", at_most(5))
        bench.listing("half", "Half", ("a",)).add("one", 1)
        yield "second half"
        raise KeyboardInterrupt

    report = run_suite(one_experiment_suite(interrupted, monkeypatch), Options(out=tmp_path))
    assert report.interrupted
    assert [figure.workload for figure in report.figures] == ["half of it"]
    written = json.loads((tmp_path / "filter.json").read_text(encoding="utf-8"))
    assert written["interrupted"]
    assert written["figures"][0]["value"] == 2.0
    assert written["listings"][0]["rows"][0]["cells"] == [1]
    assert (tmp_path / "filter-bars.png").exists()


def test_ctrl_c_in_a_process_keeps_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(bench: Bench) -> Iterator[str]:
        bench.figure("warm", "before", 2.0)
        yield from run_isolated(cast(Any, raise_signal), int(SIGINT))

    report = run_suite(one_experiment_suite(interrupted, monkeypatch), Options(out=None))
    assert report.interrupted and report.figures


def test_a_failure_keeps_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(bench: Bench) -> Iterator[str]:
        yield "something"
        bench.figure("warm", "before", 2.0, "× raw parsing")
        raise MemoryError

    with pytest.raises(MemoryError):
        run_suite(one_experiment_suite(failing, monkeypatch), Options(out=tmp_path))
    assert json.loads((tmp_path / "filter.json").read_text(encoding="utf-8"))["figures"]


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def quiet(bench: Bench) -> Iterator[str]:
        yield "counting sheep"

    console = Console(file=StringIO(), force_terminal=True, width=100)
    run_suite(one_experiment_suite(quiet, monkeypatch), Options(out=None), console)
    assert isinstance(console.file, StringIO)
    assert "test: counting sheep" in console.file.getvalue()


def test_an_output_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BenchError, match="cannot make the folder"):
        run_suite(FILTER, Options(out=tmp_path / "file" / "out"))


# -- the command ---------------------------------------------------------------------------------------


def test_an_unknown_experiment_ends_the_command() -> None:
    refused = run_command("transform", "--only", "speed")
    assert refused.returncode != 0
    assert "no experiment speed" in flatten(refused.stderr)


def test_without_the_extra_one_line_says_what_charts_need(tmp_path: Path) -> None:
    arguments = ["filter", "--quick", "--only", "nested", "--json", "--out", str(tmp_path)]
    ended = run_command(*arguments, without=["matplotlib", "psutil"])
    assert ended.returncode == 0
    lines = [each for each in ended.stderr.splitlines() if not each.startswith("not measured: engine ")]
    assert lines == ["Charts need matplotlib: in a clone of Sapwood, pip install '.[bench]'"]
    assert json.loads(ended.stdout)["figures"]
    assert {path.name for path in tmp_path.iterdir()} == {"filter.json"}
    arguments.remove("--json")
    ended = run_command(*arguments, without=["matplotlib", "psutil"])
    assert "\nFigures are in " in ended.stdout and "charts" not in ended.stdout


def test_without_duckdb_one_line_says_what_to_install() -> None:
    ended = run_command("relational", without=["duckdb"])
    assert ended.returncode == 2
    assert "in a clone of Sapwood, pip install '.[relational]'" in flatten(ended.stderr)
    assert "Traceback" not in ended.stderr


def test_without_pyspark_one_line_says_what_to_install() -> None:
    ended = run_command("spark", without=["pyspark"])
    assert ended.returncode == 2
    assert "pip install '.[spark]'" in flatten(ended.stderr)
    assert "Traceback" not in ended.stderr


def test_measurements_are_isolated_in_one_way() -> None:
    """One module starts measurements; the others start Maven, Kafka and `sapwood run`."""
    package = Path(isolation.__file__).parent.parent
    starting = {path.name for path in package.rglob("*.py") if "import subprocess" in path.read_text()}
    measured = {"kafka_server.py", "real_time_latency.py"}
    assert starting == {"isolation.py", "maven_jars.py"} | measured
