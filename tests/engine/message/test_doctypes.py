"""Document type declarations: entities and default attributes, and external parts that are not read."""

from __future__ import annotations

import pytest

from sapwood import Matcher, MessageError
from tests.support.oracles import lxml_oracle
from tests.support.oracles.answers import NAMESPACES, answers, as_lxml_says

DOCTYPES = {
    "empty": "<!DOCTYPE a><a>v</a>",
    "no declarations": "<!DOCTYPE a []><a>v</a>",
    "elements": "<!DOCTYPE a [<!ELEMENT a (#PCDATA|b)*><!ELEMENT b EMPTY>]><a>v<b/></a>",
    "comments": "<!DOCTYPE a [<!-- <!ENTITY e 'w'> --><?do it?><!ENTITY e 'v'>]><a>&e;</a>",
    "an entity": "<!DOCTYPE a [<!ENTITY e 'v'>]><a>&e;</a>",
    "an entity never used": "<!DOCTYPE a [<!ENTITY e 'v'>]><a>v</a>",
    "an entity in text": "<!DOCTYPE a [<!ENTITY e 'v'>]><a>x&e;y</a>",
    "an entity in an attribute": "<!DOCTYPE a [<!ENTITY e 'v'>]><a x='&e;'/>",
    "entities in entities": "<!DOCTYPE a [<!ENTITY d 'v'><!ENTITY e '&d;&d;'>]><a>&e;</a>",
    "an entity with elements": "<!DOCTYPE a [<!ENTITY e '<b x=\"v\">v</b>'>]><a>&e;<b/>&e;</a>",
    "an entity with a comment": "<!DOCTYPE a [<!ENTITY e 'v<!--n-->w'>]><a>&e;</a>",
    "an entity of character references": "<!DOCTYPE a [<!ENTITY e '&#38;#60;b/>'>]><a>&e;</a>",
    "an entity declared twice": "<!DOCTYPE a [<!ENTITY e 'v'><!ENTITY e 'w'>]><a>&e;</a>",
    "an entity before its parts": "<!DOCTYPE a [<!ENTITY e '&d;'><!ENTITY d 'v'>]><a>&e;</a>",
    "predefined entities, declared": "<!DOCTYPE a [<!ENTITY lt '&#38;#60;'>]><a>&lt;v</a>",
    "an unparsed entity": "<!DOCTYPE a [<!NOTATION n SYSTEM 'n'><!ENTITY e SYSTEM 'e' NDATA n>]><a>v</a>",
    "a default": "<!DOCTYPE a [<!ATTLIST a x CDATA 'v'>]><a/>",
    "a default overridden": "<!DOCTYPE a [<!ATTLIST a x CDATA 'v'>]><a x='w'/>",
    "a fixed attribute": "<!DOCTYPE a [<!ATTLIST a x CDATA #FIXED 'v'>]><a/>",
    "a default of many": "<!DOCTYPE a [<!ATTLIST b x CDATA 'v' y CDATA #IMPLIED>]><a><b/><b x='w'/></a>",
    "a default with an entity": "<!DOCTYPE a [<!ENTITY e 'v'><!ATTLIST a x CDATA '&e;'>]><a/>",
    "a default namespace": "<!DOCTYPE a [<!ATTLIST b xmlns CDATA 'urn:p'>]><a><b>v</b></a>",
    "a default prefix": "<!DOCTYPE a [<!ATTLIST a xmlns:p CDATA 'urn:p' p:x CDATA 'v'>]><a/>",
    "tokens": "<!DOCTYPE a [<!ATTLIST a x NMTOKENS #IMPLIED>]><a x='  v   w '/>",
    "an id": "<!DOCTYPE a [<!ATTLIST b x ID #IMPLIED>]><a><b x='v'/></a>",
    "a choice": "<!DOCTYPE a [<!ATTLIST a x (u|v) 'v'>]><a/>",
    "parameter entities": "<!DOCTYPE a [<!ENTITY % p \"<!ENTITY e 'v'>\"> %p;]><a>&e;</a>",
    "a default in a parameter entity": "<!DOCTYPE a [<!ENTITY % p \"<!ATTLIST a x CDATA 'v'>\"> %p;]><a/>",
    "standalone": "<?xml version='1.0' standalone='yes'?><!DOCTYPE a [<!ENTITY e 'v'>]><a>&e;</a>",
}
DTD_QUERIES = [
    "/a[. = 'v']",
    "/a[. = 'xvy']",
    "/a[text() = 'xvy']",
    "/a/text()[2]",
    "/a[contains(., '<')]",
    "/a[@x = 'v']",
    "/a[@x = 'v w']",
    "//b[@x = 'v']",
    "//b[1][@x = 'w']",
    "/a/@x",
    "/a/b[2]",
    "/a/b[3]",
    "/a/@p:x",
    "//p:b",
    "//*[@y]",
    "id('v')",
]


