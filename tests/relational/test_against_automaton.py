"""The relational engine against the automaton and lxml: random queries, and hard cases."""

from __future__ import annotations

import random
import time
from itertools import product
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapwood.relational import Plan, RelationalMatcher
from tests.relational.test_rule_form import QUERIES
from tests.support.oracles import lxml_oracle
from tests.support.oracles.relational_agreement import Answer, about, answers, assert_alike, automaton

pytestmark = pytest.mark.slow

# -- at random -------------------------------------------------------------------------------------------


def test_random_queries() -> None:
    """Queries of all kinds together, so that they share paths, facts and prefixes."""
    positive = 0

    @settings(max_examples=2, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32))
    def compare(seed: int) -> None:
        nonlocal positive
        rng = random.Random(seed)
        queries = list(dict.fromkeys(kind(rng) for kind in QUERIES.values() for _ in range(30)))
        messages: list[str | bytes] = [
            lxml_oracle.random_document(rng, depth=rng.choice([4, 6, 9]), budget=rng.choice([8, 20, 60]))
            for _ in range(12)
        ]
        messages += [
            lxml_oracle.random_message(rng, lxml_oracle.random_document(rng, budget=20)) for _ in range(6)
        ]
        positive += assert_alike(queries, messages, lxml_oracle.NAMESPACES, batch=rng.choice([10, 100]))

    compare()
    assert positive > 200


@pytest.mark.parametrize("plan", Plan)
def test_one_message_at_a_time_is_as_good_as_a_batch(plan: Plan) -> None:
    rng = random.Random(plan)
    pairs = [(str(i), lxml_oracle.random_query(rng, native=i % 3 > 0)) for i in range(80)]
    documents = [lxml_oracle.random_document(rng) for _ in range(2)]
    expected = automaton(pairs, documents, lxml_oracle.NAMESPACES)
    with RelationalMatcher(namespaces=lxml_oracle.NAMESPACES, plan=plan) as matcher:
        matcher.add_many(pairs)
        assert [list(matcher.match(document)) for document in documents] == expected
        assert answers(matcher, iter(documents), batch=2) == expected


# -- cases that are hard ---------------------------------------------------------------------------------

NAMESPACES = {"p": "urn:p", "at": "@u", "odd": "%7B/*", "star": "*"}
OPERATORS = ["=", "!=", "<", "<=", ">", ">="]
Cases = tuple[list[str], list[str]]
"""queries and documents, each of which is matched with each"""


def numbers() -> Cases:
    values = ["0", "-0", "1", "-1", "5", "5.0", "5.", ".5", "-.5", "0.1", "1e9", "1E1", "NaN", "Infinity"]
    values += [" 5 ", "\t5\n", "\u00a05", "+5", "--5", "- 5", "0x5", "5,0", "٥", "", " ", "5 5", "true"]
    values += ["-Infinity", "9" * 400, "-" + "9" * 400, f"0.{'0' * 400}1", "9007199254740993", "900000001"]
    constants = ["0", "-0", "5", "5.", ".5", "-.5", "- 5", "0.1", "9007199254740993", "900000001", "9" * 400]
    constants += ["'5'", "'-0'", "' 5 '", "''", "'NaN'", "'1e9'", '"Infinity"', "'x'"]
    queries = [f"/r/v {op} {constant}" for op, constant in product(OPERATORS, constants)]
    queries += [f"//@n[{constant} {op} .]" for op, constant in product(OPERATORS, constants)]
    queries += [f"/r[v {op} 5 and @n {op} .5]" for op in OPERATORS]
    documents = [f"<r n={quoteattr(value)}><v>{escape(value)}</v></r>" for value in values]
    documents += [f"<r n='5'><v>{escape(value)}</v><v>5</v></r>" for value in values[::2]]
    documents += ["<r/>", "<r n='5'/>", "<r><v/></r>", "<r n='1'><v>3</v><v>x</v><v>7</v></r>"]
    return queries, documents


