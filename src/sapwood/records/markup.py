"""How markup looks in bytes, for encodings in which ASCII is ASCII.

All patterns are linear in what they read: their loops never give back what they took.
"""

from __future__ import annotations

import re

SPACE = rb"[ \t\r\n]"
NAME = rb"[A-Za-z_:\x80-\xff][^ \t\r\n<>/=\"']*+"
_REST = rb"""[^<>"']*+(?:"[^"<]*+"[^<>"']*+|'[^'<]*+'[^<>"']*+)*+"""
"""of a tag after its name: values may contain `>`, but in XML no `<`"""

TAG_START = re.compile(rb"</?" + NAME)
BROKEN_TAG = re.compile(rb"<" + _REST + rb"""(?:<|"[^"<]*+<|'[^'<]*+<)""")
"""a tag within which another begins"""

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
"""with its internal subset, where brackets in literals, comments and instructions mean nothing; the groups
are what is before and after the name of the root"""

OUTSIDE_RECORD, OUTSIDE_OPEN, OUTSIDE_CLOSE = 1, 2, 3


def outside(name: bytes) -> re.Pattern[bytes]:
    """Text and then one whole tag; the last group says which: the record's start, another start, an end."""
    record = re.escape(name) + rb"(?=[ \t\r\n/>])"
    return re.compile(rb"[^<]*+<(?:(" + record + rb")|(" + NAME + rb")|/(" + NAME + rb"))" + _REST + b">")


def inside(name: bytes) -> re.Pattern[bytes]:
    """All that matters within a record: what hides markup, and tags of the record's own name."""
    return re.compile(rb"<(?:!--|!\[CDATA\[|\?|/?" + re.escape(name) + rb"(?=[ \t\r\n/>]))")


def start_of(name: bytes) -> re.Pattern[bytes]:
    """The start of a start tag of that name, whole or not."""
    return re.compile(rb"<" + re.escape(name) + rb"(?=[ \t\r\n/>])")
