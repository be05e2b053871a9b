"""Acceptance tests of the notes on YFilter (spec/yfilter-onyx.md, section 5), by their numbers there.

Where the notes count path tuples, the nodes they bind are counted: a filter never lists tuples. Where the
thesis compares an element's own text, XPath's string-value decides.
"""

from __future__ import annotations

import pytest

from sapwood import Matcher, Tuning
from tests.support.automata import trie_states
from tests.support.oracles import lxml_oracle

D1 = (
    '<report><section id="intro" difficulty="easy"><title>Pub-Sub</title>'
    '<section difficulty="easy"><figure><title>XML Processing</title></figure></section>'
    "<figure><title>Scalability</title></figure></section></report>"
)

EVERY_TUNING = [
    Tuning(),
    Tuning(cache=0),
    Tuning(index_values=False),
    Tuning(join_bundles=False),
    Tuning(prefilter=False),
]


def matching(message: str, *queries: str, tuning: Tuning | None = None) -> list[str]:
    """The queries, all subscribed to together, that a message matches."""
    matcher = Matcher(tuning=tuning)
    matcher.add_many((query, query) for query in queries)
    return [str(id) for id in matcher.match(message)]


def nodes(message: str, query: str) -> list[int]:
    """The indexes of the nodes that a query selects; lxml must agree."""
    matcher = Matcher()
    matcher.add("q", query)
    found = matcher.select(message).get("q", [])
    assert [(n.index, n.kind, n.value) for n in found] == lxml_oracle.selected(
        lxml_oracle.parse(message), query
    )
    return [node.index for node in found]


def test_1_a_descendant_path_selects_in_document_order() -> None:
    assert nodes(D1, "/report//figure/title") == [6, 8]


def test_2_an_attribute_and_a_child_of_the_same_section() -> None:
    assert nodes(D1, '//section[@difficulty="easy"][title="Pub-Sub"]') == [2]


def test_4_a_node_reached_in_two_ways_is_reported_once() -> None:
    message = "<a><a><b/></a></a>"
    assert nodes(message, "//a//b") == [3]
    assert matching(message, "//a//b") == ["//a//b"]


def test_5_recursive_descent_binds_each_node_once() -> None:
    assert nodes("<a>" * 6 + "</a>" * 6, "//a//a//a") == [3, 4, 5, 6]


def test_5_a_filter_enumerates_no_tuples() -> None:
    """200 nested `a` hold C(200, 4) = 64,684,950 ways to match `//a//a//a//a//b`; each would be a tuple."""
    message = "<a>" * 200 + "<b/>" + "</a>" * 200
    deep = ["//a//a//a//a//b", "//a[.//a//a]//a//b", "//a//a[.//b]//a[not(.//c)]//b", "//a//a//a//a//c"]
    assert matching(message, *deep) == deep[:3]


def test_6_a_descendant_step_leaves_its_sibling_alone() -> None:
    queries = ["/r//a", "/r/b"]
    assert matching("<r><x><b/></x></r>", *queries) == []
    assert matching("<r><x><a/></x></r>", *queries) == ["/r//a"]


@pytest.mark.parametrize(
    ("message", "query", "bound"),
    [
        ("<a><a><a/></a></a>", "/*//a", [2, 3]),
        ("<a><a><a/></a></a>", "//*/a", [2, 3]),
        ("<a><b><c/></b></a>", "//*//c", [3]),
    ],
)
def test_7_wildcards_around_descendant_steps(message: str, query: str, bound: list[int]) -> None:
    assert nodes(message, query) == bound


def test_8_each_wildcard_needs_an_element_of_its_own() -> None:
    assert matching("<r><a/></r>", "//*//*//a", "/*//a") == ["/*//a"]


@pytest.mark.parametrize("tuning", EVERY_TUNING, ids=str)
def test_9_predicates_of_one_step_hold_of_one_element(tuning: Tuning) -> None:
    query = "//a[@p=1][@q=2]"
    assert matching('<r><a p="1"/><a q="2"/></r>', query, tuning=tuning) == []
    assert matching('<a p="1"><a q="2"/></a>', query, tuning=tuning) == []
    assert matching('<a p="1" q="2"/>', query, tuning=tuning) == [query]


@pytest.mark.parametrize("tuning", EVERY_TUNING, ids=str)
def test_10_predicates_of_different_steps_hold_on_one_path(tuning: Tuning) -> None:
    query = "//a[@x=1]/b[@y=1]"
    assert matching('<a x="1"><a><b y="1"/></a></a>', query, tuning=tuning) == []
    assert matching('<a><a x="1"><b y="1"/></a></a>', query, tuning=tuning) == [query]


