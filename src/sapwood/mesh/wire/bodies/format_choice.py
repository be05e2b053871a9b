"""The format in which a link carries bodies: as configured, or the one that takes the least time.

The time of a byte is that to encode and decode it, and that on the wire:

    text       1 / bandwidth
    zstd       compressed share / bandwidth + CPU of both ends

All of these are measured while the link is used. The bandwidth is the greatest rate at which the neighbour's
site has accepted payloads of late; a link that never had to wait is no slower than that. As long as
nothing is known, bodies are compressed, since links between sites are slower than memory.
"""

from __future__ import annotations

from sapwood.mesh.wire.bodies.body_format import BodyFormat

_SMOOTHING = 0.05
_HYSTERESIS = 0.8
_PROBE = 500
"""bodies that are sent as text before one is compressed, to learn what that would take"""
_DECODING = 0.35
"""of the time to compress a body, to decompress it"""
_DECAY = 0.98
"""by which the greatest rate is forgotten with every measurement: half of it within some minutes"""
_LEAST_SECONDS = 0.02
"""of a measurement of the bandwidth"""

FALLBACKS = {
    BodyFormat.NAMED_ELEMENTS: BodyFormat.ELEMENTS,
    BodyFormat.NAMED_ELEMENTS_ZLIB: BodyFormat.ELEMENTS_ZLIB,
    BodyFormat.TEXT_ZSTD_TRAINED: BodyFormat.TEXT_ZSTD,
    BodyFormat.NAMED_ELEMENTS_ZSTD: BodyFormat.TEXT_ZSTD,
    BodyFormat.NAMED_ELEMENTS_ZSTD_TRAINED: BodyFormat.TEXT_ZSTD,
}
"""what is used where a dictionary is not there, or the neighbour does not have it"""


class BandwidthMeter:
    """Measures the rate at which a link accepts bytes while some are on their way."""

    def __init__(self) -> None:
        self.rate = 0.0
        """bytes a second; 0: not known"""
        self._in_flight: dict[int, int] = {}
        self._since = 0.0
        self._accepted = 0

    def sent(self, number: int, size: int, now: float) -> None:
        """Note that a payload, named by its last frame, is on its way."""
        if not self._in_flight:
            self._since, self._accepted = now, 0
        self._in_flight[number] = size

    def accepted(self, number: int, now: float) -> None:
        """Note that payloads up to a number have arrived."""
        for each in [n for n in self._in_flight if n <= number]:
            self._accepted += self._in_flight.pop(each)
        seconds = now - self._since
        if seconds >= _LEAST_SECONDS and self._accepted:
            self.rate = max(self.rate * _DECAY, self._accepted / seconds)
            self._since, self._accepted = now, 0

    def clear(self) -> None:
        """Note that nothing is on its way any more."""
        self._in_flight.clear()


class FormatChoice:
    """The format of a link."""

    def __init__(self, configured: BodyFormat | None = None) -> None:
        """`configured` is always used; None: what takes the least time."""
        self.configured = configured
        self.bandwidth = BandwidthMeter()
        self.is_compressed = True
        """what is best at present, if nothing is configured"""
        self._share = 0.35
        self._cpu = 8e-9
        """seconds to compress a byte"""
        self._sent = 0

    def choose(self) -> BodyFormat:
        """Return the format of the next body, if its dictionary can be used."""
        if self.configured is not None:
            return self.configured
        self._sent += 1
        if self.is_compressed or self._sent % _PROBE == 0:
            return BodyFormat.TEXT_ZSTD_TRAINED
        return BodyFormat.TEXT

    def measure(self, format: BodyFormat, text: int, encoded: int, seconds: float) -> None:
        """Note how large a body was before and after it was encoded, and how long that took."""
        if format not in (BodyFormat.TEXT_ZSTD, BodyFormat.TEXT_ZSTD_TRAINED) or not text:
            return
        self._share += _SMOOTHING * (encoded / text - self._share)
        self._cpu += _SMOOTHING * (seconds / text - self._cpu)

    def decide(self) -> None:
        """Decide anew what takes the least time."""
        rate = self.bandwidth.rate
        if not rate:
            return
        saved, spent = (1.0 - self._share) / rate, self._cpu * (1.0 + _DECODING)
        if self.is_compressed:
            self.is_compressed = saved > spent * _HYSTERESIS
        else:
            self.is_compressed = saved * _HYSTERESIS > spent

    @property
    def seconds_per_byte(self) -> float | None:
        """The time of a byte of text: to encode and decode it, and on the wire; None if it is not known."""
        rate = self.bandwidth.rate
        if not rate:
            return None
        if self.configured is None and not self.is_compressed:
            return 1.0 / rate
        return self._share / rate + self._cpu * (1.0 + _DECODING)

    def describe(self) -> dict[str, object]:
        """Return what was measured, and what follows."""
        if self.configured is not None:
            name = self.configured.label
        else:
            name = (BodyFormat.TEXT_ZSTD_TRAINED if self.is_compressed else BodyFormat.TEXT).label
        return {
            "format": name,
            "bandwidth": self.bandwidth.rate,
            "compressed share": self._share,
            "seconds per byte": self._cpu,
        }
