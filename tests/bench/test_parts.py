"""The parts of the benchmark: sources, timings, verdicts, memory, the messages of the recursion."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
from lxml import etree

from sapwood import Matcher
from sapwood.bench import baseline, memory, recursion, sources, timing
from sapwood.bench.report import Figure, Listing, Report
from sapwood.bench.setting import Bar, Notebook
from sapwood.bench.tables import number, tables
from sapwood.bench.timing import Timing
from sapwood.workload import QueriesExhausted, load_dtd
from tests.bench.support import TINY, nitf_folder

# -- sources -------------------------------------------------------------------------------------------


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(sources.BenchError, match=r"there is no folder .*nowhere"):
        sources.source(tmp_path / "nowhere")


def test_missing_files_are_named(tmp_path: Path) -> None:
    folder = nitf_folder(tmp_path)
    (folder / sources.NESTED).unlink()
    for message in (folder / sources.MESSAGES).iterdir():
        message.unlink()
    with pytest.raises(sources.BenchError, match=r"has no docs/\*\.xml, no queries-nested1-50k"):
        sources.source(folder)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    folder = nitf_folder(tmp_path)
    (folder / sources.DISTINCT).write_bytes(b"not compressed")
    with pytest.raises(sources.BenchError, match=r"cannot read .*queries-153928"):
        sources.source(folder).distinct(10)


def test_a_folder_gives_what_its_files_hold(tmp_path: Path) -> None:
    source = sources.source(nitf_folder(tmp_path))
    made = sources.Generated(load_dtd("news"))
    assert source.distinct(20) == made.distinct(60)[:20]
    assert source.repeated(1_000) == made.repeated(80)
    assert source.messages(2) == made.messages(2)
    assert source.dtd.name == "news"  # the folder has no DTD of its own


def test_generated_queries_are_of_their_kind() -> None:
    source = sources.source(None)
    assert len(set(source.distinct(200))) == 200
    assert len(set(source.repeated(2_000))) < 2_000
    assert all(query.count("[@") == 1 for query in source.predicates(20))
    assert all(query.count("[") == 1 and "@" not in query for query in source.nested(20))


def test_fewer_queries_where_there_are_no_more() -> None:
    few = sources.queries(load_dtd("quotes"), 100_000, wildcard=0.0, descendant=0.0)
    assert 0 < len(few) < 100_000
    with pytest.raises(QueriesExhausted):
        sources.queries(load_dtd("quotes"), 1, depth=1, nested=1)


# -- timings -------------------------------------------------------------------------------------------


def test_a_multiple_is_the_median_of_the_rounds() -> None:
    timed = Timing(own=(2.0, 30.0, 4.0), raw=(1.0, 1.0, 2.0), messages=2)
    assert timed.multiple == 2.0
    assert timed.spread == (2.0, 30.0)
    assert timed.microseconds == 2e6


def test_rounds_go_on_until_the_time_is_up() -> None:
    passes: list[int] = []

    def one_pass() -> float:
        passes.append(1)
        return 0.5

    assert len(timing.rounds(one_pass, [b"<a/>"], least=2).own) == 2
    assert len(timing.rounds(one_pass, [b"<a/>"], least=2, seconds=1.9).own) == 4
    assert len(timing.rounds(one_pass, [b"<a/>"], least=2, seconds=1e9).own) == timing.MOST_ROUNDS
    passes.clear()
    assert len(timing.rounds(one_pass, [b"<a/>"], least=1, warm_up=3).own) == 1
    assert len(passes) == 4


def test_what_is_compared_is_timed_by_turns() -> None:
    turns: list[str] = []

    def one_pass(name: str, seconds: float) -> Callable[[], float]:
        def timed() -> float:
            turns.append(name)
            return seconds

        return timed

    passes = [one_pass("whole", 6.0), one_pass("part", 2.0)]
    whole, part = timing.side_by_side(passes, [b"<a/>"], least=2, warm_up=1)
    assert turns == ["whole", "part"] * 3
    assert whole.times(part) == 3.0
    assert whole.without(part).own == (4.0, 4.0)
    assert whole.raw == part.raw == whole.without(part).raw
    assert whole.milliseconds == 6e3


def test_counting() -> None:
    matcher = Matcher()
    matcher.add_many([(1, "//a"), (2, "//b"), (3, "/*")])
    assert timing.count(matcher, [b"<a/>", b"<r><a/><b/></r>"]) == 2.5


def test_lxml_is_scaled_up_to_all_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_round(own_pass: Callable[[], float], messages: Sequence[bytes], least: int) -> Timing:
        return Timing((own_pass(),), (1.0,), len(messages))

    ticks = count()  # one second from each look to the next: for parsing, and for asking all of the sample
    monkeypatch.setattr(baseline, "clock", lambda: float(next(ticks)))
    monkeypatch.setattr(baseline, "rounds", one_round)
    queries = [f"/news/x{number}" for number in range(5_000)] * 2
    cost = baseline.one_by_one(queries, sources.messages(load_dtd("news"), 3), TINY)
    assert cost == TINY.sampled_messages * (1 + 5_000 / TINY.sampled_queries)


# -- verdicts ------------------------------------------------------------------------------------------


def test_verdicts() -> None:
    report = Report("some", quick=False)
    report.figures += [
        Figure("warm", "met", 4.0, "×", 5, judged=True),
        Figure("warm", "missed", 6.0, "×", 5, judged=True),
        Figure("warm", "reference", 6.0, "×", 5),
    ]
    assert [figure.met for figure in report.figures] == [True, False, None]
    assert [figure.workload for figure in report.missed] == ["missed"]
    assert [entry["met"] for entry in json.loads(report.to_json())["figures"]] == [True, False, None]
    verdicts = [str(cell) for cell in tables(report)[0].columns[-1].cells]
    assert verdicts == ["yes", "no", "for reference"]


def test_bars_of_any_kind() -> None:
    notebook = Notebook(Report("some", quick=False), judged=True)
    notebook.figure("none", "", 4.0, "×")
    notebook.figure("most", "", 4.0, "×", 5)
    notebook.figure("least", "", 4.0, "×", Bar(5, at_least=True))
    notebook.figure("reference", "", 4.0, "×", Bar(5, promised=False), shown=1)
    assert [figure.met for figure in notebook.report.figures] == [None, True, False, None]
    assert notebook.report.figures[-1].details == {"shown": 1}


def test_listings() -> None:
    report = Report("some", quick=False)
    report.listings += [Listing("empty", "Empty", ("a",)), Listing("some", "Some", ("a", "b"), "of [note]")]
    report.listings[1].add("ours", 1.5, None)
    report.listings[1].add("theirs", 12345, 0, published=True)
    (table,) = tables(report)
    assert [list(column.cells) for column in table.columns[1:]] == [["1.50", "12,345"], ["", "0"]]
    assert str(table.caption) == "of [note]"
    assert json.loads(report.to_json())["listings"][1]["rows"][1]["published"] is True


def test_an_empty_report_has_nothing_to_show() -> None:
    report = Report("some", quick=True)
    assert tables(report) == []
    assert json.loads(report.to_json())["charts"] == []


@pytest.mark.parametrize(
    ("value", "shown"), [(0.123, "0.12"), (12.34, "12.3"), (12345.6, "12,346"), (0, "0")]
)
def test_numbers(value: float, shown: str) -> None:
    assert number(value) == shown


# -- memory --------------------------------------------------------------------------------------------


def test_memory_of_a_fresh_process() -> None:
    used = memory.measure(["//a", "/é[. = 'é']"], ["<é>é</é>".encode(), b"<a/>"])
    assert 1 < used.empty <= used.resident <= used.peak < 1_000


# -- recursion -----------------------------------------------------------------------------------------


def test_the_nested_message() -> None:
    tree = etree.fromstring(recursion.nested_message(200)).getroottree()
    assert tree.xpath("count(//a)") == 200
    assert tree.xpath(f"boolean({recursion.PLAIN})") is True


@pytest.mark.parametrize(
    "make", [recursion.plain_queries, recursion.predicate_queries, recursion.nested_queries]
)
def test_recursive_queries_are_distinct_and_right(make: Callable[[int], list[str]]) -> None:
    queries = make(40)
    assert len(set(queries)) == 40
    message = recursion.nested_message(12)
    tree = etree.fromstring(message).getroottree()
    matcher = Matcher()
    matcher.add_many((query, query) for query in queries)
    assert list(matcher.match(message)) == [query for query in queries if tree.xpath(query)]


def test_the_degree_of_growth() -> None:
    assert recursion.degree({50: 0.1, 100: 1.0, 200: 8.0}) == pytest.approx(3.0)