def texts() -> Cases:
    """Constants with and without quotes."""
    values = ["", " ", "'", "it's", "]", "] or [", "= 5 and", "<>&", "\ue000", "\ue0000", "%7B", "{}", "a\nb"]
    values += [
        "é",
        "e\u0301",
        "𝄞",
        "\U0001f600\u200d",
        "NULL",
        "\\",
        "--",
        "x" * 5_000,
        "5",
        "a",
        "A",
        "ab",
        "ba",
    ]
    literals = [f'"{text}"' for text in values] + [f"'{text}'" for text in values if "'" not in text]
    kinds = ["/r/v = {}", "/r/@n != {}", "/r[contains(v, {})]", "//v/text()[starts-with(., {})]"]
    queries = [kind.format(text) for kind, text in product([*kinds, "/r[v = {0} or @n = {0}]"], literals)]
    queries += [
        "/r[v = 'it' and @n = \"it's\"]",
        "/r[v = \"a\" and @n = 'a']",
        "/r[v != 'a'][@n != \"it's\"]",
    ]
    documents = [f"<r n={quoteattr(text)}><v>{escape(text)}</v></r>" for text in values]
    documents += [f"<r n={quoteattr(text)}><v>a</v><v>it</v><v/></r>" for text in values[:8]]
    documents += ["<r><v>a<!-- -->b</v></r>", "<r><v>a<w>b</w></v></r>"]
    return queries, documents


def huge_texts() -> Cases:
    long = "x" * 100_000
    queries = ["//t[contains(., 'needle')]", "//t[starts-with(., 'x')]", "//t = 'x'", "//t[. > 5]"]
    queries += [
        "//t != 'x'",
        "//t/text()[contains(., 'y')]",
        "//@a != 'x'",
        f"//t = '{long}'",
        f"//@a = '{long}'",
    ]
    return queries, [f"<t>{long}needle</t>", f"<t a='{long}'/>", f"<t>{long}</t>", "<t/>"]


SKELETONS = """
//a[@x = {0} and @y = {1}]
//a[{0} = @x and @y = {1}]
//a[{0} < @x][@y >= {1}]
//a[@x = {0} or not(@y = {1})]
//a[position() = {0} or @x = {1}]
//a[{0}][@x = {1}]
//a[count(b) > {0} or @x = {1}]
//a[local-name() = {0} or @x = {1}]
//a[string(@x) = {0} and number(@y) = {1}]
//a[boolean(@x) = {0}]
//a[@x = {0} = {1}]
//a[contains(@x, {0}) and starts-with(@y, {1})]
//a[contains({0}, @x) or @y = {1}]
//a[. = {0}][b = {1}]/c = {0}
//a[b = {0} and b = {1}]
//a[text() != {0}]/text() != {1}
//a[@x = ({0})] | //b[. = -{1}]
//a[@x={0}and@y={1}]
//a[{0} = {1}]
//a[string-length(@x) = {0} and @y != {1}]
//a[@x + {0} = {1}]
//a/@*[. = {0} or . > {1}]
""".strip().split("\n")


def skeletons() -> Cases:
    """Constants that change how the rest of a query is compiled."""
    rng = random.Random(4)
    constants = ["5", "-5", ".5", "'x'", "''", '"5"', "900000001", "1", "2", "0"]
    pairs = list(product(constants, repeat=2))
    queries = [skeleton.format(*chosen) for skeleton in SKELETONS for chosen in rng.sample(pairs, 8)]
    values = list(product(["5", "-5", "0.5", "x", "", "900000001", "1"], repeat=3))
    return queries, [
        f"<r><a x='{x}' y='{y}'>{x}<b>{y}</b>{y}<c>{x}</c></a><b>{z}</b></r>"
        for x, y, z in rng.sample(values, 25)
    ]


def names() -> Cases:
    names = ["a", "*", "p:a", "p:*", "at:a", "at:*", "odd:a", "odd:*", "star:a", "star:*"]
    queries = [f"/r/{name}" for name in names] + [f"//{name}/@*" for name in names]
    queries += [f"//@{name} = 1" for name in names] + [f"/*/{name}[. = 1]/@x" for name in names]
    queries += ["//*[local-name() = 'a']", "//*[namespace-uri() = '@u']", "//*[namespace-uri() = '*'] = 1"]
    queries += [
        "//@*[. > 0]",
        "/*/*/@x",
        "//text()",
        "/r//text() = 1",
        "/*[@*][*]",
        "//*[local-name() = '*']",
    ]
    documents = []
    for uri in ["", "urn:p", "@u", "%7B/*", "*", "urn:q", "a"]:
        documents.append(f"<r><a xmlns={quoteattr(uri)} x='1'>1</a></r>")
        documents.append(f"<r xmlns={quoteattr(uri)}><a/></r>")
        if uri:
            documents.append(f"<r xmlns:n={quoteattr(uri)}><b n:a='1'/><n:a n:x='2'>1</n:a></r>")
            documents.append(f"<n:r xmlns:n={quoteattr(uri)}><a x='1'/></n:r>")
    return queries, documents


