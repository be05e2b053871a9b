"""Random messages that are valid by a DTD and no deeper than asked."""

from __future__ import annotations

from random import Random

from sapwood.workload import parameter_checks
from sapwood.workload.dtd.element_graph import INFINITE
from sapwood.workload.dtd.model import Dtd, DtdError
from sapwood.workload.generator import Generator
from sapwood.workload.messages.content_writers import ElementWriter, compile_elements
from sapwood.workload.messages.message_draft import MessageDraft
from sapwood.workload.messages.value_distributions import Values


class MessageGenerator(Generator[bytes]):
    """An endless iterator of messages, each one line of UTF-8 without declaration or DOCTYPE.

    Messages are valid by the DTD. Elements stop at level `max_depth` (the root is level 1): optional content
    that needs more is left out, required content is written in its smallest form, however deep. What may
    repeat does so up to `max_repeats` times; on a recursive DTD, size therefore grows exponentially with
    depth. An optional attribute is present with `attribute_probability`, or if that is None with a
    probability of its own, drawn once from 0–1. Texts and attributes have `values` values with Zipf exponent
    `value_skew`: numbers, or words if not `numeric`.

    Ids are unique in a message and references name ids of the same message. Two things a DTD can require
    cannot always be met: a reference where no id is allowed, and the name of an unparsed entity.
    """

    def __init__(
        self,
        dtd: Dtd,
        *,
        seed: int = 0,
        max_depth: int = 6,
        max_repeats: int = 3,
        attribute_probability: float | None = None,
        values: int = 20,
        value_skew: float = 0.0,
        numeric: bool = True,
    ) -> None:
        parameter_checks.at_least(1, max_depth=max_depth, max_repeats=max_repeats)
        if attribute_probability is not None:
            parameter_checks.probabilities(attribute_probability=attribute_probability)
        if dtd.heights[dtd.root] == INFINITE:
            raise DtdError(f"DTD {dtd.name!r} allows no finite document with root {dtd.root!r}")
        self.dtd = dtd
        self._max_depth = max_depth
        self._max_repeats = max_repeats
        self._random = Random(seed)

        def probability() -> float:
            own = self._random.random()  # drawn in either case, so that the choice moves nothing else
            return own if attribute_probability is None else attribute_probability

        pools = Values(values, value_skew, numeric)
        self._root: ElementWriter = compile_elements(dtd, pools, probability)[dtd.root]

    def message(self) -> bytes:
        """The next message."""
        draft = MessageDraft(self._random.random, self._max_repeats)
        self._root.write(draft, self._max_depth)
        return draft.finish()

    def __next__(self) -> bytes:
        return self.message()
