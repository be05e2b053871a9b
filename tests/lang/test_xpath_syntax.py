"""Every XPath 1.0 expression is accepted, with lxml's meaning; other texts are refused."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import product

import pytest
from lxml import etree

from sapwood import Matcher, QueryError
from sapwood.engine.automaton import query_paths
from sapwood.lang.decomposition import PatternStep
from sapwood.lang.query import compile_query
from tests.support.oracles import lxml_oracle

NAMESPACES = {"p": "urn:p", "q": "urn:q"}
DOCUMENT = (
    '<a xmlns:p="urn:p" x="1" p:x="2" xml:lang="en"><b>1</b><b y="3">2<!--note--><?do it?></b>'
    '<p:b z="x y"><c>abc</c> tail </p:b><and><or/><div>4</div><mod/></and><text/><comment/></a>'
)
ACCEPTED: dict[str, str] = {
    "paths": r"""
        /   /a   //b   /a/b   /a//c   /*   /*/*   //*   *   .   /.   //.   /..   /a/@x
        /a/attribute::x   //@*   /a/@p:x   //p:*   //@p:*   /a/p:b   /a/node()   //node()   /a/text()
        //text()   //comment()   //processing-instruction()   //processing-instruction('do')
        //processing-instruction("no")   //c/..   //c/../..   //c/parent::p:b   //b/.   .//b
        /a/child::node()   /a/self::a   /self::node()   /a//self::b
    """,
    "axes": r"""
        //namespace::*   //b/namespace::p   /a/namespace::node()   ancestor::a   /descendant::b[2]
    """,
    "names that are also words of the language": r"""
        /and   /a/and   //or   //div/..   //mod   /a/text   /a/comment   //and/or   //and[or]
        /a/and/div = 4   //and[div and or]   //and[div div 2 = 2]   //and[div mod mod or or]   /a/and and /a
        /div   /or or /and   //*[or or and]   /a[text]   /last   /position   /a[not]   /text/node   /self
        /child/parent   /a-b   /a.b   /_a   /a1   /é   /naïve-ß   /日本語   /a·b
    """,
    "predicates": r"""
        /a[b]   /a[b][2]   //b[1]   //b[last()]   //b[last() - 1]   //b[position() = 2]
        //b[position() mod 2 = 0]   (//b)[2]   (//b | //c)[last()]   //b[.]   //b[..]   //b[../c]   //b[/]
        //b[/a]   //b[//c]   //b[@y]   //b['x']   //b['']   //b[0]   //b[1.5]   //b[-1]   //b[true()]
        //b[b or not(b)]   //*[*][*]   //b[following-sibling::b]   //b[count(../b) = 2]   //*[@x = @x]
        //*[. = ../b]   //b[//b = .]
    """,
    "comparisons": r"""
        1 = 1   'a' = "a"   1 < 2   2 > 1 > 0   1 = 1 = 1   true() != false()   //b = //b   1 = '1'
        //text = string(//none)   string(//none) = string(//nothing)   normalize-space(//none) = ''
        translate(//none, 'x', 'y') = ''   //none = ''   //none != ''   not(//none = '')   '' = //text
    """,
    "arithmetic": r"""
        1 + 1   1 - 1   2 * 3   4 div 2   5 mod 2   -1   --1   - - -1   -//b   1 div 0   -1 div 0   0 div 0
        1+1=2   2*3=6   //b + 1   //b * //b   //b - 1 = 0   1.5   .5   5.   0.1 + 0.2   1 - -1   7 mod -3
        (1 + 2) * 3 = 9   1 + 2 * 3 = 7   sum(//b) div count(//b)   -(1)   1-1   //b -1
    """,
    "logic": r"""
        true()   false()   //b and //c   //b or //none   not(//none)   //none and //b or //c
        //none or (//b and //c)   boolean(//b)   boolean(0)   boolean('')   not(not(//b))
    """,
    "unions": r"""
        //b | //c   //b | //none | //c   (//b | //c)/..   //b/text() | //@*   (//b | //c)[@y]
        count(//b | //c)   /a/b | /a/b   //b|//c   (//b)   ((//b))   (//b)/text()   (//b)//text()
        (/a)/b[1]   (//p:b)/c
    """,
    "functions on nodes": r"""
        count(//b)   count(//none)   id('x')   id(//b)   id('x')/b   name(/a)   local-name(//p:b)
        namespace-uri(//p:b)   //*[name() = 'p:b']
        //*[local-name() = 'b']   //*[namespace-uri() = 'urn:p']   //*[local-name(..) = 'a']
        //@*[name() = 'p:x']   //b[lang('en')]   lang('de')   //*[namespace-uri() = '']
        //*[local-name() != 'a']   //*[starts-with(name(), 'p:')]
    """,
    "functions on strings": r"""
        string()   string(//b)   string(1)   concat('a', 'b')   concat(//b, '-', //c, '')
        contains(//c, 'b')   contains('abc', 'b')   contains('abc', '')   starts-with(//c, 'ab')
        starts-with('', '')   substring('abc', 2)   substring('abc', 2, 1)   substring(//c, 0, 2)
        substring-before('a-b', '-')   substring-after('a-b', '-')   string-length('abc')   string-length()
        string-length(//c) = 3   normalize-space()   normalize-space(//p:b)   translate('abc', 'ab', 'A')
        //c[translate(., 'abc', 'ABC') = 'ABC']   //b[string() = '1']   //*[string-length(.) > 3]
    """,
    "functions on numbers": r"""
        number('1')   number()   number(//b)   number('x')   sum(//b)   floor(1.5)   ceiling(1.5)
        round(1.5)   round(-0.5)   //b[number() = 1]   //b[number(.) != number(.)]   //b[round(. * 10) = 10]
        sum(//none)
    """,
    "literals": r"""
        'a'   "a"   "it's"   'say "x"'   ''   //c = 'ab]c'   //c = 'a[b]/c'   //c != "'"   '日本'
    """,
}
ODDLY_SPACED = [" / a / b ", "/\ta\n/\rb", "normalize-space(' a  b ')", "'a\nb'"]
_AXES = """ancestor ancestor-or-self attribute child descendant descendant-or-self following
    following-sibling parent preceding preceding-sibling self"""


def listed(queries: str) -> list[str]:
    """The queries of a text, at least two spaces apart."""
    return re.split(r"\s{2,}", queries.strip())


OPERATORS = "=", "!=", "<", "<=", ">", ">="


def accepted() -> list[str]:
    queries = [query for kind in ACCEPTED.values() for query in listed(kind)] + ODDLY_SPACED
    for axis, test in product(_AXES.split(), ("*", "node()", "b", "p:b")):
        queries.append(f"//b/{axis}::{test}")
    for op, truth, path in product(OPERATORS, ("true()", "false()"), ("//b", "//none")):
        queries += [f"{path} {op} {truth}", f"{truth} {op} {path}"]
    constants = "1", "'1'", "//c", "2 - 1", "count(//b)", "string(//b)"
    for op, constant in product(OPERATORS, constants):
        queries += [f"//b {op} {constant}", f"{constant} {op} //b"]
    return list(dict.fromkeys(queries))


@pytest.fixture(scope="module")
def everything() -> Matcher:
    """All the queries above in one matcher."""
    matcher = Matcher(NAMESPACES)
    matcher.add_many((query, query) for query in accepted())
    return matcher


def test_the_list_of_constructs_is_long() -> None:
    assert len(accepted()) > 300


@pytest.mark.parametrize("query", accepted())
def test_every_construct_is_accepted_and_means_what_it_means_to_lxml(query: str, everything: Matcher) -> None:
    # lxml's context node is the root element, ours the document, which has neither a parent nor a name.
    expected = query not in ("..", "name()", "local-name()")
    expected = expected and lxml_oracle.matches(lxml_oracle.parse(DOCUMENT), query, NAMESPACES)
    assert (query in everything.match(DOCUMENT)) is expected
    alone = Matcher(NAMESPACES)
    alone.add("q", query)
    assert bool(alone.match(DOCUMENT)) is expected


REFUSED = r"""
    /a[   /a]   /a[]   /a[b   /a[b]]   (/a   /a)   count(/a   //   /a//   /a/   /a///b   @   /a/@   /a[@]
    /a b   /a/1   /a/'x'   /a/-b   /a,/b   /a[b c]   a::b   /a/chid::b   /a/child:b   child::   /a/::b   :a
    a:   a:b:c   /undeclared:a   /a/@undeclared:x   undeclared:f()   $x   /a[$x]   $p:x   f()   /a[f(.)]
    /a[last   /a[last(]   /a/last()   /a/count(b)   /a/(b)   /a/(b|c)   count()   count(1)   count(/a, /b)
    sum('a')   not()   not(1, 2)   true(1)   position(1)   last(1)   contains('a')   contains('a', 'b', 'c')
    starts-with('a')   concat()   concat('a')   substring('a')   translate('a', 'b')   id()   lang()
    floor()   name(1)   local-name('a')   namespace-uri(true())   'a' | 'b'   /a | 1   1 | /a   1[1]
    'a'[1]   (1)/a   true()/a   'a'//b   .[1]   ..[1]   /a/.[b]   /a/text(1)   /a/node('x')
    /a/comment('x')   /a/processing-instruction(x)   'a   "a   /a['b]   /a[.="x]   1 +   + 1   1 + + 1   * *
    1 1   = 1   1 == 1   1 =! 1   1 <> 1   1 && 1   1 || 1   !1   a and   and a b   or or   /a & /b   a eq b
    a ne b   1 to 3   a union b   a intersect b   a except b   a is b   a << b   a idiv b   if (a) then b
    for $x in a return $x   some $x in a satisfies $x   a instance of b   a castable as b   a treat as b
    (1, 2)   ()   /a/element()   /a/item()   *:*   /a/*: b   *:   a/b/string()   /a/b!c   a => b   [a]
    /[a]   //[a]   a[1]b   a{1}   {urn:x}a   a#b   a;b   a\b   a~b   `a`   a%b   ^a   a?   ‘a’   “a”
    ends-with('a', 'b')   matches('a', 'b')   lower-case('a')   exists(a)   empty(a)   max(a)   1.2.3
    /a²   /a→b   /.a.   /1a   a[position() = ]   /a[b and]   /a[or]]
"""
ODDLY_REFUSED = ["", " ", "\n", "1 = ", "\xa0/a", "/a\x00", "/a[b\n"]


@pytest.mark.parametrize("query", [*listed(REFUSED), *ODDLY_REFUSED])
def test_invalid_xpath_is_refused(query: str) -> None:
    matcher = Matcher(NAMESPACES)
    with pytest.raises(QueryError):
        matcher.add("q", query)
    assert len(matcher) == 0
    # lxml refuses it as well: some when it compiles, some only when it evaluates.
    with pytest.raises((etree.XPathError, ValueError)):
        lxml_oracle.compiled(query, NAMESPACES)(lxml_oracle.parse(DOCUMENT))


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("a", True),
        ("b", False),
        ("@x", False),
        (".", True),
        ("..", False),
        ("*", True),
        ("text()", False),
        ("self::a", False),
        ("self::node()", True),
        ("a/b", True),
        (".//b", True),
        ("a/..", True),
        ("descendant::b", True),
        ("ancestor-or-self::a", False),
    ],
)
def test_a_relative_query_starts_at_the_document_however_it_is_decided(path: str, there: bool) -> None:
    """XPath leaves the context node to its host; lxml would start at the root element."""
    matcher = Matcher()
    ways = [path, f"boolean({path})", f"count({path}) * 1 > 0", f"string-length(name({path})) > 0 or {path}"]
    matcher.add_many(enumerate(ways))
    assert [id in matcher.match('<a x="1">t<b/></a>') for id in matcher] == [there] * 4


@pytest.mark.parametrize(
    "query",
    [
        "/a[. = '\x01']",
        "string(/a) = '\x01'",
        "count(/a[. = '\x01']) = 1",
        "//b/.. = '\ud800'",
        "/a[. = '\ufffe']/..",
    ],
    ids=ascii,
)
def test_characters_that_xml_cannot_hold_do_no_harm(query: str) -> None:
    """No message contains them, so such a query may be refused, or match nothing."""
    matcher = Matcher()
    matcher.add("neighbour", "/a")
    with suppress(QueryError):
        matcher.add("q", query)
    assert len(matcher._index) == len(matcher)
    assert list(matcher.match("<a><b/></a>")) == ["neighbour"]


# -- long queries ----------------------------------------------------------------------------------------

MANY = 5_000
LONG = {
    "and": "/a[" + " and ".join(f"@x{i}" for i in range(MANY)) + "]",
    "and of paths": " and ".join(f"/x{i}" for i in range(MANY)),
    "or": "/a[" + " or ".join(f"@x{i}" for i in range(MANY)) + "]",
    "union": " | ".join(f"/x{i}" for i in range(MANY)),
    "plus": "/a[" + " + ".join(["@x"] * MANY) + " > 1]",
    "minus": "/a[@x = " + " - ".join(["1"] * MANY) + "]",
    "equals": "/a[" + " = ".join(["@x"] * MANY) + "]",
    "negations": "1 = " + "-" * MANY + "1",
    "child steps": "/a" * MANY,
    "descendant steps": "//a" * MANY,
    "predicates": "/a" + "[@x]" * MANY,
    "positions": "/a" + "[1]" * MANY,
    "dots": "/a" + "/." * MANY,
    "parents": "/a" + "/.." * MANY,
    "arguments": "concat(" + ", ".join(["'x'"] * MANY) + ")",
    "a literal": "/a[. = '" + "x" * 1_000_000 + "']",
    "a name": "/" + "a" * 1_000_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("query", LONG.values(), ids=LONG.keys())
def test_a_long_query_does_not_hit_the_recursion_limit(query: str) -> None:
    assert compile_query(query).text == query


@pytest.mark.parametrize("kind", ["or", "union", "parents", "arguments", "equals", "dots", "child steps"])
def test_a_long_query_does_not_affect_others(kind: str) -> None:
    """lxml evaluates only so deep a query: one that it cannot must not take the others down with it."""
    matcher = Matcher()
    matcher.add("neighbour", "/a")
    with suppress(QueryError):
        matcher.add("long", LONG[kind])
    assert "neighbour" in matcher.match("<a/>")


def test_a_long_conjunction_is_matched() -> None:
    terms = [f"@x{i}" for i in range(800)]
    matcher = Matcher()
    matcher.add("all", f"/a[{' and '.join(terms)}]")
    matcher.add("one", "/a[@x7]")
    some = " ".join(f"{term[1:]}=''" for term in terms[:-1])
    assert list(matcher.match(f"<a {some}/>")) == ["one"]
    assert list(matcher.match(f"<a {some} x799=''/>")) == ["all", "one"]


def test_planning_a_conjunction_takes_time_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [0]
    shared = query_paths._shared_steps

    def counted(one: tuple[PatternStep, ...], other: tuple[PatternStep, ...]) -> int:
        calls[0] += 1
        return shared(one, other)

    monkeypatch.setattr(query_paths, "_shared_steps", counted)
    query_paths.plan_index(compile_query("/a[" + " and ".join(f"@x{i}" for i in range(400)) + "]").condition)
    assert calls[0] <= 40 * 400
