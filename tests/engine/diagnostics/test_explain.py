"""Explanations of how a query is evaluated (`explain`) and why a message matches or not (`why`)."""

from __future__ import annotations

import pytest

from sapwood import Broker, Explanation, Matcher, Tuning, Why

NAMESPACES = {"p": "urn:p"}
REPORT = (
    '<report><section id="intro" difficulty="easy"><title>Pub-Sub</title>'
    '<section difficulty="easy"><figure><title>XML Processing</title></figure></section>'
    "<figure><title>Scalability</title></figure></section></report>"
)


def explained(query: str) -> Explanation:
    matcher = Matcher(NAMESPACES)
    matcher.add("q", query)
    return matcher.explain("q")


def asked_why(query: str, message: str = REPORT) -> Why:
    with Matcher(NAMESPACES) as matcher:
        matcher.add("q", query)
        answer = matcher.why("q", message)
        assert answer.matched == ("q" in matcher.match(message))
        return answer


# -- explain ---------------------------------------------------------------------------------------------


def test_a_query_decided_by_its_paths() -> None:
    assert str(explained('//section[@difficulty="easy"][title="Pub-Sub"]')) == (
        'query     //section[@difficulty="easy"][title="Pub-Sub"]\n'
        "pattern   //section[@difficulty = 'easy' and title = 'Pub-Sub']\n"
        "found by  //section/@difficulty = 'easy' and //section/title = 'Pub-Sub'\n"
        "decided   natively, by these paths alone"
    )


def test_a_query_decided_by_its_pattern() -> None:
    assert str(explained("//section[not(@id)]/figure[2]")) == (
        "query     //section[not(@id)]/figure[2]\n"
        "pattern   //section[not(@id)]/figure[position() = 2]\n"
        "found by  //section/figure\n"
        "decided   natively: the paths find candidates, the pattern is evaluated on them"
    )


def test_a_query_decided_by_lxml() -> None:
    explanation = explained("//title/parent::*[count(*) = 2]")
    assert explanation.decided_by == "xpath"
    assert "//title" in explanation.paths[0]
    text = str(explanation)
    assert "decided   by lxml, on the messages that meet the pattern" in text
    assert "refined   parent::*[count(*) = 2]: the parent axis" in text


@pytest.mark.parametrize(
    ("query", "decided_by", "paths"),
    [
        ("/a", "leaves", (("/a",),)),
        ("/a//b/*", "leaves", (("/a//b/*",),)),
        ("//@x", "leaves", (("//*/@x",),)),
        ("/a/text()", "leaves", (("/a/text()",),)),
        ("/a[@x = 1]", "leaves", (("/a/@x = 1",),)),
        ("/a[b/c = 'v']", "leaves", (("/a/b/c = 'v'",),)),
        ("/a[. = 'v']", "leaves", (("/a = 'v'",),)),
        ("/a[contains(b, 'v')]", "pattern", (("/a/b[contains(., 'v')]",),)),
        ("/a[starts-with(@x, 'v')]", "leaves", (("/a/@x[starts-with(., 'v')]",),)),
        ("/a[b or c]", "leaves", (("/a/b",), ("/a/c",))),
        ("/a | /b", "leaves", (("/a",), ("/b",))),
        ("/a[self::a or self::b]", "leaves", (("/a",),)),
        ("/*[self::a or self::b]/c", "leaves", (("/a/c",), ("/b/c",))),
        ("not(/a)", "pattern", (("every message",),)),
        ("/", "leaves", (("every message",),)),
        ("/a[2]", "pattern", (("/a",),)),
        ("//b/..", "xpath", (("//b",),)),
        ("count(//b) > 2", "xpath", (("//b",),)),
        ("/a/b[../c]", "xpath", (("//c", "/a/b"),)),
        ("string-length('x')", "xpath", (("every message",),)),
    ],
)
def test_how_a_query_is_decided_and_found(
    query: str, decided_by: str, paths: tuple[tuple[str, ...], ...]
) -> None:
    explanation = explained(query)
    assert explanation.decided_by == decided_by
    assert {frozenset(group) for group in explanation.paths} == {frozenset(group) for group in paths}


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("/p:a/b", "/p:a/b"),
        ("//p:*", "//p:*"),
        ("/a/@p:x", "/a/@p:x"),
        ("/a[@p:x = 1]", "/a/@p:x = 1"),
        ("/a[@p:* = 1]", "/a/@p:* = 1"),
        ("/a[b = '{urn:p}c']", "/a/b = '{urn:p}c'"),
        ("//*[local-name() = 'b']", "//*:b"),
        ("//*[local-name() = 'b' and namespace-uri() = 'urn:p']", "//p:b"),
        ("//*[local-name() = 'b' and namespace-uri() = 'urn:q']", "//{urn:q}b"),
    ],
)
def test_names_are_written_with_the_prefixes_that_are_declared(query: str, path: str) -> None:
    assert path in str(explained(query))


