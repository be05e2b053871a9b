"""The experiments with formats of links at their smoke scale, which need no server."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import pytest

from sapwood.bench.mesh.exclusiveness import Shares, expect_random, run_exclusiveness
from sapwood.bench.mesh.format_sizes import compute_sizes
from sapwood.bench.mesh.format_workload import split_published
from sapwood.bench.mesh.slow_link import TokenBucket, open_slow_link
from sapwood.bench.suites import MESH
from sapwood.mesh.wire.bodies.body_format import BodyFormat
from tests.bench.support import (
    Run,
    assert_filled,
    assert_written,
    find_figures,
    find_listing,
    make_bench,
    print_report,
    smoke_run,
)

FORMAT_CHARTS = {
    "table-budget",
    "format-depth",
    "format-repeats",
    "format-decisions",
    "inner",
    "projection",
    "exclusiveness-20",
    "exclusiveness-200",
    "hop-latency",
}
_LISTINGS = {
    "table-budget",
    "format-sizes",
    "format-processing-kernel",
    "inner-20",
    "projection",
    "exclusiveness",
    "hop-latency",
}
_MEASURES = (
    "size against text",
    "size with ZLIB against without",
    "decision on a skeleton against parse and match",
    "body at both ends",
    "payload size against text",
    "both ends of a link",
    "inner broker",
    "inner broker against the first",
    "bytes saved by projection",
    "CPU of both ends, cut against whole",
    "partitions by PEP against the bound",
    "latency of a hop against text",
)


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Run:
    only = ["table-budget", "format-sizes", "format-processing", "inner", "projection", "exclusiveness"]
    only.append("hop-latency")
    return smoke_run(MESH, tmp_path_factory.mktemp("bench") / "out", only)


def test_everything_is_measured(formats: Run) -> None:
    report = formats[0]
    assert not report.skipped
    for measure in _MEASURES:
        figures = find_figures(report, measure)
        assert figures and all(figure.value > 0 for figure in figures), measure
        assert all(figure.met is None for figure in figures)  # nothing is promised about the smallest scale


def test_charts_and_listings_are_filled_and_written(formats: Run) -> None:
    report, out = formats
    listings = {name.replace("python", "kernel") for name in (each.name for each in report.listings)}
    assert listings == _LISTINGS
    assert_filled(report, FORMAT_CHARTS, {each.name for each in report.listings})
    assert_written(out, "mesh", FORMAT_CHARTS, report)
    assert "text-zstd-trained" in print_report(report)


def test_all_formats_are_listed(formats: Run) -> None:
    labels = [row.label for row in find_listing(formats[0], "format-sizes").rows]
    assert labels == [*[format.label for format in BodyFormat], "skeleton", "bytes as text"]


def test_dictionaries_are_trained_on_other_messages(tmp_path: Path) -> None:
    workload = split_published(make_bench(tmp_path), 20, 10)
    assert (len(workload.samples), len(workload.messages)) == (20, 10)
    assert not set(workload.samples) & set(workload.messages)
    sizes = compute_sizes(workload)
    assert sizes["text"] == 100
    assert sizes["text-zstd-trained"] < sizes["text-zstd"] < 100


def test_a_small_dataset_is_split_in_halves(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    found = bench.dataset.messages(6)

    class Small:
        def messages(self, count: int) -> list[bytes]:
            return found[:count]

    bench.dataset = Small()  # type: ignore[assignment]
    workload = split_published(bench, 200, 300)
    assert (list(workload.samples), list(workload.messages)) == (found[:3], found[3:])


@pytest.mark.parametrize(("values", "repeat"), [(20, 1), (20, 2), (200, 5)])
def test_partitions_are_as_many_as_expected(values: int, repeat: int) -> None:
    *_, shares = run_exclusiveness(20_000, 100, values, repeat)
    assert isinstance(shares, Shares)
    assert shares.random == pytest.approx(expect_random(20_000, values, repeat), rel=0.15)
    assert shares.pep <= shares.bucket <= shares.bound == 5 * repeat
    assert [*run_exclusiveness(20_000, 100, values, repeat)][-1] == shares  # by its seed


def test_a_bucket_lets_bytes_pass_at_its_rate() -> None:
    bucket = TokenBucket(1_000)
    assert [bucket.take(100, 0.0), bucket.take(100, 0.0)] == pytest.approx([0.1, 0.2])
    assert bucket.take(50, 5.0) == pytest.approx(5.05)  # what was not used is not kept


def test_a_slow_link_passes_payloads_no_faster_than_it_may() -> None:
    payload = bytes(range(256)) * 40
    with open_slow_link(4) as link:
        began = perf_counter()
        link.send(payload)
        assert link.receive() == payload
        assert perf_counter() - began >= len(payload) * 8 / 4e6
        link.send(b"")
        assert link.receive() == b""