def many_predicates() -> Cases:
    """More than a row has columns, so that the rest is a chain."""
    queries = []
    for count in (1, 4, 5, 8, 12):
        asked = [f"@x{i} = {i}" for i in range(count)]
        bounded = [f"@x{i} < {i + 1}" for i in range(count)]
        queries += [f"/o[{' and '.join(some)}]" for some in (asked, bounded, asked[:6] + bounded[:6])]
        queries.append(f"//o[{' and '.join([*asked[:5], *(f'@x{i} != 0.5' for i in range(count))])}]")
        queries.append(f"/o[{' and '.join(f'@x{i}' for i in range(count))}][not(@y)]")
    everything = [f"x{i}='{i}'" for i in range(12)]
    documents = [f"<o {' '.join(everything[:count])}/>" for count in range(13)]
    documents += [f"<o {' '.join(everything[:i] + everything[i + 1 :])} x{i}='0.5'/>" for i in range(12)]
    return queries, documents + [f"<r>{document}</r>" for document in documents]


def many_alternatives() -> Cases:
    queries = [f"/o[{' or '.join(f'@x = {i}' for i in range(count))}]" for count in (2, 31, 32, 33, 80)]
    queries += [f"{query}[@y or @z]/a" for query in queries]
    queries += [" | ".join(f"//n{i}[@x = {i}]" for i in range(count)) for count in (32, 40)]
    documents = [f"<o x='{i}' z=''><a/></o>" for i in (0, 1, 30, 31, 32, 79, 80)]
    documents += [f"<r><n{i} x='{x}'/></r>" for i, x in [(0, 0), (31, 31), (39, 39), (39, 38), (40, 40)]]
    return queries, documents


def no_facts() -> Cases:
    """Queries that match messages without any of their values."""
    queries = ["/", "true()", "not(//a)", "//a", "/a = ''", "count(//*) = 1", "/b[not(@x = 1)]", "not(/b)"]
    return queries, ["<b/>", "<c x='1'>text</c>", "<a/>", "<d><a/></d>", "<z xmlns='urn:z'/>"]


CASES = [
    *(numbers, texts, huge_texts, skeletons, names),
    *(many_predicates, many_alternatives, no_facts),
]


@pytest.fixture(scope="module")
def hard_cases() -> list[tuple[str, Answer]]:
    """All documents, each with the queries that match it; lxml agrees where they belong together."""
    groups = [cases() for cases in CASES]
    documents = [document for _, told in groups for document in told]
    expected = automaton([(query, query) for query in hard_queries()], documents, NAMESPACES)
    following = iter(expected)
    for asked, told in groups:
        positive = 0
        for document in told:
            tree = lxml_oracle.parse(document)
            matching = {query for query in asked if lxml_oracle.matches(tree, query, NAMESPACES)}
            assert matching == set(next(following)).intersection(asked), document
            positive += len(matching)
        assert positive >= 10, asked
    return list(zip(documents, expected, strict=True))


@pytest.mark.parametrize("plan", Plan)
def test_hard_cases(plan: Plan, hard_cases: list[tuple[str, Answer]]) -> None:
    """Most of them are compiled from templates: those whose skeleton occurred before."""
    with RelationalMatcher(namespaces=NAMESPACES, plan=plan) as matcher:
        matcher.add_many((query, query) for query in hard_queries())
        found = answers(matcher, [document for document, _ in hard_cases])
    for (document, expected), one in zip(hard_cases, found, strict=True):
        assert one == expected, about(plan, document, one, expected)


def hard_queries() -> list[str]:
    return list(dict.fromkeys(query for cases in CASES for query in cases()[0]))


def test_numbers_that_look_like_placeholders() -> None:
    queries = ["/a[b = 86753.09e8 and c = 5]", "/a[b = 8675309000000 and c = 5]", "/a[b = 5 and c = 5]"]
    messages = [f"<a><b>{b}</b><c>5</c></a>" for b in (5, 8675309000000, 6)]
    assert assert_alike(queries, messages, times=3, plans=[Plan.UNROLLED]) == 9


