"""Documents read in C, where the compiled kernel is there; in Python where it is not.

C reads what it reads for a match: messages without a document type. The others, and those that are refused,
are read in Python, which checks what they expand to, and words the error.
"""

from __future__ import annotations

from sapwood.engine.kernel import KERNEL
from sapwood.engine.limits import Limits
from sapwood.engine.message.document import Document, DocumentColumns, N
from sapwood.engine.message.encoding import is_utf8
from sapwood.engine.message.message_reader import Message, check_size, read_document, to_utf8

_UTF8 = (None, "utf-8")
"""Encodings of a message that the tokeniser may read: a declaration of another one makes it give up."""

_UNKNOWN_ENCODING = -5
"""A status of readers, as in `reader.h`."""


def read_nodes(
    message: Message,
    limits: Limits,
    root: N,
    with_text: bool,
    with_source: bool = False,
    *,
    tokenizer: bool = True,
) -> Document[N]:
    """Read a message's nodes, as `read_document` does, without the hits of its values."""
    if KERNEL is None:
        return read_document(message, limits, root, with_text, with_source)
    check_size(message, limits)
    if with_source:
        message = to_utf8(message)
    found = _read(message, limits, with_text, with_source, tokenizer)
    if found == _UNKNOWN_ENCODING and not is_utf8(message.data, message.encoding):
        found = _read(to_utf8(message), limits, with_text, with_source, tokenizer)
    if isinstance(found, int):
        return read_document(message, limits, root, with_text, with_source)
    document = Document.of_columns(found, root)
    if with_source:
        document.source = message.data
    return document


def _read(
    message: Message, limits: Limits, with_text: bool, with_source: bool, tokenizer: bool
) -> DocumentColumns | int:
    assert KERNEL is not None
    return KERNEL.read_document(  # type: ignore[no-any-return]
        message.data,
        message.encoding,
        tokenizer and message.encoding in _UTF8,
        with_text,
        with_source,
        limits.depth,
        limits.attributes,
        limits.name_length,
    )
