"""Joins compile to blocks of variables, links between them, and a template."""

from __future__ import annotations

import pickle
import re
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood import QueryError
from sapwood.lang.fwr.compiler import compile_transformation
from sapwood.lang.fwr.model import TemplateHole
from sapwood.lang.languages import is_join, is_transformation
from sapwood.lang.query import compile_query
from sapwood.lang.xpath.parser import parse
from sapwood.lang.xscl.compiler import compile_join
from sapwood.lang.xscl.fast_path import plain_chain
from sapwood.lang.xscl.links import read_chain
from sapwood.lang.xscl.model import Join, Link
from tests.lang import test_patterns, test_xpath_syntax
from tests.support.cases.transform_cases import CASES
from tests.transform import test_errors

NAMESPACES = {"p": "urn:p"}
BOOK = "S//book->x1[.//author->x2][.//title->x3]"
BLOG = "S//blog->x4[.//author->x5][.//title->x6]"
Q1 = f"{BOOK} FOLLOWED BY{{x2=x5 AND x3=x6, 1 day}} {BLOG}"
Q2 = (
    "S//book->x1[.//author->x2][.//category->x7] FOLLOWED BY{x2=x5 AND x7=x8, 1 day}"
    " S//blog->x4[.//author->x5][.//category->x8]"
)
Q3 = f"{BLOG} FOLLOWED BY{{x5=x5' AND x6=x6', 1 day}} S//blog->x4'[.//author->x5'][.//title->x6']"


def compiled(text: str) -> Join:
    join = compile_join(text, NAMESPACES)
    assert is_join(text)
    check(join)
    return join


def check(join: Join) -> None:
    """The invariants of the compiled form."""
    assert len(join.links) == len(join.blocks) - 1
    assert [v.block for v in join.variables] == sorted(v.block for v in join.variables)
    for number, variable in enumerate(join.variables):
        assert variable.path.steps
        assert variable.origin < number
        assert variable.origin == -1 or join.variables[variable.origin].block == variable.block
    for number, block in enumerate(join.blocks):
        assert join.variables[block.selected].block == number
    for number, link in enumerate(join.links, 1):
        assert any(comparison.op == "=" for comparison in link.comparisons)
        for comparison in link.comparisons:
            assert join.variables[comparison.left].block < number
            assert join.variables[comparison.right].block == number
    assert pickle.loads(pickle.dumps(join)) == join


def variables(text: str) -> list[str]:
    """The variables, each as `block: origin path name`."""
    found = compiled(text).variables
    return [f"{v.block}: {'' if v.origin < 0 else v.origin}{v.path} {v.name}".rstrip() for v in found]


def comparisons(text: str) -> list[list[str]]:
    return [[f"{c.left} {c.op} {c.right}" for c in link.comparisons] for link in compiled(text).links]


def template(text: str) -> list[str]:
    """The template: holes as `kind standing origin paths`."""
    return [
        f"{part.kind} {part.standing} {part.origin}{' '.join(map(str, part.paths))}"
        if isinstance(part, TemplateHole)
        else part
        for part in compiled(text).template or ()
    ]


# -- the paper's examples --------------------------------------------------------------------------------


def test_the_first_query_of_the_paper() -> None:
    join = compiled(Q1)
    assert variables(Q1) == [
        "0: //book x1",
        "0: 0//author x2",
        "0: 0//title x3",
        "1: //blog x4",
        "1: 3//author x5",
        "1: 3//title x6",
    ]
    assert [(block.stream, block.selected) for block in join.blocks] == [("S", 0), ("S", 3)]
    assert comparisons(Q1) == [["1 = 4", "2 = 5"]]
    assert [(link.ordered, link.window) for link in join.links] == [(True, 86_400)]
    assert template(Q1) == ["<joined>", "nodes content 0", "nodes content 3", "</joined>"]
    assert (join.text, join.publish, join.streams) == (Q1, "", ("S",))


