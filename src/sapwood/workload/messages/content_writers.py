"""Content models compiled to writers: one class per construct, each of which writes itself to a draft.

`budget` is the number of levels that may still be used. A writer knows its `height`, the levels its smallest
content needs, so it sees in advance what fits; the smallest form of required content is written even where it
does not fit, because below it nothing optional fits any more and the shallowest choice is taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from sapwood.workload.dtd.model import (
    Choice,
    Content,
    Dtd,
    Element,
    Occurs,
    Particle,
    Ref,
    Seq,
    height,
    height_once,
)
from sapwood.workload.messages.attribute_writers import AttributeWriter, compile_attributes
from sapwood.workload.messages.message_draft import MessageDraft
from sapwood.workload.messages.value_distributions import ValuePool, Values, pick


class ElementWriter:
    """Writes one element with attributes and content. Filled by `compile_elements`: writers are cyclic."""

    __slots__ = ("_attributes", "_content", "_empty", "_end", "_start", "_text")

    def __init__(self, element: Element, text: ValuePool) -> None:
        self._start = f"<{element.name}"
        self._end = f"</{element.name}>"
        self._empty = element.content is Content.EMPTY
        self._text = text if element.has_text else None
        self._attributes: tuple[AttributeWriter, ...] = ()
        self._content: ParticleWriter | None = None

    def fill(self, attributes: tuple[AttributeWriter, ...], content: ParticleWriter | None) -> None:
        """Set what could not be known before all writers existed."""
        self._attributes = attributes
        self._content = content

    def write(self, draft: MessageDraft, budget: int) -> None:
        chunks = draft.chunks
        chunks.append(self._start)
        for attribute in self._attributes:
            attribute.write(draft)
        if self._empty:
            chunks.append("/>")
            return
        chunks.append(">")
        if self._text is not None:
            self._write_mixed(draft, budget - 1, self._text)
        elif self._content is not None:
            self._content.write(draft, budget - 1)
        chunks.append(self._end)

    def _write_mixed(self, draft: MessageDraft, budget: int, text: ValuePool) -> None:
        """A value, then children with a value after every other one: each text node is one value."""
        draft.chunks.append(text.draw(draft.random()))
        if self._content is None:
            return
        for _ in range(self._content.times(draft, budget)):
            self._content.write_once(draft, budget)
            if draft.random() < 0.5:
                draft.chunks.append(text.draw(draft.random()))


class ParticleWriter(ABC):
    """Writes one particle of a content model as often as its occurrence mark and the budget allow."""

    __slots__ = ("_height_once", "_optional", "_repeats", "height")

    def __init__(self, particle: Particle, heights: Mapping[str, float]) -> None:
        self.height = height(particle, heights)
        self._height_once = height_once(particle, heights)
        self._optional = particle.occurs.optional
        self._repeats = particle.occurs.repeats

    def times(self, draft: MessageDraft, budget: int) -> int:
        least = 0 if self._optional else 1
        most = draft.max_repeats if self._repeats else 1
        if self._height_once > budget or least == most:
            return least
        return least + int(draft.random() * (most - least + 1))

    def write(self, draft: MessageDraft, budget: int) -> None:
        for _ in range(self.times(draft, budget)):
            self.write_once(draft, budget)

    @abstractmethod
    def write_once(self, draft: MessageDraft, budget: int) -> None: ...


class RefWriter(ParticleWriter):
    __slots__ = ("_element",)

    def __init__(self, ref: Ref, writers: Mapping[str, ElementWriter], heights: Mapping[str, float]) -> None:
        super().__init__(ref, heights)
        # An undeclared element has infinite height: it is never written, so it needs no writer.
        self._element = writers.get(ref.name)

    def write_once(self, draft: MessageDraft, budget: int) -> None:
        assert self._element is not None
        self._element.write(draft, budget)


class SeqWriter(ParticleWriter):
    __slots__ = ("_parts",)

    def __init__(self, seq: Seq, writers: Mapping[str, ElementWriter], heights: Mapping[str, float]) -> None:
        super().__init__(seq, heights)
        self._parts = [compile_particle(part, writers, heights) for part in seq.parts]

    def write_once(self, draft: MessageDraft, budget: int) -> None:
        for part in self._parts:
            part.write(draft, budget)


class ChoiceWriter(ParticleWriter):
    __slots__ = ("_parts", "_shallowest", "_tallest")

    def __init__(
        self, choice: Choice, writers: Mapping[str, ElementWriter], heights: Mapping[str, float]
    ) -> None:
        super().__init__(choice, heights)
        self._parts = [compile_particle(part, writers, heights) for part in choice.parts]
        self._shallowest = min(self._parts, key=lambda part: part.height)
        self._tallest = max(part.height for part in self._parts)

    def write_once(self, draft: MessageDraft, budget: int) -> None:
        parts = self._parts
        if self._tallest > budget:
            parts = [part for part in parts if part.height <= budget] or [self._shallowest]
        pick(parts, draft.random()).write(draft, budget)


def compile_particle(
    particle: Particle, writers: Mapping[str, ElementWriter], heights: Mapping[str, float]
) -> ParticleWriter:
    """The writer of a particle."""
    match particle:
        case Ref():
            return RefWriter(particle, writers, heights)
        case Seq():
            return SeqWriter(particle, writers, heights)
        case Choice():
            return ChoiceWriter(particle, writers, heights)


def compile_elements(
    dtd: Dtd, values: Values, probability: Callable[[], float]
) -> Mapping[str, ElementWriter]:
    """The writers of all declared elements; `probability` is asked once per attribute, in declared order."""
    writers = {name: ElementWriter(element, values.text) for name, element in dtd.elements.items()}
    for name, element in dtd.elements.items():
        model = element.model
        if element.content is Content.ANY:
            model = Choice(tuple(map(Ref, dtd.elements)), Occurs.ANY)
        content = compile_particle(model, writers, dtd.heights) if model is not None else None
        writers[name].fill(compile_attributes(element, values, probability), content)
    return writers
