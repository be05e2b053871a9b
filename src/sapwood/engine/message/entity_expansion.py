"""Messages rewritten without a document type: entities expanded, default attributes supplied."""

from __future__ import annotations

from sapwood.engine.fallback.lxml_process import without_doctype
from sapwood.engine.limits import Limits
from sapwood.engine.message.document import Document
from sapwood.engine.message.message_reader import Message, read_document

_ANY = Limits(bytes=1 << 62, depth=2_000, attributes=1 << 62, name_length=1 << 62)
"""the message has passed its limits already"""


def expand_entities(document: Document) -> Document:
    """Return the same elements with a source of which each is a slice."""
    message = Message(without_doctype(document.source, ids=False))
    message.encoding = "utf-8"
    found = read_document(message, _ANY, document.guide_nodes[0], with_text=False, with_source=True)
    found.verbatim = True
    return found
