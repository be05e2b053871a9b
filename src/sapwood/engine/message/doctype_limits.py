"""The size of what a document type declaration expands to, counted before any parser expands it.

Entities of the internal subset are expanded and its default attributes supplied, as XML demands. The expanded
size is counted beforehand from the events of expat itself, in a mode in which nothing expands:

1. The declarations are read with the `&` of every reference made inert, so that the text of each entity and
   each default attribute arrives with its references in it. From these follow the expanded sizes, linear in
   the declarations. Parameter entities do expand here, since they may declare things: a subset that has any
   must be short, and expat stops what grows a hundredfold.
2. The body is read behind a document type that declares nothing. expat reports each reference there instead
   of expanding it, and passes each start tag as it is written. The sizes of what they expand to are added up.

So a bomb costs no more than its bytes, and the parsers after this, expat and lxml, expand a message to no
more than was counted. Counting in the parser that builds the document would come too late: expat expands an
attribute's value as a whole before it calls a handler.

Nothing external is fetched: to both parsers, all of it is empty. A reference to something external, or
to what only it may declare, is an error, not an omission.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NoReturn
from xml.parsers import expat

from sapwood.engine.fallback.lxml_process import read_external_as_empty
from sapwood.engine.limits import Limits
from sapwood.engine.message.encoding import is_utf8, transcode
from sapwood.errors import MessageError

_INERT = b"\x7f"
_AMPERSAND = re.compile(rb"&(?!#)")
_REFERENCE = re.compile(r"[&\x7f]([^\s#;&<\x7f]+);")
_START_TAG = re.compile(r"<([^\s/<>!?&]+)")
_PREDEFINED = frozenset({"amp", "lt", "gt", "quot", "apos"})
_OTHER_REFERENCE = re.compile(rb"&(?!#|amp;|lt;|gt;|quot;|apos;)")
_MAX_ENTITY_DEPTH = 50
_BEFORE_SUBSET = b"<!DOCTYPE _ SYSTEM '_' "
_BEFORE_BODY = b"<!DOCTYPE _ SYSTEM '_'"
_MARK = b"\xef\xbb\xbf"


class Refused(Exception):
    """Raised inside a callback to refuse a message; the caller of the parser adds the position."""


class _Reached(Exception):
    """Raised inside a callback to stop the parser where it has found what it looks for."""


def ignore_external_entities(parser: expat.XMLParserType) -> None:
    """Have a parser read the external subset as empty, and refuse references to external entities."""
    read_external_as_empty(parser, _refuse_external)
    parser.SkippedEntityHandler = _refuse_skipped


def check_doctype(data: bytes, encoding: str | None, limits: Limits) -> None:
    """Raise MessageError if a message's entities and default attributes expand to more than the limits."""
    if not is_utf8(data, encoding):
        in_utf8 = transcode(data, encoding)
        if in_utf8 is None:
            raise MessageError("the encoding cannot be read; send UTF-8, UTF-16 or an 8-bit encoding")
        data = in_utf8
    data = data.removeprefix(_MARK)
    prolog = _Prolog(data)
    if not prolog.has_doctype:
        return
    body = data[prolog.index :]
    declares = prolog.has_subset and (b"<!ENTITY" in body or b"<!ATTLIST" in body)
    if not declares and not (prolog.external and _OTHER_REFERENCE.search(body)):
        return
    if prolog.has_subset:
        subset = _Subset(body, prolog, limits)
        _Body(body[subset.length :], subset, subset, limits).read()
    else:
        _Body(body, prolog, None, limits).read()