def test_transformations_and_joins_are_written_with_prefixes_too() -> None:
    with Broker(NAMESPACES) as broker:
        broker.subscribe("t", "for $a in //p:a where $a/p:c = 1 return <r>{$a/p:b}</r>")
        broker.subscribe("j", "S//p:a[p:x->x] JOIN{x = y, 1 s} S//p:b[@p:y->y]")
        assert "$a in //p:a[p:c = 1]" in str(broker.explain("t"))
        for id in ("t", "j"):
            assert "{urn:p}" not in str(broker.explain(id))
            assert "p:b" in str(broker.explain(id))


def test_explaining_with_prefixes_leaves_patterns_as_they_are() -> None:
    """Patterns are ordered by how they are written, so explaining must not come between."""
    with Matcher({"z": "urn:a", "a": "urn:z"}) as matcher:
        matcher.add(1, "/r[z:x and a:x]")
        matcher.explain(1)
        matcher.why(1, "<r/>")
        matcher.add(2, "/r[a:x and z:x]")
        assert matcher.explain(1).shared_with == 1
    with Matcher() as plain:
        plain.add(1, "/r/*[local-name() = 'x']")
        assert matcher.select("<r xmlns='urn:a'/>") == {}
        node = plain.select("<r><x xmlns='urn:a'/></r>")[1][0]
        assert node.name == "{urn:a}x"


@pytest.mark.parametrize(
    ("query", "part", "why"),
    [
        ("//b/following::c", "following::c", "the following axis"),
        ("//a[../b]", "..", "the parent axis"),
        ("//a[b = c]", "b = c", "a comparison between paths"),
        ("//a[count(b) = 2]", "count(b) = 2", "count()"),
        ("//a[@x + 1 = 2]", "@x + 1 = 2", "computed value"),
        ("//a[string-length(@x) > 3]", "string-length(@x) > 3", "computed value"),
        ("(//a)[2]", "2", "position"),
        ("//a[position() mod 2 = 1]", "position() mod 2 = 1", ""),
        ("//a[/b]", "/b", "absolute path"),
        ("//comment()", "comment()", "comment()"),
        ("id('x')", "id('x')", "id()"),
        ("//a[lang('en')]", "lang('en')", "lang()"),
    ],
)
def test_parts_evaluated_by_lxml_are_quoted_with_the_reason(query: str, part: str, why: str) -> None:
    refined = explained(query).refined
    assert any(text.startswith(f"{part}: ") and why in text for text in refined), refined


def test_a_native_query_has_no_refined_parts() -> None:
    assert explained("//a[b and not(c)][2]/@x").refined == ()


def test_explain_counts_subscriptions_with_the_same_query() -> None:
    matcher = Matcher()
    matcher.add_many([(1, "/a[b][c]"), (2, "/a[c and b]"), (3, "/a[b]"), (4, "/a[c][b]")])
    assert [matcher.explain(id).shared_with for id in (1, 2, 3, 4)] == [2, 2, 0, 2]
    assert "shared    with 2 other subscriptions with the same query" in str(matcher.explain(1))
    assert "shared" not in str(matcher.explain(3))
    matcher.remove(2)
    assert matcher.explain(1).shared_with == 1


def test_explain_writes_one_other_subscription_in_the_singular() -> None:
    matcher = Matcher()
    matcher.add_many([(1, "/a"), (2, "/a")])
    assert "shared    with 1 other subscription with the same query" in str(matcher.explain(1))


def test_explain_reports_a_query_that_never_matches() -> None:
    explanation = explained("/a[false()]")
    assert explanation.paths == ()
    assert "never" in str(explanation) or "no message" in str(explanation)


def test_explanations_can_be_compared_and_kept() -> None:
    assert explained("/a[b]") == explained("/a[b]")
    assert len({explained("/a"), explained("/a"), explained("/b")}) == 2


@pytest.mark.parametrize(
    "tuning", [Tuning(cache=0), Tuning(index_values=False), Tuning(join_bundles=False)], ids=str
)
def test_explaining_does_not_depend_on_tuning(tuning: Tuning) -> None:
    matcher = Matcher(tuning=tuning)
    matcher.add("q", "//a[@x = 1][b]")
    assert matcher.explain("q") == explained("//a[@x = 1][b]")


# -- why -------------------------------------------------------------------------------------------------