# -- size ------------------------------------------------------------------------------------------------


def test_ranges_enough_for_buckets() -> None:
    """Several values of a name in one message, on both sides of bounds, and on them."""
    ranges = [f"/o[p {op} {bound}]" for op in ("<", "<=", ">", ">=") for bound in range(0, 200, 3)]
    ranges += [f"/o[p > {bound} and p < {bound + 9} and s = {bound % 4}]" for bound in range(0, 200, 3)]
    late = [f"/o[p > {bound}.5]" for bound in range(-5, 300, 20)]
    documents = ["<o/>", "<o><p>x</p><s>1</s></o>", "<o><p>x</p><p>100</p><s>1</s></o>"]
    for low, high in [(-1, -1), (0, 0), (3, 3), (57, 60), (0, 198), (198, 198), (500, 501)]:
        documents.append(f"<o><p>{low}</p><s>{low % 4}</s><p>{high}</p></o>")
    pairs = [(query, query) for query in ranges + late]
    expected = automaton(pairs, documents)
    for plan in Plan:
        with RelationalMatcher(plan=plan) as matcher:
            matcher.add_many(pairs[: len(ranges)])
            matcher.add_many(pairs[len(ranges) :])
            assert answers(matcher, documents) == expected


def test_too_many_positions_of_branching_points() -> None:
    """Recursive names below `//`: branching points have more positions than are stored."""
    queries = ["//a//a//a//a//b[@x = 1]", "//a[.//b]//a[.//c]//a[.//b]//a[.//c = 5]//b", "//a[b][c = 5]"]
    queries += [
        "//a[.//a//a//b]//a[a]//c",
        "//a[c = 6]//a[.//c]//a[.//b]//a[b]",
        "//a[@y]//a[.//b]//a[c]//a[b]",
    ]
    deep = f"{'<a>' * 40}<b x='1'/><c>5</c>{'</a>' * 40}"
    crossed = f"{'<a>' * 20}<c>5</c>{'<a>' * 20}<b x='1'/>{'</a>' * 40}"
    marked = deep.replace("<a><a><a>", "<a><a><a y=''>", 1)
    with RelationalMatcher() as matcher:
        matcher.add_many((query, query) for query in queries)
        expected = automaton([(query, query) for query in queries], [deep, crossed, marked])
        assert answers(matcher, [deep, crossed, marked]) == expected
        assert matcher.connection.value("SELECT count(*) FROM tag_branching WHERE positions IS NULL")


def test_repeated_values_do_not_multiply_rows() -> None:
    rng = random.Random(3)
    items = [
        f"<item a='{rng.randrange(5)}' b='{rng.randrange(100)}'><c>{rng.randrange(5)}</c>"
        f"<d>{rng.randrange(1000)}</d><e>x{rng.randrange(5)}</e></item>"
        for _ in range(2_000)
    ]
    order = f"<order><lines>{''.join(items)}</lines></order>"
    queries = [
        f"/order[lines/item/@a = {i % 5} and lines/item/@b > {i} and .//c = 2 and .//d < {i} and .//e = 'x1']"
        for i in range(50)
    ]
    queries += [
        f"//item[@a = {i % 5} and @b > {50 + i} and c = 2 and d < 500 and e = 'x1']" for i in range(10)
    ]
    queries += [
        "//item[@a = 7 and c = 2]",
        "//item[e = 'x1' and e = 'x2']",
        "//lines[item/@a = 1][item/d > 998]/item",
    ]
    pairs = [(query, query) for query in queries]
    expected = automaton(pairs, [order])
    assert len(expected[0]) > 50
    for plan in (Plan.SHARED, Plan.UNROLLED):
        with RelationalMatcher(plan=plan) as matcher:
            matcher.add_many(pairs)
            started = time.process_time()
            assert answers(matcher, [order]) == expected
            assert time.process_time() - started < 5


def test_no_subscriptions_and_an_empty_batch() -> None:
    with RelationalMatcher() as matcher:
        assert answers(matcher, ["<a/>", "<a"]) == [[], *automaton([], ["<a"])]
        assert list(matcher.match_many([])) == []
        matcher.add_many([])
        assert list(matcher.match("<a/>")) == []
