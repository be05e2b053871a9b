"""Source fragments: elements of a message as they are copied into results, slices of the source.

A slice that uses a prefix, or the default namespace, of an element around it gets the declaration. Where the
message has entities or default attributes of its own, slices would lose them; then they are slices of the
message rewritten with these expanded.
"""

from __future__ import annotations

import re
from xml.parsers import expat

from sapwood.engine.message.doctype_limits import ignore_external_entities
from sapwood.engine.message.document import Document
from sapwood.engine.message.entity_expansion import expand_entities
from sapwood.lang.literals.escaping import escape_attribute

_TAG_NAME = re.compile(rb"<[^\s/>]++")
_PREFIX = re.compile(rb"""([^\s<>/=:"'&;,()\[\]{}]++):""")


class SourceFragments:
    """The fragments of one message, each made at most once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._cut: dict[tuple[int, str], bytes] = {}
        self._expanded: SourceFragments | None = None
        self.bytes = 0
        """bytes of all fragments made"""
        self._declaring: dict[int, int] = {0: 0}

    def element(self, element: int, default_namespace: str = "") -> bytes:
        """Return an element for a context with that default namespace; 0 is the whole document."""
        key = element, default_namespace
        cut = self._cut.get(key)
        if cut is None:
            cut = self._cut[key] = self._fragment(element, default_namespace)
            self.bytes += len(cut)
        return cut

    def _fragment(self, element: int, default_namespace: str) -> bytes:
        document = self._document
        if element == 0:
            before, after = _around(document.source)
            return before + self.element(1, default_namespace) + after
        if not document.verbatim:
            if self._expanded is None:
                self._expanded = SourceFragments(expand_entities(document))
            return self._expanded.element(element, default_namespace)
        starts, stops = document.spans
        cut = document.source[starts[element] : stops[element]]
        if not document.declarations and not default_namespace:
            return cut
        return _add_declarations(cut, self._missing(cut, element, default_namespace))

    def _missing(self, cut: bytes, element: int, default_namespace: str) -> dict[str, str]:
        """Return the declarations around a slice that it needs, except those of its own start tag."""
        own = {prefix for prefix, _ in self._document.declarations.get(element, ())}
        outside = self._nearest(self._document.parents[element])
        needed: dict[str, str] = {}
        if outside:
            for used in sorted(set(_PREFIX.findall(cut))):
                prefix = used.decode("utf-8", "replace")
                uri = self._uri(outside, prefix) if prefix not in own else ""
                if uri:
                    needed[prefix] = uri
        default = self._uri(outside, "")
        if default != default_namespace and self._uses_default(element, default):
            needed[""] = default
        return needed

    def _uses_default(self, element: int, default: str) -> bool:
        """Return whether a name without a prefix in a slice is in the default namespace around it."""
        document = self._document
        at, end = element, document.ends[element]
        while at < end:
            if any(not prefix for prefix, _ in document.declarations.get(at, ())):
                at = document.ends[at]
                continue
            uri, _, _ = document.names[at].rpartition("}")
            if uri == default and not (uri and self._is_prefixed(at)):
                return True
            at += 1
        return False

    def _is_prefixed(self, element: int) -> bool:
        name = _TAG_NAME.match(self._document.source, self._document.spans[0][element])
        return name is not None and b":" in name.group()

    def _uri(self, element: int, prefix: str) -> str:
        """Return the namespace of a prefix inside an element with declarations; empty if there is none."""
        declarations = self._document.declarations
        while element:
            for declared, uri in declarations[element]:
                if declared == prefix:
                    return uri
            element = self._nearest(self._document.parents[element])
        return ""

    def _nearest(self, element: int) -> int:
        """Return the element, or its nearest ancestor, that has declarations; 0 if none does."""
        declarations, parents, known = (
            self._document.declarations,
            self._document.parents,
            self._declaring,
        )
        trail: list[int] = []
        while element not in known and element not in declarations:
            trail.append(element)
            element = parents[element]
        found = known.get(element, element)
        known.update(dict.fromkeys(trail, found))
        return found


def _around(source: bytes) -> tuple[bytes, bytes]:
    """Return the comments and processing instructions before and after the root element."""
    parser = expat.ParserCreate("utf-8")
    ignore_external_entities(parser)
    found: tuple[list[str], list[str]] = [], []
    depth = [0, 0]  # of elements, and in a document type
    ended = [0]

    def add(markup: str) -> None:
        if depth == [0, 0]:
            found[ended[0]].append(markup)

    def move(which: int, by: int) -> None:
        depth[which] += by
        ended[0] |= which == 0 and depth[0] == 0

    parser.CommentHandler = lambda data: add(f"<!--{data}-->")
    parser.ProcessingInstructionHandler = lambda target, data: add(f"<?{target} {data}?>")
    parser.StartElementHandler = lambda name, attributes: move(0, 1)
    parser.EndElementHandler = lambda name: move(0, -1)
    parser.StartDoctypeDeclHandler = lambda *_: move(1, 1)
    parser.EndDoctypeDeclHandler = lambda: move(1, -1)
    parser.Parse(source, True)
    return "".join(found[0]).encode(), "".join(found[1]).encode()


def _add_declarations(cut: bytes, namespaces: dict[str, str]) -> bytes:
    """Return the element with declarations added to its start tag."""
    if not namespaces:
        return cut
    name = _TAG_NAME.match(cut)
    assert name is not None
    added = "".join(
        f' xmlns{":" if prefix else ""}{prefix}="{escape_attribute(uri)}"'
        for prefix, uri in namespaces.items()
    )
    return name.group() + added.encode() + cut[name.end() :]
