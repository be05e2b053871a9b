"""Queries as rules: the worked example, branching points, what is weakened; and rules against the engine."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapwood import Matcher
from sapwood.lang.decomposition import MOST_ALTERNATIVES
from sapwood.lang.query import compile_query
from sapwood.relational.rules.rule_form import MOST_BRANCHES, Rule, RuleForm, relational_form
from tests.support.oracles import lxml_oracle, naive_tables

WORKED = '/a//b[.//c/d/text()="v1" and p//q/text()="v2"]/x[@y="v3"]//z/text()="v4"'
MESSAGE = (
    "<a><b><c><d>v1</d></c><p><p2><q>v2</q></p2></p>"
    '<x y="v3"><z>v4</z><z>v5</z></x></b><b><b><x y="v4"/></b></b></a>'
)


def form_of(query: str) -> RuleForm:
    return relational_form(compile_query(query, lxml_oracle.NAMESPACES))


def told(form: RuleForm) -> list[list[str]]:
    """Each rule's branches as text: path, test, and, as `(1@2)`, that branching point 1 is step 2."""
    return [[_told(rule, i) for i in range(len(rule.branches))] for rule in form.rules]


def _told(rule: Rule, i: int) -> str:
    branch = rule.branches[i]
    points = " ".join(f"{point}@{step}" for point, step in branch.points)
    return " ".join(filter(None, [branch.path.text, str(branch.test or ""), points and f"({points})"]))


# -- the worked example ------------------------------------------------------------------------------------


def test_the_worked_example() -> None:
    form = form_of(WORKED)
    assert form.exact
    assert told(form) == [
        [
            "/a//b//c/d/text() = 'v1' (1@2)",
            "/a//b/p//q/text() = 'v2' (1@2)",
            "/a//b/x/@y = 'v3' (1@2 2@3)",
            "/a//b/x//z/text() = 'v4' (1@2 2@3)",
        ]
    ]


def test_the_worked_example_on_its_message() -> None:
    [rule] = form_of(WORKED).rules
    met = naive_tables.met_at(rule, naive_tables.values(MESSAGE))
    assert met == [{1: ("element", 2), 2: ("element", 8)}]  # 2 and 10 where text nodes are numbered, too
    exchanged = MESSAGE.replace('"v3"', '"?"').replace('"v4"', '"v3"').replace('"?"', '"v4"')
    assert naive_tables.met_at(rule, naive_tables.values(exchanged)) == []


# -- branches and branching points -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "rules"),
    [
        # one branch
        ("/a/b", [["/a/b"]]),
        ("//@y = 3", [["//*/@y = 3"]]),
        ("/a/@x[. = '1']", [["/a/@x = '1'"]]),
        ("/a[. = 'x']", [["/a = 'x'"]]),
        ("//text()[contains(., 'x')]", [["//text() contains 'x'"]]),
        # everything, nothing
        ("/", [[]]),
        ("true()", [[]]),
        ("false()", []),
        ("/text()", []),
        # the root element needs no branching point
        ("/a[b]/c", [["/a/b", "/a/c"]]),
        ("/*[@x and @y]", [["/*/@x", "/*/@y"]]),
        ("a[b] and a[c]", [["/a/b", "/a/c"]]),
        # all others do, if branches part there
        ("//a[b]/c", [["//a/b (1@1)", "//a/c (1@1)"]]),
        ("/a/b[c]/d/e[f]/g", [["/a/b/c (1@2)", "/a/b/d/e/f (1@2 2@4)", "/a/b/d/e/g (1@2 2@4)"]]),
        ("//a[b[c]/d]", [["//a/b/c (1@2)", "//a/b/d (1@2)"]]),
        # of which each has its own
        ("//a[b] and //a[c]", [["//a/b", "//a/c"]]),
        ("//a[b/x and b/y]", [["//a/b/x (1@1)", "//a/b/y (1@1)"]]),
        # to end there is to part, as often as there are tests
        ("//a[b] = 2", [["//a = 2 (1@1)", "//a/b (1@1)"]]),
        ("//a[. > 1 and . < 5]", [["//a < 5 (1@1)", "//a > 1 (1@1)"]]),
        ("/a/@x[. != '1' and . != '2']", [["/a/@x != '1' (1@2)", "/a/@x != '2' (1@2)"]]),
        ("//text()[. != '1'] != '2'", [["//text() != '1' (1@1)", "//text() != '2' (1@1)"]]),
        # a step on which something hangs needs no branch of its own
        ("//a[b]", [["//a/b"]]),
        ("//a[. = 1]", [["//a = 1"]]),
        # equality first, points numbered as in the pattern
        ("//a[b > 1]/c[@x]/@y = 2", [["//a/c/@y = 2 (1@1 2@2)", "//a/b > 1 (1@1)", "//a/c/@x (1@1 2@2)"]]),
        # once is enough
        ("//a[b]/b", [["//a/b"]]),
        ("//a[. = 1] = 1", [["//a = 1"]]),
        ("//a[b/c and @x]/b/c", [["//a/@x (1@1)", "//a/b/c (1@1)"]]),
        (
            "//a[b[c and d]]/b[c]/d",  # though not where it would have to be seen that two points are one
            [["//a/b/c (1@1 2@2)", "//a/b/d (1@1 2@2)", "//a/b/c (1@1 3@2)", "//a/b/d (1@1 3@2)"]],
        ),
    ],
)
def test_branches(query: str, rules: list[list[str]]) -> None:
    form = form_of(query)
    assert form.exact
    assert told(form) == rules


