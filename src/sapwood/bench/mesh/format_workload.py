"""Messages for the formats of links: some to train dictionaries, and others to be measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sapwood.bench.harness.datasets import generate_messages
from sapwood.engine.limits import Limits
from sapwood.mesh.wire.bodies.body_format import BodyFormat, EncodedBody, decode_body, encode_body
from sapwood.mesh.wire.bodies.wire_dictionary import WireDictionary, train_dictionary
from sapwood.mesh.wire.skeletons.message_skeleton import collect_paths

if TYPE_CHECKING:
    from sapwood.bench.harness import Bench
    from sapwood.workload import Dtd

TENANT, STREAM = "default", "news"
DEFAULT = BodyFormat.TEXT_ZSTD_TRAINED
"""what brokers use on links between sites as long as nothing else is configured or measured"""
SKELETON = "skeleton"


@dataclass(frozen=True)
class FormatWorkload:
    """Messages to be measured, and dictionaries that were trained on none of them."""

    samples: Sequence[bytes]
    messages: Sequence[bytes]

    @property
    def text_bytes(self) -> int:
        """The size of all messages."""
        return sum(map(len, self.messages))

    @cached_property
    def of_texts(self) -> WireDictionary:
        """The dictionary of brokers by default, with tag paths."""
        return train_dictionary(self.samples, collect_paths(self.samples, Limits()))

    @cached_property
    def of_elements(self) -> WireDictionary:
        """The dictionary of the format whose element streams are compressed with it."""
        return train_dictionary(self.samples, collect_paths(self.samples, Limits()), of_elements=True)

    def dictionary_of(self, format: BodyFormat) -> WireDictionary | None:
        """Return the dictionary that a format needs; None if it needs none."""
        if not format.needs_dictionary:
            return None
        return self.of_elements if format is BodyFormat.NAMED_ELEMENTS_ZSTD_TRAINED else self.of_texts

    def encode(self, format: BodyFormat) -> list[EncodedBody]:
        """Return all messages in a format, of which each has been decoded again."""
        dictionary = self.dictionary_of(format)
        bodies = [encode_body(message, format, dictionary) for message in self.messages]
        for message, body in zip(self.messages, bodies, strict=True):
            assert decode_body(body, dictionary) == message, format.label
        return bodies


def split_published(bench: Bench, samples: int, messages: int) -> FormatWorkload:
    """Return messages of the dataset of a run; where it has too few, a half of them is for training."""
    found = bench.dataset.messages(samples + messages)
    if len(found) < samples + messages:
        samples = min(samples, len(found) // 2)
    return FormatWorkload(found[:samples], found[samples:])


def generate_workload(dtd: Dtd, samples: int, messages: int, depth: int, repeats: int) -> FormatWorkload:
    """Return messages that are generated from a DTD."""
    found = generate_messages(dtd, samples + messages, depth, repeats)
    return FormatWorkload(found[:samples], found[samples:])
