"""The message reader, the hot loop: a message's bytes → guide nodes, with expat.

Everything that runs once per element is in this module. `read_structure` serves queries that are plain paths
and only walks the dataguide; `read_document` also probes values and collects the message's nodes.

Nothing outside the message is ever fetched; see `doctype_limits` for what is inside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NoReturn
from xml.parsers import expat

from sapwood.engine.automaton.dataguide import GuideNode
from sapwood.engine.limits import Limits
from sapwood.engine.message.doctype_limits import Refused, check_doctype, ignore_external_entities
from sapwood.engine.message.document import Document, N
from sapwood.engine.message.encoding import BYTE_ORDER_MARKS, is_utf8, transcode
from sapwood.engine.message.message_source import Source, content
from sapwood.engine.message.string_values import LONG
from sapwood.errors import MessageError

SEPARATOR = "}"
_DOCTYPES = tuple("<!DOCTYPE".encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))
_MAX_COPIES = 4
"""Times that the text of a message is copied into string-values; what nests deeper is read as ranges."""


class Message:
    """The bytes of a message; `encoding` overrides what they declare (a str has been encoded already)."""

    __slots__ = ("data", "encoding")

    def __init__(self, source: Source) -> None:
        self.data, self.encoding = content(source)

    encoding: str | None
    data: bytes


def read_structure(message: Message, limits: Limits, root: GuideNode) -> list[GuideNode]:
    """Return the guide nodes that a message passes, the root's first."""
    check_size(message, limits)
    parser, names = _parser(message, limits)
    stack = [root]
    seen = [root]
    push, pop, see = stack.append, stack.pop, seen.append
    deepest, most = limits.depth, 2 * limits.attributes

    def start(name: str, attributes: list[str]) -> None:
        node = stack[-1][name]
        push(node)
        see(node)
        if len(stack) > deepest + 1 or len(attributes) > most:
            _refuse(len(stack) - 1, len(attributes) // 2, limits)

    def end(name: str) -> None:
        pop()

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    _run(parser, message, limits, names)
    return seen


def read_document(
    message: Message, limits: Limits, root: N, with_text: bool, with_source: bool = False
) -> Document[N]:
    """Read a message's nodes, and the hits of its values at the guide nodes that it passes.

    With the source, elements can be copied from it: see `Document.spans`.
    """
    check_size(message, limits)
    if with_source:
        message = to_utf8(message)
    parser, names_seen = _parser(message, limits)
    document = Document(root)
    guide_nodes, names, parents, ends = document.guide_nodes, document.names, document.parents, document.ends
    attributes_of, hits, hit_at = document.attributes, document.hits, document.hit_at
    texts, text_parents, text_after = document.texts, document.text_parents, document.text_after
    text_starts, text_ends = document.text_starts, document.text_ends
    deepest, most = limits.depth, 2 * limits.attributes
    offsets = document.text_offsets
    open_elements = [0]
    pending: list[str] = []
    nested: list[int] = []  # elements whose string-values are probed when all text is there
    probed = 0

    def start(name: str, attributes: list[str]) -> None:
        if pending:
            flush()
        parent = open_elements[-1]
        node = guide_nodes[parent][name]
        element = len(guide_nodes)
        guide_nodes.append(node)
        names.append(name)
        parents.append(parent)
        open_elements.append(element)
        ends.append(0)
        attributes_of.append(attributes)
        text_starts.append(len(texts))
        text_ends.append(0)
        if attributes:
            probes = node.attributes
            if probes is not None:
                for i in range(0, len(attributes), 2):
                    probe = probes[attributes[i]]
                    if probe is not None:
                        hit = probe[attributes[i + 1]]
                        if hit is not None:
                            hits.append(hit)
                            hit_at.append(element)
        if len(open_elements) > deepest + 1 or len(attributes) > most:
            _refuse(len(open_elements) - 1, len(attributes) // 2, limits)

    def end(name: str) -> None:
        if pending:
            flush()
        element = open_elements.pop()
        ends[element] = len(guide_nodes)
        text_ends[element] = len(texts)
        probe = guide_nodes[element].value
        if probe is not None:
            nonlocal probed
            first = text_starts[element]
            length = offsets[-1] - offsets[first]
            if length > LONG:
                probed += length
                if probed > _MAX_COPIES * offsets[-1]:
                    nested.append(element)
                    return
            hit = probe["".join(texts[first:])]
            if hit is not None:
                hits.append(hit)
                hit_at.append(element)

    def flush(*_: object) -> None:
        """End a text node: at a tag, a comment or a processing instruction."""
        if not pending:
            return
        text = pending[0] if len(pending) == 1 else "".join(pending)
        pending.clear()
        element = open_elements[-1]
        texts.append(text)
        offsets.append(offsets[-1] + len(text))
        text_parents.append(element)
        text_after.append(len(guide_nodes) - 1)
        probe = guide_nodes[element].text
        if probe is not None:
            hit = probe[text]
            if hit is not None:
                hits.append(hit)
                hit_at.append(element)

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    if with_source:
        _collect_source(parser, message, document, limits)
    if with_text:
        parser.buffer_text = True
        parser.CharacterDataHandler = pending.append
        parser.CommentHandler = flush
        parser.ProcessingInstructionHandler = flush
    _run(parser, message, limits, names_seen)
    ends[0] = len(guide_nodes)
    text_ends[0] = len(texts)
    for element in nested:
        probe = guide_nodes[element].value
        assert probe is not None
        hit = probe.probe_range(document.string_values, *document.value_range(element))
        if hit is not None:
            hits.append(hit)
            hit_at.append(element)
    return document


def _collect_source(
    parser: expat.XMLParserType, message: Message, document: Document[N], limits: Limits
) -> None:
    """Collect the source of elements to copy, and the namespaces that the copies may have to declare."""
    data = document.source = message.data
    document.verbatim = not (b"<!DOCTYPE" in data and (b"<!ENTITY" in data or b"<!ATTLIST" in data))
    check = _namespace_check(limits.name_length)
    declarations, guide_nodes = document.declarations, document.guide_nodes

    def declare(prefix: str | None, uri: str | None) -> None:
        check(prefix, uri)
        declarations.setdefault(len(guide_nodes), []).append((prefix or "", uri or ""))

    parser.StartNamespaceDeclHandler = declare


def to_utf8(message: Message) -> Message:
    """Return the message in UTF-8, or unchanged if its encoding cannot be read, which the parser reports."""
    if is_utf8(message.data, message.encoding):
        return message
    data = transcode(message.data, message.encoding)
    if data is None:
        return message
    changed = Message(data)
    changed.encoding = "utf-8"  # whatever the declaration says
    return changed


# -- parsers and limits --------------------------------------------------------------------------------


def check_size(message: Message, limits: Limits) -> None:
    """Raise MessageError if a message has too many bytes."""
    if len(message.data) > limits.bytes:
        raise MessageError(f"the message has {len(message.data):,} bytes; the limit is {limits.bytes:,}")


def _parser(message: Message, limits: Limits) -> tuple[expat.XMLParserType, dict[str | None, str]]:
    names: dict[str | None, str] = {}
    parser = expat.ParserCreate(message.encoding, SEPARATOR, names)  # type: ignore[arg-type]
    parser.ordered_attributes = True
    parser.StartNamespaceDeclHandler = _namespace_check(limits.name_length)
    if any(doctype in message.data for doctype in _DOCTYPES):
        check_doctype(message.data, message.encoding, limits)
        ignore_external_entities(parser)
    return parser, names


@cache
def _namespace_check(longest: int) -> Callable[[str | None, str | None], None]:
    """Return a handler that refuses a long namespace where it is declared: every name in it would be long."""

    def check(prefix: str | None, uri: str | None) -> None:
        if uri is not None and len(uri) > longest:
            raise Refused(f"a namespace has {len(uri):,} characters; the limit is {longest:,}")

    return check


def _run(parser: expat.XMLParserType, message: Message, limits: Limits, names: dict[str | None, str]) -> None:
    try:
        parser.Parse(message.data, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code) or str(error)
        raise _at(reason, error.lineno, error.offset, message) from None
    except Refused as refusal:
        raise _locate(refusal, parser, message) from None
    except (ValueError, LookupError) as error:  # from the codec
        hint = "send UTF-8, UTF-16 or an 8-bit encoding"
        raise MessageError(f"the encoding cannot be read: {error}; {hint}") from None
    names.pop(None, None)
    if max(map(len, names), default=0) > limits.name_length:  # type: ignore[arg-type]
        raise _long_name(message, limits)


def _locate(refusal: Refused, parser: expat.XMLParserType, message: Message) -> MessageError:
    return _at(str(refusal), parser.CurrentLineNumber, parser.CurrentColumnNumber, message)


def _at(reason: str, line: int, offset: int, message: Message) -> MessageError:
    """Make a MessageError with a position: expat counts columns from 0, and a byte order mark as one."""
    marked = line == 1 and message.data.startswith(BYTE_ORDER_MARKS)
    return MessageError(reason, line, max(1, offset + (0 if marked else 1)))


def _long_name(message: Message, limits: Limits) -> MessageError:
    """Find the position of a name that is too long, by reading the message again."""

    def start(name: str, attributes: dict[str, str]) -> None:
        longest = max(map(len, (name, *attributes)))
        if longest > limits.name_length:
            raise Refused(f"a name has {longest:,} characters; the limit is {limits.name_length:,}")

    parser = expat.ParserCreate(message.encoding, SEPARATOR)
    ignore_external_entities(parser)
    parser.StartElementHandler = start
    try:
        parser.Parse(message.data, True)
    except Refused as refusal:
        return _locate(refusal, parser, message)
    return MessageError(f"a name is too long; the limit is {limits.name_length:,} characters")


def _refuse(depth: int, attributes: int, limits: Limits) -> NoReturn:
    if attributes > limits.attributes:
        raise Refused(f"an element has {attributes:,} attributes; the limit is {limits.attributes:,}")
    raise Refused(f"elements are nested {depth:,} deep; the limit is {limits.depth:,}")