def steps(answer: Why) -> list[tuple[str, int]]:
    return [(taken.step.strip(), taken.node.index) for taken in answer.steps]


def test_why_a_path_matches_step_by_step() -> None:
    answer = asked_why("/report//figure/title")
    assert answer.matched
    assert steps(answer) == [("/report", 1), ("//figure", 5), ("/title", 6)]
    lines = str(answer).split("\n")
    assert lines[0] == "query     /report//figure/title"
    assert lines[1].startswith("matched   yes: ")
    assert lines[-1].split() == ["/title", "element", "6:", "<title>XML", "Processing</title>"]


def test_why_predicates_hold() -> None:
    answer = asked_why('//section[@difficulty="easy"][title="Pub-Sub"]')
    assert steps(answer) == [("//section", 2), ("[@difficulty = 'easy']", 2), ("[title = 'Pub-Sub']", 3)]
    assert answer.steps[1].node.kind == "attribute"
    assert answer.steps[2].node.value == "Pub-Sub"


@pytest.mark.parametrize(
    ("query", "witness"),
    [
        ("//title = 'Scalability'", 8),
        ("//figure/title = 'Scalability'", 8),
        ("//section[figure/title = 'Scalability']", 8),
        ("//section[title or figure][.//title = 'XML Processing']", 6),
        ("contains(//title, 'Pub')", 3),
        ("//nothing or //figure[title = 'Scalability']", 7),
        ("//section[not(@id)]", 4),
        ("//section[last()]/figure", 5),
        ("//title[. = 'Scalability']/text()", 8),
    ],
)
def test_why_shows_a_node_that_really_passes(query: str, witness: int) -> None:
    answer = asked_why(query)
    assert answer.matched
    assert witness in [taken.node.index for taken in answer.steps], str(answer)


def test_each_step_is_reached_from_the_one_before() -> None:
    answer = asked_why("//a/b/c", "<r><a><b/></a><x><b><c/></b></x><a><b/><b><c/></b></a></r>")
    assert steps(answer) == [("//a", 7), ("/b", 9), ("/c", 10)]


def test_why_a_refined_query_matches() -> None:
    answer = asked_why("//title/..")
    assert answer.matched
    assert "lxml" in answer.reason
    assert [taken.node.index for taken in answer.steps] == [2, 5, 7]


def test_why_a_value_matches() -> None:
    answer = asked_why("count(//figure) = 2")
    assert answer.matched
    assert "lxml" in answer.reason


@pytest.mark.parametrize(
    ("query", "reason", "reached"),
    [
        ("/report/figure", "/figure", [1]),
        ("/report/section/title/b", "/b", [1, 2, 3]),
        ("/nothing/at/all", "/nothing", []),
        ("//section[@id = 'outro']/title", "@id = 'outro'", []),
        ("/report/section[figure][5]", "position() = 5", [1]),
        ("//figure[title = 'None']", "title = 'None'", []),
        ("//title = 'None'", "'None'", None),
        ("count(//figure) = 7", "lxml's evaluation is false", None),
        ("//figure[title = ../title]", "lxml's evaluation is false", None),
        ("//nothing/..", "//nothing", []),
    ],
)
def test_why_not_says_what_nothing_passes_and_how_far_it_got(
    query: str, reason: str, reached: list[int] | None
) -> None:
    answer = asked_why(query)
    assert not answer.matched
    assert reason in answer.reason, str(answer)
    assert "matched   no: " in str(answer)
    if reached is not None:
        assert [taken.node.index for taken in answer.steps if not taken.step.startswith(" ")] == reached


ORDER = "<order id='7'><currency>COP</currency><sum><total>12</total></sum><line/><line/></order>"


