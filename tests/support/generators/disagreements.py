"""Messages that expat accepts and libxml2 refuses, or reads otherwise."""

from __future__ import annotations

from random import Random

_ROOT = [
    "",
    " xml:id='x'",
    " xml:id=''",
    " xml:id='1 2'",
    " xml:space='odd'",
    " xml:lang='*'",
    " xml:base='::'",
]
_ROOT += [" xmlns='x y'", " xmlns='rel'", " xmlns=''", " xmlns:p='a b'", " xmlns:p='../q' p:z='1'"]
_ROOT += [
    " xmlns:p='http://[bad' p:y='2'",
    " xmlns='%zz'",
    " i='x'",
    " i=' x '",
    " i='x y'",
    " t='  a&#10;b '",
]
_CHILD = ["", " xml:id='x'", " i='x'", " i=''", " k='1'", " xmlns='x y'", " xmlns:q='a b' q:k='1'"]
_OUTSIDE = ["", "<!--c-->", "<?p q?>", "<?p:x y?>", "<?xml-stylesheet bad?>", "<!--c--><!--d-->\n"]
_SUBSETS = [
    "<!ATTLIST a i ID #IMPLIED><!ATTLIST b i ID #IMPLIED>",
    "<!ATTLIST a i ID 'x'>",
    "<!ATTLIST a xml:id ID #IMPLIED><!ATTLIST a i ID #IMPLIED>",
    "<!ATTLIST a xml:space CDATA 'odd'>",
    "<!ENTITY e 'text'><!--in the type--><?pi in the type?>",
    "<!ENTITY e '<b>v</b>'>",
    "<!ENTITY e 'x&#38;#60;y'>",
    "<!ENTITY e:f 'colon'><!NOTATION n:m SYSTEM 'x'>",
    "<!ENTITY % p \"<!ATTLIST b d CDATA 'dd'>\">%p;",
    "<!ENTITY % x SYSTEM 'no'> %x; <!ATTLIST b d CDATA 'late'>",
    "<!ATTLIST b d CDATA 'dd' e NMTOKENS ' 1  2 '>",
    "<!ATTLIST b xmlns CDATA 'urn:d'>",
    "<!ATTLIST b xmlns:p CDATA #FIXED 'urn:p' p:d CDATA 'pd'>",
    "<!ELEMENT a ANY><!ELEMENT a ANY>",
    "<!ENTITY lt '&#38;#60;'>",
]
_TYPES = ["", "<!DOCTYPE a>", "<!DOCTYPE a SYSTEM 'none.dtd'>", "<!DOCTYPE a PUBLIC 'p' 'q' []>"]
_TYPES += [f"<!DOCTYPE a [{subset}]>" for subset in _SUBSETS]
_ENCODINGS = ["cp437", "mac-roman", "koi8_r", "KOI8-R", "windows-1252", "utf-16", "cp1140"]
_ENCODINGS += ["u8", "utf_8", "iso-8859-15", "latin1", "us-ascii", "tis-620", "hp-roman8"]
_DECLARATIONS = [
    "",
    "<?xml version='1.0'?>",
    "<?xml version='1.0' standalone='yes'?>",
    "<?xml version='1.1'?>",
]
_DECLARATIONS += [f"<?xml version='1.0' encoding='{name}'?>" for name in _ENCODINGS]
_TEXTS = [
    "",
    "t",
    "&e;",
    "é",
    "Я",
    "\r\nx\r",
    "<![CDATA[c]]>d",
    "\x85\u2028",
    "&#x10FFFF;",
    "&#13;",
    "]]&gt;",
]
_TEXTS += ["\\n \\u0041", "กิ", "\ufdd0", "&e:f;"]
_NAMES = ["b", "b", "b", "p:b", "ก", "x.y", "_"]


def random_disagreement(rng: Random) -> bytes:
    """A message, not always well-formed, with things that only one of the two takes exception to."""

    def some(choices: list[str], often: float = 0.6) -> str:
        return rng.choice(choices) if rng.random() < often else choices[0]

    declaration, name = some(_DECLARATIONS, 0.5), rng.choice(_NAMES)
    first = f"<b{some(_CHILD)}>{some(_TEXTS)}</b>"
    body = f"{some(_TEXTS)}{first}<!--m-->{some(_TEXTS)}<{name}{some(_CHILD)}/><?q r?>"
    message = (
        f"{declaration}{some(_OUTSIDE, 0.3)}{some(_TYPES)}<a{some(_ROOT)}>{body}</a>{some(_OUTSIDE, 0.2)}"
    )
    _, _, declared = declaration.partition("encoding='")
    encoding = declared.partition("'")[0] or "utf-8"
    try:
        return message.encode(encoding)
    except UnicodeEncodeError:
        return message.encode()
