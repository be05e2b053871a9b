"""The nodes that queries select in one message, as slices of its source."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any

from sapwood.engine.failures import QueryProblem, report_defect
from sapwood.engine.fallback.xpath_fallback import XPathFallback
from sapwood.engine.matches import Node
from sapwood.engine.message.document import ContextNode, Document, LeafNode
from sapwood.engine.message.entity_expansion import expand_entities
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.lang.literals.numbers import format_number
from sapwood.lang.pattern import to_clark_name
from sapwood.lang.query import Query

_START_TAG = re.compile(r"""<(?:[^'">]|"[^"]*"|'[^']*')*>""")
_DECLARATION = re.compile(r"xmlns(?::|\s*=)")
_ATTRIBUTE = re.compile(r"""[^\s=<>/"']+\s*=\s*(?:"[^"]*"|'[^']*')""")


class Selection:
    """The nodes of one message that queries select."""

    def __init__(self, message: Message, document: Document, fallback: XPathFallback) -> None:
        self._message = message
        self._fallback = fallback
        self._document = document
        self.evaluator = PatternEvaluator(document)
        self._expanded: Document | None = None

    def select_by_pattern(self, query: Query) -> list[Node]:
        """Return the nodes of an exact query that the message matches."""
        if query.type != "node-set":
            return [Node(0, "boolean", "true", "")]
        return [self.node(node) for node in self.evaluator.select_any(query.paths)]

    def select_by_xpath(self, queries: dict[int, Query]) -> dict[int, list[Node] | QueryProblem]:
        """Return the nodes that lxml selects for queries that the message matches, by slot, or why not."""
        values = self._fallback.evaluate_selections(self._message, queries)
        return {slot: self._convert(value, queries[slot]) for slot, value in values.items()}

    def evaluate_expression(self, xpath: str, namespaces: Mapping[str, str]) -> Any:
        """Return the value of an expression, for display."""
        return self._fallback.evaluate_expression(self._message, xpath, namespaces)

    def node(self, node: ContextNode) -> Node:
        document = self._document
        value = document.string_value(node)
        if isinstance(node, int):
            kind = "element" if node else "document"
            return Node(node, kind, value, self._source(node), to_clark_name(document.names[node]))
        if node.kind == "text":
            return Node(node.element, "text", value, _escape(value))
        name = to_clark_name(document.attributes[node.element][2 * node.number])
        xml = self._attribute_xml(node.element, node.number, name, value)
        return Node(node.element, "attribute", value, xml, name)

    # -- results of lxml -------------------------------------------------------------------------------

    def _convert(self, value: Any, query: Query) -> list[Node] | QueryProblem:
        if isinstance(value, QueryProblem):
            return value
        if isinstance(value, list):
            try:
                return [self._from_lxml(*item) for item in value]
            except Exception as error:  # lxml's tree differs from the parsed document: a defect
                return report_defect(error, query.text)
        if isinstance(value, bool):
            return [Node(0, "boolean", "true" if value else "false", "")]
        if isinstance(value, float):
            return [Node(0, "number", format_number(value), "")]
        return [Node(0, "string", str(value), "")]

    def _from_lxml(self, kind: str, element: int, value: str = "", more: str = "") -> Node:
        """Convert a node as `lxml_process` encodes it."""
        if kind == "element":
            return self.node(element)
        if kind == "attribute":
            names = self._document.attributes[element][::2]
            return self.node(LeafNode(element, kind, [to_clark_name(name) for name in names].index(more)))
        if kind == "text":
            return Node(element, kind, value, _escape(value))
        if kind == "namespace":
            return Node(element, kind, value, "", more)
        return Node(element, kind, value, more)

    # -- source ----------------------------------------------------------------------------------------

    def _attribute_xml(self, element: int, number: int, name: str, value: str) -> str:
        """Return the attribute as it is written in the start tag, where a default attribute is not."""
        tag = _START_TAG.match(self._source(element))
        written = [a for a in _ATTRIBUTE.findall(tag[0] if tag else "") if not _DECLARATION.match(a)]
        if number < len(written):
            return str(written[number])
        from xml.sax.saxutils import quoteattr  # here, because it loads an HTTP client

        return f"{name.rpartition('}')[2]}={quoteattr(value)}"

    def _source(self, element: int) -> str:
        """Return the source of an element; if the message has entities, with them expanded, since they may
        contain the element."""
        document = self._document
        if not document.verbatim and b"<!ENTITY" in document.source:
            if self._expanded is None:
                self._expanded = expand_entities(document)
            document = self._expanded
        starts, stops = document.spans
        source = document.source[starts[element] : stops[element]]
        return source.removeprefix(BOM_UTF8).decode("utf-8", "surrogatepass")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace(">", "&gt;").replace("<", "&lt;")
