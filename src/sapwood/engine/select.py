"""The nodes that queries select in one message, as slices of its source."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any

from lxml import etree

from sapwood.engine.document import ContextNode, Document, Leafnode
from sapwood.engine.evaluate import Evaluator
from sapwood.engine.matches import Node
from sapwood.engine.reader import Message
from sapwood.engine.refine import Refiner
from sapwood.lang.namespaces import bound_prefixes
from sapwood.lang.numbers import format_number
from sapwood.lang.pattern import clark
from sapwood.lang.query import Query

_START_TAG = re.compile(r"""<(?:[^'">]|"[^"]*"|'[^']*')*>""")
_DECLARATION = re.compile(r"xmlns(?::|\s*=)")
_ATTRIBUTE = re.compile(r"""[^\s=<>/"']+\s*=\s*(?:"[^"]*"|'[^']*')""")


class Selection:
    """Selects in one message, for any number of queries."""

    def __init__(self, message: Message, document: Document, refiner: Refiner) -> None:
        self._message = message
        self._refiner = refiner
        self._document = document
        self.evaluator = Evaluator(document)
        self._elements: list[Any] | None = None

    def by_pattern(self, query: Query) -> list[Node]:
        """The nodes of an exact query that the message matches."""
        if query.type != "node-set":
            return [Node(0, "boolean", "true", "")]
        return [self.node(node) for node in self.evaluator.select_any(query.paths)]

    def by_xpath(self, queries: dict[int, Query]) -> dict[int, list[Node]]:
        """The nodes of refined queries, by slot, that the message matches."""

        def select(tree: Any) -> dict[int, list[Node]]:
            index = {element: i for i, element in enumerate(tree.getroot().iter("*"), 1)}
            index[tree] = 0
            self._elements = [tree, *tree.iter("*")]  # at hand, if elements have to be written anew
            return {
                slot: self._converted(self._refiner.value(slot, query, tree), index)
                for slot, query in queries.items()
            }

        return self._refiner.on_tree(self._message, select)

    def computed(self, xpath: str, namespaces: Mapping[str, str]) -> Any:
        """The value of an expression, to show it."""
        compiled = etree.XPath(xpath, namespaces=bound_prefixes(namespaces) or None, smart_strings=False)
        return self._refiner.on_tree(self._message, compiled)

    def node(self, node: ContextNode) -> Node:
        document = self._document
        value = document.string_value(node)
        if isinstance(node, int):
            kind = "element" if node else "document"
            return Node(node, kind, value, self._xml(node), clark(document.names[node]))
        if node.kind == "text":
            return Node(node.element, "text", value, _escaped(value))
        name = clark(document.attributes[node.element][2 * node.number])
        xml = self._attribute_xml(node.element, node.number, name, value)
        return Node(node.element, "attribute", value, xml, name)

    # -- results of lxml -------------------------------------------------------------------------------

    def _converted(self, value: Any, index: dict[Any, int]) -> list[Node]:
        if isinstance(value, list):
            return [self._from_lxml(item, index) for item in value]
        if isinstance(value, bool):
            return [Node(0, "boolean", "true" if value else "false", "")]
        if isinstance(value, float):
            return [Node(0, "number", format_number(value), "")]
        return [Node(0, "string", str(value), "")]

    def _from_lxml(self, item: Any, index: dict[Any, int]) -> Node:
        if isinstance(item, tuple):  # the namespace axis: (prefix, uri)
            return Node(0, "namespace", item[1] or "", "", item[0] or "")
        if isinstance(item, str):
            return self._string_from_lxml(item, index)
        if item in index:
            return self.node(index[item])
        kind = "comment" if item.tag is etree.Comment else "processing-instruction"
        owner = item.getparent()
        xml = etree.tostring(item, encoding="unicode", with_tail=False)
        return Node(0 if owner is None else index[owner], kind, item.text or "", xml)

    def _string_from_lxml(self, item: Any, index: dict[Any, int]) -> Node:
        parent = item.getparent()
        if item.is_tail:
            parent = parent.getparent()
        if item.is_attribute:
            names = self._document.attributes[index[parent]][::2]
            number = [clark(name) for name in names].index(str(item.attrname))
            return self.node(Leafnode(index[parent], "attribute", number))
        return Node(index[parent], "text", str(item), _escaped(item))

    # -- source ----------------------------------------------------------------------------------------

    def _xml(self, element: int) -> str:
        source = self._source(element)
        return source if source is not None else self._written(element)

    def _attribute_xml(self, element: int, number: int, name: str, value: str) -> str:
        """The attribute as it stands in the start tag; a default one does not stand there."""
        source = self._source(element)
        if source is not None:
            tag = _START_TAG.match(source)
            written = [a for a in _ATTRIBUTE.findall(tag[0] if tag else "") if not _DECLARATION.match(a)]
            if number < len(written):
                return str(written[number])
        from xml.sax.saxutils import quoteattr  # here, because it loads an HTTP client

        return f"{name.rpartition('}')[2]}={quoteattr(value)}"

    def _source(self, element: int) -> str | None:
        """The element as it stands in the message; None if it may have come out of an entity."""
        document = self._document
        if not document.verbatim and b"<!ENTITY" in document.source:
            return None
        starts, stops = document.spans
        source = document.source[starts[element] : stops[element]]
        return source.removeprefix(BOM_UTF8).decode("utf-8", "surrogatepass")

    def _written(self, element: int) -> str:
        """An element written anew: where entities were expanded, there is no slice of the source to show."""
        if self._elements is None:
            self._elements = self._refiner.on_tree(self._message, lambda tree: [tree, *tree.iter("*")])
        return str(etree.tostring(self._elements[element], encoding="unicode", with_tail=False))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace(">", "&gt;").replace("<", "&lt;")