@pytest.mark.parametrize(
    ("query", "rules"),
    [
        ("/a | //b", [["//b"], ["/a"]]),
        ("//a[b or c]/d", [["//a/b (1@1)", "//a/d (1@1)"], ["//a/c (1@1)", "//a/d (1@1)"]]),
        (
            "/a[(b or c) and (d or e)]",
            [["/a/b", "/a/d"], ["/a/b", "/a/e"], ["/a/c", "/a/d"], ["/a/c", "/a/e"]],
        ),
        ("/a//@x", [["/a//*/@x"], ["/a/@x"]]),
        ("/a[b or c] | /a[c or d]", [["/a/b"], ["/a/c"], ["/a/d"]]),
    ],
)
def test_disjunctions_are_rules_of_their_own(query: str, rules: list[list[str]]) -> None:
    form = form_of(query)
    assert form.exact
    assert told(form) == rules


@pytest.mark.parametrize(
    ("query", "rules"),
    [
        ("//*[self::a]", [["//a"]]),
        ("//*[self::a or self::p:b][@x]", [["//a/@x"], ["//{urn:p}b/@x"]]),
        ("//a[self::a]/b", [["//a/b"]]),
        ("//a[self::b]/c", []),
        ("//a[self::b or @x]", [["//a/@x"]]),
        ("//*[local-name() = 'a' and namespace-uri() = 'urn:p']", [["//{urn:p}a"]]),
        ("//p:*[local-name() = 'a']", [["//{urn:p}a"]]),
        ("//*[local-name() = 'a/b']", []),
        ("//a/text()[self::a]", []),
        ("//a/@x[b]", []),
    ],
)
def test_names_are_taken_into_steps(query: str, rules: list[list[str]]) -> None:
    form = form_of(query)
    assert form.exact
    assert told(form) == rules


# -- what is weakened ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "rules", "weakened"),
    [
        ("/a[not(b)]/c", [["/a/c"]], ("not(b): a negation",)),
        ("/a/b[2]/c", [["/a/b/c"]], ("position() = 2: a position",)),
        ("/a[string(b) = 'x']", [["/a/b = 'x'"]], ("string(b) = 'x': the first node of several",)),
        ("/ = 'x'", [[]], (". = 'x': the text of the whole message",)),
        ("contains(., 'x') and a", [["/a"]], ("contains(., 'x'): the text of the whole message",)),
        ("/a[b or not(c)]", [["/a"]], ("not(c): a negation",)),
        ("/a/b/../c", [["//c", "/a/b"]], ("..: the parent axis",)),
    ],
)
def test_parts_that_rules_cannot_express_are_listed_as_weakened(
    query: str, rules: list[list[str]], weakened: tuple[str, ...]
) -> None:
    form = form_of(query)
    assert not form.exact
    assert form.weakened == weakened
    assert told(form) == rules


def test_the_first_of_one_is_any() -> None:
    assert form_of("/a[contains(@x, 'y')]").exact


def test_a_query_that_cannot_match_has_no_weakened_parts() -> None:
    assert form_of("/a[self::b and not(c)]") == RuleForm((), ())


def test_as_many_rules_as_there_may_be() -> None:
    names = [f"n{i:02}" for i in range(MOST_ALTERNATIVES + 1)]
    assert told(form_of(f"/a[{' or '.join(names[1:])}]")) == [[f"/a/{name}"] for name in names[1:]]
    form = form_of(f"/a[{' or '.join(names)}]/b")
    assert told(form) == [["/a/b"]]
    [reason] = form.weakened
    assert reason.startswith("n00 or n01 or ")
    assert reason.endswith("…: with it, the query has more than 32 alternatives")


