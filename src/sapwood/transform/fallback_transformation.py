"""Transformations that patterns cannot express, evaluated by lxml with the variables as XPath variables."""

from __future__ import annotations

import marshal
from typing import Any

from lxml import etree

from sapwood.errors import QueryError
from sapwood.lang.fwr.model import Transformation
from sapwood.lang.literals.numbers import format_number
from sapwood.transform.result_writer import Item, LxmlItem

_DOCUMENT = "/"


class FallbackTransformation:
    """One transformation as a request to the lxml process: see `lxml_process.groups`."""

    def __init__(self, transformation: Transformation) -> None:
        """Raise QueryError if lxml cannot compile one of the expressions."""
        namespaces = dict(transformation.namespaces)
        variables = [variable.xpath for variable in transformation.variables]
        bindings = [None if xpath == _DOCUMENT else xpath for xpath in variables]
        where = transformation.where or None
        holes = [(hole.xpath, hole.kind == "nodes") for hole in transformation.holes]
        for xpath in (*bindings, where, *(xpath for xpath, _ in holes)):
            if xpath is not None:
                _check(xpath, namespaces, transformation.text)
        self.request = marshal.dumps(("groups", bindings, where, holes, namespaces))


def _check(xpath: str, namespaces: dict[str, str], text: str) -> None:
    try:
        etree.XPath(xpath, namespaces=namespaces or None)
    except (etree.XPathError, ValueError) as error:
        raise QueryError(f"lxml cannot evaluate {xpath!r}: {error}", text, 0) from None


def groups_of(found: list[list[Any]]) -> list[list[list[Item]]]:
    """Yield, for each group that lxml found, the lists of its holes."""
    return [[_items(value) for value in group] for group in found]


def _items(value: Any) -> list[Item]:
    if isinstance(value, list):
        return [_item(*item) for item in value]
    if isinstance(value, bool):
        return [LxmlItem("value", "true" if value else "false")]
    return [LxmlItem("value", format_number(value) if isinstance(value, float) else str(value))]


def _item(kind: str, element: int, value: str = "", more: str = "") -> Item:
    if kind == "element":
        return element
    if kind == "attribute":
        return LxmlItem("attribute", value, more.removeprefix("{"))
    if kind in ("text", "namespace"):
        return LxmlItem("text", value)
    return LxmlItem("markup", value, xml=more)
