"""The size of messages in each format of links, by their depth and repetition, as in ONYX's figure 7."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.bench.harness import Bench, Chart, ChartAxis, Role, at_most, experiment, scale
from sapwood.bench.mesh.format_workload import (
    DEFAULT,
    SKELETON,
    FormatWorkload,
    generate_workload,
    split_published,
)
from sapwood.engine.limits import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.mesh.wire.bodies.body_format import BodyFormat
from sapwood.mesh.wire.skeletons.message_skeleton import read_skeleton
from sapwood.mesh.wire.skeletons.skeleton import TestedNames

_NOTHING_TESTED = TestedNames(frozenset(), frozenset())
_SHALLOW, _FEW = 6, 3
"""depth and repetition, where the other is varied"""
_VERDICT = "ONYX: stream not remarkably better than text; dictionary promising; ZLIB shrinks all"
_ZLIB = {
    BodyFormat.TEXT: BodyFormat.TEXT_ZLIB,
    BodyFormat.ELEMENTS: BodyFormat.ELEMENTS_ZLIB,
    BodyFormat.NAMED_ELEMENTS: BodyFormat.NAMED_ELEMENTS_ZLIB,
}

Sizes = dict[str, float]
"""by format, the percentage of the size as text"""


@experiment("format-sizes", "sizes of messages in all formats of links, by depth and repetition")
def measure_sizes(
    bench: Bench,
    samples: int = scale(200, 200, 200, 20),
    messages: int = scale(300, 300, 100, 10),
    depths: tuple[int, ...] = scale((4, 6, 8, 10), (4, 6, 8, 10), (4, 6, 8, 10), (3, 4)),
    repeats: tuple[int, ...] = scale((1, 2, 3, 5), (1, 2, 3, 5), (1, 2, 3, 5), (1, 2)),
) -> Iterator[str]:
    """Measure messages of the dataset, and messages generated from its DTD."""
    yield "messages of the dataset"
    found = {"dataset": compute_sizes(split_published(bench, samples, messages))}
    axis = ChartAxis("size as a share of text", "%")
    charts = [
        bench.chart("format-depth", "formats of links by depth", "depth of messages", axis, note=_VERDICT),
        bench.chart("format-repeats", "formats of links by repetition", "most repeats", axis, note=_VERDICT),
    ]
    plans = [[(depth, _FEW) for depth in depths], [(_SHALLOW, most) for most in repeats]]
    for chart, varied, plan in zip(charts, (0, 1), plans, strict=True):
        for shape in plan:
            name = f"depth {shape[0]}, repeats {shape[1]}"
            yield name
            if name not in found:
                made = generate_workload(bench.dataset.dtd, samples, messages, *shape)
                found[name] = compute_sizes(made)
            _plot(chart, shape[varied], found[name])
    listing = bench.listing("format-sizes", "size in each format, % of text", tuple(found), _VERDICT)
    for label in (*[format.label for format in BodyFormat], SKELETON, "bytes as text"):
        listing.add(label, *(sizes[label] for sizes in found.values()))
    _report(bench, found["dataset"])


def compute_sizes(workload: FormatWorkload) -> Sizes:
    """Return the size of messages in each format, of their skeletons, and the bytes of one as text."""
    total = workload.text_bytes
    sizes = {
        format.label: 100 * sum(len(body.data) for body in workload.encode(format)) / total
        for format in BodyFormat
    }
    bones = 0
    for message in workload.messages:
        skeleton = read_skeleton(Message(message), Limits(), workload.of_texts, _NOTHING_TESTED)
        bones += len(skeleton.data) if skeleton is not None else 0
    sizes[SKELETON] = 100 * bones / total
    sizes["bytes as text"] = total / len(workload.messages)
    return sizes


def _plot(chart: Chart, x: float, sizes: Sizes) -> None:
    for format in BodyFormat:
        if format is BodyFormat.TEXT:
            role = Role.BASELINE
        elif format is DEFAULT:
            role = Role.SAPWOOD
        else:
            role = Role.OTHER if format < BodyFormat.TEXT_ZSTD else Role.FIRST
        chart.curve(format.label, role).add(x, sizes[format.label])
    chart.curve(SKELETON, Role.TWIN).add(x, sizes[SKELETON])


def _report(bench: Bench, sizes: Sizes) -> None:
    """Report the figures behind the verdicts of the paper, and the promise about the default format."""
    label = bench.dataset.label
    for format in (BodyFormat.ELEMENTS, BodyFormat.NAMED_ELEMENTS):
        bench.figure("size against text", f"{format.label}, {label}", sizes[format.label] / 100)
    for plain, compressed in _ZLIB.items():
        bench.ratio(
            "size with ZLIB against without",
            f"{plain.label}, {label}",
            None,
            "times",
            compressed=sizes[compressed.label],
            plain=sizes[plain.label],
        )
    bench.figure(
        "size against text",
        f"{DEFAULT.label} and skeleton, {label}",
        (sizes[DEFAULT.label] + sizes[SKELETON]) / 100,
        "times",
        at_most(0.25),
        body=sizes[DEFAULT.label],
        skeleton=sizes[SKELETON],
    )