def test_only_the_disjunctions_to_blame_are_left_out() -> None:
    eight = " or ".join(f"@x = {i}" for i in range(8))
    form = form_of(f"//a[b or c][{eight}]/d[e or f or g]")
    assert len(form.rules) == 6
    assert {branch.path.text for rule in form.rules for branch in rule.branches} == {
        *("//a/b", "//a/c", "//a/d/e", "//a/d/f", "//a/d/g")
    }
    assert len(form.weakened) == 1
    union = form_of(" | ".join(f"/a{i}[b or c]" for i in range(20)))
    assert len(union.rules) <= MOST_ALTERNATIVES
    assert {branch.path.text.split("/")[1] for rule in union.rules for branch in rule.branches} == {
        f"a{i}" for i in range(20)
    }


def test_of_too_many_branches_those_that_tell_most_are_kept() -> None:
    bounds = " and ".join(f"@b{i} > {i}" for i in range(MOST_BRANCHES))
    assert form_of(f"/a[{bounds}]").exact
    form = form_of(f"/a[{bounds} and c = 1]")
    [rule] = form.rules
    assert len(rule.branches) == MOST_BRANCHES
    assert rule.branches[0].path.text == "/a/c"
    assert form.weakened == ("25 conditions in one rule: the tables index 24 of them",)


def test_hostile_disjunctions_end_soon() -> None:
    nested = "a"
    for _ in range(15):
        nested = f"({nested} or b) and (c or d)"
    assert len(form_of(f"/x[{nested}]").rules) <= MOST_ALTERNATIVES
    thousands = " or ".join(f"(@x = {i} and (b or c))" for i in range(3_000))
    assert told(form_of(f"/x[{thousands}]")) == [["/x"]]


# -- against the engine --------------------------------------------------------------------------------------


_SIMPLE = [
    ". != 'x'",
    ". < 10",
    ". > 1",
    ". != 1",
    "@x",
    "@* = 1",
    "text()",
    ".//text() != 1",
    "self::a",
    "b",
]


def _twig(rng: random.Random, depth: int = 3) -> str:
    """A step with conditions that rules can say, most of them met now and then."""
    step = rng.choice(["a", "a", "b", "*"])
    if depth:
        step += "".join(f"[{_condition(rng, depth - 1)}]" for _ in range(rng.choice([0, 1, 1, 2])))
        if rng.random() < 0.5:
            step += rng.choice(["/", "/", "//"]) + _twig(rng, depth - 1)
    return step


def _condition(rng: random.Random, depth: int) -> str:
    one, other = rng.choice(_SIMPLE), rng.choice(_SIMPLE)
    kinds = [one, f"{one} or {other}", f"{one} and {other}", f"text()[{one} and {other}]"]
    return rng.choice([*kinds, _twig(rng, depth), ".//" + _twig(rng, depth)])


def _twigs(rng: random.Random) -> str:
    return rng.choice(["/", "//"]) + _twig(rng) + rng.choice(["", "", " != 2"])


QUERIES: dict[str, Callable[[random.Random], str]] = {
    "twigs": _twigs,
    "the native language": lxml_oracle.random_query,
    "all of XPath": lambda rng: lxml_oracle.random_query(rng, native=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("language", QUERIES)
def test_rules_answer_as_the_engine_does(language: str) -> None:
    """They find whatever matches; and nothing else, if the form is exact."""
    exact = positive = together = 0

    @settings(max_examples=25, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32))
    def compare(seed: int) -> None:
        nonlocal exact, positive, together
        rng = random.Random(seed)
        queries = [QUERIES[language](rng) for _ in range(30)]
        forms = [form_of(query) for query in queries]
        with Matcher(lxml_oracle.NAMESPACES) as matcher:
            matcher.add_many(enumerate(queries))
            for _ in range(5):
                document = lxml_oracle.random_document(rng, depth=5, budget=15)
                matched = set(matcher.match(document))
                message = naive_tables.values(document)
                for id, (query, form) in enumerate(zip(queries, forms, strict=True)):
                    found = naive_tables.holds(form, message)
                    about = f"{query} on {document}: {told(form)}, weakened {form.weakened}"
                    assert found or id not in matched, about
                    if form.exact:
                        assert found == (id in matched), about
                        exact += 1
                        positive += found
                        together += any(branch.points for rule in form.rules for branch in rule.branches)

    compare()
    assert exact > 1_000
    assert positive > 80
    assert together > 50
