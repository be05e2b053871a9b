"""Errors in for-where-return queries have a position, and unsupported parts of XQuery are named."""

from __future__ import annotations

import pytest

from sapwood import Broker, QueryError

WRONG = [
    ("for $x in", "", "an element name"),
    ("for x in //a return $x", "x in", "a variable such as $v"),
    ("for $x of //a return $x", "of", "'in' after $x"),
    ("for $x in section return $x", "section", "starts nowhere"),
    ("for $x in //a where b return $x", "b return", "starts nowhere"),
    ("for $x in //a return", "", "nothing is returned"),
    ("for $x in //a[b] $x", "$x", "'where' or 'return'"),
    ("for $x in //a where $x/b = 1", "", "'return'"),
    ("for $x in count(//a) return $x", "count", "a number"),
    ("for $x in //a, $x in //b return $x", "$x in //b", "bound already"),
    ("for $x in //a where $y/b return $x", "$y", "no variable '$y'"),
    ("for $x in //a where position() = 1 return $x", "position", "counts in a predicate"),
    ("for $x in //a where contains(string(), 'a') return $x", "string", "no context node"),
    ("for $x in //a where contains($x/b) return $x", "contains", "2 arguments"),
    ("for $x in //a where $x/b eq 5 return $x", "eq", "'return'"),
    ("for $x in //a where $x/b & $x/c return $x", "&", "'return'"),
    ("for $x in //a[b return $x", "return", "to close '['"),
    ("for $x in //p:a return $x", "p:a", "prefix 'p' is not declared"),
    ('for $x in //a where $x/b = "it return $x', '"it', "never closed"),
    ("let $x := //a return $x", "return", "'for $v in path'"),
    ("let $x = //a for $y in $x return $y", "=", "':=' after $x"),
    ("<a>text</a>", "<a>", "one 'for … return'"),
    ("<a>{//b}</a>", "//b", "'for $v in path'"),
    ("<a>{for $x in //b return $x}{for $y in //b return $y}</a>", "<a>", "found 2"),
    ("for $x in //a return <a><b></a>", "</a>", "closes <b>"),
    ("for $x in //a return <a>", "<a>", "never closed"),
    ("for $x in //a return <a", "", "to end the start tag"),
    ("for $x in //a return <a>}</a>", "}", "by itself"),
    ("for $x in //a return <a>{$x/b}{$x/@id}</a>", "{$x/@id}", "after other content"),
    ('for $x in //a return <a id="1">{$x/@id}</a>', "$x/@id", "already"),
    ('for $x in //a return <a b="1" b="2"/>', 'b="2"', "stands twice"),
    ("for $x in //a return <a b=1/>", "1/>", "a quoted value"),
    ('for $x in //a return <a b="<"/>', '<"', "in a value"),
    ('for $x in //a return <a b="{$x/@c}>{$x}</a>', '"{', "never closed"),
    ("for $x in //a return <q:a/>", "q:a", "prefix 'q' is not declared"),
    ("for $x in //a return <a>&nbsp;</a>", "&nbsp;", "no entity 'nbsp'"),
    ("for $x in //a return <a>a & b</a>", "& b", "a '&' by itself"),
    ("for $x in //a return <a>&#0;</a>", "&#0;", "XML does not have"),
    ("for $x in //a return <a><![CDATA[x</a>", "<![CDATA[", "never closed"),
    ("for $x in //a return $x/@id", "$x/@id", "an element to stand in"),
    ("for $x in //a return <a/><b/>", "<b/>", "a second element"),
    ("for $x in //a return $x | $x/@b", "$x |", "attributes and other nodes"),
    ("for $x in //a return ($x/b, $x/c)", ", ", "to close '('"),
    ("for $x in //a return <a>{$x/b, $x/c}</a>", ", ", "to close '{'"),
    ("for $x in //a/@id where count($x/..) = 1 return <a>{$x}</a>", "//a/@id", "lxml cannot go on"),
    ("for $doc in //a return $doc", "$doc in", "is the message"),
    ("let $msg := //a for $x in $msg return $x", "$msg :=", "is the message"),
    ("for " + ", ".join(f"$a{n} in //a" for n in range(30)) + " return $a1", "//a, $a21", "more than 20"),
    ("for $x in //a let $n := count($x/b) return <r>{$n/b}</r>", "$n", "this is a number"),
    ("for $x in //a where lang('en') return $x", "lang", "no context node"),
    ("for $x in //node() where count($x) > 2 return $x", "//node()", "lxml cannot go on"),
    ('<w a="{for $x in //b return <b/>}"/>', "for", "cannot stand in an attribute"),
    ('for $x in //a return <r xml:lang="de">{$x/@xml:lang}</r>', "$x/@xml:lang", "already"),
    ('for $x in //a return <r p:k="1" q:k="2" xmlns:p="u" xmlns:q="u"/>', "q:k", "stands twice"),
    ('for $x in //a return <r xmlns:sapwood2="u"/>', "xmlns:sapwood2", "reserved"),
    ('for $x in //a return <r xmlns:xml="u"/>', "xmlns:xml", "reserved"),
    ('for $x in //a return <r xmlns:p="{$x}"/>', "{", "must be a constant"),
    ("for $x in //a return <w\u00aa/>", "\u00aa", "to end the start tag"),
    ("for $x in //a return <r>\x01</r>", "\x01", "XML does not have"),
    ("for $x in //a return <r>{$x/b}\ud800</r>", "\ud800", "XML does not have"),
    ("for $x in //a return <a>&#" + "9" * 5_000 + ";</a>", "&#9", "a '&' by itself"),
    ("for $x in //a return <a>" + "<b>" * 80, "<b>" * 21, "nested more than"),
]
XQUERY = [
    ("for $x in //a order by $x/b return $x", "order", "'order by'"),
    ("for $x in //a group by $x return $x", "group", "'group by'"),
    ("for $x at $i in //a return $x", "at", "'at' to count"),
    ("for $x as node() in //a return $x", "as", "types of variables"),
    ("for $x in //a return if ($x/b) then 1 else 2", "if", "'if … then … else'"),
    ("for $x in //a where some $y in $x/b satisfies $y return $x", "some", "'some … satisfies'"),
    ("for $x in //a where every $y in $x/b satisfies $y return $x", "every", "'every … satisfies'"),
    ("for $x in //a return <a>{for $y in $x/b return $y}</a>", "for $y", "'for' or 'let'"),
    ("for $x in //a return <a>{<b/>}</a>", "<b/>", "an element constructor"),
    ("for $x in //a return <a><!--c--></a>", "<!--", "a comment"),
    ("for $x in //a return <a><?p c?></a>", "<?", "a comment or processing instruction"),
    ("for $x in //a return element b {$x}", "element", "computed constructors"),
    ("for $x in //a (: c :) return $x", "(:", "comments"),
    ("(: c :) for $x in //a return $x", "(:", "comments"),
    ("for (: c :) $x in //a return $x", "(:", "comments"),
    ("for $x in //a let $y as node() := $x return $y", "as", "types of variables"),
    ("for $x in //a return comment {'c'}", "comment", "computed constructors"),
    ('declare namespace p = "urn:p"; for $x in //p:a return $x', "declare", "declarations"),
    ("for $x in //a where $x/b let $y := $x return $y", "let", "'let' after 'where'"),
]


