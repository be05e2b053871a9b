"""Messages as XML allows them: encodings, text and what splits it, namespaces; and malformed ones.

Queries are asked twice, natively and in a form that lxml decides, and both answers must be lxml's own.
"""

from __future__ import annotations

import pickle

import pytest

from sapwood import Matcher, MessageError, SapwoodError
from tests.support.oracles.answers import answers, as_lxml_says

# -- encodings -------------------------------------------------------------------------------------------

BODY = "<a x='é'>Grüße, naïve café</a>"
WORLD = "<a x='é'>日本 €𝄞 naïve café</a>"
QUERIES = ["/a/@x[. = 'é']", "/a[contains(., 'café')]", "/a[@x='e']", "/a/text()[contains(., 'naïve')]"]


def declared(encoding: str, body: str) -> str:
    return f'<?xml version="1.0" encoding="{encoding}"?>{body}'


ENCODED = {
    "UTF-8 by default": BODY.encode(),
    "UTF-8 declared": declared("UTF-8", WORLD).encode(),
    "UTF-8 with a byte order mark": WORLD.encode("utf-8-sig"),
    "UTF-8 declared, with a byte order mark": declared("utf-8", WORLD).encode("utf-8-sig"),
    "UTF-16 LE with a byte order mark": b"\xff\xfe" + WORLD.encode("utf-16-le"),
    "UTF-16 BE with a byte order mark": b"\xfe\xff" + WORLD.encode("utf-16-be"),
    "UTF-16 LE declared, with a byte order mark": b"\xff\xfe" + declared("UTF-16", WORLD).encode("utf-16-le"),
    "UTF-16 BE declared, with a byte order mark": b"\xfe\xff" + declared("UTF-16", WORLD).encode("utf-16-be"),
    "UTF-16 LE declared, without a mark": declared("UTF-16LE", WORLD).encode("utf-16-le"),
    "UTF-16 BE declared, without a mark": declared("UTF-16BE", WORLD).encode("utf-16-be"),
    "Latin-1": declared("ISO-8859-1", BODY).encode("latin-1"),
    "Latin-1, spaced out": f"<?xml version='1.0' encoding = 'iso-8859-1' ?>{BODY}".encode("latin-1"),
    "Windows": declared("windows-1252", BODY).encode("cp1252"),
    "ASCII with character references": b"<a x='&#233;'>&#x65E5; na&#239;ve caf&#xE9;</a>",
}  # fmt: skip


@pytest.mark.parametrize("message", ENCODED.values(), ids=ENCODED.keys())
def test_encodings_as_xml_declares_them(message: bytes) -> None:
    assert answers(message, *QUERIES) == [True, True, False, True]
    as_lxml_says(message, *QUERIES)


@pytest.mark.parametrize(
    "message",
    [
        BODY,
        WORLD,
        "\ufeff" + WORLD,
        declared("UTF-8", WORLD),
        declared("UTF-16", WORLD),
        declared("ISO-8859-1", WORLD),
        declared("us-ascii", WORLD),
        "\ufeff" + declared("UTF-16", WORLD),
    ],
    ids=[
        "plain",
        "beyond Latin-1",
        "with a mark",
        "UTF-8",
        "UTF-16",
        "Latin-1",
        "ASCII",
        "UTF-16 with a mark",
    ],
)
def test_a_str_is_text_whatever_encoding_it_declares(message: str) -> None:
    assert answers(message, *QUERIES) == [True, True, False, True]


def test_all_kinds_of_bytes_are_taken() -> None:
    matcher = Matcher()
    matcher.add("q", "/a/b")
    data = b"<a><b/></a>"
    for message in (data, bytearray(data), memoryview(data), data.decode()):
        assert list(matcher.match(message)) == ["q"]


@pytest.mark.parametrize("message", [None, 7, ["<a/>"], object()])
def test_messages_of_other_types_are_type_errors(message: object) -> None:
    with pytest.raises(TypeError, match="bytes, str, "):
        Matcher().match(message)  # type: ignore[arg-type]


UNREADABLE = {
    "unknown": declared("nonsense", BODY).encode(),
    "not UTF-8 as declared": declared("UTF-8", BODY).encode("latin-1"),
    "not UTF-8": BODY.encode("latin-1"),
    "UTF-32": WORLD.encode("utf-32"),
    "bytes in the wrong order": b"\xff\xfe" + WORLD.encode("utf-16-be"),
    "cut short": b"\xff\xfe" + WORLD.encode("utf-16-le")[:-1],
    "several bytes a character": declared("Shift_JIS", "<a>日本</a>").encode("shift_jis"),
    "half a character": "<a>\ud800</a>",
    "half a character in bytes": b"<a>\xed\xa0\x80</a>",
    "half a character in a DOCTYPE": "<!DOCTYPE a [<!ENTITY e '\ud800'>]><a>&e;</a>",
}


