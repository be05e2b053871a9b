"""What a message's document type declaration would make a parser do, found out before it does it.

Entities of the internal subset are expanded and its default attributes supplied, as XML has it; but how much
that comes to is computed from the declarations when they end, so that a bomb costs no more than its bytes.
Nothing external is fetched, and a reference to something external is an error, not an omission.
"""

from __future__ import annotations

import re
from xml.parsers import expat

from sapwood.engine.encoding import decoded
from sapwood.engine.limits import Limits

_REFERENCE = re.compile(r"&([^\s#;&<]+);")
_NO_MARKUP = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>", re.DOTALL)
_PREDEFINED = frozenset({"amp", "lt", "gt", "quot", "apos"})
_DEEPEST_ENTITY = 50


class Refused(Exception):
    """Raised inside a callback; whoever runs the parser adds the place."""


class DoctypeGuard:
    """Watches the declarations of one message."""

    def __init__(self, data: bytes, encoding: str | None, limits: Limits) -> None:
        self._data = data
        self._encoding = encoding
        self._limit = limits.entity_expansion
        self._root = ""
        self._external = False
        self._inner: dict[str, list[str]] = {}  # entity → the entities that its text refers to
        self._length: dict[str, int] = {}
        self._defaults: dict[str, int] = {}  # element → characters of its default attributes

    def watch(self, parser: expat.XMLParserType) -> None:
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_UNLESS_STANDALONE)
        parser.StartDoctypeDeclHandler = self._start
        parser.EntityDeclHandler = self._entity
        parser.AttlistDeclHandler = self._attribute
        parser.EndDoctypeDeclHandler = self._end
        parser.ExternalEntityRefHandler = self._external_reference
        parser.SkippedEntityHandler = self._skipped

    def _start(self, name: str, system: str | None, public: str | None, internal: bool) -> None:
        self._root = name
        self._external = system is not None

    def _entity(self, name: str, parameter: bool, value: str | None, *_: object) -> None:
        if not parameter and value is not None and name not in self._length:
            self._inner[name] = _REFERENCE.findall(value)
            self._length[name] = len(value)

    def _attribute(self, element: str, name: str, kind: str, default: str | None, required: bool) -> None:
        if default is not None:
            self._defaults[element] = self._defaults.get(element, 0) + len(name) + len(default)

    def _external_reference(self, context: object, base: object, system: str | None, public: object) -> int:
        if context is None:  # an external subset or parameter entity: passed over, but remembered
            self._external = True
            return 1
        raise Refused(f"a reference to the external entity {system!r}, which is never fetched")

    def _skipped(self, name: str, parameter: bool) -> None:
        if not parameter:
            raise Refused(f"the entity {name!r} is not declared in the message itself")

    def _end(self) -> None:
        """Adds up, before the body is parsed, what its references and tags would expand to."""
        if not (self._length or self._defaults or self._external):
            return
        body = self._body()
        references = _REFERENCE.findall(body)
        for name in references:
            if name not in self._length and name not in _PREDEFINED and self._external:
                raise Refused(f"the entity {name!r} is not declared in the message itself")
        sizes = self._sizes()
        total = sum(sizes.get(name, 0) for name in references)
        for element, size in self._defaults.items():
            total += size * len(re.findall(rf"<{re.escape(element)}[\s/>]", body))
        if total > self._limit:
            limit = f"the limit is {self._limit:,}"
            raise Refused(f"entities expand to {total:,} characters, with default attributes; {limit}")

    def _body(self) -> str:
        text = _NO_MARKUP.sub("", decoded(self._data, self._encoding))
        start = text.find(f"<{self._root}", text.find("<!DOCTYPE"))
        return text[max(start, 0) :]

    def _sizes(self) -> dict[str, int]:
        """How long each entity is, fully expanded; a loop, since declarations may be chained for long."""
        sizes: dict[str, int] = {}
        for name in self._length:
            trail = {name: None}
            while trail:
                entity = next(reversed(trail))
                inner = [e for e in self._inner[entity] if e in self._length]
                missing = next((e for e in inner if e not in sizes), None)
                if missing is None:
                    sizes[entity] = self._length[entity] + sum(sizes[e] for e in inner)
                    del trail[entity]
                elif missing in trail:
                    raise Refused(f"the entity {entity!r} refers to itself")
                elif len(trail) == _DEEPEST_ENTITY:
                    raise Refused(f"entities are nested more than {_DEEPEST_ENTITY} deep")
                else:
                    trail[missing] = None
        return sizes