@pytest.mark.parametrize(("query", "at", "reason"), WRONG, ids=lambda part: part[:40])
def test_errors_have_reason_and_position(query: str, at: str, reason: str) -> None:
    with pytest.raises(QueryError) as caught:
        Broker().subscribe("q", query)
    assert reason in caught.value.reason
    found = query[caught.value.position :]
    assert found.startswith(at) if at else not found, f"points at {found!r}"


@pytest.mark.parametrize(("query", "at", "what"), XQUERY, ids=lambda part: part[:40])
def test_names_what_xquery_allows_and_sapwood_does_not(query: str, at: str, what: str) -> None:
    with pytest.raises(QueryError) as caught:
        Broker().subscribe("q", query)
    assert caught.value.reason.startswith("XQuery allows") and "Sapwood does not" in caught.value.reason
    assert what in caught.value.reason
    assert query[caught.value.position :].startswith(at)


def test_a_filter_stays_a_filter() -> None:
    """Elements may be called for, let and return."""
    broker = Broker()
    for query in ("for", "//for/return", "let[return]", "for | let", "declare", "for and in", "import or b "):
        broker.subscribe(query, query)
    assert broker.transformations == 0


def test_a_chain_of_thousands_is_no_matter() -> None:
    broker = Broker()
    many = " or ".join(f'$x/b = "{n}"' for n in range(3_000))
    broker.subscribe("one", f"for $x in //a where {many} return <r>{{$x/b}}</r>")
    broker.subscribe("two", f"for $x in //a, $y in //c where {many} or $y return <r>{{$x/b}}</r>")
    made = broker.publish("<z><a><b>2999</b></a><a><b>no</b></a></z>")
    assert [(d.subscription, d.body) for d in made] == [("one", b"<r><b>2999</b></r>")]


def test_lets_that_double_are_refused_before_they_explode() -> None:
    lets = ", ".join(f"$a{n + 1} := $a{n} | $a{n}" for n in range(40))
    with pytest.raises(QueryError, match="more than 20,000 characters"):
        Broker().subscribe("q", f"for $x in //a let $a0 := $x/b, {lets} return <r>{{$a40}}</r>")


@pytest.mark.parametrize(
    "query",
    [
        "for $x in " + " | ".join(f"//a{n}" for n in range(3_000)) + " return $x",
        "for $x in //a where " + " and ".join(f"$x/a{n}" for n in range(3_000)) + " return $x",
        "for $x in //a return " + "<r>" + "<a/>" * 20_000 + "</r>",
        "for $x in //a return <r " + " ".join(f'a{n}="1"' for n in range(2_000)) + ">{$x/@b}{$x/@c}</r>",
    ],
    ids=["a union", "conditions", "elements", "attributes"],
)
def test_long_queries_are_just_long(query: str) -> None:
    Broker().subscribe("q", query)