@pytest.mark.parametrize("message", UNREADABLE.values(), ids=UNREADABLE.keys())
@pytest.mark.parametrize("query", ["/a", "/a[. = 'x']", "count(/a) * 1 = 1"])
def test_an_encoding_that_cannot_be_read_is_an_error_of_that_message(
    message: bytes | str, query: str
) -> None:
    matcher = Matcher()
    matcher.add("q", query)
    with pytest.raises(MessageError):
        matcher.match(message)
    assert len(matcher.match("<a>x</a>")) == 1


# -- text, and what splits it ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        "<a>ab</a>",
        "<a>a<!-- note -->b</a>",
        "<a>a<?do it?>b</a>",
        "<a>a<b/>b</a>",
        "<a><![CDATA[a]]>b</a>",
        "<a>a<![CDATA[]]>b</a>",
        "<a><![CDATA[a]]><![CDATA[b]]></a>",
        "<a><![CDATA[a]]><!-- note --><![CDATA[b]]></a>",
        "<a>a&#98;</a>",
        "<a>&#x61;b</a>",
        "<a><!-- note -->ab<!-- note --></a>",
        "<a>a<b>b</b></a>",
        "<!-- note --><a>ab</a><!-- note -->",
        "<?do it?><a>a<!---->b</a><?do it?>",
        "<a>" + "a" * 9_000 + "<!-- beyond the parser's buffer -->" + "b" * 70_000 + "</a>",
        "<a> </a>",
        "<a>\n</a>",
        "<a>\r\n\r</a>",
        "<a></a>",
        "<a/>",
        "<a><![CDATA[<b>&amp;]]></a>",
    ],
    ids=lambda message: message[:40],
)
def test_text_nodes_end_at_tags_comments_and_instructions_only(message: str) -> None:
    as_lxml_says(
        message,
        "/a/text()[. = 'ab']",
        "/a/text()[. = 'a']",
        "/a/text()[2]",
        "/a/text()[. = 'b'][2]",
        "/a[. = 'ab']",
        "/a[text() = 'ab']",
        "/a[text() = '\n']",
        "/a/text()[last() = 1]",
        "/a[contains(., '<b>&amp;')]",
        "/a/text()",
        "//comment()",
        "//processing-instruction('do')",
    )


def test_an_empty_cdata_section_is_no_text() -> None:
    """libxml2 makes an empty text node of it, which XPath's data model rules out."""
    matcher = Matcher()
    matcher.add_many(enumerate(["/a[text()]", "/a[not(text())]"]))
    assert list(matcher.match("<a><![CDATA[]]></a>")) == [1]


@pytest.mark.parametrize(
    "value", ["a\nb", "a\tb", "a\r\nb", "a&#10;b", "  a  b  ", "&lt;&amp;&quot;&gt;&apos;"]
)
def test_attribute_values_are_normalised_as_xml_says(value: str) -> None:
    as_lxml_says(
        f'<a x="{value}"/>',
        "/a[@x = 'a b']",
        "/a[@x = 'a\nb']",
        "/a[@x = 'a  b']",
        "/a[@x = '  a  b  ']",
        "/a[contains(@x, '<&\"')]",
    )


# -- namespaces ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        "<a/>",
        "<a xmlns='urn:p'/>",
        "<p:a xmlns:p='urn:p'/>",
        "<q:a xmlns:q='urn:p'/>",  # prefixes are the message's own affair
        "<p:a xmlns:p='urn:q'/>",
        "<a xmlns='urn:p'><b/><c xmlns=''><b/></c></a>",
        "<a xmlns='urn:p'><b xmlns='urn:q'><b/></b></a>",
        "<p:a xmlns:p='urn:p'><p:b xmlns:p='urn:q'/><p:b/></p:a>",
        "<a xmlns:p='urn:p' x='1' p:x='2'/>",
        "<a xmlns='urn:p' x='1'/>",  # a default namespace does not apply to attributes
        "<p:a xmlns:p='urn:p' x='1'/>",
        "<a xmlns:p='urn:p' xmlns:r='urn:p' r:x='2'><r:b/></a>",
        "<a xmlns='urn:P'/>",
        "<a xmlns:p='urn:p'><b xmlns:p='urn:p'><p:b/></b></a>",
        "<a xml:lang='en'><b xml:space='preserve'/></a>",
    ],
)
def test_namespaces(message: str) -> None:
    as_lxml_says(
        message,
        *("/a", "/p:a", "/q:a", "/p:*", "/*", "//b", "//p:b", "//q:b", "/p:a/p:b", "/p:a/q:b/q:b", "//q:*"),
        *("/a/@x", "/*/@x", "/*/@p:x", "/*/@p:*", "/*/@*", "/*[@x = 1]", "/*[@p:x = 2]", "//*[@xml:lang]"),
        *("//*[local-name() = 'b']", "//*[local-name() = 'b'][namespace-uri() = 'urn:q']", "//@xml:space"),
        *("//*[namespace-uri() = '']", "/*[namespace-uri() = 'urn:p']", "//b[lang('en')]", "//@xml:*"),
    )


