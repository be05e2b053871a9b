"""expat decides what a message is; where libxml2 reads it differently, fallback queries match alike.

Native queries are the oracle: they read what expat tells.
"""

from __future__ import annotations

from random import Random

import pytest
from lxml import etree

from sapwood import Broker, Matcher, MessageError
from tests.support.generators.disagreements import random_disagreement

TWINS = {
    "//*": "//*[count(.) = 1]",
    "//@*": "//@*[count(..) = 1]",
    "//text()": "//text()[count(.) = 1]",
    "//b": "//b[count(.) * 1 = 1]",
    "//b/@d": "//b/@d[string-length(.) >= 0]",
    "/a/b": "/a/b[count(..) = 1]",
}
"""native queries, and refined ones that select the same"""
OTHERS = ["//b/preceding::text()", "//b/preceding::node()", "//namespace::*", "//comment()[count(.) = 1]"]
OTHERS += [
    "//processing-instruction()[count(.) = 1]",
    "/node()[count(.) = 1]",
    "//a/following::node()",
    "id('x')",
]

MENDED = {
    "a repeated xml:id": b"<a><b xml:id='x'/><c xml:id='x'/></a>",
    "an empty xml:id": b"<a><b xml:id=''/></a>",
    "an xml:id that is no name": b"<a><b xml:id='1 2'/></a>",
    "a repeated id": b"<!DOCTYPE a [<!ATTLIST b i ID #IMPLIED>]><a><b i='1'/><b i='1'/></a>",
    "a namespace that is no URI": b"<a xmlns='x y'><b xmlns=''/></a>",
    "a relative namespace": b"<a xmlns:p='../x'><b/></a>",
    "cp437": "<?xml version='1.0' encoding='cp437'?><a><b>é</b></a>".encode("cp437"),
    "mac-roman": "<?xml version='1.0' encoding='mac-roman'?><a><b>é</b></a>".encode("mac-roman"),
    "koi8_r": "<?xml version='1.0' encoding='koi8_r'?><a><b>Я</b></a>".encode("koi8_r"),
    "an internal subset": b"<!DOCTYPE a [<!ENTITY e 'in the type'>]><a>x<b/></a>",
    "a parameter entity": (
        b"<?xml version='1.0' standalone='yes'?>"
        b"<!DOCTYPE a [<!ENTITY % p \"<!ATTLIST b d CDATA 'dd'>\">%p;]><a><b k='1'/></a>"
    ),
}


def is_answered_alike(matcher: Matcher, message: bytes) -> bool:
    """Asserts that refined queries select what their native twins do; False if expat refuses the message."""
    try:
        selected = matcher.select(message)
    except MessageError:
        return False
    assert selected.undecided == (), message
    for native, refined in TWINS.items():
        assert selected.get(native) == selected.get(refined), message
    return True


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return asked()


def asked() -> Matcher:
    """A matcher of all the queries."""
    matcher = Matcher()
    for native, refined in TWINS.items():
        matcher.add(native, native)
        matcher.add(refined, refined)
    matcher.add_many((query, query) for query in OTHERS)
    return matcher


def refused_by_libxml2(message: bytes) -> bool:
    try:
        etree.fromstring(message, etree.XMLParser(attribute_defaults=True, no_network=True))
        return False
    except etree.XMLSyntaxError:
        return True


@pytest.mark.parametrize("message", MENDED.values(), ids=MENDED.keys())
def test_a_message_that_libxml2_refuses_or_reads_otherwise(matcher: Matcher, message: bytes) -> None:
    matches, selected = matcher.match(message), matcher.select(message)
    assert (matches.undecided, selected.undecided) == ((), ())
    for native, refined in TWINS.items():
        assert selected.get(native) == selected.get(refined)
    assert set(selected) == set(matches) >= {"//b", "//b[count(.) * 1 = 1]"}


def test_messages_that_expat_accepts_get_the_same_answers_from_lxml(matcher: Matcher) -> None:
    accepted = refused = 0
    for seed in range(1_500):
        message = random_disagreement(Random(seed))
        if is_answered_alike(matcher, message):
            accepted += 1
            refused += refused_by_libxml2(message)
    assert accepted > 500
    assert refused > 200


def test_the_document_type_is_no_node(matcher: Matcher) -> None:
    message = "<!DOCTYPE a [<!ENTITY e 'text'><!--comment--><?in it?>]><!--c--><a>x<b/></a>"
    selected = matcher.select(message)
    assert [node.value for node in selected["//b/preceding::text()"]] == ["x"]
    assert [node.kind for node in selected["//b/preceding::node()"]] == ["comment", "text"]
    assert [node.value for node in selected["//comment()[count(.) = 1]"]] == ["c"]


def test_ids_of_the_document_type_are_found() -> None:
    matcher = Matcher()
    matcher.add("q", "id('x')[count(.) = 1]")
    message = "<!DOCTYPE a [<!ATTLIST b i ID #IMPLIED><!ENTITY e 'x'>]><a><b i='&e;'/></a>"
    assert [node.xml for node in matcher.select(message)["q"]] == ['<b i="x"/>']


def test_transformations_of_a_message_that_libxml2_refuses() -> None:
    broker = Broker()
    broker.subscribe("lxml", "for $x in //b where count($x/@*) = 1 return <r>{$x}</r>")
    broker.subscribe("native", "for $x in //b return <r>{$x}</r>")
    message = "<!DOCTYPE a [<!ENTITY e 'v'>]><a xmlns:p='x y'><b xml:id='1'>&e;</b><c xml:id='1'/></a>"
    deliveries = broker.publish(message)
    assert [(d.subscription, d.body) for d in deliveries] == [
        (id, b'<r><b xml:id="1">v</b></r>') for id in ("lxml", "native")
    ]
    assert deliveries.failures == []
