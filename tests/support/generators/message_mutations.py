"""Messages for the readers of the compiled kernel: generated ones, and mutations that are seldom well-formed.

Both draw from things that readers get wrong: ends of tokens, line ends, references, namespaces, characters
that XML forbids, and bytes that are no UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random

from tests.support import shared_data

# -- generated messages ----------------------------------------------------------------------------------

_NAMES = ["a", "b", "c", "item", "x-y.z", "_", "cac:TaxTotal", "p:a", "q:b", "p:item", "Straße", "имя", "名"]
_NAMES += ["a-name-of-seventeen", "a-name_of-seventeen", "a-name-0f-seventeen", "xml", "xml:a"]
_ODD_NAMES = ["xmlns", "กิ", "a\u0301", "a·b", "r:a"]
_PREFIXES = ["p", "q", "cac", "é"]
_ODD_PREFIXES = ["xml", "xmlns", "r", "xmlnsx"]
_URIS = ["urn:p", "urn:q", "urn:p", "http://x/y?z=1&amp;t", " u ", "u\tv", "é", "u&#9;", "u]", "{u"]
_ODD_URIS = ["", "a}b", "a&#125;b", "http://www.w3.org/XML/1998/namespace", "http://www.w3.org/2000/xmlns/"]
_CHARACTERS = [
    "x",
    "1",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "]",
    "]]",
    ">",
    "'",
    '"',
    "é",
    "€",
    "😀",
    "\x7f",
    "\x85",
]
_CHARACTERS += ["\ufffd", "\ufdd0", "\U0010ffff", "plain text of more than sixteen bytes", "-", "?", "/", "="]
_REFERENCES = [
    "&amp;",
    "&lt;",
    "&gt;",
    "&quot;",
    "&apos;",
    "&#65;",
    "&#x41;",
    "&#13;",
    "&#10;",
    "&#9;",
    "&#x20;",
]
_REFERENCES += ["&#x10FFFF;", "&#0065;", "&#xe9;", "&#x20AC;"]
_MISCELLANY = ["<!-- c -->", "<!---->", "<!--- -->", "<?p?>", "<?p d?>", "<?p ??>", "<?xml-s a='b'?>"]
_MISCELLANY += ["<!--\r\né]]>&-->", "<?p \r\né<a>&?>"]
_DECLARATIONS = ["", "", "", '<?xml version="1.0"?>', "<?xml version='1.0' encoding='UTF-8' ?>\r\n"]
_DECLARATIONS += ['<?xml version="1.0" encoding="utf-8" standalone="no"?>\n']
_DECLARATIONS += ["<?xml\tversion\n=\r'1.0'\tstandalone='yes'?>"]
_ODD_DECLARATIONS = ["<?xml version='1.1'?>", "<?xml version='1.0' encoding='us-ascii'?>"]
_ODD_DECLARATIONS += [
    "<?xml version='1.0' encoding='ISO-8859-1'?>",
    "<?xml version='1.0' encoding='cp1252'?>",
]
_SPACES = [" ", " ", " ", "\n", "\t", "\r\n", "  "]


def random_message(rng: Random) -> bytes:
    """Return a message that is well-formed most of the time."""
    left = [rng.choice([3, 8, 20, 60])]
    root = _element(rng, 5, left, ['xmlns:p="urn:p"', 'xmlns:q="urn:q"', 'xmlns:cac="urn:cac"'])
    around = [rng.choice(["", "", "\n", *_MISCELLANY]) for _ in range(2)]
    message = _seldom(rng, _DECLARATIONS, _ODD_DECLARATIONS) + around[0] + root + around[1]
    if rng.random() < 0.05:
        message = message.replace("\n", "\r\n")
    encoding = rng.choice(["utf-8"] * 20 + ["utf-8-sig", "utf-16"])
    return message.encode(encoding)


def _seldom(rng: Random, usual: Sequence[str], odd: Sequence[str]) -> str:
    return rng.choice(odd if rng.random() < 0.02 else usual)


def _some(rng: Random, pieces: Sequence[str], most: int) -> str:
    return "".join(rng.choice(pieces) for _ in range(rng.randint(0, most)))


def _value(rng: Random) -> str:
    quote = rng.choice("\"'")
    value = _some(rng, _CHARACTERS + _REFERENCES, rng.choice([1, 1, 3, 8]))
    return quote + value.replace(quote, "").replace("<", "") + quote


def _attribute(rng: Random) -> str:
    kind = rng.random()
    around = rng.choice(["=", "=", "=", " =", "= ", "\n=\t"])
    if kind < 0.06:
        return f"xmlns{around}'{_seldom(rng, ['', *_URIS], _ODD_URIS)}'"
    if kind < 0.16:
        prefix, uri = _seldom(rng, _PREFIXES, _ODD_PREFIXES), _seldom(rng, _URIS, _ODD_URIS)
        return f'xmlns:{prefix}{around}"{uri}"'
    return _seldom(rng, [*_NAMES, "xml:lang", "id"], _ODD_NAMES) + around + _value(rng)


def _element(rng: Random, depth: int, left: list[int], attributes: list[str]) -> str:
    name = _seldom(rng, _NAMES[:10] if rng.random() < 0.8 else _NAMES, _ODD_NAMES)
    left[0] -= 1
    attributes = attributes + [_attribute(rng) for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 4]))]
    if rng.random() < 0.9:
        attributes = list({each.partition("=")[0].strip(): each for each in attributes}.values())
    tag = (
        name + "".join(rng.choice(_SPACES) + each for each in attributes) + rng.choice(["", "", "", *_SPACES])
    )
    if rng.random() < 0.2:
        return f"<{tag}/>"
    content = "".join(_content(rng, depth, left) for _ in range(rng.randint(0, 4) if depth else 0))
    return f"<{tag}>{content}</{name}{rng.choice(['', '', '', *_SPACES])}>"


def _content(rng: Random, depth: int, left: list[int]) -> str:
    kind = rng.random()
    if kind < 0.5 and left[0] > 0:
        return _element(rng, depth - 1, left, [])
    if kind < 0.8:
        return _some(rng, _CHARACTERS + _REFERENCES, 4).replace("]]>", "]>")
    if kind < 0.9:
        return f"<![CDATA[{_some(rng, [*_CHARACTERS, '<', '&', '&lt;', ']]'], 4).replace(']]>', '')}]]>"
    return rng.choice(_MISCELLANY)


# -- mutations -------------------------------------------------------------------------------------------

_TOKENS = (
    b"<|>|/|</|/>|<b>|</b>|<a>|</a>|<a/>|'|\"|=| |\n|\r|\r\n|\t|:|-|.|1|a|a='1'| x=\"1\""
    b"|&|&#|&#x0;|&#xD800;|&#xFFFE;|&#xFFFF;|&#1114112;|&#x110000;|&#x;|&#;|&#xFFFFFFFFF1;|&#X41;|&lt;|&foo;|&lt"
    b"|&a:b;|]]>|<![CDATA[|<![CDATA|<!--|--|-->|--->|<!|<!DOCTYPE a>|<!DOCTYPE"
    b"|<?|?>|<?xml ?>|<?xml|<?XML ?>|<?xmlx ?>|<?a:b?>|<?1?>|<?p|encoding='ISO-8859-1'|version='1.1'"
    b"|\0|\x01|\x0b|\x1f|\x7f|\x80|\xbf|\xc0\x80|\xc1\xbf|\xc2\x80|\xc2|\xc3\xa9|\xcc\x81|\xe2\x82|\xe0\x80\x80"
    b"|\xe0\xa0\x80|\xe0\xb8\x81|\xed\xa0\x80|\xed\x9f\xbf|\xef\xb7\x90|\xef\xbf\xbd|\xef\xbf\xbe|\xef\xbf\xbf"
    b"|\xf0\x80\x80\x80|\xf0\x90\x80\x80|\xf4\x8f\xbf\xbf|\xf4\x90\x80\x80|\xf5\x80\x80\x80|\xff|\xef\xbb\xbf|\xff\xfe"
    b"|xmlns='u'|xmlns=''|xmlns:p='u'|xmlns:p=''|xmlns:xml='u'|xmlns:xmlns='u'|xml:lang='e'"
    b"|xmlns:xml='http://www.w3.org/XML/1998/namespace'|xmlns:z='http://www.w3.org/XML/1998/namespace'"
    b"|xmlns='http://www.w3.org/2000/xmlns/'| p:a='1'| q:a='2'|p:|xml:|xmlns:|:a|a:b:c|p:1"
).split(b"|")
_START_TAG = re.compile(rb"<[A-Za-z][^\s/>=]*")
_TAG_END = re.compile(rb"[A-Za-z'\"/]>")
_STAND_ALONE = [b"<a/>", b"", b"\n", b"<!--c-->", b"<?p?>", b"x", b"<![CDATA[]]>", b"<!DOCTYPE a>"]


def mutate(rng: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    """Return a message with one to five changes."""
    data = bytearray(message)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        _change(rng, data, others)
    return bytes(data)


def _position(rng: Random, data: bytearray) -> int:
    """Return a position, often one where a token begins or ends."""
    at = rng.randrange(len(data) + 1)
    if rng.random() < 0.6:
        found = data.find(rng.choice((b"<", b">", b" ", b"=", b'"', b"'", b"/", b"&", b":", b"?")), at)
        if found >= 0:
            return found + rng.choice((0, 1))
    return at


def _insert_construct(rng: Random, data: bytearray) -> None:
    """Insert an attribute after the name of a start tag, or content after a tag."""
    in_tag = rng.random() < 0.4
    places = [match.end() for match in (_START_TAG if in_tag else _TAG_END).finditer(data)]
    if places:
        at = rng.choice(places)
        construct = " " + _attribute(rng) + " " if in_tag else _content(rng, 1, [2])
        data[at:at] = construct.encode()


def _change(rng: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at, kind = _position(rng, data), rng.random()
    if kind < 0.25:
        _insert_construct(rng, data)
    elif kind < 0.45:
        data[at:at] = rng.choice(_TOKENS)
    elif kind < 0.6:
        del data[at : at + rng.choice((1, 1, 1, 2, 4))]
    elif kind < 0.7:
        data[at : at + 1] = bytes((rng.randrange(256),))
    elif kind < 0.78:
        first, last = sorted((at, _position(rng, data)))
        data[at:at] = data[first : min(last, first + 200)]
    elif kind < 0.84:
        first, last = sorted((at, _position(rng, data)))
        del data[first : min(last, first + 50)]
    elif kind < 0.9:
        other = bytearray(rng.choice(others))
        first, last = sorted((_position(rng, other), _position(rng, other)))
        data[at:at] = other[first : min(last, first + 200)]
    elif kind < 0.94:
        old, new = rng.choice(((b"\n", b"\r\n"), (b"\n", b"\r"), (b'"', b"'"), (b":", b""), (b"p:", b"q:")))
        data[:] = data.replace(old, new)
    elif kind < 0.97:
        del data[at:]
    elif rng.random() < 0.5:
        data += rng.choice(_STAND_ALONE)
    else:
        data[:0] = rng.choice((b"\xef\xbb\xbf", b" ", b"\n", *_STAND_ALONE))


def mutants(rng: Random, count: int, sources: Sequence[bytes]) -> Iterator[bytes]:
    """Yield generated messages, as they are and mutated, and mutations of the sources."""
    generated = [random_message(rng) for _ in range(50)]
    for i in range(count):
        if i % 10 == 0:
            generated[rng.randrange(50)] = message = random_message(rng)
            yield message
        elif i % 20 == 1 and sources:
            yield mutate(rng, rng.choice(sources), generated)
        else:
            yield mutate(rng, rng.choice(generated), generated)


def truncations(message: bytes) -> Iterator[bytes]:
    """Yield every beginning of a message."""
    for length in range(len(message)):
        yield message[:length]


def real_messages(largest: int) -> list[bytes]:
    """Return the XML files beside the project that are not larger; none where there are no such files."""
    paths = sorted(shared_data.DATA.rglob("*.xml")) if shared_data.DATA.is_dir() else []
    return [path.read_bytes() for path in paths if path.stat().st_size <= largest]