def test_all_three_have_one_form_but_for_names() -> None:
    assert comparisons(Q2) == comparisons(Q3) == comparisons(Q1)
    assert variables(Q2)[2] == "0: 0//category x7"
    assert variables(Q3)[3:] == ["1: //blog x4'", "1: 3//author x5'", "1: 3//title x6'"]
    renamed = Q3.replace("blog->x4[", "book->x4[").replace("'", "-b")
    assert compiled(renamed).key == compiled(Q1).key != compiled(Q3).key


SPELLINGS = [
    [
        "S//a->x[b->y] JOIN{y=z, 60 s} T/c->z",
        "FROM S//a->x[b->y] JOIN{y=z, 60 s} T/c->z",
        "SELECT * FROM S//a->x[b->y] JOIN{y=z, 60 s} T/c->z",
        "select *\nfrom S // a AS x [ ./b as y ]\njoin { $y = $z , 1min } T/c -> z",
        "S//a[b->y]->x Join{z = y, 1.0 MINUTES} T/child::c AS z",
        "S//a[b->y] AS x JOIN{z=y and y=z AND y = z, 60000ms} T/c->z",
        "S//a->x-1[self::node()/b->y.z] JOIN{z'=y.z, 60s}\n\n T/c->z'",
    ],
    ["S/*->x JOIN{x=y, INF} T/*->y", "S->x JOIN{x=y, inf} T AS y", "S AS x join{x=y,Inf} T/* AS y"],
    ["S//a->x[b->y][c->z]", "S//a->x[b->y and c->z]", "S//a[b->y AND (c->z)]->x", "S//a[b->y]->x[c->z]"],
    ["S/a[b->x = 'y' and c]", "S/a[c]['y' = b->x]", "S/a[c][b[. = 'y']->x]", "S/a[c][b->x[. = 'y']]"],
    ["S//a->x[b->y/c > 5]", "S//a->x[b->y[c > 5]]", "S//a->x[b[c > 5]->y]", "S//a->x[5 < b->y/c]"],
    ["S//a->x PUBLISH b", "from S//a->x\nPublish b"],
    ["SELECT <r>{$x}</r> FROM S//a->x", "select <r> {$y'} </r> from S//a AS y'"],
]


@pytest.mark.parametrize("spellings", SPELLINGS, ids=lambda group: group[0])
def test_spellings_of_one_query_are_one_query(spellings: list[str]) -> None:
    assert len({compiled(text).key for text in spellings}) == 1


# -- blocks ----------------------------------------------------------------------------------------------

