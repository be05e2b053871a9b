"""Filters and transformations of one broker: deliveries, their order, and live changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from sapwood import (
    Broker,
    Delivery,
    Explanation,
    Failure,
    FailureKind,
    Limits,
    Matcher,
    MessageError,
    PlanExplanation,
    QueryError,
    Tuning,
)
from sapwood.engine.fallback.process_pool import POOL
from sapwood.engine.registration import Needs
from sapwood.engine.serialization import PackError
from tests.support.automata import is_empty
from tests.support.generators.transform_strategies import NAMESPACES, random_document, random_family

REPORT = (
    b'<report><section id="intro" difficulty="easy"><title>Pub-Sub</title><section difficulty="easy">'
    b"<figure><title>XML Processing</title></figure></section><figure><title>Scalability</title></figure>"
    b"</section></report>"
)
MADE = 'for $s in //section where $s/title = "Pub-Sub" return <made>{$s/title}</made>'


def bodies(broker: Broker, message: bytes | str) -> dict[object, bytes]:
    return {delivery.subscription: delivery.body for delivery in broker.publish(message)}


def test_delivers_the_message_to_filters_and_what_they_make_of_it_to_others() -> None:
    broker = Broker()
    broker.subscribe("whole", "//figure")
    broker.subscribe("made", MADE)
    broker.subscribe("nothing", "for $x in //table return $x")
    assert broker.publish(REPORT, "m7") == [
        Delivery("whole", "m7", REPORT),
        Delivery("made", "m7", b"<made><title>Pub-Sub</title></made>"),
    ]


def test_numbers_the_messages_that_have_no_id() -> None:
    broker = Broker()
    broker.subscribe("a", "/a")
    assert [d.message for m in ("<a/>", "<b/>", "<a/>") for d in broker.publish(m)] == [1, 3]


def test_delivers_in_the_order_subscribed_whatever_the_kind() -> None:
    broker = Broker()
    queries = [MADE, "//figure", "for $f in //figure return $f/title", "//section", MADE]
    for number, query in enumerate(queries):
        broker.subscribe(number, query)
    assert [d.subscription for d in broker.publish(REPORT)] == [0, 1, 2, 3, 4]
    broker.replace(1, MADE)
    broker.replace(2, "//title")
    assert list(broker) == [0, 1, 2, 3, 4]
    assert [d.subscription for d in broker.publish(REPORT)] == [0, 1, 2, 3, 4]
    assert broker.query(1) == MADE
    assert bodies(broker, REPORT)[2] == REPORT


def test_makes_equal_results_once() -> None:
    broker = Broker()
    broker.subscribe_many(
        (constant, f'for $s in //section where $s/title != "{constant}" return <n>{{$s/title}}</n>')
        for constant in "abcdef"
    )
    made = bodies(broker, REPORT)
    assert len(made) == 6
    assert len({id(body) for body in made.values()}) == 1


def test_a_message_given_as_text_is_delivered_in_utf_8() -> None:
    broker = Broker()
    broker.subscribe("whole", "/a")
    broker.subscribe("made", "for $a in /a return <b>{$a/c}</b>")
    text = '<?xml version="1.0" encoding="latin-1"?><a><c>é€</c></a>'
    assert bodies(broker, text) == {"whole": text.encode(), "made": "<b><c>é€</c></b>".encode()}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
def test_results_are_utf_8_whatever_the_encoding_of_the_message(encoding: str) -> None:
    declared = encoding.removesuffix("-sig")
    message = f'<?xml version="1.0" encoding="{declared}"?><a><b x="ü">é</b><b>&#8364;</b></a>'
    broker = Broker()
    broker.subscribe("q", 'for $b in /a/b return <r y="{$b/@x}">{$b}</r>')
    assert broker.publish(message.encode(encoding))[0].body.decode() == (
        '<r y="ü"><b x="ü">é</b></r><r y=""><b>&#8364;</b></r>'
    )


def test_a_refused_message_does_not_affect_later_ones() -> None:
    broker = Broker(limits=Limits(depth=3))
    broker.subscribe("q", MADE.replace("Pub-Sub", "T"))
    with pytest.raises(MessageError, match="line 1, column 13"):
        broker.publish("<a><b></b></c>")
    with pytest.raises(MessageError, match="nested 4 deep"):
        broker.publish("<a><b><c><d/></c></b></a>")
    made = broker.publish("<a><section><title>T</title></section></a>")
    assert [d.body for d in made] == [b"<made><title>T</title></made>"]
    assert made[0].message == 1


def test_refuses_an_id_twice_and_queries_that_are_none() -> None:
    broker = Broker()
    broker.subscribe("a", "/a")
    broker.subscribe("b", MADE)
    for id in "ab":
        with pytest.raises(ValueError, match="subscribed already"):
            broker.subscribe(id, MADE)
    with pytest.raises(QueryError, match="nothing is returned"):
        broker.subscribe("c", "for $x in //a return ")
    assert list(broker) == ["a", "b"]
    with pytest.raises(KeyError):
        broker.unsubscribe("c")
    with pytest.raises(KeyError):
        broker.replace("c", MADE)


def test_a_replacement_that_is_no_query_changes_nothing() -> None:
    broker = Broker()
    broker.subscribe("made", MADE)
    for wrong in ("//a[", "for $x in //a retrun $x", "for $x in //a where lang($x, 1) return $x"):
        with pytest.raises(QueryError):
            broker.replace("made", wrong)
    assert bodies(broker, REPORT) == {"made": b"<made><title>Pub-Sub</title></made>"}


def test_many_at_once_leave_out_what_is_wrong() -> None:
    broker = Broker()
    wrong: list[object] = []
    broker.subscribe_many(
        [("a", MADE), ("b", "for $x"), ("c", "//figure"), ("a", MADE)], lambda id, error: wrong.append(id)
    )
    assert list(broker) == ["a", "c"]
    assert wrong == ["b", "a"]
    with pytest.raises(QueryError) as caught:
        broker.subscribe_many([("d", "//a["), ("e", MADE)])
    assert caught.value.__notes__ == ["in the query of subscription 'd'"]


def test_removed_subscriptions_leave_no_state() -> None:
    rng = random.Random(4)
    queries = [query.sapwood for _ in range(60) for query in random_family(rng, 3, True)]
    broker = Broker(NAMESPACES)
    index = broker.filters.index
    for number, query in enumerate(queries):
        broker.subscribe(number, query)
        if number % 20 == 0:
            broker.publish(random_document(rng))
    for number in rng.sample(range(len(queries)), len(queries)):
        broker.unsubscribe(number)
    assert len(broker) == len(index) == 0
    assert index.needs is Needs.NOTHING
    assert is_empty(index)


def test_live_changes_answer_like_a_fresh_broker() -> None:
    rng = random.Random(11)
    live = Broker(NAMESPACES)
    held: dict[int, str] = {}
    for round in range(60):
        for query in random_family(rng, rng.randint(1, 3), False):
            live.subscribe(len(held) + 1000 * round, query.sapwood)
            held[len(held) + 1000 * round] = query.sapwood
        for id in rng.sample(sorted(held), len(held) // 3):
            live.unsubscribe(id)
            del held[id]
        for id in rng.sample(sorted(held), len(held) // 4):
            held[id] = random_family(rng, 1, False)[0].sapwood
            live.replace(id, held[id])
        fresh = Broker(NAMESPACES)
        fresh.subscribe_many(held.items())
        packed = Broker.unpack(live.pack())
        for _ in range(4):
            message = random_document(rng)
            assert bodies(live, message) == bodies(fresh, message) == bodies(packed, message)


@pytest.mark.parametrize("cache", [0, 2_000])
def test_a_small_cache_changes_nothing(cache: int) -> None:
    rng = random.Random(5)
    queries = {n: q.sapwood for n, q in enumerate(random_family(rng, 40, False))}
    brokers = [Broker(NAMESPACES, tuning=Tuning(cache=size)) for size in (cache, 8_000_000)]
    for broker in brokers:
        broker.subscribe_many(queries.items())
    for _ in range(40):
        message = random_document(rng)
        assert bodies(brokers[0], message) == bodies(brokers[1], message)


def test_a_deep_message_is_transformed_as_well() -> None:
    deep = "<a>" * 100 + "<b>x</b>" + "</a>" * 100
    broker = Broker()
    broker.subscribe("q", "<n>{for $b in //a[b] return <r>{count($b//b)}{$b/b}</r>}</n>")
    broker.subscribe("r", "for $a in /a return count($a//a//b)")
    assert bodies(broker, deep) == {"q": b"<n><r>1<b>x</b></r></n>", "r": b"1"}


def test_costs_are_measured_for_queries_evaluated_separately() -> None:
    broker = Broker()
    broker.subscribe("shared", MADE)
    broker.subscribe("loops", "for $s in //section, $f in $s/figure return <x>{$s/title}{$f}</x>")
    broker.subscribe("lxml", "for $s in //section where count($s/*) = 3 return <x>{$s/title}</x>")
    broker.subscribe("filter", "//section[count(*) = 3]")
    broker.publish(REPORT)
    costs = broker.take_costs()
    assert set(costs) == {"loops", "lxml", "filter"}
    assert all(seconds > 0 for seconds in costs.values())
    assert broker.take_costs() == {}


def test_explains_plans_and_what_they_share() -> None:
    broker = Broker()
    broker.subscribe("a", 'for $s in //section where $s/title = "T" return <n>{$s/title}{$s//figure}</n>')
    broker.subscribe("b", 'for $s in //section where $s/title = "U" return <n>{$s/title}{$s//figure}</n>')
    broker.subscribe("c", 'for $s in //section where $s/title = "T" return <m>{$s/title}</m>')
    broker.subscribe("f", "//figure")
    told = broker.explain("a")
    assert isinstance(told, PlanExplanation)
    assert told.bindings == ("$s in //section[title = 'T']",)
    assert told.returns == ("$s/title", "$s//figure")
    assert told.shared == (
        "join and selections, which bind the variable: shared with 1 other query",
        "group-by of title below it: shared with 1 other return clause",
        "group-by of .//figure below it: not shared yet",
        "return clause, filled once for each element: shared with 1 other query",
    )
    assert any("SemiJoin (hash)" in line for line in told.plan)
    assert any(line.startswith("no DupElim on //section:") for line in told.removed)
    assert str(told).startswith("query     for $s in //section")
    assert isinstance(broker.explain("f"), Explanation)


def test_explains_what_is_left_to_lxml() -> None:
    broker = Broker()
    broker.subscribe("a", "for $s in //section where count($s/*) = 3 return <n>{$s/title}</n>")
    told = broker.explain("a")
    assert isinstance(told, PlanExplanation)
    assert told.refined == ("count($s/*) = 3: count() compared with a number",)
    assert told.plan == told.removed == ()


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("<a><b/></a>", b"<r><b/></r>"),
        ("<a><b>/></b></a>", b"<r><b>/></b></r>"),
        ("<a><b x='/>'/></a>", b"<r><b x='/>'/></r>"),
        ("<a><b x='>'>></b></a>", b"<r><b x='>'>></b></r>"),
        ("<a><b><!--<b>--></b></a>", b"<r><b><!--<b>--></b></r>"),
        ("<a><b><![CDATA[</b>]]></b ></a>", b"<r><b><![CDATA[</b>]]></b ></r>"),
        ("<a><b\n/><?b <b>?></a>", b"<r><b\n/></r>"),
        ("<!--<a>--><?x <a>?><!DOCTYPE a [<!--<b/>--><?y <b/>?>]><a><b/></a><!--<b/>-->", b"<r><b/></r>"),
        ("<!DOCTYPE a [<!ENTITY e '<b>1</b>'>]><a>&e;</a>", b"<r><b>1</b></r>"),
        ("<!DOCTYPE a [<!ATTLIST b x CDATA 'd'>]><a><b/></a>", b'<r><b x="d"/></r>'),
        ("<a xmlns:p='urn:p'><b><p:c/></b></a>", b'<r><b xmlns:p="urn:p"><p:c/></b></r>'),
        ("<a xmlns:p='urn:p'><b>p c</b></a>", b"<r><b>p c</b></r>"),
        ("<a xmlns:p='urn:&quot;'><b p:x='1'/></a>", b"<r><b xmlns:p=\"urn:&quot;\" p:x='1'/></r>"),
    ],
)
def test_copies_are_slices_that_stand_by_themselves(message: str, wanted: bytes) -> None:
    broker = Broker()
    broker.subscribe("q", "for $a in /a return <r>{$a/b}</r>")
    assert [d.body for d in broker.publish(message)] == [wanted]


def test_attributes_of_one_name_are_written_once() -> None:
    """XQuery raises XQDY0025 here; a message is no place for that."""
    broker = Broker()
    broker.subscribe("q", "for $a in /a return <r>{$a/b/@id}{$a/@*}</r>")
    assert broker.publish('<a id="0" x="1"><b id="1"/><b id="2"/></a>')[0].body == b'<r id="1" x="1"/>'


@pytest.mark.parametrize("use", [Broker.publish, Broker.answer])
def test_takes_only_messages(use: Callable[[Broker, object], object]) -> None:
    with pytest.raises(TypeError, match="a message is bytes, str, "):
        use(Broker(), 5)


def test_a_query_that_cannot_be_subscribed_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.subscribe("f", "//a")
    index = broker.filters.index

    def fails(*_: object) -> None:
        raise RecursionError

    with monkeypatch.context() as patch:
        patch.setattr(index, "register_binding", fails)
        with pytest.raises(RecursionError):
            broker.subscribe("s", "for $x in //a return <r>{$x/b}</r>")
    assert [d.subscription for d in broker.publish("<a><b/></a>")] == ["f"]
    broker.subscribe("s", "for $x in //a return <r>{$x/b}</r>")
    assert [d.body for d in broker.publish("<a><b/></a>")] == [b"<a><b/></a>", b"<r><b/></r>"]


def test_a_failing_query_does_not_affect_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    broker.subscribe("loops", "for $x in //a, $y in //b return <r/>")
    broker.subscribe("lxml", "for $x in //a where count($x/b) = 1 return <r/>")
    broker.subscribe("fine", "for $x in //a return <r/>")

    def fails(*_: object) -> None:
        raise TypeError("no such thing")

    monkeypatch.setattr("sapwood.transform.nested_loops.groups", fails)
    monkeypatch.setattr("sapwood.transform.execution.groups_of", fails)
    deliveries = broker.publish("<a><b/></a>", "m")
    assert [d.subscription for d in deliveries] == ["fine"]
    assert deliveries.failures == [
        Failure(id, FailureKind.FAILED, "TypeError: no such thing", "m") for id in ("loops", "lxml")
    ]
    assert caplog.text.count("Traceback") == 2
    assert broker.failure_counts() == {"loops": {FailureKind.FAILED: 1}, "lxml": {FailureKind.FAILED: 1}}


def test_results_are_bounded() -> None:
    broker = Broker(limits=Limits(result=2_000))
    broker.subscribe("large", "for $x in //* return $x")
    broker.subscribe("product", "for $x in //*, $y in //* return <r>{$x}</r>")
    broker.subscribe("small", "for $x in /a return count($x//a)")
    deep = "<a>" * 50 + "</a>" * 50
    deliveries = broker.publish(deep)
    assert [(d.subscription, d.body) for d in deliveries] == [("small", b"49")]
    told = [(failure.subscription, failure.reason) for failure in deliveries.failures]
    assert told == [(id, "it makes more than 2,000 bytes") for id in ("large", "product")]


def test_products_beyond_measure_are_given_up() -> None:
    broker = Broker()
    broker.subscribe("q", "for $x in //b, $y in //b, $z in //b return <r/>")
    deliveries = broker.publish("<a>" + "<b/>" * 60 + "</a>")
    assert deliveries == []
    assert deliveries.failures == [Failure("q", FailureKind.FAILED, "more than 100,000 groups", 1)]


def test_all_that_lxml_evaluates_is_evaluated_on_one_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.subscribe_many((n, f"for $x in //a where count($x/*) > {n} return <r/>") for n in range(5))
    asked: list[int] = []
    evaluate = POOL.evaluate

    def counted(data: bytes, queries: Any, budget: Any) -> Any:
        asked.append(len(queries))
        return evaluate(data, queries, budget)

    monkeypatch.setattr(POOL, "evaluate", counted)
    assert len(broker.publish("<a><b/><b/><b/></a>")) == 3
    assert asked == [4]  # the first is sure by its pattern


@pytest.mark.parametrize("query", ["for $x in //a return <r>{$x/b}</r>", "for $x in /a return <r>{$x}</r>"])
@pytest.mark.parametrize(
    "message",
    [
        "<a " + " ".join(f"xmlns:p{n}='u'" for n in range(3_000)) + ">" + "<b/>" * 3_000 + "</a>",
        "<a xmlns:p='u'>" + "<c xmlns:q='v'>" * 400 + "<b/>" + "</c>" * 400 + "</a>",
        "<!--x-->" + " " * 2_000_000 + "<a><b/></a>",
        "<a><b" + " " * 2_000_000 + "k='1'/><!--x--></a>",
    ],
    ids=["many prefixes", "nested declarations", "space before", "space inside"],
)
def test_odd_messages_take_no_more_than_others(query: str, message: str) -> None:
    broker = Broker()
    broker.subscribe("q", query)
    broker.publish(message)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b'<?xml-stylesheet href="x" encoding="utf-16"?><a><b/></a>', b"<r><b/></r>"),
        ('<?xml-model x encoding="latin-1"?><a><b>é</b></a>'.encode(), "<r><b>é</b></r>".encode()),
    ],
)
def test_only_the_declaration_declares_an_encoding(message: bytes, expected: bytes) -> None:
    broker = Broker()
    broker.subscribe("q", "for $a in /a return <r>{$a/b}</r>")
    assert [d.body for d in broker.publish(message)] == [expected]


@pytest.mark.parametrize("encoding", ["punycode", "shift_jis", "utf-7", "no-such"])
def test_unknown_encodings_are_refused_with_and_without_transformations(encoding: str) -> None:
    message = f'<?xml version="1.0" encoding="{encoding}"?><a>\\x3cb/\\x3e</a>'.encode()
    for query in ("/a", "for $a in /a return $a"):
        broker = Broker()
        broker.subscribe("q", query)
        with pytest.raises(MessageError):
            broker.publish(message)


def test_limits_count_the_bytes_as_they_came() -> None:
    message = ('<?xml version="1.0" encoding="latin-1"?><a>' + "é" * 700 + "</a>").encode("latin-1")
    broker = Broker(limits=Limits(bytes=len(message)))
    broker.subscribe("q", "for $a in /a return count($a)")
    assert [d.body for d in broker.publish(message)] == [b"1"]


def test_a_matcher_and_a_broker_do_not_unpack_each_other() -> None:
    with pytest.raises(PackError, match=r"no packed Broker: Matcher\.unpack reads them"):
        Broker.unpack(Matcher().pack())
    with pytest.raises(PackError, match=r"no packed Matcher: Broker\.unpack reads them"):
        Matcher.unpack(Broker().pack())


# -- why ---------------------------------------------------------------------------------------------------


def test_why_a_filter_matches_is_the_matchers_answer() -> None:
    with Broker() as broker:
        broker.subscribe("f", "/a[b = 1]")
        assert broker.why("f", "<a><b>1</b></a>") == broker.filters.why("f", "<a><b>1</b></a>")
        assert broker.why("f", "<a><b>2</b></a>").found == ("b is '2'",)


def test_why_something_is_made_of_a_message_or_not() -> None:
    with Broker({"p": "urn:p"}) as broker:
        broker.subscribe("t", "for $b in /a/p:b where $b/@k = 'x' return <r>{$b}</r>")
        made = broker.why("t", "<a xmlns:q='urn:p'><q:b k='x'/></a>")
        assert made.matched
        assert "/p:b" in [taken.step for taken in made.steps]
        missed = broker.why("t", "<a xmlns:q='urn:p'><q:b k='y'/></a>")
        assert not missed.matched
        assert missed.found == ("@k is 'y'",)
        assert broker.why("t", "<a><b k='x'/></a>").found == ("there is b",)


def test_why_nothing_is_made_where_only_lxml_can_tell() -> None:
    with Broker() as broker:
        broker.subscribe("t", "for $a in /a where count($a/b) > 1 return <r/>")
        assert broker.why("t", "<a><b/><b/></a>").matched
        missed = broker.why("t", "<a><b/></a>")
        assert not missed.matched
        assert "no variable is bound" in missed.reason


def test_why_a_message_takes_part_in_a_join() -> None:
    query = "books//book[author->a][title->t] FOLLOWED BY{a = w AND t = u, 1 day} "
    query += "blogs//post[author->w][title->u]"
    with Broker() as broker:
        broker.subscribe("j", query)
        first = broker.why("j", "<book><author>A</author><title>T</title></book>")
        assert (first.matched, first.reason) == (True, "it takes part as block 1 (stream books) of 2")
        second = broker.why("j", "<x><post><author>A</author><title>T</title></post></x>")
        assert second.reason == "it takes part as block 2 (stream blogs) of 2"
        missed = broker.why("j", "<post><author>A</author><name>T</name></post>")
        assert not missed.matched
        assert "it matches no block" in missed.reason
        assert missed.found == ("post has author, name",)
        assert broker.state().messages == 0


def test_why_of_an_unknown_id_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Broker().why("nobody", "<a/>")