@pytest.mark.parametrize(
    ("query", "message", "found"),
    [
        # values
        ("/order[currency = 'EUR']", ORDER, ["currency is 'COP'"]),
        ("//order[currency = 'EUR']/sum", f"<all>{ORDER}{ORDER}</all>", ["currency is 'COP'"]),
        ("/order[@id = 8 and currency = 'EUR']", ORDER, ["@id is '7'", "currency is 'COP'"]),
        ("/order[@id = 7 and currency = 'EUR']", ORDER, ["currency is 'COP'"]),
        ("/order[currency > 5]", ORDER, ["currency is 'COP', which is no number"]),
        ("/order/currency[. = 'EUR']", ORDER, ["currency is 'COP'"]),
        ("/order/currency/text() = 'EUR'", ORDER, ["/order/currency/text() is 'COP'"]),
        ("//total > 20", ORDER, ["//total is '12'"]),
        ("contains(/order/currency, 'X')", ORDER, ["/order/currency is 'COP'"]),
        ("/order[sum[total = 1]]", ORDER, ["total is '12'"]),
        ("/order[not(currency = 'COP')]", ORDER, ["currency is 'COP'"]),
        ("not(//line)", ORDER, ["there is //line"]),
        ("/a[b = 'x']", "<a><b>\n x</b></a>", ["b is '\\n x'"]),
        (
            "/a[b = 'x']",
            "<a><b>1</b><b>2</b><b>3</b><b>4</b></a>",
            ["b is '1'", "b is '2'", "b is '3'", "and 1 other values of b"],
        ),
        ("/a[b = 'x']", f"<a><b>{'y' * 99}</b></a>", [f"b is '{'y' * 39}…'"]),
        # names
        ("/a/b", "<a xmlns='urn:x'><b/></a>", ["there is {urn:x}a"]),
        ("/a/b", "<a><b xmlns='urn:p'/></a>", ["there is p:b"]),
        ("/p:a", "<a/>", ["there is a"]),
        ("/a/@p:x", "<a x='1'/>", ["there is @x"]),
        ("/order/Currency", ORDER, ["there is currency"]),
        ("/order/currancy", ORDER, ["there is currency"]),
        ("/order/id", ORDER, ["there is an attribute @id", "order has currency, sum, line"]),
        ("/order/@currency", ORDER, ["there is an element currency", "order has @id"]),
        ("/order/total", ORDER, ["there is /order/sum/total", "order has currency, sum, line"]),
        ("/order/sum/@id", ORDER, ["there is /order/@id", "sum has no attributes"]),
        ("/order/*[@x]/y", "<order/>", ["order has no elements in it"]),
        ("/invoice", ORDER, ["the root element is order"]),
        ("/*[self::invoice]", ORDER, ["the element is order"]),
        ("/order/sum/text()", ORDER, ["there is no text in sum"]),
        # places, alternatives, and what can never be
        ("/order/line[3]", ORDER, ["line is there 2 times"]),
        ("/order/sum[2]", ORDER, ["sum is there once"]),
        ("//x[2]", "<r><a><x/></a><b><x/></b></r>", ["x is there once at most in one place, 2 in all"]),
        ("/invoice | /order[@x]", ORDER, ["order has @id"]),
        ("/invoice/x or /order[currency = 'EUR']", ORDER, ["currency is 'COP'"]),
        ("/order[false()]", ORDER, ["no message can match"]),
        # what lxml decides
        ("count(//line) > 3 and //line", ORDER, ["count(//line) is 2"]),
        ("/order/currency = /order/@id", ORDER, ["/order/currency is 'COP'", "/order/@id is '7'"]),
        ("concat(order/@id, 'x') = 'y'", ORDER, ["concat(order/@id, 'x') is '7x'"]),
        ("//order[count(line) > 3]", ORDER, ["nothing for which lxml finds true: count(line) > 3"]),
    ],
)
def test_why_not_tells_what_is_there_instead(query: str, message: str, found: list[str]) -> None:
    answer = asked_why(query, message)
    assert not answer.matched
    assert list(answer.found) == found
    assert f"\nfound     {answer.found[0]}" in str(answer)


def test_why_names_the_failing_step_of_the_nearest_alternative() -> None:
    answer = asked_why("/invoice | /order[@x]", ORDER)
    assert answer.reason == "nothing passes the step /order[@x]"
    assert answer.found == ("order has @id",)


@pytest.mark.parametrize(
    "query", ["/", "true()", "not(//nothing)", "1 = 1", "//report | /report", "/report[1]"]
)
def test_why_has_an_answer_for_every_query(query: str) -> None:
    answer = asked_why(query)
    assert answer.matched
    assert answer.reason
    assert str(answer).startswith(f"query     {query}\n")


def test_long_slices_are_cut_to_a_line() -> None:
    answer = asked_why("//a", f"<a>{'long ' * 1_000}</a>")
    assert all(len(line) < 140 for line in str(answer).split("\n"))
    assert "…" in str(answer)
    assert asked_why("//a", "<a>\n\n  x\n</a>").steps[0].node.xml == "<a>\n\n  x\n</a>"
    assert "<a> x </a>" in str(asked_why("//a", "<a>\n\n  x\n</a>"))


def test_why_does_not_disturb_matching() -> None:
    matcher = Matcher()
    matcher.add_many([(1, "//a[@x = 1]"), (2, "//a/.."), (3, "//b")])
    message = "<r><a x='1'/></r>"
    before = list(matcher.match(message))
    for id in (1, 2, 3):
        matcher.why(id, message)
    assert list(matcher.match(message)) == before == [1, 2]
