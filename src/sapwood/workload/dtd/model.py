"""A DTD as immutable values: what each element may hold, and the graph of who may hold whom.

A content model is a tree of three kinds of particle, each with an occurrence mark:

    <!ELEMENT lot (title, (text | points)+, bid*)>

    Seq ┬ Ref title
        ├ Choice + ┬ Ref text
        │          └ Ref points
        └ Ref bid *

Mixed content `(#PCDATA | em)*` is the kind `MIXED` with the model `(em)*`; pure text has no model at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar

from sapwood.errors import SapwoodError
from sapwood.workload.dtd import element_graph


class DtdError(SapwoodError, ValueError):
    """A DTD that cannot be found, read or used; the message says which and why."""


class Content(Enum):
    """The four kinds of content that a DTD knows."""

    EMPTY = "EMPTY"
    ANY = "ANY"
    MIXED = "mixed"
    CHILDREN = "children"


class Default(Enum):
    """The default declaration of an attribute."""

    REQUIRED = "#REQUIRED"
    IMPLIED = "#IMPLIED"
    FIXED = "#FIXED"
    VALUE = "value"


class Occurs(Enum):
    """The number of times that a particle may occur; the value is its mark in a DTD."""

    ONE = ""
    OPTIONAL = "?"
    ANY = "*"
    SOME = "+"

    @property
    def optional(self) -> bool:
        return self in (Occurs.OPTIONAL, Occurs.ANY)

    @property
    def repeats(self) -> bool:
        return self in (Occurs.ANY, Occurs.SOME)


@dataclass(frozen=True, slots=True)
class Ref:
    """One element, by name."""

    name: str
    occurs: Occurs = Occurs.ONE

    def __str__(self) -> str:
        return self.name + self.occurs.value


@dataclass(frozen=True, slots=True)
class _Group:
    """Particles in parentheses, which occur together."""

    separator: ClassVar[str]
    parts: tuple[Particle, ...]
    occurs: Occurs = Occurs.ONE

    def __str__(self) -> str:
        return f"({self.separator.join(map(str, self.parts))}){self.occurs.value}"


class Seq(_Group):
    """All parts, in order."""

    __slots__ = ()
    separator = ", "


class Choice(_Group):
    """Exactly one of the parts."""

    __slots__ = ()
    separator = " | "


Particle = Ref | Seq | Choice


@dataclass(frozen=True, slots=True)
class Attribute:
    """One declared attribute. `type` is the DTD's word in capitals, or ENUMERATION."""

    name: str
    type: str
    default: Default
    value: str | None = None  # of FIXED and VALUE
    enumeration: tuple[str, ...] = ()  # of ENUMERATION and NOTATION, in declared order

    @property
    def required(self) -> bool:
        return self.default is Default.REQUIRED

    @property
    def namespace(self) -> bool:
        """A namespace declaration: written like an attribute, but none to XPath."""
        return self.name == "xmlns" or self.name.startswith("xmlns:")


@dataclass(frozen=True, slots=True)
class Element:
    """One declared element."""

    name: str
    content: Content
    model: Particle | None = None  # None for EMPTY, ANY and pure text
    attributes: tuple[Attribute, ...] = ()

    @property
    def has_text(self) -> bool:
        """Whether the element may contain text directly."""
        return self.content in (Content.MIXED, Content.ANY)

    @property
    def only_text(self) -> bool:
        """Whether nothing but text may stand in it, so that its string-value is one written value."""
        return self.content is Content.MIXED and self.model is None

    @property
    def mentioned(self) -> tuple[str, ...]:
        """The element names in the model, each once, in order of first mention."""
        return tuple(dict.fromkeys(_names(self.model))) if self.model else ()


def _names(particle: Particle) -> Iterator[str]:
    if isinstance(particle, Ref):
        yield particle.name
    else:
        for part in particle.parts:
            yield from _names(part)


@dataclass(frozen=True, eq=False)
class Dtd:
    """A whole DTD with its root; everything derived is computed on first use and kept.

    Compared by identity: two DTDs are the same if they are the same object.
    """

    name: str
    root: str
    elements: Mapping[str, Element]  # in declared order

    def __post_init__(self) -> None:
        if self.root not in self.elements:
            raise DtdError(f"DTD {self.name!r} declares no element {self.root!r} to be the root")
        object.__setattr__(self, "elements", MappingProxyType(dict(self.elements)))

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """The element graph: parent → the declared elements it may hold, in order of mention.

        An element with ANY content may hold every declared one. Names that a model mentions but nobody
        declares are left out: no valid document contains them.
        """
        everything = tuple(self.elements)
        return {
            name: everything
            if element.content is Content.ANY
            else tuple(child for child in element.mentioned if child in self.elements)
            for name, element in self.elements.items()
        }

    @cached_property
    def parents(self) -> Mapping[str, tuple[str, ...]]:
        """The element graph backwards, in declared order."""
        return element_graph.reverse(self.children)

    @cached_property
    def reachable(self) -> tuple[str, ...]:
        """The elements a document can hold, in breadth-first order from the root."""
        return element_graph.reachable(self.children, self.root)

    @cached_property
    def cycles(self) -> tuple[frozenset[str], ...]:
        """The sets of elements that may contain one another (strongly connected, or a self-loop)."""
        return element_graph.cycles(self.children)

    @cached_property
    def recursive(self) -> frozenset[str]:
        """The elements that may stand, at some depth, inside themselves."""
        return frozenset().union(*self.cycles)

    @cached_property
    def heights(self) -> Mapping[str, float]:
        """The levels that the smallest valid subtree of each element needs: 1 for a leaf.

        Infinite where none exists: the element requires itself, or something undeclared.
        """
        return heights(self.elements)


def heights(elements: Mapping[str, Element]) -> dict[str, float]:
    """The least fixed point of `height`, from below infinity; it settles in one round per level."""
    known = dict.fromkeys(elements, element_graph.INFINITE)
    while True:
        step = {name: 1 + height(element.model, known) for name, element in elements.items()}
        if step == known:
            return known
        known = step


def height(particle: Particle | None, known: Mapping[str, float]) -> float:
    """The levels that the smallest content of a particle needs, 0 if it may be left out."""
    return 0 if particle is None or particle.occurs.optional else height_once(particle, known)


def height_once(particle: Particle, known: Mapping[str, float]) -> float:
    """As `height`, but for one occurrence even where none is required."""
    if isinstance(particle, Ref):
        return known.get(particle.name, element_graph.INFINITE)
    pick = max if isinstance(particle, Seq) else min
    return pick(height(part, known) for part in particle.parts)


def infer_root(elements: Mapping[str, Element]) -> str:
    """The first declared element that no other contains; the first of all if each is contained.

    ANY content does not count as containing; otherwise no root could be determined.
    """
    contained = {child for name, e in elements.items() for child in e.mentioned if child != name}
    return next((name for name in elements if name not in contained), next(iter(elements)))