class _Reading:
    """One pass over a part of the message, with a prologue of our own before it."""

    def __init__(self, before: bytes, part: bytes, line: int, column: int) -> None:
        self.parser = parser = expat.ParserCreate("utf-8")
        self._before = before
        self._part = part
        self.stopped_at: tuple[int, int] | None = None  # once stopped, the parser is behind the token
        self._line, self._column = line, column  # where the part begins in the message; columns from 0
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def read(self) -> None:
        try:
            self.parser.Parse(self._before + self._part, True)
        except _Reached:
            pass
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code) or str(error)
            raise self._error(reason, *self.position(error.lineno, error.offset)) from None
        except Refused as refusal:
            raise self._error(str(refusal), *(self.stopped_at or self.here())) from None

    def consumed(self) -> int:
        """The bytes of the part that the parser has consumed."""
        return self.parser.CurrentByteIndex - len(self._before)

    def here(self) -> tuple[int, int]:
        return self.position(self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber)

    def position(self, line: int, column: int) -> tuple[int, int]:
        """Convert a position in what was parsed to a position in the message."""
        if line == 1:
            return self._line, self._column + max(0, column - len(self._before))
        return self._line + line - 1, column

    def _error(self, reason: str, line: int, column: int) -> MessageError:
        return MessageError(reason, line, column + 1)


class _Prolog(_Reading):
    """The end of the document type declaration, or the start of its internal subset."""

    def __init__(self, data: bytes) -> None:
        super().__init__(b"", data, 1, 0)
        self.has_doctype = self.has_subset = self.external = False
        self.index = 0
        self.end = (1, 0)
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._element
        self.read()

    def _doctype(self, name: str, system: str | None, public: str | None, subset: bool) -> None:
        self.has_doctype, self.has_subset, self.external = True, bool(subset), system is not None
        self.index = self.parser.CurrentByteIndex
        self.end = self.here()
        raise _Reached

    def _element(self, name: str, attributes: object) -> None:
        raise _Reached


