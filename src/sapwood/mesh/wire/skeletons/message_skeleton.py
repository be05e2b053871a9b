"""The skeletons and tag paths of messages as they were published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

from sapwood.engine.kernel.kernel_reader import read_nodes
from sapwood.engine.limits import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.errors import MessageError
from sapwood.mesh.wire.bodies.wire_dictionary import NO_PARENT, TagPath, WireDictionary
from sapwood.mesh.wire.skeletons.skeleton import Skeleton, TestedNames, make_skeleton

_MOST_PATHS = 8_000
"""of a dictionary"""


class _PlainNode:
    """A node for all tag paths, where nothing is tested: see `ReaderNode`."""

    attributes = text = value = None

    def __getitem__(self, name: str) -> Self:
        return self


_PLAIN = _PlainNode()


def read_skeleton(
    message: Message, limits: Limits, dictionary: WireDictionary, tested: TestedNames
) -> Skeleton | None:
    """Return the skeleton of a message; None if it has none, or cannot be read."""
    try:
        document = read_nodes(message, limits, _PLAIN, with_text=bool(tested.elements))
    except MessageError:  # which is told where it is matched
        return None
    return make_skeleton(document, dictionary, tested)


def collect_paths(samples: Sequence[bytes], limits: Limits) -> list[TagPath]:
    """Return the tag paths of elements in messages, parents before children, the frequent
    ones first: small numbers take fewer bytes."""
    counts: Counter[tuple[str, ...]] = Counter()
    for sample in samples:
        try:
            document = read_nodes(Message(sample), limits, _PLAIN, with_text=False)
        except MessageError:
            continue
        found: set[tuple[str, ...]] = set()
        paths: list[tuple[str, ...]] = [()]
        for element in range(1, len(document.names)):
            path = (*paths[document.parents[element]], document.names[element])
            paths.append(path)
            found.add(path)
        counts.update(found)
    # A path is at most as frequent as its parent, and longer: so parents come first.
    ordered = sorted(counts, key=lambda path: (-counts[path], len(path), path))[:_MOST_PATHS]
    numbers: dict[tuple[str, ...], int] = {(): NO_PARENT}
    for number, path in enumerate(ordered):
        numbers[path] = number
    return [(numbers[path[:-1]], path[-1]) for path in ordered]