BLOCKS = [
    ("FROM blog", "blog", ["0: /*"]),
    ("blog->b[title->t]", "blog", ["0: /* b", "0: 0/title t"]),
    ("blog[1] PUBLISH made", "blog", ["0: /*[position() = 1]"]),
    ("FROM news//item", "news", ["0: //item"]),
    ("SELECT * FROM //item", "", ["0: //item"]),
    ("/a/b->x", "", ["0: /a/b x"]),
    ("eu.news-feed//a->x", "eu.news-feed", ["0: //a x"]),
    ("S//b.c->x[a-b->y][a.b-c.->z-1.2]", "S", ["0: //b.c x", "0: 0/a-b y", "0: 0/a.b-c. z-1.2"]),
    ("S//a->x/b->y//c", "S", ["0: //a x", "0: 0/b y", "0: 1//c"]),
    ("S//a[b->x][c]/d[e[f->z]]", "S", ["0: //a[c]", "0: 0/b x", "0: 0/d", "0: 2/e", "0: 3/f z"]),
    ("S//a[b->x and c and @d = 5]", "S", ["0: //a[@d = 5 and c]", "0: 0/b x"]),
    ("S//a->x[2][b->y]", "S", ["0: //a[position() = 2] x", "0: 0/b y"]),
    ("S//a->x[position() < 3 and b->y]", "S", ["0: //a[position() < 3] x", "0: 0/b y"]),
    ("S//a[@i->i][text()->t][.//text()->u]", "S", ["0: //a", "0: 0/@i i", "0: 0/text() t", "0: 0//text() u"]),
    ("S//p:a->x[@p:b->y][*->z]", "S", ["0: //{urn:p}a x", "0: 0/@{urn:p}b y", "0: 0/* z"]),
    ("S//@id->i", "S", ["0: //*/@id i"]),
    ("S//a->x[contains(b, 'y') or not(@c)]", "S", ["0: //a[contains(b, 'y') or not(@c)] x"]),
    ("S//a->x[b->y/c]", "S", ["0: //a x", "0: 0/b[c] y"]),
    ("S//a->x[self::a/b->y]", "S", ["0: //a[self::a] x", "0: 0/b y"]),
    ("mail//from->from[to->to]", "mail", ["0: //from from", "0: 0/to to"]),
    ("S//AS AS AS", "S", ["0: //AS AS"]),
    ("S//OR->x[OR->y]", "S", ["0: //OR x", "0: 0/OR y"]),
    ("S//a->x[b = 'JOIN{x->y, 1 s}']", "S", ["0: //a[b = 'JOIN{x->y, 1 s}'] x"]),
    ("S//a->x[b = \"it's\" and c->y]", "S", ["""0: //a[b = "it's"] x""", "0: 0/c y"]),
    ("from//a->x", "", ["0: //a x"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "stream", "expected"), BLOCKS, ids=lambda part: str(part)[:40])
def test_a_block(text: str, stream: str, expected: list[str]) -> None:
    join = compiled(text)
    assert variables(text) == expected
    assert join.streams == (stream,)
    assert join.links == ()
    assert join.template is None


def test_a_block_selects_its_last_step() -> None:
    assert compiled("S//a->x/b[c->y]/d[e->z]").blocks[0].selected == 3
    assert compiled("S//a->x[b->y]").blocks[0].selected == 0


# -- links -----------------------------------------------------------------------------------------------


def test_paths_in_predicates_become_variables_of_their_own() -> None:
    text = "S//a->x JOIN{x/title = y//head AND x/title = y/@id AND x != y, 1 s} S//b->y[c->z]"
    assert variables(text) == [
        "0: //a x",
        "0: 0/title",
        "0: 0/title",
        "1: //b y",
        "1: 3/c z",
        "1: 3//head",
        "1: 3/@id",
    ]
    assert comparisons(text) == [["1 = 5", "2 = 6", "0 != 3"]]


def test_comparisons_go_from_earlier_blocks_to_the_next() -> None:
    text = "S//a->x JOIN{y = x and y < x and x >= y and y/b > x/b, 1 s} S//b->y"
    assert comparisons(text) == [["0 = 2", "0 > 2", "0 >= 2", "1 < 3"]]


PUSHED = [
    ("x = 'Ann'", "//a[. = 'Ann']"),
    ('"Ann" != $x', "//a[. != 'Ann']"),
    ("x/price > 10", "//a[price > 10]"),
    ("10 <= x//price", "//a[.//price >= 10]"),
    ("x > -1", "//a[. > -1]"),
    ("contains(x, 'n')", "//a[contains(., 'n')]"),
    ("starts-with(x/@id, 'n')", "//a[starts-with(@id, 'n')]"),
    ("not(x/b)", "//a[not(b)]"),
    ("x/b", "//a[b]"),
    ("(x/b or x = 'c')", "//a[. = 'c' or b]"),
    ("x/b[c]/d = 5 AND x = 'y'", "//a[. = 'y' and b[c]/d = 5]"),
    ("x[b]", "//a[b]"),
    ("x[b]/c = y/c", "//a[b]"),
    ("x/self::a = y", "//a[self::a]"),
    ('x = "it\'s"', """//a[. = "it's"]"""),
]


@pytest.mark.parametrize(("condition", "path"), PUSHED)
def test_conditions_on_one_variable_become_part_of_its_path(condition: str, path: str) -> None:
    text = f"S//a->x JOIN{{x=y AND {condition}, 1 s}} S//b->y"
    assert variables(text)[0] == f"0: {path} x"
    other = text.replace("S//b->y", "S//z->z JOIN{x=y and y=z, 1 s} S//b->y").replace("x=y AND", "x=z AND", 1)
    if "y/c" not in condition and condition != "x/self::a = y":
        assert variables(other)[0] == f"0: {path} x"


def test_conditions_are_added_to_those_of_the_block() -> None:
    text = "S//a[1][b]->x JOIN{x = y AND x = 'c', 1 s} S//b->y"
    assert variables(text)[0] == "0: //a[position() = 1][. = 'c' and b] x"


def test_chains() -> None:
    text = (
        "S//a->x JOIN{x=y, 1 s} T//b->y[c->z] FOLLOWED BY{u=x AND z/d=u AND y != u, 2 h} S//c->u"
        " JOIN{u=v AND x = 'e', INF} //d->v"
    )
    assert comparisons(text) == [["0 = 1"], ["0 = 4", "3 = 4", "1 != 4"], ["4 = 5"]]
    assert variables(text)[0] == "0: //a[. = 'e'] x"
    assert [(link.ordered, link.window) for link in compiled(text).links] == [
        (False, 1),
        (True, 7_200),
        (False, inf),
    ]
    holes = ["nodes content 0", "nodes content 1", "nodes content 4", "nodes content 5"]
    assert template(text) == ["<joined>", *holes, "</joined>"]
    assert compiled(text).streams == ("S", "T", "")


WINDOWS = {
    0.25: "250 ms, 250ms, 250 milliseconds, .25 s, 0.25s",
    1: "1 s, 1 sec, 1 secs, 1 second, 1 seconds, 1S, 1. s",
    90: "1.5 min, 1.5 mins, 1.5 minute, 1.5 Minutes",
    7_200: "2 h, 2h, 2 hour, 2 hours, 120 MIN",
    86_400: "1 d, 1 day, 1 days, 24h",
    604_800: "1 w, 1 week, 1 weeks",
    inf: "INF, inf",
}


@pytest.mark.parametrize(
    ("seconds", "written"), [(s, w) for s, all in WINDOWS.items() for w in all.split(", ")]
)
def test_windows(seconds: float, written: str) -> None:
    (link,) = compiled(f"S//a->x JOIN{{x=y,{written} }} S//b->y").links
    assert link == Link(False, seconds, link.comparisons)


# -- output ----------------------------------------------------------------------------------------------

OUTPUT = [
    ("<r/>", ["<r/>"]),
    ("<r>{$x}{$y/c}</r>", ["<r>", "nodes content 0", "nodes content 2/c", "</r>"]),
    ("<r> {$y//c/@d} </r>", ["<r", "nodes attributes 2//c/@d", "/>"]),
    ("<r>{$i}</r>", ["<r", "nodes attributes 1", "/>"]),
    (
        '<r k="{$x/@id} {$i}"/>',
        ['<r k="', "nodes attribute value 0/@id", " ", "nodes attribute value 1", '"/>'],
    ),
    (
        "<r>{string($x)} of {count($y//c)}</r>",
        ["<r>", "string content 0", " of ", "count content 2//c", "</r>"],
    ),
    ("<r>{'a'}{5}</r>", ["<r>", "a", "5", "</r>"]),
    ("<r>FROM {$x} it's {{}} $y's</r>", ["<r>FROM ", "nodes content 0", " it's {} $y's</r>"]),
    ("<r>{$x//@k}</r>", ["<r", "nodes attributes 0//*/@k /@k", "/>"]),
    ("<p:r>{$x/p:c}</p:r>", ['<p:r xmlns:p="urn:p">', "nodes content 0/{urn:p}c", "</p:r>"]),
    ('<r xmlns:q="urn:q">{$x/q:c}</r>', ['<r xmlns:q="urn:q">', "nodes content 0/{urn:q}c", "</r>"]),
    ("<r>{$x/c[d > 5]}</r>", ["<r>", "nodes content 0/c[d > 5]", "</r>"]),
]


@pytest.mark.parametrize(("constructor", "expected"), OUTPUT, ids=lambda part: str(part)[:40])
def test_output(constructor: str, expected: list[str]) -> None:
    chain = "S//a->x[@i->i] JOIN{x=y, 1 s} S//b->y"
    assert template(f"SELECT {constructor} FROM {chain}") == expected
    assert template(f"SELECT {constructor} FROM {chain} PUBLISH z") == expected


def test_output_of_variables_with_primes() -> None:
    text = """SELECT <r a="{$x'}" b='{$x''/@b}'>{string($x')} isn't $x'</r> FROM S//a->x'[b->x'']"""
    assert template(text) == [
        '<r a="',
        "nodes attribute value 0",
        '" b="',
        "nodes attribute value 1/@b",
        '">',
        "string content 0",
        " isn't $x'</r>",
    ]


def test_output_of_one_block() -> None:
    assert compiled("SELECT <r>{$x}</r> FROM S//a->x").template is not None
    assert compiled("SELECT * FROM S//a->x PUBLISH b").template is None
    assert compiled("SELECT * FROM S//a->x PUBLISH b").publish == "b"


def test_line_ends_are_those_of_xml() -> None:
    assert compiled(Q1.replace(" ", "\r\n")).text == Q1.replace(" ", "\n")


# -- the fast lane ---------------------------------------------------------------------------------------


class Plain:
    """Writes plain queries, and now and then something that is not quite plain, or wrong."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._bound: list[list[str]] = []

    def query(self) -> str:
        text = self._block()
        for _ in range(self._rng.choice([0, 1, 1, 2])):
            block = self._block()
            equalities = [self._equality() for _ in range(self._rng.choice([1, 1, 2, 3]))]
            window = self._rng.choice([*["INF", "1 day", "2.5s"] * 5, "1 m"])
            link = self._rng.choice([" JOIN{", "\njoin { ", " FOLLOWED BY{", " followed\n by{"])
            text += f"{link}{self._rng.choice([' AND ', ' and ']).join(equalities)}, {window}}} {block}"
        return text + self._rng.choice([*["", " PUBLISH a", "\n"] * 5, " x"])

    def _block(self) -> str:
        self._bound.append([])
        path = self._rng.choice([*["/a", "//a-b", "//a/b.c", "/a//from"] * 4, "//AS/@a", "//p:a"])
        return (
            self._rng.choice([*["S", "eu.news", ""] * 5, "join"]) + path + self._binding() + self._branches(2)
        )

    def _branches(self, levels: int) -> str:
        return "".join(f"[{self._branch(levels)}]" for _ in range(self._rng.choice([0, 1, 2])))

    def _branch(self, levels: int) -> str:
        path = self._rng.choice([*["a", "./a", ".//a-b", "@a", "a/b//c", ".//a/@b"] * 9, "text()", ".//@a"])
        text = path + self._binding() + (self._branches(levels - 1) if levels and "@" not in path else "")
        return text + f" and {self._branch(0)}" if self._rng.random() < 0.2 else text

    def _binding(self) -> str:
        name = f"x{sum(map(len, self._bound))}" + self._rng.choice(["", "", "'", "''", "-y", ".z"])
        if self._rng.random() < 0.02:
            name = self._rng.choice(["x0", "and", "join"])
        self._bound[-1].append(name)
        return self._rng.choice(["->", "->", " AS ", " as ", " -> "]) + name

    def _equality(self) -> str:
        before = [name for block in self._bound[:-1] for name in block]
        sides = [self._rng.choice(before), self._rng.choice(self._bound[-1])]
        if self._rng.random() < 0.05:
            sides[0] = self._rng.choice(["x0", sides[1], "x0/a", "'a'"])
        self._rng.shuffle(sides)
        return self._rng.choice(["", "$"]) + self._rng.choice(["=", " = "]).join(sides)


@given(st.randoms(use_true_random=False))
def test_the_fast_lane_agrees_with_the_careful_way(rng: Random) -> None:
    text = Plain(rng).query()
    plain = plain_chain(text, 0)
    if plain is not None:
        assert plain == read_chain(text, 0, {})


def test_the_fast_lane_is_the_usual_one() -> None:
    queries = [Plain(Random(seed)).query() for seed in range(300)]
    assert sum(plain_chain(text, 0) is not None for text in queries) > 100


def test_the_fast_lane_takes_the_papers_queries() -> None:
    for text in (Q1, Q2, Q3, "S/r->v0[n1->vn1[l1->v1][l2->v2]] JOIN{v1=w1, INF} S/r->w0[n2->wn2[l5->w1]]"):
        assert plain_chain(text, 0) == read_chain(text, 0, {}) is not None


# -- which language is it? -------------------------------------------------------------------------------

OTHERS = [
    *test_xpath_syntax.accepted(),
    *test_xpath_syntax.listed(test_xpath_syntax.REFUSED),
    *(text for group in test_patterns.SPELLINGS for text in group),
    *(text for text, *_ in test_errors.WRONG + test_errors.XQUERY),
    *(case.query for case in CASES),
    "blog", "blog//a", "//a[. = 'S//a->x JOIN{x=y, 1 s} S//b->y']", '//a[@b="->x"]', "//a[b > -1]",
    "a- > b", "SELECT", "FROM", "from//a", "SELECT//FROM", "FROM and a", "SELECT and FROM", "SELECT * a",
    "JOIN/AS", "a[AS and b]", "a and AS or b", "PUBLISH", "a and PUBLISH", "a[b] or PUBLISH",
    "FOLLOWED | BY", "SELECT < a", "SELECT <a and FROM", "FROM //a", "as", "//as[as]", "from mod select",
    "//a/join[publish = 'b']", "/{urn:x}a", "//Q{urn:x}a",
]  # fmt: skip


def test_other_queries_are_no_joins() -> None:
    assert len(OTHERS) > 800
    assert [text for text in OTHERS if is_join(text)] == []


JOINS = [
    Q1, Q2, Q3, "FROM news//a", "from news", "S//a JOIN{x = y, 1 s} S//b", "S//a->x", "S//a -> x",
    "a//b PUBLISH c", "a//b[c] publish", "S//a AS x", "S//a as x", "S//a[b AS c]",
    "S//a FOLOWED BY{x=y, 1 s} S//b", "S//a JOIN S//b", "S//a followed by S//b", "SELECT * FROM //a",
    "SELECT <r/> FROM //a", "SELECT <r>it's</r> FROM //a", "SELECT <r>{$x}</r>", "SELECT <r k='5'>x</r>",
    "SELECT $x", "SELECT x", "S//a[b]->5", "S//a-> ", "S//a->[b]", "S//a JION {x=y, 1 s} S//b",
    "S//a[b]JOIN{x=y, 1 s} S//b",
]  # fmt: skip


@pytest.mark.parametrize("text", JOINS)
def test_joins_are_recognized_by_their_text(text: str) -> None:
    assert is_join(text)
    assert not is_transformation(text)


ODD = re.compile(r"[\w.-]->|^\s*select\s*\*\s*from", re.IGNORECASE)
"""what could be either; see `is_join`"""
PIECES = [
    "SELECT", "from", "FROM", "JOIN", "AS", "as", "FOLLOWED", "BY", "PUBLISH", "and", "or", "div", "mod",
    "a", "*", "/", "//", "[", "]", "(", ")", "=", "<", ">", "-", "'{ ->y'", '"JOIN{"', "|", "5", "@", ".",
    "count(", "self::", " ",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=9), st.sampled_from(["", " "]))
def test_no_xpath_is_a_join_whatever_its_elements_are_called(pieces: list[str], between: str) -> None:
    text = between.join(pieces)
    try:
        parse(text)
    except QueryError:
        return
    assert not is_join(text) or ODD.search(text)


def test_each_language_knows_the_others() -> None:
    with pytest.raises(QueryError, match="this is a join query, not a filter"):
        compile_query(Q1)
    with pytest.raises(QueryError, match="this is a join query, not for-where-return"):
        compile_transformation(Q1)
    with pytest.raises(QueryError, match="this is a for-where-return query, not a join"):
        compile_join("for $x in //a return $x")