def test_declarations_of_namespaces_are_no_attributes() -> None:
    assert answers("<a xmlns='urn:p' xmlns:q='urn:q'/>", "/p:a/@*", "//@*", "/p:a[not(@*)]") == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("uri", ["*", "**", "//", "text()", "urn:*", "@", ".", "a b", "%7D", "'\"", "é"])
def test_a_namespace_may_be_called_anything(uri: str) -> None:
    """No name is reserved: wildcards of ours do not stand for the namespaces of others."""
    matcher = Matcher({"n": uri})
    matcher.add("any", "//n:*")
    matcher.add("b", "/a/n:b")
    matcher.add("attribute", "//@n:x")
    matcher.add("plain", "//b")
    escaped = uri.replace("&", "&amp;").replace("'", "&apos;")
    assert list(matcher.match("<a><b x='1'/></a>")) == ["plain"]
    assert list(matcher.match(f"<a xmlns:m='{escaped}'><m:b x='1'/></a>")) == ["any", "b"]
    assert list(matcher.match(f"<a xmlns:m='{escaped}'><b m:x='1'/></a>")) == ["attribute", "plain"]
    assert list(matcher.match("<a xmlns:m='urn:other'><m:b m:x='1'/></a>")) == []


@pytest.mark.parametrize(
    "name", ["text", "comment", "node", "and", "or", "div", "mod", "not", "last", "self", "xmlns-x", "_", "é"]
)
def test_an_element_may_be_called_anything(name: str) -> None:
    """A query must not be lost because it uses a word that the language or the engine uses, too."""
    matcher = Matcher()
    matcher.add("element", f"/a/{name}")
    matcher.add("deep", f"//{name}[@{name} = '1']")
    matcher.add("attribute", f"//@{name}")
    matcher.add("value", f"/a[{name} = 'v']")
    message = f"<a><{name} {name}='1'>v</{name}></a>"
    assert list(matcher.match(message)) == ["element", "deep", "attribute", "value"]
    assert [n.index for n in matcher.select(message)["deep"]] == [2]


@pytest.mark.parametrize("id", ["", "0", 0, -1, None, ("a", 1), "id", "slots", "//", "//a", b"x", 1.5])
def test_a_subscription_may_be_called_anything(id: object) -> None:
    matcher = Matcher()
    matcher.add("neighbour", "/a/b")
    matcher.add(id, "/a")
    assert list(matcher.match("<a/>")) == [id]
    matcher.remove(id)
    assert list(matcher.match("<a/>")) == []


# -- malformed messages ----------------------------------------------------------------------------------