@pytest.mark.parametrize("message", DOCTYPES.values(), ids=DOCTYPES.keys())
def test_an_internal_subset_counts(message: str) -> None:
    as_lxml_says(message, *DTD_QUERIES)


@pytest.mark.parametrize("message", DOCTYPES.values(), ids=DOCTYPES.keys())
def test_an_internal_subset_counts_in_utf_16_as_well(message: str) -> None:
    plain, wide = (answers(encoded, *DTD_QUERIES) for encoded in (message, message.encode("utf-16")))
    assert wide == plain


@pytest.mark.parametrize("around", ["<!--c-->", "<?do it?>", "<!--c--><?do it?><!--d-->"])
@pytest.mark.parametrize("doctype", ["", "<!DOCTYPE a>", "<!DOCTYPE a [<!ENTITY e 'v'>]>"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_comments_and_instructions_around_the_root_count(around: str, doctype: str, encoding: str) -> None:
    as_lxml_says(
        f"{around}{doctype}{around}<a>v{around}w</a>{around}".encode(encoding),
        *(
            "/comment()",
            "/comment()[2]",
            "/processing-instruction('do')",
            "//comment()[. = 'd']",
            "/node()[1]",
        ),
        *(
            "/a/preceding-sibling::comment()",
            "/a/following::node()",
            "/a/text()[2]",
            "/node()[last()]/self::a",
        ),
    )


@pytest.mark.parametrize("doctype", ["", "<!DOCTYPE a>", "<!DOCTYPE a [<!ATTLIST a y CDATA '1'>]>"])
@pytest.mark.parametrize(
    "body",
    [
        "<a xmlns:p='urn:p'><p:b p:x='1'/></a>",
        "<p:a xmlns:p='urn:p' xmlns:q='urn:p' q:x='1'><q:b/><p:b/></p:a>",
        "<a xmlns='urn:p'><b xmlns=''/><b/></a>",
        "<a xmlns='urn:p'><p:b xmlns:p='urn:p'/></a>",
        "<a><b xml:lang='en' xml:space='preserve'/></a>",
    ],
)
def test_prefixes_are_the_messages_own_where_a_query_asks_for_them(body: str, doctype: str) -> None:
    as_lxml_says(
        doctype + body,
        *("//*[name() = 'p:b']", "//*[name() = 'q:b']", "//*[name() = 'b']", "//@*[name() = 'q:x']"),
        *(
            "//@*[name() = 'p:x']",
            "//*[starts-with(name(), 'p:')]",
            "//b[lang('en')]",
            "//@*[name() = 'xml:lang']",
        ),
        *("/*[count(namespace::*) = 2]", "/*[count(namespace::*) = 3]", "//*/namespace::p", "/*[@y = 1]"),
    )


@pytest.mark.parametrize("message", DOCTYPES.values(), ids=DOCTYPES.keys())
def test_plain_paths_see_an_internal_subset_as_well(message: str) -> None:
    """A population of plain paths is matched by a reader of its own."""
    matcher = Matcher(NAMESPACES)
    queries = ["/a/b", "//b", "//p:b", "/*"]
    matcher.add_many(enumerate(queries))
    tree = lxml_oracle.parse(message, defaults=True)
    assert list(matcher.match(message)) == [
        i for i, q in enumerate(queries) if lxml_oracle.matches(tree, q, NAMESPACES)
    ]


@pytest.mark.parametrize("population", [["/a"], ["/a[@x = 'vw']"], ["count(/a) * 1 = 1"]], ids=str)
@pytest.mark.parametrize("body", ["<a>v&e;w</a>", "<a x='v&e;w'/>", "<a>v<b x='&e;'/>w</a>"])
@pytest.mark.parametrize(
    "doctype", ['<!DOCTYPE a SYSTEM "a.dtd">', '<!DOCTYPE a SYSTEM "a.dtd" [<!ENTITY f "v">]>']
)
def test_an_entity_that_only_an_external_subset_may_declare_is_refused(
    doctype: str, body: str, population: list[str]
) -> None:
    """Nothing external is read, and a value with a hole in it would be a wrong value."""
    matcher = Matcher()
    matcher.add_many(enumerate(population))
    with pytest.raises(MessageError):
        matcher.match(doctype + body)
