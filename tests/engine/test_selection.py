"""`select`: the nodes of each query in document order, each with its index, kind, value and source."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from sapwood import Matcher, Node
from sapwood.engine.fallback.lxml_process import without_doctype
from sapwood.engine.message import entity_expansion
from tests.support.oracles import lxml_oracle

NAMESPACES = {"p": "urn:p"}


def select(query: str, message: str | bytes) -> list[Node]:
    """The nodes that one query selects."""
    matcher = Matcher(NAMESPACES)
    matcher.add("q", query)
    return matcher.select(message).get("q", [])


def slices(query: str, message: str | bytes) -> list[str]:
    return [node.xml for node in select(query, message)]


# -- kinds of nodes --------------------------------------------------------------------------------------

MESSAGE = (
    '<?xml version="1.0"?><!--before--><r xmlns:p="urn:p"><a x="1" p:y="2">one<b>two</b>three</a>'
    "<!--note--><?do it?><p:c/>tail</r>"
)


def test_an_element() -> None:
    assert select("/r/a", MESSAGE) == [
        Node(2, "element", "onetwothree", '<a x="1" p:y="2">one<b>two</b>three</a>', "a")
    ]


def test_an_element_with_a_namespace() -> None:
    assert select("//p:c", MESSAGE) == [Node(4, "element", "", "<p:c/>", "{urn:p}c")]


def test_an_attribute_has_the_index_of_its_element() -> None:
    assert select("//@x", MESSAGE) == [Node(2, "attribute", "1", 'x="1"', "x")]


def test_an_attribute_with_a_namespace() -> None:
    (node,) = select("//@p:y", MESSAGE)
    assert (node.index, node.kind, node.value, node.name) == (2, "attribute", "2", "{urn:p}y")


def test_text_has_the_index_of_its_element() -> None:
    assert select("//text()", MESSAGE) == [
        Node(2, "text", "one", "one"),
        Node(3, "text", "two", "two"),
        Node(2, "text", "three", "three"),
        Node(1, "text", "tail", "tail"),
    ]


def test_the_document() -> None:
    assert select("/", MESSAGE) == [Node(0, "document", "onetwothreetail", MESSAGE)]


def test_comments_and_instructions() -> None:
    assert select("//comment()", MESSAGE) == [
        Node(0, "comment", "before", "<!--before-->"),
        Node(1, "comment", "note", "<!--note-->"),
    ]
    assert select("//processing-instruction()", MESSAGE) == [
        Node(1, "processing-instruction", "it", "<?do it?>")
    ]


@pytest.mark.parametrize(
    ("query", "kind", "value"),
    [
        ("count(//a)", "number", "1"),
        ("string(//b)", "string", "two"),
        ("concat(//@x, '-', //b)", "string", "1-two"),
        ("//a = 'onetwothree'", "boolean", "true"),
        ("not(//none)", "boolean", "true"),
        ("count(//a) = 1", "boolean", "true"),
        ("1 div 0", "number", "Infinity"),
        ("-1 div 0", "number", "-Infinity"),
        ("1 + 1", "number", "2"),
        ("1.50 * 1", "number", "1.5"),
        ("10 div 0.0001", "number", "100000"),
        ("-2.5", "number", "-2.5"),
    ],
)
def test_a_query_that_is_no_path_selects_one_value(query: str, kind: str, value: str) -> None:
    assert select(query, MESSAGE) == [Node(0, kind, value, "")]


@pytest.mark.parametrize(
    "expression",
    [
        "1 div 3",
        "0.1 + 0.2",
        "1000000 * 1000000",
        "123456789012345678",
        "0.00001",
        "1e-7 * 1",
        "1e20",
        "sum(//n)",
    ],
)
def test_a_number_is_written_as_xpath_writes_it(expression: str) -> None:
    """In decimals, never with an exponent, and with all the digits that tell it from other numbers."""
    message = "<r><n>0.7</n><n>0.1</n><n>19.99</n></r>"
    (number,) = select(expression, message)
    assert re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", number.value)
    assert float(number.value) == lxml_oracle.compiled(expression)(lxml_oracle.parse(message))


def test_a_query_that_does_not_match_is_not_in_the_result() -> None:
    matcher = Matcher()
    matcher.add_many(
        [("a", "//a"), ("none", "//none"), ("false", "count(//a) = 7"), ("empty", "string(//none)")]
    )
    assert list(matcher.select(MESSAGE)) == ["a"]


# -- order -----------------------------------------------------------------------------------------------


def test_results_come_in_the_order_added_and_nodes_in_document_order() -> None:
    matcher = Matcher()
    matcher.add_many([("z", "//b | //a"), ("y", "//a"), ("x", "//a//b | //b"), ("w", "//a")])
    found = matcher.select("<a><b/><a><b/></a></a>")
    assert list(found) == ["z", "y", "x", "w"]
    assert {id: [node.index for node in nodes] for id, nodes in found.items()} == {
        "z": [1, 2, 3, 4],
        "y": [1, 3],
        "x": [2, 4],
        "w": [1, 3],
    }


@pytest.mark.parametrize(
    "query",
    [
        "//node()",
        "//@* | //text() | //*",
        "//text() | //comment()",
        "//a/following::node()",
        "//b/ancestor::*",
        "//a | //a/@x | //a/text()",
        "(//b | //a)[last()]",
        "//a[@x]/.. | //b",
        "//b/preceding::text()",
        "//@x/..",
        "//text()/..",
        "/r/node()[2]",
        "//processing-instruction() | //b",
        "//*/@*",
        "//a//text()",
        "//a/text()[2]",
    ],
)
def test_all_kinds_together_come_in_document_order(query: str) -> None:
    message = '<r x="0">1<a x="1" y="2">2<b>3</b><!--c-->4<a x="3"><b x="4"/>5</a></a><?do it?>6<b>7</b></r>'
    found = [(node.index, node.kind, node.value) for node in select(query, message)]
    assert found == lxml_oracle.selected(lxml_oracle.parse(message), query)


# -- slices of the source --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "element",
    [
        "<a/>",
        "<a />",
        "<a></a>",
        "<a ></a >",
        "<a\n/>",
        "<a>text</a>",
        "<a>x > y</a>",
        "<a x='>'/>",
        "<a x='/>'></a>",
        '<a x="/>"/>',
        "<a x=\">\" y='</a>'>x</a>".replace("</a>'", "&lt;/a>'"),
        "<a><b/></a>",
        "<a><b></b></a>",
        "<a><b/>x</a>",
        "<a>x<b/></a>",
        "<a><b><c/></b><b/></a>",
        "<a><!--</a>--></a>",
        "<a><!-- /> --></a>",
        "<a><?do </a> ?></a>",
        "<a><?do />?></a>",
        "<a><![CDATA[</a>]]></a>",
        "<a><![CDATA[]]></a>",
        "<a>]]&gt;</a>",
        "<a>&lt;&amp;&#x3e;&#233;</a>",
        "<a x='&quot;&#10;'/>",
        "<a\n  x = '1'\n  y\t=\t'2'\n>\r\n</a\n>",
        "<a>é€𝄞</a>",
        "<a x='é€𝄞'/>",
        "<é><a>é</a></é>",
        "<a xmlns='urn:x'><b xmlns=''/></a>",
        "<p:a xmlns:p='urn:p'/>",
    ],
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<r>", "</r>"),
        ("<r>é€𝄞<x>é</x>", "<x/>𝄞</r>"),
        ('<?xml version="1.0"?>\n<!--é--><?do é?>\n<r x="é/>">', "</r>\n<!--é-->"),
        ("<!DOCTYPE r [<!ELEMENT r ANY><!--é-->]><r>", "</r>"),
        ("<r>" + "<x/>" * 3_000, "<x/></r>"),
    ],
    ids=["alone", "between", "prolog", "doctype", "far in"],
)
def test_an_element_is_shown_as_it_stands_in_the_message(element: str, before: str, after: str) -> None:
    message = before + element + after
    (node,) = select("/r/*[local-name() = 'a' or local-name() = 'é']", message)
    assert node.xml == element
    for encoded in (
        message.encode(),
        message.encode("utf-16"),
        "\ufeff" + message,
        message.encode("utf-8-sig"),
    ):
        assert slices("/r/*[local-name() = 'a' or local-name() = 'é']", encoded) == [element]


def test_every_element_of_a_nest_is_shown() -> None:
    message = "<a>1<a>2<a/>3</a>4<a></a>5</a>"
    assert slices("//a", message) == [message, "<a>2<a/>3</a>", "<a/>", "<a></a>"]


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE", "UTF-16BE", "ISO-8859-1", "UTF-8", "cp1252"])
def test_slices_are_text_whatever_the_encoding(encoding: str) -> None:
    message = f'<?xml version="1.0" encoding="{encoding}"?><r>é<a x="é">naïve</a>é</r>'
    assert slices("//a", message.encode(encoding)) == ['<a x="é">naïve</a>']
    assert slices("//a", message) == ['<a x="é">naïve</a>']
    assert slices("//a/..", message.encode(encoding)) == ['<r>é<a x="é">naïve</a>é</r>']


def test_refined_queries_show_slices_as_well() -> None:
    message = "<r><a ><b/></a ><a ><c/></a ></r>"
    assert slices("//b/..", message) == ["<a ><b/></a >"]
    assert slices("//c/ancestor::a | //b", message) == ["<b/>", "<a ><c/></a >"]


def test_where_entities_are_expanded_elements_are_written_anew() -> None:
    """An element may then come from a declaration: there is no slice of the message to show."""
    doctype = "<!DOCTYPE r [<!ENTITY e '<a x=\"1\">v</a>'><!ENTITY t 'text'>]>"
    assert slices("//a", doctype + "<r>&e;<a>&t;</a><a/></r>") == ['<a x="1">v</a>', "<a>text</a>", "<a/>"]
    (root,) = select("/r", doctype + "<r>&e;<b/></r>")
    assert (root.value, root.xml) == ("v", '<r><a x="1">v</a><b/></r>')
    assert [(n.index, n.value) for n in select("//a", doctype + "<r>&e;<b/>&e;</r>")] == [(2, "v"), (4, "v")]


def test_refined_queries_select_in_a_message_with_entities() -> None:
    """In a process of its own: threads that wait for each other would wait for ever."""
    code = """if True:
        from sapwood import Matcher
        with Matcher() as matcher:
            matcher.add_many([(1, "//b/.."), (2, "//b"), (3, "//b/parent::*/@x | //b/following::c")])
            found = matcher.select("<!DOCTYPE a [<!ENTITY e 'v'>]><a x='&e;'><b>&e;</b><c/></a>")
            print({id: [node.xml for node in nodes] for id, nodes in found.items()})
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=15)
    assert (
        done.stdout == str({1: ['<a x="v"><b>v</b><c/></a>'], 2: ["<b>v</b>"], 3: ['x="v"', "<c/>"]}) + "\n"
    ), done.stderr


