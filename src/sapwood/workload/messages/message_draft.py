"""A message under construction: its text so far, and the ids and references that are resolved at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sapwood.workload.messages.value_distributions import ValuePool, identifier, pick


@dataclass(frozen=True, slots=True)
class Reference:
    """An IDREF attribute whose target is chosen when all ids are known."""

    place: int  # index of the chunk to replace
    attribute: str
    required: bool
    several: bool  # IDREFS


class MessageDraft:
    """Chunks of text; references and one spare id are empty chunks until `finish` fills them."""

    __slots__ = ("_ids", "_references", "_spare", "chunks", "max_repeats", "random")

    def __init__(self, random: Callable[[], float], max_repeats: int) -> None:
        self.random = random
        self.max_repeats = max_repeats
        self.chunks: list[str] = []
        self._ids: dict[str, None] = {}  # a dict: references are drawn by position, so order must be stable
        self._references: list[Reference] = []
        self._spare: tuple[int, str] | None = None

    def add_id(self, attribute: str, pool: ValuePool) -> None:
        """Write an id from the pool; one beyond the pool if the drawn one is taken."""
        value = pool.draw(self.random())
        if value in self._ids:
            value = identifier(len(pool.values) + len(self._ids))
        self._ids[value] = None
        self.chunks.append(f' {attribute}="{value}"')

    def skip_id(self, attribute: str) -> None:
        """Leave an optional id out, but remember the place: a reference may come to need it."""
        if self._spare is None:
            self._spare = (len(self.chunks), attribute)
            self.chunks.append("")

    def add_reference(self, attribute: str, required: bool, several: bool) -> None:
        """Add a reference that is resolved at the end."""
        self._references.append(Reference(len(self.chunks), attribute, required, several))
        self.chunks.append("")

    def finish(self) -> bytes:
        """Resolve the references and return the message."""
        if self._references:
            self._settle()
        return "".join(self.chunks).encode()

    def _settle(self) -> None:
        if not self._ids and self._spare is not None:
            place, attribute = self._spare
            self._ids[identifier(0)] = None
            self.chunks[place] = f' {attribute}="{identifier(0)}"'
        ids = list(self._ids)
        for reference in self._references:
            if ids:
                targets = [pick(ids, self.random()) for _ in range(self._targets(reference))]
            elif reference.required:
                targets = [identifier(0)]  # points nowhere: the DTD allows no id in this message
            else:
                continue
            self.chunks[reference.place] = f' {reference.attribute}="{" ".join(targets)}"'

    def _targets(self, reference: Reference) -> int:
        return 1 + int(self.random() * self.max_repeats) if reference.several else 1
