"""Regular expressions for markup in bytes, for encodings that extend ASCII.

All patterns take linear time: their loops are possessive, so that they never backtrack.
"""

from __future__ import annotations

import re

SPACE = rb"[ \t\r\n]"
NAME = rb"[A-Za-z_:\x80-\xff][^ \t\r\n<>/=\"']*+"
_REST = rb"""[^<>"']*+(?:"[^"<]*+"[^<>"']*+|'[^'<]*+'[^<>"']*+)*+"""
"""a tag after its name: values may contain `>`, but in XML no `<`"""

TAG_START = re.compile(rb"</?" + NAME)
BROKEN_TAG = re.compile(rb"<" + _REST + rb"""(?:<|"[^"<]*+<|'[^'<]*+<)""")
"""a tag in which another begins"""

ATTRIBUTE = re.compile(
    rb"([^ \t\r\n<>/=\"']++)" + SPACE + rb"*+=" + SPACE + rb"*+" + rb"""("[^"]*+"|'[^']*+')"""
)

DECLARATION_START = re.compile(rb"<\?xml" + SPACE)
DECLARED_ENCODING = re.compile(rb"""[ \t\r\n]encoding[ \t\r\n]*+=[ \t\r\n]*+["']([^"']*+)["']""")

_LITERAL = rb"""|"[^"]*+"|'[^']*+'"""
_COMMENT = rb"|<!--(?:[^-]++|-(?!->))*+-->"
_INSTRUCTION = rb"|<\?(?:[^?]++|\?(?!>))*+\?>"
_SUBSET = rb"\[(?:[^\]<\"']++" + _LITERAL + _COMMENT + _INSTRUCTION + rb"|<(?!!--|\?))*+\]" + SPACE + rb"*+"
DOCTYPE = re.compile(
    rb"(<!DOCTYPE" + SPACE + rb"++)[^ \t\r\n\[>]++"
    rb"((?:[^\[>\"']++" + _LITERAL + rb")*+(?:" + _SUBSET + rb")?+>)"
)
"""with its internal subset, in which brackets in literals, comments and instructions do not count; the groups
are the bytes before and after the name of the root"""

OUTSIDE_RECORD, OUTSIDE_OPEN, OUTSIDE_CLOSE = 1, 2, 3


def compile_outside(name: bytes) -> re.Pattern[bytes]:
    """Return a pattern of text and one whole tag, in the group of a record's start, a start or an end."""
    record = re.escape(name) + rb"(?=[ \t\r\n/>])"
    return re.compile(rb"[^<]*+<(?:(" + record + rb")|(" + NAME + rb")|/(" + NAME + rb"))" + _REST + b">")


def compile_inside(name: bytes) -> re.Pattern[bytes]:
    """Return a pattern of what affects the end of a record: comments and the like, and tags of its name."""
    return re.compile(rb"<(?:!--|!\[CDATA\[|\?|/?" + re.escape(name) + rb"(?=[ \t\r\n/>]))")


def compile_start(name: bytes) -> re.Pattern[bytes]:
    """Return a pattern of the beginning of a start tag, which may be truncated."""
    return re.compile(rb"<" + re.escape(name) + rb"(?=[ \t\r\n/>])")