class _Subset(_Reading):
    """The declarations of an internal subset, and the expanded size of each entity and element type."""

    def __init__(self, part: bytes, prolog: _Prolog, limits: Limits) -> None:
        super().__init__(_BEFORE_SUBSET, _inert(part), *prolog.end)
        self.external = prolog.external
        self.length = 0
        self.end = prolog.end
        self.sizes: dict[str, int] = {}  # entity → characters, fully expanded, with default attributes
        self.defaults: dict[str, int] = {}  # element → characters of its default attributes
        self._limit = limits.entity_expansion
        self._most = limits.attributes
        self._parameters = False
        self._made = 0
        self._texts: dict[str, str] = {}
        self._references: dict[str, Counter[str]] = {}  # entity → the entities that its text refers to
        self._default_texts: dict[str, list[str]] = {}
        self._attributes: Counter[str] = Counter()
        parser = self.parser
        ignore_external_entities(parser)
        parser.EntityDeclHandler = self._entity
        parser.AttlistDeclHandler = self._attribute
        parser.EndDoctypeDeclHandler = self._end_doctype
        self.read()

    def _entity(self, name: str, parameter: bool, value: str | None, *_: object) -> None:
        if value is None:
            self.external = self.external or bool(parameter)
            return
        if parameter and not self._parameters:
            self._parameters = True
            self.parser.DefaultHandlerExpand = self._check_length
        self._count_made(len(value))
        if not parameter and name not in self._texts:
            self._texts[name] = value
            self._references[name] = Counter(_references(value))

    def _attribute(self, element: str, name: str, kind: str, default: str | None, required: bool) -> None:
        self._attributes[element] += 1
        if self._attributes[element] > self._most:  # parsers go through them for every such element
            raise Refused(f"an element type declares more than {self._most:,} attributes, which is the limit")
        if default is not None:
            self._count_made(len(default))
            self._default_texts.setdefault(element, []).append(name + default)

    def _count_made(self, characters: int) -> None:
        """Refuse declarations that parameter entities have expanded too much."""
        self._made += characters
        if self._parameters and self._made - self.consumed() > self._limit:
            _refuse_expansion(self._made - self.consumed(), self._limit)

    def _check_length(self, token: str) -> None:
        """Refuse a long subset with parameter entities: expat bounds them by a multiple of its length."""
        if self.consumed() > self._limit:
            limit = f"the limit is {self._limit:,}"
            raise Refused(f"declarations that use parameter entities are too long; {limit} characters")

    def _end_doctype(self) -> None:
        self.length = self.consumed()
        self.end = self.here()
        order = self._innermost_first()
        plain = self._expand_sizes(order, {})
        expanded_here = 0
        for element, texts in self._default_texts.items():
            size = sum(map(len, texts))
            references = sum(plain.get(name, 0) for text in texts for name in _references(text))
            expanded_here += references
            self.defaults[element] = size + references
        if expanded_here > self._limit:
            _refuse_expansion(expanded_here, self._limit)
        self.sizes = self._expand_sizes(order, self.defaults) if self.defaults else plain
        raise _Reached

    def _expand_sizes(self, order: list[str], defaults: dict[str, int]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        enough = self._limit + 1  # beyond which numbers need not grow
        for entity in order:
            text = self._texts[entity]
            size = len(text)
            size += sum(sizes.get(name, 0) * n for name, n in self._references[entity].items())
            if defaults and "<" in text:
                size += sum(defaults.get(tag[1], 0) for tag in _START_TAG.finditer(text))
            sizes[entity] = min(size, enough)
        return sizes

    def _innermost_first(self) -> list[str]:
        """Yield the entities, each after those that its text refers to; a loop, since chains may be long."""
        depths: dict[str, int] = {}
        for root in self._texts:
            if root in depths:
                continue
            trail = {root: iter(self._references[root])}
            while trail:
                entity, waiting = next(reversed(trail.items()))
                inner = next((e for e in waiting if e in self._texts and e not in depths), None)
                if inner is None:
                    del trail[entity]
                    within = (depths.get(e, 0) for e in self._references[entity])
                    depths[entity] = 1 + max(within, default=0)
                elif inner in trail:
                    raise Refused(f"the entity {_shorten(entity)} refers to itself")
                else:
                    trail[inner] = iter(self._references[inner])
                if len(trail) > _MAX_ENTITY_DEPTH or depths.get(entity, 0) > _MAX_ENTITY_DEPTH:
                    raise Refused(f"entities are nested more than {_MAX_ENTITY_DEPTH} deep")
        return list(depths)


class _Body(_Reading):
    """The message behind its document type, whose references and start tags are counted."""

    def __init__(
        self, part: bytes, prolog: _Prolog | _Subset, subset: _Subset | None, limits: Limits
    ) -> None:
        super().__init__(_BEFORE_BODY, part, *prolog.end)
        self._external = prolog.external
        self._sizes = subset.sizes if subset else {}
        self._defaults = subset.defaults if subset else {}
        self._limit = limits.entity_expansion
        self._total = 0
        self.parser.SkippedEntityHandler = self._reference
        self.parser.CharacterDataHandler = len  # or text would go to the default handler
        self.parser.DefaultHandler = self._markup

    def _reference(self, name: str, parameter: bool) -> None:
        size = self._sizes.get(name)
        if size is not None:
            self._add(size)
        elif self._external and name not in _PREDEFINED:
            self.stopped_at = self.here()
            _refuse_skipped(name, parameter)

    def _markup(self, markup: str) -> None:
        if markup[0] != "<" or markup[1] in "/!?":
            return
        if self._defaults:
            tag = _START_TAG.match(markup)
            if tag is not None:
                self._add(self._defaults.get(tag[1], 0))
        if "&" in markup:
            for name in _references(markup):
                self._reference(name, False)

    def _add(self, size: int) -> None:
        self._total += size
        if self._total > self._limit:
            self.stopped_at = self.here()
            _refuse_expansion(self._total, self._limit)


def _inert(part: bytes) -> bytes:
    """Return the part with references to entities made inert; no byte changes its position."""
    if _INERT + b"#" in part:
        return _AMPERSAND.sub(_INERT, part)
    return part.replace(b"&", _INERT).replace(_INERT + b"#", b"&#")  # far less memory than the above


def _references(text: str) -> Iterator[str]:
    return (found[1] for found in _REFERENCE.finditer(text))


def _refuse_external(system: str) -> NoReturn:
    raise Refused(f"a reference to the external entity {_shorten(system)}, which is never fetched")


def _refuse_skipped(name: str, parameter: bool) -> None:
    kind = "parameter entity" if parameter else "entity"
    raise Refused(f"the {kind} {_shorten(name)} is not declared in the message itself")


def _refuse_expansion(total: int, limit: int) -> None:
    raise Refused(
        f"entities expand to {total:,} characters or more, with default attributes; the limit is {limit:,}"
    )


def _shorten(name: str) -> str:
    return repr(name if len(name) <= 100 else name[:100] + "…")
