"""Saxon's answers to for-where-return queries: an oracle that nobody here wrote.

A query of ours is XQuery as it stands but for paths and comparisons, which mean what XPath 1.0 says. Where
the two differ, the oracle must be asked in other words:

    Sapwood                 XQuery                              because in XQuery
    string(p)               string((p)[1])                      several nodes are a type error
    contains(p, "x")        contains(string((p)[1]), "x")       likewise, and for starts-with()
    p < 2                   (p ! local:number(.)) < 2           text that is no number is an error
    <r xmlns="u">{$v/a}     <r xmlns="u">{$v/Q{}a}              its namespace holds for paths too
    <r k="{{">              <r k="&#123;">                      (it is the same: Saxon 13.1 errs)
    p < q                   (p ! local:number(.)[. = .]) < …    (likewise: it takes NaN for the maximum)

`local:number` is declared for all queries: it converts as libxml2 does, where 1e1 is a number, but +1 and INF
are not. So are `$doc` and `$msg`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from functools import cache
from typing import Any
from xml.sax.saxutils import quoteattr

from lxml import etree

_PROLOG = r"""
declare variable $doc := .;
declare variable $msg := .;
declare function local:number($node as node()) as xs:double {
    let $number := '^[ \t\r\n]*-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\r\n]*$'
    return number(if (matches($node, $number)) then string($node) else 'NaN')
};
"""
_XML = "http://www.w3.org/XML/1998/namespace"
_SERIALISATION = {"!method": "xml", "!omit-xml-declaration": "yes", "!indent": "no"}
_DECLARATION = re.compile(r"\A\ufeff?<\?xml\s[^>]*\?>")
_ENCODING = re.compile(rb"""\A<\?xml\s[^>]*?encoding\s*=\s*["']([\w.-]+)["']""")
_CODE = re.compile(r"\b(?:X[PQ]|F[OR]|SE)[A-Z]{2}\d{4}\b")


class Refused(Exception):
    """Saxon's error; `code` is the one that XQuery gives it."""

    def __init__(self, reason: str, query: str) -> None:
        super().__init__(f"{reason.strip()}\n  in {query}")
        code = _CODE.search(reason)
        self.code = code.group() if code else ""


def answer(query: str, message: bytes | str, namespaces: Mapping[str, str] | None = None) -> str:
    """What Saxon makes of a message, as XML without declaration; "" for the empty sequence."""
    saxon, processor = _processors()
    declared = "".join(
        f"declare namespace {p} = {quoteattr(uri)};\n" for p, uri in (namespaces or {}).items()
    )
    try:
        processor.set_context(xdm_item=saxon.parse_xml(xml_text=_decoded(message)))
        processor.set_query_content(declared + _PROLOG + query)
        # It forgets to escape carriage returns in text that is white space alone.
        return str(processor.run_query_to_string() or "").replace("\r", "&#13;")
    except Exception as error:  # its class is not exported
        raise Refused(str(error), query) from error


def same(one: bytes | str, other: bytes | str) -> bool:
    """Whether two results are the same XML: nodes with their names and values, and their order."""
    return canonical(one) == canonical(other)


def canonical(result: bytes | str) -> str:
    """One spelling for all results that are the same; there may be several elements in it, and text between.

    It is exclusive canonical XML (in which lxml refuses relative URIs of namespaces) with prefixes numbered:
    names are compared by their namespaces. XQuery leaves the prefix of an attribute open where it could clash
    with another, and Sapwood makes up a new one.
    """
    text = result.encode() if isinstance(result, str) else result
    parsed = etree.fromstring(b"<result>" + text + b"</result>", etree.XMLParser(resolve_entities=False))
    names = [name for element in parsed.iter("*") for name in (element.tag, *element.attrib)]
    uris = {etree.QName(name).namespace for name in names} - {None, _XML}
    root: Any = etree.Element("result", nsmap={f"n{i}": uri for i, uri in enumerate(sorted(map(str, uris)))})
    root.text = parsed.text
    for child in parsed:
        _copy(child, root)
    return etree.tostring(root, method="c14n", exclusive=True, with_comments=True).decode()


def _copy(node: Any, parent: Any) -> None:
    """Copies a node, with the prefixes that the new parent has for its namespaces."""
    if isinstance(node.tag, str):
        made = etree.SubElement(parent, node.tag, dict(node.attrib))
        for child in node:
            _copy(child, made)
    else:
        made = copy(node)
        parent.append(made)
    made.text, made.tail = node.text, node.tail


@cache
def _processors() -> tuple[Any, Any]:
    """One for the process. Compiled queries are not kept: compiling one takes a fifth of a millisecond."""
    from saxonche import PySaxonProcessor  # type: ignore[import-untyped, import-not-found, unused-ignore]

    saxon = PySaxonProcessor(license=False)
    processor = saxon.new_xquery_processor()
    for name, value in _SERIALISATION.items():
        processor.set_property(name, value)
    return saxon, processor


def _decoded(message: bytes | str) -> str:
    """The text of a message, without the declaration of an encoding that it no longer has."""
    if isinstance(message, bytes):
        encoding = _ENCODING.match(message)
        if message.startswith((b"\xff\xfe", b"\xfe\xff")):
            message = message.decode("utf-16")
        else:
            message = message.decode(encoding[1].decode() if encoding else "utf-8-sig")
    return _DECLARATION.sub("", message)