MALFORMED = [
    "",
    " ",
    "text",
    "<",
    "<a",
    "<a>",
    "</a>",
    "<a></b>",
    "<a/><b/>",
    "<a/>text",
    "<a x=1/>",
    "<a x/>",
    "<a x='1' x='2'/>",
    "<a x='1'y='2'/>",
    "<a>&undeclared;</a>",
    "<a x='&undeclared;'/>",
    "<a>&</a>",
    "<a>&#0;</a>",
    "<a>&#xFFFFFFFFF;</a>",
    "<a><</a>",
    "<a x='<'/>",
    "<a>]]></a>",
    "<a>\x00</a>",
    "<a>\x01</a>",
    "\x00",
    "<1/>",
    "<a><!-- -- --></a>",
    "<a><!-- ",
    "<a><![CDATA[</a>",
    "<a><?xml version='1.0'?></a>",
    " <?xml version='1.0'?><a/>",
    "<?xml version='1.0'?><?xml version='1.0'?><a/>",
    "<?xml?><a/>",
    "<p:a/>",
    "<a p:x='1'/>",
    "<a><p:b/></a>",
    "<a xmlns:p=''/>",
    "<a xmlns:p='u' xmlns:q='u' p:x='' q:x=''/>",
    "<a:b:c/>",
    "<a xmlns:xml='urn:x'/>",
    "<a xmlns:xmlns='urn:x'/>",
    "<!DOCTYPE a",
    "<!DOCTYPE a [",
    "<!DOCTYPE a [<!ENTITY e '<b>'>]><a>&e;</a>",
    "<!DOCTYPE a [<!ENTITY e '&e;'>]><a>&e;</a>",
    "<!DOCTYPE a [<!ENTITY e '&d;'>]><a>&e;</a>",
    "<!DOCTYPE a [<!ENTITY e '&d;'><!ENTITY d '&e;'>]><a x='&e;'/>",
    "<!DOCTYPE a [<!ENTITY e>]><a/>",
    "<!DOCTYPE a [<!ATTLIST a x>]><a/>",
    "<!DOCTYPE a [<!ATTLIST a x CDATA '&e;'>]><a/>",
    "<!DOCTYPE a [%p;]><a>&e;</a>",
    "<a/><!DOCTYPE a>",
    "<!DOCTYPE a><!DOCTYPE a><a/>",
    "<!doctype a><a/>",
    "<a>" * 10 + "</a>" * 9,
    "{'json': 1}",
]
POPULATIONS = {
    "plain paths": ["/a", "//b"],
    "values": ["/a[@x = '1' or not(@y)]", "//b[. = 'v']", "/a"],
    "refined": ["count(/a) * 1 = 1", "/a"],
}


@pytest.mark.parametrize("population", POPULATIONS.values(), ids=POPULATIONS.keys())
@pytest.mark.parametrize("message", MALFORMED, ids=ascii)
def test_a_malformed_message_is_refused_and_the_next_one_matches(message: str, population: list[str]) -> None:
    matcher = Matcher()
    matcher.add_many(enumerate(population))
    wanted = list(matcher.match("<a/>"))
    for attempt in (matcher.match, matcher.select, lambda message: matcher.why(0, message)):
        with pytest.raises(MessageError) as caught:
            attempt(message)
        assert caught.value.reason
        assert caught.value.line is not None
        assert caught.value.line >= 1
        assert caught.value.column is not None
        assert caught.value.column >= 1
        assert list(matcher.match("<a/>")) == wanted
        assert set(matcher.select("<a/>")) == set(wanted)


@pytest.mark.parametrize(
    ("message", "line", "column"),
    [
        ("<a></b>", 1, 6),
        ("<a>\n  <b></c>\n</a>", 2, 8),
        ("<a>\n<b>&x;</b></a>", 2, 4),
        ("<a>\r\n\r\n<b x='1' x='2'/></a>", 3, 10),
        ("<é>\n<b>&x;</b></é>", 2, 4),
    ],
)
def test_an_error_says_where(message: str, line: int, column: int) -> None:
    for encoded in (message, message.encode("utf-16")):
        with pytest.raises(MessageError) as caught:
            Matcher().match(encoded)
        assert (caught.value.line, caught.value.column) == (line, column)
        assert str(caught.value).startswith(f"line {line}, column {column}: ")


def test_the_error_is_a_value_error_and_can_be_pickled() -> None:
    with pytest.raises(MessageError) as caught:
        Matcher().match("<a>")
    assert isinstance(caught.value, SapwoodError)
    assert isinstance(caught.value, ValueError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.reason, again.line, again.column) == (
        caught.value.reason,
        caught.value.line,
        caught.value.column,
    )


def test_one_bad_message_in_a_stream_is_that_messages_affair() -> None:
    matcher = Matcher()
    matcher.add("q", "/a[@x = 1]")
    found = []
    for message in ["<a x='1'/>", "<a x='1'>", "<a x='2'/>", "<a x='1'/>"]:
        try:
            found.append(len(matcher.match(message)))
        except MessageError:
            found.append(-1)
    assert found == [1, -1, 0, 1]


def test_match_many_goes_on_after_an_error_when_asked_again() -> None:
    matcher = Matcher()
    matcher.add("q", "/a")
    messages = iter(["<a/>", "<b/>", "<a>", "<a/>"])
    stream = matcher.match_many(messages)
    assert [len(next(stream)), len(next(stream))] == [1, 0]
    with pytest.raises(MessageError):
        next(stream)
    assert [len(matches) for matches in matcher.match_many(messages)] == [1]
