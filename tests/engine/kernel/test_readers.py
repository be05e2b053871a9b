"""The two readers of the compiled kernel report what pyexpat does; the tokeniser gives up where it must."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import pytest

from tests.support import shared_data
from tests.support.compiled_kernel import compiled_kernel
from tests.support.growth import cpu_seconds
from tests.support.oracles.expat_events import (
    GAVE_UP,
    HAS_DOCTYPE,
    LIMIT_EXCEEDED,
    NOT_WELL_FORMED,
    UNKNOWN_ENCODING,
    ReaderLimits,
    ReaderName,
    assert_alike,
    expat_events,
    read_events,
)
from tests.support.requirements import SANITIZED

kernel = compiled_kernel()
READERS: list[ReaderName] = ["tokenizer", "expat"]
XML = "http://www.w3.org/XML/1998/namespace"
XMLNS = "http://www.w3.org/2000/xmlns/"

READ = {
    "an empty element": "<a/>",
    "white space in tags": "<a \t\r\n><b\n/><c d\n=\t'1'\r\n/></a \t\r\n>",
    "white space around the root": " \t\r\n<a/> \t\r\n",
    "single and double quotes": """<a b="'" c='"' d="" e=''/>""",
    "a greater-than sign in a value": "<a b='>' c='/>'/>",
    "references in a value": "<a b='&lt;&gt;&amp;&quot;&apos;&#65;&#x41;&#xe9;&#x20AC;&#x10FFFF;'/>",
    "references in text": "<a>&lt;&gt;&amp;&quot;&apos;&#65;&#x41;&#xe9;&#x20AC;&#x10FFFF;</a>",
    "references next to text": "<a>x&amp;y&amp;&amp;z</a>",
    "leading zeros in a reference": "<a>&#000000000000065;&#x00000000041;</a>",
    "a reference to a carriage return": "<a b='&#13;&#10;&#9;&#32;'>&#13;&#10;&#9;</a>",
    "the last characters before surrogates and after": "<a>&#xD7FF;&#xE000;\ud7ff\ue000</a>",
    "characters that are not assigned": "<a>\ufdd0\ufffd\U0001fffe\U0010ffff&#x1FFFF;</a>",
    "delete and C1 controls": "<a b='\x7f\x80\x85'>\x7f\x80\x85\x9f</a>",
    "tabs and line ends in a value": "<a b=' \t\n\r\r\n\n\r x\r'/>",
    "line ends in text": "<a>1\n2\r3\r\n4\r\r\n5\n\r6\r</a>",
    "line ends in CDATA": "<a><![CDATA[1\n2\r3\r\n4\r\r\n5\n\r6\r]]></a>",
    "a carriage return before a tag": "<a>\r<b/>\r\n<b/>\r</a>",
    "a carriage return before a reference": "<a>\r&#10;x\r&amp;</a>",
    "brackets in text": "<a>]]]] ]] > ]>]&gt;]]&gt;</a>",
    "brackets in a value": "<a b=']]>'/>",
    "brackets in CDATA": "<a><![CDATA[]]]]><![CDATA[>]]><![CDATA[ ]] ]> ]]]></a>",
    "an empty CDATA section": "<a>x<![CDATA[]]>y</a>",
    "markup in CDATA": "<a><![CDATA[<b>&amp;&x;<!--]]></a>",
    "CDATA beside text is one text node": "<a>x<![CDATA[y]]>z&amp;</a>",
    "comments divide text": "<a>x<!-- c -->y<!----><!-- - -->z</a>",
    "instructions divide text": "<a>x<?p?>y<?p ?>z<?p ??>w<?p a?b>c?></a>",
    "comments and instructions around the root": "<?p?><!--c--> <a/><?q r?>\n<!--d-->",
    "markup in comments and instructions": "<a><!--<b>&x;]]>-\r\n-é--><?p <b>&x;]]>-->é\r\n?></a>",
    "an instruction whose name begins with xml": "<?xml-stylesheet a?><a><?xmlx?><?XMLX?></a>",
    "a byte order mark": "\ufeff<a/>",
    "an XML declaration": '<?xml version="1.0"?><a/>',
    "an XML declaration with everything": "<?xml version='1.0' encoding='UTF-8' standalone='yes'?>\n<a/>",
    "an XML declaration with spaces": "<?xml\tversion\n=\r'1.0'\tstandalone = \"no\" ?><a/>",
    "an XML declaration after a byte order mark": "\ufeff<?xml version='1.0' encoding='utf-8'?><a>é</a>",
    "US-ASCII": "<?xml version='1.0' encoding='US-ASCII'?><a>x&#233;</a>",
    "names": "<a-b.c_1><_/><xml/><XML a='' xMl=''/><xmlns/><nitf.x/></a-b.c_1>",
    "names of letters beyond ASCII": "<Größe имя='1' 名前='2'><ελ/><שם/><한글/><カナ/></Größe>",
    "a long name": "<" + "n" * 999 + " " + "m" * 999 + "='1'/>",
    "names of sixteen bytes and more": "".join(
        ["<a>", *(f"<abcdefgh{'x' * n}{c}ijklmnop/>" for n in range(4) for c in "1212"), "</a>"]
    ),
    "names of up to nine bytes": "".join(
        ["<a>", *(f"<{'a' * n}{c}/>" for n in range(9) for c in "abab"), "</a>"]
    ),
    "names that differ in length alone": "".join(
        ["<a>", *(f"<abcdefgh{'x' * n}ijklmnop/>" for n in reversed(range(900))), "</a>"]
    ),
    "many elements side by side": "<a>" + "<b><c/></b>" * 1000 + "</a>",
    "a default namespace": "<a xmlns='u'><b/><c xmlns='v'><d/></c><e/></a>",
    "a default namespace undeclared": "<a xmlns='u'><b xmlns=''><c/></b><d/></a>",
    "nothing undeclared": "<a xmlns=''/>",
    "prefixes": "<p:a xmlns:p='u' p:b='1' b='2'><p:c/><c p:d=''/></p:a>",
    "a prefix declared after its use in the tag": "<p:a p:b='1' xmlns:p='u'/>",
    "a prefix declared again": "<p:a xmlns:p='u'><p:b xmlns:p='v' p:c=''/><p:b p:c=''/></p:a>",
    "a prefix in scope of its element only": "<a><p:b xmlns:p='u'/><p:b xmlns:p='v'/></a>",
    "two prefixes of a namespace": "<p:a xmlns:p='u' xmlns:q='u'><q:a/></p:a>",
    "prefix and default namespace": "<a xmlns='u' xmlns:p='u'><p:a b='' p:c=''/></a>",
    "equal local names": "<a xmlns:p='u' xmlns:q='v' x='1' p:x='2' q:x='3'/>",
    "a name as prefix, element and attribute": "<p xmlns:p='u' p='1' p:p='2'><p:p/></p>",
    "a namespace that is normalised": "<a xmlns=' u\t&amp;\n&#65; '/>",
    "a namespace with a brace": "<a xmlns='{u'/>",
    "the same namespace on every element": "<a>" + "<b xmlns='u'><c/></b><b xmlns='v'><c/></b>" * 3 + "</a>",
    "the prefix xml": "<a xml:lang='en'><xml:b/></a>",
    "the prefix xml declared": f"<a xmlns:xml='{XML}' xml:lang='en'/>",
    "a prefix that begins with xml": "<a xmlns:xmlx='u' xmlnsx='v' xmlx:b=''/>",
    "the order of attributes": "<a z='1' y='2' xmlns:p='u' p:x='3' w='4'/>",
    "a deep message": "<a>" * 500 + "</a>" * 500,
    "a thousand attributes": "<a " + " ".join(f"b{i}='{i}'" for i in range(1000)) + "/>",
    "many declarations": "<a " + " ".join(f"xmlns:p{i}='u{i}'" for i in range(2000)) + "/>",
    "a long value": f"<a b='{'x' * 200_000}&amp;{'é' * 1000}'/>",
    "a long text": f"<a>{'x' * 200_000}\r\n{'é' * 1000}</a>",
    "text of every length": "<a>" + "".join(f"<b>{'t' * n}</b>" for n in range(70)) + "</a>",
}
"""messages that both readers read"""

UNUSUAL = {
    "a combining character in a name": "<a\u0301/>",
    "a letter of a rare alphabet": "<ก/>",
    "version 1.1": "<?xml version='1.1'?><a/>",
    "ISO-8859-1": b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9</a>",
    "UTF-16": "<a>é</a>".encode("utf-16"),
    "UTF-16, big-endian": "\ufeff<a>é</a>".encode("utf-16-be"),
    "UTF-16 without a mark": "<a>é</a>".encode("utf-16-le"),
    "US-ASCII after a byte order mark": "\ufeff<?xml version='1.0' encoding='US-ASCII'?><a/>",
}
"""messages that only expat reads"""

REFUSED = {
    "nothing": "",
    "white space alone": " \n",
    "a byte order mark alone": "\ufeff",
    "two byte order marks": "\ufeff\ufeff<a/>",
    "text alone": "x",
    "a comment alone": "<!-- c -->",
    "an XML declaration alone": "<?xml version='1.0'?>",
    "text before the root": "x<a/>",
    "text after the root": "<a/>x",
    "a reference after the root": "<a/>&amp;",
    "CDATA after the root": "<a/><![CDATA[x]]>",
    "CDATA before the root": "<![CDATA[x]]><a/>",
    "two roots": "<a/><b/>",
    "two roots with tags": "<a></a><b></b>",
    "an end tag after the root": "<a/></a>",
    "an end tag first": "</a><a/>",
    "no end tag": "<a><b></b>",
    "tags crossed": "<a><b></a></b>",
    "an end tag that is longer": "<a></ab>",
    "an end tag that is shorter": "<ab></a>",
    "an end tag with an attribute": "<a></a b='1'>",
    "an end tag with a slash": "<a></a/>",
    "an end tag with a space first": "<a></ a>",
    "an end tag of another prefix": "<p:a xmlns:p='u' xmlns:q='u'></q:a>",
    "a start tag with a space first": "< a/>",
    "a slash before a space": "<a/ >",
    "a slash among attributes": "<a / b='1'>",
    "an empty name": "<>x</>",
    "a name that begins with a digit": "<1a/>",
    "a name that begins with a hyphen": "<-a/>",
    "a name that begins with a full stop": "<.a/>",
    "a name with an invalid character": "<a$/>",
    "an attribute name that begins with a digit": "<a 1='x'/>",
    "a name with a multiplication sign": "<a×/>",
    "a name beyond the basic plane": "<\U00010400/>",
    "a less-than sign in a tag": "<a<b/>",
    "an attribute without a value": "<a b/>",
    "an attribute without quotes": "<a b=1/>",
    "an attribute without an equals sign": "<a b'1'/>",
    "an attribute that is not closed": "<a b='1/>",
    "mixed quotes": "<a b='1\"/>",
    "attributes without a space between": "<a b='1'c='2'/>",
    "a name and a value without a name": "<a ='1'/>",
    "a less-than sign in a value": "<a b='<'/>",
    "an ampersand in a value": "<a b='&'/>",
    "an ampersand in text": "<a>& b</a>",
    "an entity that nobody declares": "<a>&foo;</a>",
    "such an entity in a value": "<a b='&foo;'/>",
    "an entity in other letters": "<a>&LT;</a>",
    "a reference without a semicolon": "<a>&lt </a>",
    "a reference without a number": "<a>&#;</a>",
    "a reference without a hexadecimal number": "<a>&#x;</a>",
    "a reference with a capital X": "<a>&#X41;</a>",
    "a decimal reference with letters": "<a>&#4a;</a>",
    "a reference cut off": "<a>&#65",
    "a reference to zero": "<a>&#0;</a>",
    "a reference to a control": "<a>&#11;</a>",
    "a reference to a surrogate": "<a>&#xD800;</a>",
    "a reference to the last surrogate": "<a>&#xDFFF;</a>",
    "a reference to U+FFFE": "<a>&#xFFFE;</a>",
    "a reference to U+FFFF in a value": "<a b='&#65535;'/>",
    "a reference beyond Unicode": "<a>&#x110000;</a>",
    "a reference beyond 64 bits": "<a>&#x10000000000000041;</a>",
    "the end of CDATA in text": "<a>]]></a>",
    "the end of CDATA after text": "<a>x]]]></a>",
    "the end of CDATA after a long text": "<a>a text of many bytes]]> before and after the brackets</a>",
    "the end of CDATA after CDATA": "<a><![CDATA[x]]>]]></a>",
    "CDATA that is not closed": "<a><![CDATA[x]]</a>",
    "CDATA in other letters": "<a><![cdata[x]]></a>",
    "a comment with two hyphens": "<a><!-- -- --></a>",
    "a comment that ends in three hyphens": "<a><!-- --->x</a>",
    "a comment that is not closed": "<a><!-- -></a>",
    "a comment of three characters": "<a><!--></a>",
    "a comment of four characters": "<a><!---></a>",
    "a declaration in content": "<a><!x></a>",
    "an instruction without a name": "<a><? p?></a>",
    "an instruction that is not closed": "<a><?p x></a>",
    "an instruction with a question mark in its name": "<a><?p??></a>",
    "an instruction with a colon in its name": "<a><?p:q?></a>",
    "an instruction whose name begins with a digit": "<a><?1?></a>",
    "an instruction named XML": "<a><?XML?></a>",
    "an instruction named xMl": "<a><?xMl x?></a>",
    "an XML declaration in content": "<a><?xml version='1.0'?></a>",
    "an XML declaration after white space": " <?xml version='1.0'?><a/>",
    "an XML declaration after the root": "<a/><?xml version='1.0'?>",
    "two XML declarations": "<?xml version='1.0'?><?xml version='1.0'?><a/>",
    "an XML declaration without a version": "<?xml encoding='utf-8'?><a/>",
    "an empty XML declaration": "<?xml ?><a/>",
    "an XML declaration without spaces": "<?xml version='1.0'encoding='utf-8'?><a/>",
    "an XML declaration in another order": "<?xml version='1.0' standalone='yes' encoding='utf-8'?><a/>",
    "standalone otherwise": "<?xml version='1.0' standalone='maybe'?><a/>",
    "an XML declaration with another name": "<?xml version='1.0' x='y'?><a/>",
    "an XML declaration that is not closed": "<?xml version='1.0'><a/>",
    "UTF-16 that is UTF-8": "<?xml version='1.0' encoding='UTF-16'?><a/>",
    "US-ASCII that is none": "<?xml version='1.0' encoding='US-ASCII'?><a>é</a>",
    "a NUL in text": "<a>x\0y</a>",
    "a NUL in a name": "<a\0/>",
    "a NUL in a value": "<a b='\0'/>",
    "a NUL after the root": "<a/>\0",
    "a control in text": "<a>\x1f</a>",
    "a control in a value": "<a b='\x01'/>",
    "a control in a comment": "<a><!--\x08--></a>",
    "a control in CDATA": "<a><![CDATA[\x0b]]></a>",
    "a control in an instruction": "<a><?p \x0c?></a>",
    "U+FFFE in text": "<a>\ufffe</a>",
    "U+FFFF in a value": "<a b='\uffff'/>",
    "U+FFFF in a comment": "<a><!--\uffff--></a>",
    "a surrogate": b"<a>\xed\xa0\x80</a>",
    "not the shortest form of two bytes": b"<a>\xc0\x80</a>",
    "not the shortest form of three bytes": b"<a>\xe0\x9f\xbf</a>",
    "not the shortest form of four bytes": b"<a>\xf0\x8f\xbf\xbf</a>",
    "beyond Unicode": b"<a>\xf4\x90\x80\x80</a>",
    "a continuation byte": b"<a>\x80</a>",
    "a sequence cut off by markup": b"<a>\xe2\x82</a>",
    "a sequence cut off by the end": b"<a/><!--\xe2\x82",
    "a lead byte in a value": b"<a b='\xc3'/>",
    "Latin-1": b"<a>\xe9t\xe9</a>",
    "an attribute twice": "<a b='1' b='2'/>",
    "an attribute twice by two prefixes": "<a xmlns:p='u' xmlns:q='u' p:b='1' q:b='2'/>",
    "a prefix declared twice": "<a xmlns:p='u' xmlns:p='u'/>",
    "a default namespace declared twice": "<a xmlns='u' xmlns='v'/>",
    "a prefix that is not declared": "<p:a/>",
    "a prefix of an attribute that is not declared": "<a p:b='1'/>",
    "a prefix out of scope": "<a><b xmlns:p='u'/><p:b/></a>",
    "a prefix undeclared": "<a xmlns:p='u'><b xmlns:p=''/></a>",
    "two colons": "<a:b:c xmlns:a='u'/>",
    "two colons in an attribute": "<a xmlns:p='u' p:b:c=''/>",
    "a colon first": "<:a/>",
    "a colon last": "<a: xmlns:a='u'/>",
    "a colon alone": "<:/>",
    "a local name that begins with a digit": "<p:1 xmlns:p='u'/>",
    "a local name that begins with a hyphen": "<a xmlns:p='u' p:-b=''/>",
    "a declaration without a prefix": "<a xmlns:='u'/>",
    "the prefix xml for another namespace": "<a xmlns:xml='u'/>",
    "the prefix xml undeclared": "<a xmlns:xml=''/>",
    "the prefix xmlns declared": "<a xmlns:xmlns='u'/>",
    "the prefix xmlns declared as what it is": f"<a xmlns:xmlns='{XMLNS}'/>",
    "the prefix xmlns on an element": "<xmlns:a/>",
    "another prefix for xml's namespace": f"<a xmlns:p='{XML}'/>",
    "xml's namespace as default": f"<a xmlns='{XML}'/>",
    "a prefix for xmlns' namespace": f"<a xmlns:p='{XMLNS}'/>",
    "xmlns' namespace as default": f"<a xmlns='{XMLNS}'/>",
    "a namespace with the separator": "<a xmlns='a}b'/>",
    "a namespace with the separator as a reference": "<a xmlns:p='a&#125;b'/>",
}
"""messages that neither reader reads"""


def encoded(message: str | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.encode("utf-8", "surrogatepass")


# -- what is read and what is not ------------------------------------------------------------------------


@pytest.mark.parametrize("message", READ.values(), ids=READ.keys())
def test_both_readers_report_what_pyexpat_does(message: str) -> None:
    wanted = expat_events(encoded(message))
    assert isinstance(wanted, list)
    for reader in READERS:
        assert read_events(encoded(message), reader) == wanted


@pytest.mark.parametrize("message", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_tokenizer_leaves_to_expat_what_is_unusual(message: str | bytes) -> None:
    wanted = expat_events(encoded(message))
    assert isinstance(wanted, list)
    assert read_events(encoded(message), "expat") == wanted
    assert read_events(encoded(message), "tokenizer") == GAVE_UP


@pytest.mark.parametrize("message", REFUSED.values(), ids=REFUSED.keys())
def test_both_readers_refuse_what_pyexpat_does(message: str | bytes) -> None:
    assert expat_events(encoded(message)) == NOT_WELL_FORMED
    assert read_events(encoded(message), "expat") == NOT_WELL_FORMED
    assert read_events(encoded(message), "tokenizer") == GAVE_UP


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "utf-16"])
@pytest.mark.parametrize(
    "prolog", ["", " \n", "<!-- <a> --> ", "<?p <!DOCTYPE ?>", "<?xml version='1.0'?>\n<!--c--><?p?>"]
)
def test_a_doctype_is_told(prolog: str, encoding: str) -> None:
    bomb = "<!DOCTYPE a [<!ENTITY e 'eeeeeeeeee'><!ENTITY f '&e;&e;&e;&e;&e;&e;'>]><a>&f;&f;</a>"
    message = (prolog + bomb).encode(encoding)
    assert expat_events(message) == HAS_DOCTYPE
    assert read_events(message, "expat") == HAS_DOCTYPE
    assert read_events(message, "tokenizer") == GAVE_UP


@pytest.mark.parametrize("message", ["<a><!-- <!DOCTYPE b> --></a>", "<!-- <!DOCTYPE b> --><a/>"])
def test_what_looks_like_a_doctype_is_none(message: str) -> None:
    assert assert_alike(message.encode())


@pytest.mark.parametrize("encoding", ["windows-1252", "utf8", "koi8-r", "none-such"])
def test_an_encoding_that_expat_does_not_know_is_told(encoding: str) -> None:
    message = f"<?xml version='1.0' encoding='{encoding}'?><a/>".encode()
    assert read_events(message, "expat") == UNKNOWN_ENCODING
    assert read_events(message, "tokenizer") == GAVE_UP
    assert read_events(b"<a/>", "expat", encoding=encoding) == UNKNOWN_ENCODING


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1", "utf-16", "us-ascii"])
def test_an_encoding_overrides_what_is_declared(encoding: str) -> None:
    message = "<?xml version='1.0' encoding='windows-1252'?><a b='é'>é</a>".encode(encoding, "replace")
    wanted = expat_events(message, encoding)
    assert isinstance(wanted, list)
    assert read_events(message, "expat", encoding=encoding) == wanted


# -- limits ----------------------------------------------------------------------------------------------

AT_LIMIT = [
    ("<a><b><c/></b></a>", ReaderLimits(depth=3), ReaderLimits(depth=2)),
    ("<a><b><c></c></b></a>", ReaderLimits(depth=3), ReaderLimits(depth=2)),
    ("<a/>", ReaderLimits(depth=1), ReaderLimits(depth=0)),
    ("<a b='' c='' xmlns:d='u'/>", ReaderLimits(attributes=2), ReaderLimits(attributes=1)),
    ("<a><b c=''/></a>", ReaderLimits(attributes=1), ReaderLimits(attributes=0)),
    ("<abc/>", ReaderLimits(name_length=3), ReaderLimits(name_length=2)),
    ("<äöü/>", ReaderLimits(name_length=3), ReaderLimits(name_length=2)),
    ("<a 名前名=''/>", ReaderLimits(name_length=3), ReaderLimits(name_length=2)),
    ("<p:a xmlns:p='uri'/>", ReaderLimits(name_length=5), ReaderLimits(name_length=4)),
    ("<a xmlns='uri'/>", ReaderLimits(name_length=5), ReaderLimits(name_length=4)),
    ("<a xmlns:p='uri' p:b=''/>", ReaderLimits(name_length=5), ReaderLimits(name_length=4)),
    ("<a xmlns:p='üri'/>", ReaderLimits(name_length=3), ReaderLimits(name_length=2)),
    ("<a xmlns:prefix='u'/>", ReaderLimits(name_length=6), ReaderLimits(name_length=5)),
    ("<a><b xmlns='ü&#252;&#xfc;'/></a>", ReaderLimits(name_length=5), ReaderLimits(name_length=4)),
    ("<xml/>", ReaderLimits(name_length=3), ReaderLimits(name_length=2)),
    ("<a xml:b=''/>", ReaderLimits(name_length=38), ReaderLimits(name_length=37)),
    (f"<a xmlns:xml='{XML}'/>", ReaderLimits(name_length=36), ReaderLimits(name_length=35)),
    (f"<xml><a xmlns:xml='{XML}'/></xml>", ReaderLimits(name_length=36), ReaderLimits(name_length=35)),
]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("message", "enough", "too_little"), AT_LIMIT)
def test_limits_hold_exactly(
    message: str, enough: ReaderLimits, too_little: ReaderLimits, reader: ReaderName
) -> None:
    data = message.encode()
    for _ in range(2):  # names that are kept from the message before count, too
        assert read_events(data, reader, enough) == expat_events(data)
        assert read_events(data, reader, too_little) == LIMIT_EXCEEDED


def test_handlers_are_not_called_after_a_limit_and_reading_ends_soon() -> None:
    message = b"<a>" * 600 + b"<b/>" * 3_000_000
    took = {reader: cpu_seconds(lambda r=reader: read_events(message, r)) for reader in READERS}  # type: ignore[misc]
    assert max(took.values()) < 0.2, took
    assert read_events(message, "expat") == LIMIT_EXCEEDED


# -- every byte and every character ----------------------------------------------------------------------

HOLES = [
    "<a>~</a>", "<a>x~</a>", "<a>x~y</a>", "<a>plain text of many bytes~plain text of many bytes</a>",
    "<a>]~</a>", "<a>]]~</a>", "<a>&~;</a>", "<a>&#~;</a>", "<a>&#x~;</a>", "<a>&#6~;</a>", "<a>&lt~</a>",
    "<a b='~'/>", "<a b='x~y'/>", '<a b="~"/>', '<a b="a value of more than twenty bytes~"/>', "<a b=~'1'/>",
    "<a b~='1'/>", "<a b='1'~/>", "<a b='1'~c='2'/>", "<a ~b='1'/>", "<a ~='1'/>", "<a~/>", "<~/>", "<~a/>",
    "<a/~>", "<a/>~", "~<a/>", "<a></a~>", "<a></~a>", "<a><~/a></a>", "<a><!~-- --></a>", "<a><!--~--></a>",
    "<a><!-- -~-></a>", "<a><!-- --~></a>", "<a><!-- a comment of many bytes ~--></a>", "<a><?~?></a>",
    "<a><?p~?></a>", "<a><?p ~?></a>", "<a><?p ?~></a>", "<a><![CDATA[~]]></a>", "<a><![CDATA[]~]></a>",
    "<a><![CDATA[]]~></a>", "<a><![CDATA[many bytes, more than sixteen~]]></a>", "<a><![CDATA~[]]></a>",
    "<?xml~version='1.0'?><a/>", "<?xml version~='1.0'?><a/>", "<?xml version='1.~'?><a/>",
    "<?xml version='1.0'~?><a/>", "<?xml version='1.0' encoding='~TF-8'?><a/>", "<?xm~?><a/>",
    "<a xmlns='u~'/>", "<a xmlns:p='~'/>", "<a xmlns:~='u'/>", "<p~a xmlns:p='u'/>", "<p:~ xmlns:p='u'/>",
    "<p:a~ xmlns:p='u'/>", "<~:a xmlns:p='u'/>", "<a xml~ns='u'/>", "<a xmlns~='u'/>",
]  # fmt: skip


@pytest.mark.parametrize("hole", HOLES)
def test_every_byte_at_every_place(hole: str) -> None:
    before, _, after = hole.encode().partition(b"~")
    for byte in range(256):
        assert_alike(before + bytes((byte,)) + after)


def test_every_sequence_of_two_bytes_and_the_edges_of_longer_ones() -> None:
    edges = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBD, 0xBE, 0xBF, 0xC0, 0xFF)
    sequences = [bytes((first, second)) for first in range(0x80, 0x100) for second in range(256)]
    for first in range(0xE0, 0x100):
        for second in edges:
            sequences += [bytes((first, second, third)) for third in edges]
            sequences += [bytes((first, second, third, 0x80)) for third in edges]
            sequences += [bytes((first, second, 0x80, fourth)) for fourth in edges]
    for sequence in sequences:
        assert_alike(b"<a b='" + sequence + b"'>" + sequence + b"</a>")
        assert_alike(b"<a>" + sequence)


def test_no_character_of_a_name_is_taken_that_expat_refuses() -> None:
    """Of the letters beyond ASCII the tokeniser knows the common ones, and no others."""
    taken = 0
    for code in range(0x80, 0x10000):
        character = chr(code).encode("utf-8", "surrogatepass")
        for name in (character, b"a" + character):
            events = read_events(b"<" + name + b"/>", "tokenizer")
            if events != GAVE_UP:
                taken += 1
                assert events == expat_events(b"<" + name + b"/>"), hex(code)
    assert taken > 2 * 30_000


# -- one message after another ---------------------------------------------------------------------------


def test_what_a_message_leaves_behind_does_not_matter() -> None:
    bound = b"<a xmlns='u' xmlns:p='v'><p:b><c xmlns:q='w' d='1' d='2'"
    for message in (b"<p:b/>", b"<a><q:c/></a>"):
        assert read_events(bound + b"/></p:b></a>", "tokenizer") == GAVE_UP
        assert read_events(message, "tokenizer") == GAVE_UP
    for message in (b"<a/>", b"<a><c d='1'/></a>", b"<p:b xmlns:p='x'/>"):
        assert read_events(bound, "tokenizer") == GAVE_UP
        assert assert_alike(message)


@pytest.mark.skipif(SANITIZED, reason="ASan holds what was freed; passes with quarantine_size_mb=0")
@pytest.mark.parametrize("reader", READERS)
def test_names_without_end_do_not_fill_the_memory(reader: ReaderName) -> None:
    def read(first: int, last: int) -> None:
        for i in range(first, last):
            tags = b"".join(b"<name-%d-%d attribute-%d='1'/>" % (i, j, j) for j in range(2_000))
            assert isinstance(kernel.count_events(b"<a>" + tags + b"</a>", reader), tuple)

    read(0, 100)
    before = resident_bytes()
    read(100, 500)
    assert resident_bytes() - before < 20_000_000  # the names alone would be a hundred million


def resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except FileNotFoundError:
        pytest.skip("this system does not tell how much memory is resident")


@pytest.mark.parametrize("reader", READERS)
def test_symbols_are_kept_as_long_as_the_version_is_the_same(reader: ReaderName) -> None:
    def unresolved(message: bytes, **version: int) -> int:
        counts: tuple[int, ...] = kernel.count_events(message, reader, **version)
        return counts[-1]

    message = b"<a x='1' xmlns:p='u'><p:b x='2'/><p:b/><a/></a>"
    assert unresolved(message) == 3
    assert unresolved(message) == 3
    assert unresolved(message, version=1) == 3
    assert unresolved(message, version=1) == 0
    assert unresolved(b"<c x=''/>", version=1) == 1
    assert unresolved(message, version=2) == 3
    assert unresolved(message) == 3
    assert unresolved(message, version=2) == 3


def test_threads_read_at_once() -> None:
    messages = [
        b"<a xmlns='u%d'>" % i + b"".join(b"<b%d c='&lt;'>x\r\n</b%d>" % (j, j) for j in range(i)) + b"</a>"
        for i in range(40)
    ]
    wanted = [kernel.count_events(message, "expat") for message in messages]
    wrong: list[object] = []

    def read(seed: int) -> None:
        rng = Random(seed)
        for _ in range(300):
            i, reader = rng.randrange(len(messages)), rng.choice(READERS)
            counts = kernel.count_events(messages[i], reader, times=5)
            if counts != wanted[i]:
                wrong.append((reader, i, counts))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- hostile messages ------------------------------------------------------------------------------------

COLLIDING = 100_000
"""names that collide: some 50 ms if each is found at once, and seconds if they form one chain"""


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["hash of Java", "first and last bytes"])
def test_names_chosen_to_collide_cost_no_more_than_others(kind: str, reader: ReaderName) -> None:
    rng = Random(17)
    if kind == "hash of Java":  # "Aa" and "BB" have one hash, and so have all sequences of them
        bits = [f"{number:017b}" for number in rng.sample(range(1 << 17), COLLIDING)]
        colliding = [each.replace("0", "Aa").replace("1", "BB") for each in bits]
    else:  # what the places of recent names are chosen by
        colliding = [f"same-head{number:015}same-tail." for number in rng.sample(range(10**15), COLLIDING)]
    others = [f"n{rng.getrandbits(4 * len(name)):0{len(name)}x}"[: len(name)] for name in colliding]

    def seconds(chosen: list[str]) -> float:
        message = ("<a>" + "".join(f"<{name}/>" for name in chosen * 2) + "</a>").encode()
        assert isinstance(kernel.count_events(message, reader), tuple)
        return min(cpu_seconds(lambda: kernel.count_events(message, reader)) for _ in range(3))

    assert seconds(colliding) < 2 * seconds(others) + 0.01


def test_hostile_files_are_read_as_by_pyexpat() -> None:
    paths = [path for path in sorted(shared_data.folder("hostile").iterdir()) if path.is_file()]
    assert len(paths) > 20
    for path in paths:
        assert_alike(path.read_bytes())


@pytest.mark.parametrize("folder", ["bib", "iso20022", "nitf", "shakespeare", "ubl", "xmark"])
def test_real_messages_are_read_as_by_pyexpat(folder: str) -> None:
    messages = [path.read_bytes() for path in sorted(shared_data.folder(folder).rglob("*.xml"))]
    assert messages
    for message in messages:
        is_usual = isinstance(expat_events(message), list) and b"iso-8859-1" not in message[:100].lower()
        assert assert_alike(message) == is_usual
