"""The latency of a hop by format and bandwidth: encode, transfer over a slow link, decode."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple

from sapwood.bench.harness import Bench, ChartAxis, Role, experiment, run_isolated, scale
from sapwood.bench.mesh.format_workload import DEFAULT, STREAM, TENANT, FormatWorkload, split_published
from sapwood.bench.mesh.slow_link import SlowLink, open_slow_link
from sapwood.mesh.core.frames import Epoch, MessageFrame, MessageKey
from sapwood.mesh.wire.bodies.body_format import BodyFormat, encode_body
from sapwood.mesh.wire.bodies.wire_dictionary import WireDictionary
from sapwood.mesh.wire.frame_codec import decode_payload, encode_payload
from sapwood.mesh.wire.message_content import MessageContent

_EPOCH = Epoch(1, 1)
_WARM_UP = 5
"""messages of each format that are not measured"""


class LatencyRun(NamedTuple):
    """Milliseconds of a hop by format, as the median of messages, and the bytes of their payloads."""

    milliseconds: dict[str, float]
    sizes: dict[str, float]
    floor: float
    """milliseconds of a message without content, which are those of the proxy and its threads"""
    load: float


@experiment("hop-latency", "latency of a hop in all formats of links, by bandwidth")
def measure_latency(
    bench: Bench,
    samples: int = scale(200, 200, 200, 20),
    messages: int = scale(100, 100, 30, 3),
    megabits: tuple[int, ...] = scale((1, 10, 100), (1, 10, 100), (1, 10, 100), (10, 100)),
) -> Iterator[str]:
    """Send messages one at a time, and measure each format at each bandwidth."""
    workload = split_published(bench, samples, messages)
    title = "latency of a hop by bandwidth"
    chart = bench.chart("hop-latency", title, "Mbit/s", ChartAxis("ms, median", " ms"), log_x=True)
    found: dict[int, LatencyRun] = {}
    for rate in megabits:
        yield f"{rate} Mbit/s"
        run = found[rate] = yield from run_isolated(run_latency, workload, rate)
        for format in BodyFormat:
            role = Role.SAPWOOD if format is DEFAULT else Role.OTHER
            if format is BodyFormat.TEXT:
                role = Role.BASELINE
            elif format >= BodyFormat.TEXT_ZSTD and format is not DEFAULT:
                role = Role.FIRST
            chart.curve(format.label, role).add(
                rate, run.milliseconds[format.label], bytes=run.sizes[format.label], load_average=run.load
            )
        text, default = run.milliseconds[BodyFormat.TEXT.label], run.milliseconds[DEFAULT.label]
        bench.ratio(
            "latency of a hop against text",
            f"{DEFAULT.label}, {rate} Mbit/s",
            None,
            "times",
            default_ms=default,
            text_ms=text,
            load_average=run.load,
        )
    columns = ("bytes", *(f"{rate} Mbit/s" for rate in megabits))
    listing = bench.listing("hop-latency", f"{title}, ms", columns, bench.dataset.label)
    for format in BodyFormat:
        size = found[megabits[0]].sizes[format.label]
        listing.add(format.label, size, *(run.milliseconds[format.label] for run in found.values()))
    listing.add("a message without content", None, *(run.floor for run in found.values()))


def run_latency(workload: FormatWorkload, megabits: int) -> Iterator[str | LatencyRun]:
    """Send all messages in each format over one link, formats in turn."""
    yield "sending"
    floor: list[float] = []
    seconds: dict[str, list[float]] = {format.label: [] for format in BodyFormat}
    sizes = dict.fromkeys(seconds, 0)
    dictionaries = {each.identity: each for each in (workload.of_texts, workload.of_elements)}
    with open_slow_link(megabits) as link:
        for number, message in enumerate(_with_warm_up(workload.messages)):
            floor.append(_Hop(link, BodyFormat.TEXT, None).measure(b"", dictionaries)[0])
            for format in BodyFormat:  # in turn, so that a slow moment of the machine slows all of them
                hop = _Hop(link, format, workload.dictionary_of(format))
                elapsed, size = hop.measure(message, dictionaries)
                if number >= _WARM_UP:
                    seconds[format.label].append(elapsed)
                    sizes[format.label] += size
    milliseconds = {label: 1e3 * median(each) for label, each in seconds.items()}
    count = len(workload.messages)
    shares = {label: size / count for label, size in sizes.items()}
    yield LatencyRun(milliseconds, shares, 1e3 * median(floor), os.getloadavg()[0])


def _with_warm_up(messages: Sequence[bytes]) -> list[bytes]:
    return [messages[number % len(messages)] for number in range(_WARM_UP)] + list(messages)


class _Hop:
    """A message in a format on its way from one end of a link to the other."""

    def __init__(self, link: SlowLink, format: BodyFormat, dictionary: WireDictionary | None) -> None:
        self._link = link
        self._format = format
        self._dictionary = dictionary

    def measure(self, message: bytes, dictionaries: dict[bytes, WireDictionary]) -> tuple[float, int]:
        """Return the seconds from the text at one end to the text at the other, and the bytes sent."""
        began = perf_counter()
        encoded = None
        if self._format is not BodyFormat.TEXT:
            encoded = encode_body(message, self._format, self._dictionary)
        content = MessageContent(TENANT, STREAM, "m", None, message, True, encoded)
        payload = encode_payload(_EPOCH, 1, [MessageFrame(MessageKey("first", 1), content)])
        self._link.send(payload)
        [frame] = decode_payload(self._link.receive(), dictionaries).frames
        elapsed = perf_counter() - began
        assert isinstance(frame, MessageFrame) and isinstance(frame.content, MessageContent)
        assert frame.content.body == message
        return elapsed, len(payload)
