"""The reader of element constructors: `<item id="{$i/@id}">{$i/title}</item>` → constants and holes.

Constants come out as XML, ready to be written. White space between tags and braces is dropped, as XQuery has
it; all other text stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from xml.sax.saxutils import unescape

from sapwood.lang.fwr.model import Standing
from sapwood.lang.literals.escaping import NO_XML, escape_attribute, escape_content
from sapwood.lang.names import NAME, qualified_name_length
from sapwood.lang.namespaces import XML_NAMESPACE
from sapwood.lang.scanning import TextReader
from sapwood.lang.xpath import error_hints

_QNAME = re.compile(f"(?:{NAME}:)?{NAME}")
_SPACE = re.compile(r"[ \t\r\n]*")
_REFERENCE = re.compile(f"&(?:#([0-9]{{1,8}})|#x([0-9a-fA-F]{{1,8}})|({NAME}));")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_RESERVED = re.compile(r"sapwood[0-9]+")
_DEEPEST = 60

Hole = TypeVar("Hole")
_Read = TypeVar("_Read", covariant=True)


@dataclass(slots=True)
class Tag:
    """An element under construction."""

    name: str
    namespaces: dict[str, str]
    """in scope; the default one under the empty prefix"""
    attributes: tuple[str, ...] = ()
    """their names as in the message reader, `uri}local`"""
    has_content: bool = False


class Enclosing(Protocol[_Read]):
    """The interface of a reader of the expressions in braces."""

    def enclosed(self, start: int, tag: Tag, in_value: bool) -> tuple[_Read, Standing, int]:
        """Read an expression: returns its hole, its role in the tag, and the position after it."""
        ...


class ConstructorReader(TextReader, Generic[Hole]):
    """Reads one constructor of a query."""

    def __init__(self, text: str, namespaces: Mapping[str, str], enclosing: Enclosing[Hole]) -> None:
        super().__init__(text)
        self._declared = namespaces
        self._enclosing = enclosing
        self._parts: list[str | Hole] = []
        self._depth = 0

    def read(self, start: int, scope: Mapping[str, str]) -> tuple[list[str | Hole], int]:
        """Read the constructor whose `<` is at `start`; returns its parts and the position after it."""
        end = self._element(start, scope)
        return _merge_constants(self._parts), end

    # -- elements --------------------------------------------------------------------------------------

    def _element(self, start: int, scope: Mapping[str, str]) -> int:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"elements are nested more than {_DEEPEST} levels deep", start)
        name, at = self._name(start + 1, "an element name")
        tag = Tag(name, dict(scope))
        self._parts.append(f"<{name}")
        at = self._attributes(at, tag)
        self._declare(name, start + 1, tag)
        if self._text.startswith("/>", at):
            self._parts.append("/>")
            at += 2
        else:
            at = self._content(self._expect(">", at, f"to end the start tag <{name}"), tag, start)
        self._depth -= 1
        return at

    def _content(self, at: int, tag: Tag, start: int) -> int:
        while True:
            at = self._characters(at, tag)
            if self._text.startswith("</", at):
                return self._end_tag(at, tag)
            if self._text.startswith(("<!--", "<?"), at):
                raise self._unsupported("a comment or processing instruction in a constructor", at)
            if self._text.startswith("<", at):
                self._begin_content(tag)
                at = self._element(at, tag.namespaces)
            elif self._text.startswith("{", at):
                at = self._braces(at, tag)
            elif at >= len(self._text):
                raise self._error(f"the element <{tag.name}> is never closed", start, f"add </{tag.name}>")
            else:
                raise self._error("a '}' by itself", at, "write }} for a brace that is text")

    def _braces(self, at: int, tag: Tag) -> int:
        hole, standing, end = self._enclosing.enclosed(at + 1, tag, in_value=False)
        if standing == "attributes" and tag.has_content:
            hint = f"move it to the front of <{tag.name}>, or write string(…) for its value as text"
            raise self._error("an attribute after other content (XQTY0024 in XQuery)", at, hint)
        if standing == "content":
            self._begin_content(tag)
        self._parts.append(hole)
        return self._expect("}", end, "to close '{'")

    def _begin_content(self, tag: Tag) -> None:
        if not tag.has_content:
            self._parts.append(">")
            tag.has_content = True

    def _end_tag(self, at: int, tag: Tag) -> int:
        name, end = self._name(at + 2, "an element name")
        if name != tag.name:
            raise self._error(f"</{name}> closes <{tag.name}>", at, f"write </{tag.name}>")
        self._parts.append(f"</{name}>" if tag.has_content else "/>")
        return self._expect(">", end, f"to end </{name}")

    # -- attributes ------------------------------------------------------------------------------------

    def _attributes(self, at: int, tag: Tag) -> int:
        """Read attributes, namespace declarations first, since they hold for the whole tag."""
        found: list[tuple[str, int, int]] = []
        while self._name_length(at := self._space(at)):
            name, end = self._name(at, "an attribute")
            value = self._expect("=", self._space(end), f"after the attribute {name}")
            opening = self._space(value)
            found.append((name, at, opening))
            at = self._value_end(opening)
        declarations = [entry for entry in found if _is_declaration(entry[0])]
        attributes = [entry for entry in found if not _is_declaration(entry[0])]
        self._once({name: name for name, _, _ in declarations}, declarations)
        for name, position, opening in declarations:
            self._namespace(name, position, opening, tag)
        for name, position, _ in attributes:
            self._declare(name, position, tag)
        expanded = {name: _expanded(name, tag) for name, _, _ in attributes}
        self._once(expanded, attributes)
        tag.attributes = tuple(expanded.values())
        for name, _, opening in attributes:
            self._parts.append(f' {name}="')
            self._parts += self._value(opening, tag)
            self._parts.append('"')
        return at

    def _once(self, names: Mapping[str, str], found: list[tuple[str, int, int]]) -> None:
        seen: set[str] = set()
        for name, position, _ in found:
            if names[name] in seen:
                raise self._error(f"the attribute {name} stands twice", position)
            seen.add(names[name])

    def _namespace(self, name: str, position: int, opening: int, tag: Tag) -> None:
        parts = self._value(opening, tag, constant="a namespace must be a constant")
        written = "".join(str(part) for part in parts)
        prefix = name.partition(":")[2]
        if prefix in ("xml", "xmlns") or _RESERVED.fullmatch(prefix):
            raise self._error(f"the prefix {prefix!r} is reserved", position, "choose another")
        if prefix and not written:
            raise self._error(f"the prefix {prefix!r} is bound to nothing", position)
        tag.namespaces[prefix] = unescape(written, {"&quot;": '"'})
        self._parts.append(f' {name}="{written}"')

    def _declare(self, name: str, position: int, tag: Tag) -> None:
        """Declare a prefix that the tag uses in the result, too."""
        prefix, colon, _ = name.partition(":")
        if not colon or prefix == "xml" or prefix in tag.namespaces:
            return
        uri = self._declared.get(prefix)
        if uri is None:
            hint = error_hints.hint_undeclared(prefix, self._declared, f'add xmlns:{prefix}="…", or ')
            raise self._error(f"the prefix {prefix!r} is not declared", position, hint)
        tag.namespaces[prefix] = uri
        self._parts.append(f' xmlns:{prefix}="{escape_attribute(uri)}"')

    def _value_end(self, opening: int) -> int:
        """Return the position after a quoted value; doubled quotes are one, and braces may contain quotes."""
        quote = self._text[opening : opening + 1]
        if quote not in ("'", '"'):
            raise self._error("expected a quoted value", opening, 'write name="value" or name="{$v/@name}"')
        at, depth, inner = opening + 1, 0, ""
        while at < len(self._text):
            character = self._text[at]
            if inner:
                inner = "" if character == inner else inner
            elif depth and character in "'\"":
                inner = character
            elif not depth and self._text.startswith((quote * 2, "{{", "}}"), at):
                at += 1
            elif character in "{}":
                depth += 1 if character == "{" else -1
            elif character == quote and depth <= 0:
                return at + 1
            at += 1
        raise self._error("a value that is never closed", opening, f"add the missing {quote}")

    def _value(self, opening: int, tag: Tag, constant: str = "") -> list[str | Hole]:
        """Read the constants and holes of a quoted value; no holes, if a reason for that is given."""
        quote, end = self._text[opening], self._value_end(opening) - 1
        parts: list[str | Hole] = []
        at = opening + 1
        while at < end:
            character = self._text[at]
            if self._text.startswith((quote * 2, "{{", "}}"), at):
                parts.append(escape_attribute(character))
                at += 2
            elif character == "{":
                if constant:
                    raise self._error(constant, at)
                hole, _, after = self._enclosing.enclosed(at + 1, tag, in_value=True)
                parts.append(hole)
                at = self._expect("}", after, "to close '{'")
            elif character == "&":
                referred, at = self._reference(at)
                parts.append(escape_attribute(referred))
            elif character in "<}":
                raise self._error(
                    f"{character!r} in a value", at, "write &lt; for <, and }} for a brace that is text"
                )
            else:
                parts.append(" " if character in "\t\r\n" else escape_attribute(character))
                at += 1
        return parts

    # -- text ------------------------------------------------------------------------------------------

    def _characters(self, at: int, tag: Tag) -> int:
        """Read text up to the next markup; drop white space alone, unless it is a reference or CDATA."""
        pieces: list[str] = []
        kept = False
        while at < len(self._text):
            character = self._text[at]
            if self._text.startswith("<![CDATA[", at):
                end = self._text.find("]]>", at)
                if end < 0:
                    raise self._error("a CDATA section that is never closed", at, "add the missing ]]>")
                pieces.append(self._text[at + 9 : end])
                at, kept = end + 3, True
            elif self._text.startswith(("{{", "}}"), at):
                pieces.append(character)
                at, kept = at + 2, True
            elif character in "<{}":
                break
            elif character == "&":
                referred, at = self._reference(at)
                pieces.append(referred)
                kept = True
            else:
                pieces.append(character)
                kept = kept or character not in " \t\r\n"
                at += 1
        if kept and any(pieces):
            self._begin_content(tag)
            self._parts.append(escape_content("".join(pieces)))
        return at

    def _reference(self, at: int) -> tuple[str, int]:
        match = _REFERENCE.match(self._text, at)
        if match is None:
            raise self._error("a '&' by itself", at, "write &amp;")
        decimal, hexadecimal, name = match.groups()
        if name is not None:
            if name not in _ENTITIES:
                known = ", ".join(f"&{entity};" for entity in _ENTITIES)
                raise self._error(f"there is no entity {name!r}", at, f"there are {known}")
            return _ENTITIES[name], match.end()
        code = int(decimal) if decimal else int(hexadecimal, 16)
        if code > 0x10FFFF or NO_XML.match(chr(code)):
            raise self._error("a reference to a character that XML does not have", at)
        return chr(code), match.end()

    # -- helpers ---------------------------------------------------------------------------------------

    def _name(self, at: int, what: str) -> tuple[str, int]:
        length = self._name_length(at)
        if not length:
            found = self._text[at : at + 1]
            raise self._error(f"expected {what}, but {f'found {found!r}' if found else 'the query ends'}", at)
        return self._text[at : at + length], self._space(at + length)

    def _name_length(self, at: int) -> int:
        match = _QNAME.match(self._text, at)
        return qualified_name_length(match.group()) if match is not None else 0

    def _space(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def _expect(self, wanted: str, at: int, why: str) -> int:
        at = self._space(at) if wanted != ">" else at
        if not self._text.startswith(wanted, at):
            found = self._text[at : at + 1]
            described = f"found {found!r}" if found else "the query ends"
            hint = "put one expression in each pair of braces" if found == "," else None
            raise self._error(f"expected {wanted!r} {why}, but {described}", at, hint)
        return at + len(wanted)


def _is_declaration(name: str) -> bool:
    return name == "xmlns" or name.startswith("xmlns:")


def _expanded(name: str, tag: Tag) -> str:
    prefix, colon, local = name.partition(":")
    if not colon:
        return name
    return f"{XML_NAMESPACE if prefix == 'xml' else tag.namespaces[prefix]}}}{local}"


def _merge_constants(parts: list[str | Hole]) -> list[str | Hole]:
    """Merge constants that follow one another."""
    merged: list[str | Hole] = []
    constants: list[str] = []
    for part in parts:
        if isinstance(part, str):
            constants.append(part)
            continue
        merged += _constant(constants)
        constants.clear()
        merged.append(part)
    return [*merged, *_constant(constants)]


def _constant(pieces: list[str]) -> list[str]:
    joined = "".join(pieces)
    return [joined] if joined else []
