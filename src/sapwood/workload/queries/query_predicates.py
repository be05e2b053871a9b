"""Value predicates: what a step can be compared on, and with which values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sapwood.workload.dtd.model import Default, Dtd, Element
from sapwood.workload.messages.value_distributions import ValuePool, Values, pick

TARGETS = ("attribute", "text", "element")
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_ANY_VALUE = ("=", "!=")  # the others compare numbers only


@dataclass(frozen=True, slots=True)
class Target:
    """Something with values, as a path from its element: `@id`, `text()` or `price`."""

    path: str
    pool: ValuePool


Menu = tuple[tuple[Target, ...], ...]  # the targets of one element, by kind; no kind is empty


class Predicates:
    """Draws predicates for the elements of a DTD, with the values that messages have."""

    def __init__(
        self,
        dtd: Dtd,
        values: Values,
        operators: Sequence[str],
        targets: Sequence[str],
        random: Callable[[], float],
    ) -> None:
        self._random = random
        self._operators = tuple(operators)
        kinds = tuple(dict.fromkeys(targets))
        menus = {name: _menu(dtd, e, values, kinds) for name, e in dtd.elements.items()}
        self._menus = {
            operator: {name: _kept(menu, numeric=operator not in _ANY_VALUE) for name, menu in menus.items()}
            for operator in self._operators
        }

    def operator(self) -> str:
        """An operator, uniformly."""
        return pick(self._operators, self._random())

    def possible(self, element: str, operator: str) -> bool:
        """Whether an element has anything to compare with this operator."""
        return bool(self._menus[operator][element])

    def predicate(self, element: str, operator: str) -> tuple[str, str]:
        """A target's path and the whole predicate: first a kind of target, then one of the kind."""
        kind = pick(self._menus[operator][element], self._random())
        target = pick(kind, self._random())
        return target.path, f"[{target.path}{operator}{target.pool.literal(self._random())}]"


def _menu(dtd: Dtd, element: Element, values: Values, kinds: Sequence[str]) -> Menu:
    return tuple(tuple(_targets(dtd, element, values, kind)) for kind in kinds)


def _targets(dtd: Dtd, element: Element, values: Values, kind: str) -> Iterator[Target]:
    if kind == "attribute":
        for attribute in element.attributes:
            if attribute.default is Default.FIXED:
                continue  # the same in every message
            if (pool := values.attribute(attribute)) is not None and pool.quotable:
                yield Target(f"@{attribute.name}", pool)
    elif kind == "text":
        if element.has_text:
            yield Target("text()", values.text)
    else:  # children of text alone: the string-value of any other is rarely a value
        for child in dtd.children[element.name]:
            if dtd.elements[child].only_text:
                yield Target(child, values.text)


def _kept(menu: Menu, numeric: bool) -> Menu:
    kinds = (tuple(t for t in kind if t.pool.numeric or not numeric) for kind in menu)
    return tuple(kind for kind in kinds if kind)