def test_selecting_many_elements_of_a_message_with_entities_reads_it_a_few_times_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = [0]

    def counted(data: bytes, ids: bool) -> bytes:
        times[0] += 1
        return without_doctype(data, ids)

    monkeypatch.setattr(entity_expansion, "without_doctype", counted)
    message = f"<!DOCTYPE r [<!ENTITY e 'v'>]><r>{'<a>&e;</a>' * 50}</r>"
    assert slices("//a", message) == ["<a>v</a>"] * 50
    assert times[0] == 1


def test_text_and_attributes_are_written_so_that_they_can_be_put_in_xml_again() -> None:
    message = "<a x='&lt;&quot;&amp;'>1 &lt; 2 &amp; <![CDATA[<3>]]></a>"
    (text,) = select("/a/text()", message)
    assert text.value == "1 < 2 & <3>"
    assert lxml_oracle.parse(f"<a>{text.xml}</a>").getroot().text == text.value
    (attribute,) = select("/a/@x", message)
    assert attribute.value == '<"&'
    assert lxml_oracle.parse(f"<a {attribute.xml}/>").getroot().get("x") == attribute.value


def test_an_attribute_with_a_namespace_is_written_with_its_prefix() -> None:
    (attribute,) = select("//@p:y", MESSAGE)
    assert attribute.xml == 'p:y="2"'


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ("<a x='1'/>", ["x='1'"]),
        ('<a\n  x = "1"\n/>', ['x = "1"']),
        ("""<a y="x='2'" x='1' z="&gt;"/>""", ["""y="x='2'\"""", "x='1'", 'z="&gt;"']),
        ("<a z='/>' x='1'></a>", ["z='/>'", "x='1'"]),
        ("<a xmlns:p='urn:p' p:x='2' xmlns='urn:p' x='1'/>", ["p:x='2'", "x='1'"]),
        ("<a xmlns-x='2' xmlnsx='3' x='1'/>", ["xmlns-x='2'", "xmlnsx='3'", "x='1'"]),
        ("<a é='é𝄞' x='1'/>", ["é='é𝄞'", "x='1'"]),
    ],
)
@pytest.mark.parametrize("query", ["//@*", "//@*[count(..) * 1 = 1]"], ids=["native", "refined"])
def test_attributes_are_shown_as_they_stand_in_the_message(
    message: str, written: list[str], query: str
) -> None:
    assert slices(query, message) == written
    assert slices(query, message.encode("utf-16")) == written


def test_an_attribute_that_a_doctype_supplies_is_shown_as_well() -> None:
    message = "<!DOCTYPE a [<!ATTLIST a x CDATA '1' y CDATA '&#60;'>]><a z='3'/>"
    assert [(n.name, n.value) for n in select("//@*", message)] == [("z", "3"), ("x", "1"), ("y", "<")]
    assert slices("//@*", message) == ["z='3'", 'x="1"', 'y="&lt;"']


def test_duplicates_share_what_they_select() -> None:
    matcher = Matcher()
    matcher.add_many((i, "//a[@x='1']") for i in range(100))
    found = matcher.select("<r><a x='1'/><a/></r>")
    assert len(found) == 100
    assert all([node.index for node in nodes] == [2] for nodes in found.values())


def test_nodes_can_be_kept_compared_and_hashed() -> None:
    first, again = select("//a", MESSAGE), select("//a", MESSAGE)
    assert first == again
    assert len({*first, *again}) == 1
    with pytest.raises(AttributeError):
        first[0].index = 7  # type: ignore[misc]
