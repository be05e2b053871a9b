"""The common form of explanations: titled sections of lines, as text and as HTML."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sapwood.engine.diagnostics import notebook_html

Section = tuple[str, tuple[str, ...]]
"""a title, and the lines below it"""


class SectionedExplanation(ABC):
    """An explanation that consists of sections; `str()` of it is for people."""

    __slots__ = ()

    @abstractmethod
    def _parts(self) -> list[Section]:
        """Return the sections; those without lines are not shown."""

    def __str__(self) -> str:
        return "\n".join(
            f"{title if not i else '':<10}{line}"
            for title, lines in self._parts()
            for i, line in enumerate(lines)
        )

    def _repr_html_(self) -> str:
        return notebook_html.sections(self._parts())