def test_11_predicates_on_recursive_elements() -> None:
    queries = ["//a[@k=2]//b", "//a[@k=2]/b"]
    assert matching('<a><a k="2"><b/></a></a>', *queries) == queries
    assert matching('<a k="2"><a><b/></a></a>', *queries) == ["//a[@k=2]//b"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # An element compares by its string-value, that of all the text in it …
        ("/t[. = 'abcdef']", True),
        ("/t = 'abcdef'", True),
        ("/t[. = 'abef']", False),  # … not by its own text, as in the thesis;
        ("/t[. = 'ab']", False),
        # text() is each text node for itself.
        ("/t[text() = 'ab']", True),
        ("/t[text() = 'ef']", True),
        ("/t[text() = 'abef']", False),
        ("/t[text() = 'abcdef']", False),
        ("/t[text() = 'cd']", False),
        ("/t[.//text() = 'cd']", True),
    ],
)
def test_12_what_mixed_content_is_equal_to(query: str, expected: bool) -> None:
    message = "<t>ab<x>cd</x>ef</t>"
    assert bool(matching(message, query)) is expected
    assert lxml_oracle.matches(lxml_oracle.parse(message), query) is expected


def test_13_text_that_comes_after_the_step_it_decides() -> None:
    query = '//a[text()="late"]/b'
    assert matching("<a><b/>late</a>", query) == [query]
    assert matching("<a>lat<b/>e</a>", query) == []  # two text nodes: XPath does not join them
    assert matching("<a>lat<b/>e</a>", '//a[.="late"]/b') == ['//a[.="late"]/b']


def test_14_a_nested_path_and_its_main_path_meet_in_one_element() -> None:
    assert matching("<r><a><b/></a><a><c/></a></r>", "//a[b]/c", "//a[b]//c") == []
    assert matching("<r><a><b/><a><c/></a></a></r>", "//a[b]/c", "//a[b]//c") == ["//a[b]//c"]


def test_15_nested_paths_at_two_steps() -> None:
    query = "/a[d]//b[e/f]/c"
    assert matching("<a><d/><b><c/></b><b><e><f/></e><c/></b></a>", query) == [query]
    assert matching("<a><b><c/></b><b><e><f/></e><c/></b></a>", query) == []
    assert matching("<a><d/><b><e><f/></e></b><b><c/></b></a>", query) == []


def test_16_nested_paths_inside_nested_paths() -> None:
    query = "//a[b[c][@k=1]]/d"
    assert matching('<a><b k="1"/><b><c/></b><d/></a>', query) == []
    assert matching('<a><b k="1"><c/></b><d/></a>', query) == [query]


def test_17_positions_count_per_parent_and_after_earlier_predicates() -> None:
    message = '<r><p><x/><x i="2"/></p><p><x i="3"/></p></r>'
    assert nodes(message, "//x[1]") == [3, 6]
    assert nodes(message, "//x[2]") == [4]
    two = '<p><x k="a"/><x k="b"/></p>'
    assert matching(two, '//x[@k="b"][1]', '//x[1][@k="b"]') == ['//x[@k="b"][1]']


def test_23_states_are_shared_and_freed() -> None:
    matcher = Matcher()
    grown = []
    for id, query in enumerate(["/a/b", "/a/b/c", "/a/*", "/a//c", "/a//b", "/a/b"]):
        matcher.add(id, query)
        grown.append(trie_states(matcher.index))
    assert grown == [3, 4, 5, 7, 8, 8]
    message = "<a><b><c/></b></a>"
    assert list(matcher.match(message)) == [0, 1, 2, 3, 4, 5]

    gone: list[int] = []
    sizes = []
    for id in (0, 5, 1, 3, 4, 2):
        matcher.remove(id)
        gone.append(id)
        sizes.append(trie_states(matcher.index))
        # A removed id is never reported, and its neighbours still are.
        assert list(matcher.match(message)) == [i for i in range(6) if i not in gone]
    # Both /a/b: 8; then /a/b/c: 6; /a//c: 5; /a//b: 3; /a/*: 1.
    assert sizes == [8, 8, 6, 5, 3, 1]


def test_23_an_id_that_is_used_again_reports_its_new_query_only() -> None:
    matcher = Matcher()
    matcher.add("s", "/a/b")
    matcher.remove("s")
    matcher.add("s", "/a/c")
    assert "s" not in matcher.match("<a><b/></a>")
    assert "s" in matcher.match("<a><c/></a>")
