"""Attribute declarations compiled to writers: plain values, ids, and references to ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from sapwood.workload.dtd.model import Attribute, Element
from sapwood.workload.messages.message_draft import MessageDraft
from sapwood.workload.messages.value_distributions import ValuePool, Values


class AttributeWriter(ABC):
    """Writes one attribute if it is required, and with its probability if not."""

    __slots__ = ("_name", "_probability", "_required")

    def __init__(self, attribute: Attribute, probability: float) -> None:
        self._name = attribute.name
        self._required = attribute.required
        self._probability = probability

    def write(self, draft: MessageDraft) -> None:
        if self._required or draft.random() < self._probability:
            self.present(draft)
        else:
            self.absent(draft)

    @abstractmethod
    def present(self, draft: MessageDraft) -> None: ...

    def absent(self, draft: MessageDraft) -> None:
        """Most attributes leave nothing behind."""
        return


class ValueWriter(AttributeWriter):
    """A value from a pool."""

    __slots__ = ("_escaped", "_pool", "_rank")

    def __init__(self, attribute: Attribute, probability: float, pool: ValuePool) -> None:
        super().__init__(attribute, probability)
        self._pool = pool
        self._escaped = pool.escaped
        self._rank = pool.distribution.rank

    def present(self, draft: MessageDraft) -> None:
        draft.chunks.append(f' {self._name}="{self._escaped[self._rank(draft.random())]}"')


class IdWriter(ValueWriter):
    """A value that no other id of the message has."""

    __slots__ = ()

    def present(self, draft: MessageDraft) -> None:
        draft.add_id(self._name, self._pool)

    def absent(self, draft: MessageDraft) -> None:
        draft.skip_id(self._name)


class ReferenceWriter(AttributeWriter):
    """The value of an id of the message, or several."""

    __slots__ = ("_several",)

    def __init__(self, attribute: Attribute, probability: float) -> None:
        super().__init__(attribute, probability)
        self._several = attribute.type == "IDREFS"

    def present(self, draft: MessageDraft) -> None:
        draft.add_reference(self._name, self._required, self._several)


def compile_attributes(
    element: Element, values: Values, probability: Callable[[], float]
) -> tuple[AttributeWriter, ...]:
    """The writers of an element's attributes; `probability` is asked once for each, in order."""
    writers = (_compile(attribute, probability(), values) for attribute in element.attributes)
    return tuple(writer for writer in writers if writer is not None)


def _compile(attribute: Attribute, probability: float, values: Values) -> AttributeWriter | None:
    if attribute.namespace:
        return _namespace(attribute)
    if attribute.type in ("IDREF", "IDREFS"):
        return ReferenceWriter(attribute, probability)
    pool = values.attribute(attribute)
    if pool is None:  # the name of an entity we do not know: any name, and only where there must be one
        return ValueWriter(attribute, probability, values.ids) if attribute.required else None
    if attribute.type == "ID":
        return IdWriter(attribute, probability, pool)
    return ValueWriter(attribute, probability, pool)


def _namespace(attribute: Attribute) -> AttributeWriter | None:
    """A prefix is always bound, or the message would be ill-formed.

    The default namespace is never set: the generated queries name elements without one, and an unset
    default is as valid by the DTD.
    """
    if attribute.name == "xmlns" or attribute.value is None:
        return None
    return ValueWriter(attribute, 1.0, ValuePool([attribute.value], 0.0))
