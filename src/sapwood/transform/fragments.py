"""Elements of a message as they are copied into results: slices of the source.

A slice that uses a prefix, or the default namespace, of an element around it takes the declaration along.
Where the message has entities or default attributes of its own, slices would lose them; then lxml writes
the elements.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import escape

from lxml import etree

from sapwood.engine.document import Document

_MARKUP = re.compile(rb"<!--.*?-->|<\?(?!xml\s).*?\?>", re.DOTALL)
_DOCTYPE = re.compile(rb"<!DOCTYPE[^\[>]*(?:\[.*\]\s*)?>", re.DOTALL)
_TAG_NAME = re.compile(rb"<[^\s/>]+")
_IN_ATTRIBUTE = {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}

Trees = Callable[[Callable[[Any], list[bytes]]], list[bytes]]
"""runs a function on the message's tree"""


def attribute_text(value: str) -> str:
    """A value as it stands between double quotes."""
    return escape(value, _IN_ATTRIBUTE)


def text(value: str) -> str:
    """A value as it stands in content."""
    return escape(value, {"\r": "&#13;"})


class Fragments:
    """The elements of one message, each cut out at most once."""

    def __init__(self, document: Document, on_tree: Trees) -> None:
        self._document = document
        self._on_tree = on_tree
        self._cut: dict[tuple[int, str], bytes] = {}
        self._scopes: dict[int, dict[str, str]] = {}
        self._written: list[bytes] | None = None

    def element(self, element: int, default_namespace: str = "") -> bytes:
        """An element, to stand where unprefixed names are in that namespace; 0 is all of the document."""
        key = element, default_namespace
        cut = self._cut.get(key)
        if cut is None:
            cut = self._cut[key] = self._fragment(element, default_namespace)
        return cut

    def _fragment(self, element: int, default_namespace: str) -> bytes:
        document = self._document
        starts, stops = document.spans
        if element == 0:
            before, after = document.source[: starts[1]], document.source[stops[1] :]
            return _markup(before) + self.element(1, default_namespace) + _markup(after)
        if not document.verbatim:
            return self._rewritten(element, default_namespace)
        cut = document.source[starts[element] : stops[element]]
        if not document.declarations and not default_namespace:
            return cut
        own = {prefix for prefix, _ in document.declarations.get(element, ())}
        around = self._scope(document.parents[element])
        return _declaring(cut, self._missing(cut, own, around, default_namespace))

    def _missing(
        self, cut: bytes, own: set[str], scope: dict[str, str], default_namespace: str
    ) -> dict[str, str]:
        """The declarations around a slice that it needs, but for those of its own start tag."""
        needed = {
            prefix: uri
            for prefix, uri in scope.items()
            if prefix and prefix not in own and prefix.encode() + b":" in cut
        }
        default = scope.get("", "")
        if "" not in own and default != default_namespace:
            needed[""] = default
        return needed

    def _scope(self, element: int) -> dict[str, str]:
        """The namespaces in scope inside an element."""
        if element < 0:
            return {}
        scope = self._scopes.get(element)
        if scope is None:
            outer = self._scope(self._document.parents[element])
            own = self._document.declarations.get(element)
            scope = self._scopes[element] = {**outer, **dict(own)} if own else outer
        return scope

    def _rewritten(self, element: int, default_namespace: str) -> bytes:
        """An element as lxml writes it, with all the namespaces in scope."""
        if self._written is None:
            self._written = [b"", *self._on_tree(lambda tree: [_written(node) for node in tree.iter("*")])]
        cut = self._written[element]
        bare = default_namespace and not self._scope(element).get("", "")
        return _declaring(cut, {"": ""}) if bare else cut


def _markup(part: bytes) -> bytes:
    """The comments and processing instructions around the root element."""
    return b"".join(_MARKUP.findall(_DOCTYPE.sub(b"", part)))


def _written(node: Any) -> bytes:
    return bytes(etree.tostring(node, encoding="utf-8", with_tail=False))


def _declaring(cut: bytes, namespaces: dict[str, str]) -> bytes:
    """The element with declarations added to its start tag."""
    if not namespaces:
        return cut
    name = _TAG_NAME.match(cut)
    assert name is not None
    added = "".join(
        f' xmlns{":" if prefix else ""}{prefix}="{attribute_text(uri)}"' for prefix, uri in namespaces.items()
    )
    return name.group() + added.encode() + cut[name.end() :]
