"""Transformations that patterns cannot say, evaluated by lxml with the variables as XPath variables."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from lxml import etree

from sapwood.errors import QueryError
from sapwood.lang.numbers import format_number
from sapwood.lang.transformation import Transformation
from sapwood.transform.groups import MOST_GROUPS, TooManyGroups
from sapwood.transform.templates import Foreign, Item

_log = logging.getLogger(__name__)
_DOCUMENT = "/"


class RefinedTransformation:
    """One transformation, its expressions compiled by lxml."""

    def __init__(self, transformation: Transformation) -> None:
        self._text = transformation.text
        self._namespaces = dict(transformation.namespaces) or None
        self._names = [f"v{number}" for number in range(len(transformation.variables))]
        self._bindings = [
            None if variable.xpath == _DOCUMENT else self._compiled(variable.xpath)
            for variable in transformation.variables
        ]
        where = transformation.where
        self._where = self._compiled(f"boolean({where})") if where else None
        self._holes = [self._compiled(hole.xpath) for hole in transformation.holes]
        self._counts = [
            self._compiled(f"count({hole.xpath})") if hole.kind == "nodes" else None
            for hole in transformation.holes
        ]

    def _compiled(self, xpath: str) -> etree.XPath:
        try:
            return etree.XPath(xpath, namespaces=self._namespaces, smart_strings=True)
        except (etree.XPathError, ValueError) as error:
            raise QueryError(f"lxml cannot evaluate {xpath!r}: {error}", self._text, 0) from None

    def groups(self, tree: Any, numbers: Mapping[Any, int]) -> list[list[list[Item]]]:
        """For each group, the lists of its holes; `numbers` tells those of the tree's elements."""
        groups: list[list[list[Item]]] = []
        try:
            for bound in self._bound(tree, {}):
                if self._where is None or self._where(tree, **bound):
                    groups.append(
                        [self._filled(number, tree, bound, numbers) for number in range(len(self._holes))]
                    )
                    if len(groups) > MOST_GROUPS:
                        raise TooManyGroups(self._text)
            return groups
        except etree.XPathEvalError as error:
            _log.warning("lxml gave up on a query, which makes nothing: %s: %s", error, self._text[:200])
            return []

    def _filled(self, hole: int, tree: Any, bound: dict[str, Any], numbers: Mapping[Any, int]) -> list[Item]:
        value, count = self._holes[hole](tree, **bound), self._counts[hole]
        items = _items(value, numbers)
        if count is not None and count(tree, **bound) != len(items):
            return [0, *items]  # lxml leaves the document node out
        return items

    def _bound(self, tree: Any, bound: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """All combinations of bindings, in the order of nested loops."""
        if len(bound) == len(self._bindings):
            yield bound
            return
        name, binding = self._names[len(bound)], self._bindings[len(bound)]
        if binding is None:  # bound to the document, which no expression calls by this name
            yield from self._bound(tree, {**bound, name: []})
            return
        found: Any = binding(tree, **bound)
        for node in found:
            yield from self._bound(tree, {**bound, name: [node]})


def numbered(tree: Any) -> dict[Any, int]:
    """The elements of a tree with the numbers that the reader gives them."""
    return {element: number for number, element in enumerate(tree.iter("*"), 1)}


def _items(value: Any, numbers: Mapping[Any, int]) -> list[Item]:
    if isinstance(value, list):
        return [_item(item, numbers) for item in value]
    if isinstance(value, bool):
        return [Foreign("value", "true" if value else "false")]
    return [Foreign("value", format_number(value) if isinstance(value, float) else str(value))]


def _item(item: Any, numbers: Mapping[Any, int]) -> Item:
    if isinstance(item, tuple):  # a namespace node: (prefix, uri)
        return Foreign("text", item[1] or "")
    if not isinstance(item, str):
        number = numbers.get(item)
        if number is not None:
            return number
        xml = etree.tostring(item, encoding="unicode", with_tail=False)
        return Foreign("markup", item.text or "", xml=xml)
    if item.is_attribute:  # type: ignore[attr-defined]  # a smart string
        name = str(item.attrname)  # type: ignore[attr-defined]
        return Foreign("attribute", str(item), name.removeprefix("{"))
    return Foreign("text", str(item))
