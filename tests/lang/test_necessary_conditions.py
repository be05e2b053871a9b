"""Queries that lxml decides: the condition that finds candidates is implied by the query.

And what is decided natively of attributes and text: they have neither attributes nor descendants.
"""

from __future__ import annotations

import pytest

from sapwood import Broker, Matcher, Tuning
from tests.support.oracles import lxml_oracle

TUNINGS = [Tuning(), Tuning(join_bundles=False), Tuning(prefilter=False)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        # a predicate on a whole node-set speaks of the nodes at the end of the path
        ("(//b/..)[@x='a']", "<a x='a'><b/></a>"),
        ("(//b/following-sibling::c)[@x='1']", "<a><b/><c x='1'/></a>"),
        ("(//b/preceding-sibling::c)[@x='1']", "<a><c x='1'/><b/></a>"),
        ("(//b/ancestor::a)[@x='1']", "<a x='1'><b/></a>"),
        ("(//b/parent::a/parent::c)[@x]", "<c x='1'><a><b/></a></c>"),
        ("(//b/parent::a/parent::c)/d", "<c><d/><a><b/></a></c>"),
        ("((//b/..)[@x]/..)[@y]", "<c y='1'><a x='1'><b/></a></c>"),
        ("(//node())[text()='a']", "<r><q>a</q></r>"),
        ("(//.)[@x]/n", "<a x='1'><n/></a>"),
        ("(//b/.. | //c)[@x]", "<a x='1'><b/></a>"),
        # of a node-set that is weakened, any node may be the first
        ("starts-with((//b)[2],'2')", "<a><b>1</b><b>2</b></a>"),
        ("//a[string(b[string-length(.)>2])='zzz']", "<r><a><b>z</b><b>zzz</b></a></r>"),
        ("//a[contains(b[position() mod 2=0],'z')]", "<r><a><b>y</b><b>z</b></a></r>"),
        ("contains(//b[@x = @y], '2')", "<a><b>1</b><b x='' y=''>2</b></a>"),
        # NaN is the text of a number that is missing
        ("contains(string(-/a/b),'NaN')", "<a/>"),
        ("starts-with(string(number(/a/b)),'N')", "<a/>"),
        ("translate(number(/a/b), 'Na', '12') = 121", "<a/>"),
        ("string(floor(/a/b)) = 'NaN'", "<a/>"),
    ],
)
def test_a_match_that_lxml_decides_is_not_lost(query: str, message: str) -> None:
    assert lxml_oracle.matches(lxml_oracle.parse(message), query)
    for tuning in TUNINGS:
        with Matcher(tuning=tuning) as matcher:
            matcher.add("s", query)
            assert "s" in matcher.match(message)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("/a/@z//@z", "<a z='1'><b z='2'/></a>"),
        ("//text()//@z", "<a z='1'>x<b z='1'/></a>"),
        ("(//@z/.)//@z", "<a z='1'><b z='2'/></a>"),
        ("//text()//@*", "<a z='1'>x</a>"),
        ("//@z/descendant-or-self::b/@z", "<a z='1'><b z='2'/></a>"),
        ("//text()[.//@z]", "<a z='1'>x<b z='1'/></a>"),
        ("//@z[.//text()]", "<a z='1'>x</a>"),
    ],
)
def test_nothing_lies_below_attributes_and_text(query: str, message: str) -> None:
    assert not lxml_oracle.matches(lxml_oracle.parse(message), query)
    for tuning in TUNINGS:
        with Matcher(tuning=tuning) as matcher:
            matcher.add("s", query)
            assert not matcher.match(message)


@pytest.mark.parametrize(
    "where", ["$t//@k", "$t/@k", "$t//text()", "$t//b", "$t/b/@k = '1'", "contains($t//@k, '1')"]
)
@pytest.mark.parametrize("bound", ["let $t := $v/b//text()", "let $t := $v/b/@k", "let $t := $v/b//@*"])
def test_nothing_lies_below_a_variable_bound_to_them(bound: str, where: str) -> None:
    with Broker() as broker:
        broker.subscribe("s", f"for $v in /a {bound} where {where} return <made/>")
        assert not broker.publish("<a k='1'><b k='1'>x<b k='1'>y</b></b></a>")
