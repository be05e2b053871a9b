"""Training of dictionaries from the messages that are published here, in a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from sapwood.engine.limits import Limits
from sapwood.mesh.wire.bodies.wire_dictionary import WireDictionary, train_dictionary
from sapwood.mesh.wire.skeletons.message_skeleton import collect_paths

_log = logging.getLogger(__name__)

SAMPLES = 200
"""messages of a stream from which its dictionary is trained"""
_SAMPLE_BYTES = 64 * 1024
"""of one message; larger ones are no samples"""
_MOST_STREAMS = 32
_STREAM_BYTES = 2 * 2**20
"""of the samples of one stream, with which it is trained even if they are fewer"""
_SMOOTHING = 0.01
_WORSE = 1.3
"""by which bodies become larger, compared with those after the training, before it is done anew"""
_AGAIN = 600.0
"""seconds between two trainings of a stream at least"""

StreamName = tuple[str, str]
"""tenant and stream"""


@dataclass(slots=True)
class _Stream:
    """What is known of the messages of a stream."""

    samples: list[bytes] = field(default_factory=list)
    size: int = 0
    is_training: bool = False
    is_trained: bool = False
    trained_at: float = 0.0
    measured: int = 0
    first_share: float = 0.0
    """of the bytes of bodies after compression, with the first messages after the training"""
    share: float = 0.0


class DictionaryTrainer:
    """Collects samples of each stream, and trains a dictionary when there are enough."""

    def __init__(
        self,
        limits: Limits,
        of_elements: bool = False,
        samples: int = SAMPLES,
        executor: Executor | None = None,
    ) -> None:
        """`executor` trains; without one, it is a thread that ends with `close`."""
        self._limits = limits
        self._of_elements = of_elements
        self._samples = samples
        self._streams: dict[StreamName, _Stream] = {}
        self._executor = executor or ThreadPoolExecutor(1, "dictionary")
        self._trainings: dict[StreamName, Future[WireDictionary]] = {}
        self._now = 0.0

    def add(self, name: StreamName, body: bytes) -> None:
        """Use a message as a sample, if its stream needs any."""
        stream = self._streams.get(name)
        if stream is None:
            if len(self._streams) >= _MOST_STREAMS:
                return
            stream = self._streams[name] = _Stream()
        if stream.is_training or stream.is_trained or len(body) > _SAMPLE_BYTES:
            return
        stream.samples.append(body)
        stream.size += len(body)
        if len(stream.samples) >= self._samples or stream.size >= _STREAM_BYTES:
            stream.is_training = True
            samples, stream.samples, stream.size = stream.samples, [], 0
            self._trainings[name] = self._executor.submit(_train, samples, self._limits, self._of_elements)

    def measure(self, name: StreamName, share: float) -> None:
        """Note how much smaller a body has become with the dictionary of its stream."""
        stream = self._streams.get(name)
        if stream is None or not stream.is_trained:
            return
        stream.measured += 1
        if stream.measured <= self._samples:
            stream.first_share += (share - stream.first_share) / stream.measured
            stream.share = stream.first_share
            return
        stream.share += _SMOOTHING * (share - stream.share)
        if stream.share > _WORSE * stream.first_share and self._now - stream.trained_at > _AGAIN:
            _log.info("a new dictionary is trained for stream %r, whose messages have changed", name[1])
            self._streams[name] = _Stream()

    def take(self, now: float, use: Callable[[StreamName, WireDictionary], None]) -> None:
        """Hand over the dictionaries that are ready."""
        self._now = now
        for name in [name for name, training in self._trainings.items() if training.done()]:
            training = self._trainings.pop(name)
            stream = self._streams[name]
            stream.is_training, stream.is_trained, stream.trained_at = False, True, now
            error = training.exception()
            if error is None:
                use(name, training.result())
            else:  # which is a fault of this program, and no reason not to send messages
                _log.error("no dictionary for stream %r", name[1], exc_info=error)

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown(wait=True, cancel_futures=True)


def _train(samples: list[bytes], limits: Limits, of_elements: bool) -> WireDictionary:
    return train_dictionary(samples, collect_paths(samples, limits), of_elements)
