"""Messages without what is not read: transformations make the same of them, byte for byte.

The null twin is the whole message. For each rule, a test shows that without it the answer is another one.
"""

from __future__ import annotations

import random

import pytest

from sapwood.broker import Broker
from sapwood.engine.limits import Limits
from sapwood.errors import RouteError, SapwoodError
from sapwood.lang.fwr.compiler import compile_transformation
from sapwood.lang.pattern import Has
from sapwood.mesh.projection.binding_selection import BindingSelection
from sapwood.mesh.projection.pruning_plan import PruningPlan, decode_plan, prune
from sapwood.mesh.routing.condition_codec import to_form
from sapwood.mesh.routing.read_codec import reads_from_form
from sapwood.mesh.routing.read_paths import (
    MOST_BINDINGS,
    ReadPath,
    ReadPaths,
    covers,
    reads_of,
    unite_reads,
    without_bindings,
)
from tests.support import shared_data
from tests.support.generators.transform_strategies import NAMESPACES, random_document, random_family

NITF_QUERIES = [
    "for $n in /nitf where $n/head/title return <t>{$n/head/docdata/@*}{$n/head/title}</t>",
    "for $h in //hedline return <h>{$h/hl1}</h>",
    "for $d in //docdata where not($d/fixture) return <d>{$d/date.issue}</d>",
]
UBL_QUERIES = [
    "for $p in //*:PartyName return <p>{$p/*:Name}</p>",
    "for $m in //*:LegalMonetaryTotal where $m/*:PayableAmount > 10 return <m>{$m/*:PayableAmount}</m>",
]


def read(query: str) -> ReadPaths | None:
    return reads_of(compile_transformation(query, NAMESPACES))


def cut(body: bytes, reads: ReadPaths) -> bytes:
    return prune(body, PruningPlan(reads), Limits())


def results(queries: list[str], body: bytes) -> list[tuple[object, bytes]]:
    """What the queries make of a message, by place."""
    with Broker(NAMESPACES) as broker:
        for place, query in enumerate(queries):
            broker.subscribe(place, query)
        return [(each.subscription, each.body) for each in broker.publish(body)]


def result(query: str, body: bytes) -> list[bytes]:
    return [made for _, made in results([query], body)]


def path(text: str, is_whole: bool = False) -> ReadPath:
    """The read path of child steps."""
    return ReadPath(tuple((False, name) for name in text.strip("/").split("/")), is_whole)


# -- byte for byte -----------------------------------------------------------------------------------------


def test_random_populations_make_the_same_of_pruned_messages() -> None:
    rng = random.Random(20260728)
    shorter = unselected = populations = 0
    while populations < 200:
        queries: dict[str, ReadPaths] = {}
        for query in random_family(rng, rng.randint(1, 4)) + random_family(rng, rng.randint(0, 2)):
            try:
                reads = read(query.sapwood)
            except SapwoodError:
                continue
            if reads is not None:
                queries[query.sapwood] = reads
        if not queries:
            continue
        populations += 1
        united = unite_reads(queries.values())
        assert united is not None
        assert all(covers(united, reads) for reads in queries.values())
        for _ in range(4):
            body = random_document(rng).encode()
            pruned = cut(body, united)
            shorter += len(pruned) < len(body)
            unselected += len(pruned) < len(cut(body, without_bindings(united)))
            assert results(list(queries), pruned) == results(list(queries), body), (queries, body, pruned)
    assert shorter > 100
    assert unselected > 40


@pytest.mark.parametrize(("name", "queries"), [("nitf", NITF_QUERIES), ("ubl", UBL_QUERIES)])
def test_real_messages(name: str, queries: list[str]) -> None:
    files = sorted(shared_data.folder(name).rglob("*.xml"))[:60]
    if not files:
        pytest.skip(f"there are no messages of {name}")
    united = unite_reads(read(query) for query in queries)
    assert united is not None
    before = after = 0
    for file in files:
        body = file.read_bytes()
        pruned = cut(body, united)
        before, after = before + len(body), after + len(pruned)
        assert results(queries, pruned) == results(queries, body), file
    assert after < before


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE a [<!ENTITY e 'x'>]><a><b>&e;</b><c/></a>",
        b"<!DOCTYPE a [<!ATTLIST b x CDATA 'd'>]><a><b/><c/></a>",
        "<?xml version='1.0' encoding='utf-16'?><a><b/><c/></a>".encode("utf-16"),
        b"<?xml version='1.0' encoding='iso-8859-1'?><a><b>\xe9</b><c/></a>",
        b"<a><b></a>",
        b"",
    ],
)
def test_what_is_not_plain_is_left_whole(body: bytes) -> None:
    assert cut(body, frozenset({path("/a/b", True)})) == body


def test_slices_are_unchanged() -> None:
    body = (
        b"\xef\xbb\xbf<?xml version='1.0'?><!DOCTYPE a SYSTEM 'a.dtd'><!-- <c/> --><a  x = '>' ><c>1</c>"
        b"<b><![CDATA[<c/>]]>&amp;<c >2</c ></b>t<c/><d><c/><b/></d></a>\n<!--end-->"
    )
    assert cut(body, frozenset({path("/a/b", True)})) == (
        b"\xef\xbb\xbf<?xml version='1.0'?><!DOCTYPE a SYSTEM 'a.dtd'><!-- <c/> --><a  x = '>' >"
        b"<b><![CDATA[<c/>]]>&amp;<c >2</c ></b>t</a>\n<!--end-->"
    )


# -- rules -------------------------------------------------------------------------------------------------

MESSAGE = b"<a><x>0</x><b k='1'>t<x>1</x>u</b><x>2</x><b k='2'><c>3</c><x>4</x></b></a>"


@pytest.mark.parametrize(
    ("query", "ignoring"),
    [
        pytest.param("for $b in /a/*[2] return <r>{$b/@k}</r>", "/a/b", id="position"),
        pytest.param("for $b in /a/*[last()-2] return <r>{$b/@k}</r>", "/a/b", id="last"),
        pytest.param("for $a in /a return <r>{count($a/*)}</r>", "/a/b", id="count"),
        pytest.param(
            "for $a in /a where count($a/x) = 2 return <r>{$a/b/c}</r>", "/a/b/c", id="count in where"
        ),
        pytest.param("for $b in /a/b[preceding-sibling::x] return <r>{$b/@k}</r>", "/a/b", id="sibling axis"),
        pytest.param("for $a in /a return <r>{string($doc)}</r>", "/a/b", id="string-value of the document"),
        pytest.param(
            "for $c in /a/b/c where $c/ancestor::a = '0t1u234' return <r>{$c}</r>", "/a/b/c", id="ancestor"
        ),
    ],
)
def test_what_reads_whole_messages(query: str, ignoring: str) -> None:
    reads = read(query)
    assert reads is None or cut(MESSAGE, reads) == MESSAGE
    pruned = cut(MESSAGE, frozenset({path(ignoring, True)}))
    assert result(query, pruned) != result(query, MESSAGE)


@pytest.mark.parametrize(
    ("query", "ignoring"),
    [
        pytest.param("for $b in /a/b where not($b/c) return <r>{$b/@k}</r>", "/a/b", id="not"),
        pytest.param('for $b in /a/b return <r t="{$b/text()}"/>', "/a/b", id="text beside what is cut"),
        pytest.param("for $b in /a/b where $b = 't1u' return <r>{$b/@k}</r>", "/a/b", id="string-value"),
        pytest.param("for $b in /a/b return <r>{$b/@k}</r>", "/a/b/c", id="elements that are bound"),
    ],
)
def test_what_is_read_beside_what_is_returned(query: str, ignoring: str) -> None:
    reads = read(query)
    assert reads is not None
    pruned = cut(MESSAGE, reads)
    assert len(pruned) < len(MESSAGE)
    assert result(query, pruned) == result(query, MESSAGE)
    assert result(query, cut(MESSAGE, frozenset({path(ignoring)}))) != result(query, MESSAGE)


def test_a_filter_would_deliver_a_mutilated_message() -> None:
    reads = read("for $b in /a/b return <r>{$b/c}</r>")
    assert reads is not None and not covers(reads, None)
    assert unite_reads([reads, None]) is None
    assert result("/a/b", cut(MESSAGE, reads)) != result("/a/b", MESSAGE)


def test_a_late_transformation_is_not_covered() -> None:
    plan = read("for $b in /a/b return <r>{$b/c}</r>")
    late = "for $b in /a/b return <r>{$b/x}</r>"
    assert plan is not None and not covers(plan, read(late))
    assert result(late, cut(MESSAGE, plan)) != result(late, MESSAGE)


# -- sets of paths -----------------------------------------------------------------------------------------


def test_paths_inside_of_others_are_left_out() -> None:
    inner, outer, way = path("/a/b/c"), path("/a/b", True), path("/a/b")
    assert unite_reads([frozenset({inner, way}), frozenset({outer})]) == frozenset({outer})
    assert covers(frozenset({outer}), frozenset({inner, way}))
    assert not covers(frozenset({way}), frozenset({outer}))
    assert not covers(frozenset({way}), frozenset({inner}))
    assert covers(None, None)
    assert covers(frozenset({way}), frozenset())


def test_what_reads_too_much_reads_everything() -> None:
    many = [frozenset({path(f"/a/n{number}")}) for number in range(300)]
    assert unite_reads(many) is None


def test_what_is_pruned_twice() -> None:
    first = frozenset({path("/a/b", True), path("/a/x", True)})
    second = frozenset({path("/a/b/c", True)})
    assert cut(cut(MESSAGE, first), second) == cut(MESSAGE, second)


# -- bindings ----------------------------------------------------------------------------------------------

ORDER = (
    b"<order id='1'><note/><item gift='y' sku='A'><note>a</note><price>1</price></item>"
    b"<item sku='B'><note>b</note></item><item sku='C'><note>c</note></item></order>"
)
GIFTS = "for $i in //item where $i/@gift return <got>{$i/@sku}{$i/note}</got>"
SECTIONS = (
    b"<doc><section><title>T</title><section><p>1</p></section><section><title>T</title></section></section>"
    b"<section><title>U</title></section></doc>"
)


def united(*queries: str) -> ReadPaths:
    found = unite_reads([read(query) for query in queries])
    assert found is not None
    return found


def test_elements_that_no_binding_selects_are_cut() -> None:
    assert cut(ORDER, united(GIFTS)) == (
        b"<order id='1'><item gift='y' sku='A'><note>a</note></item></order>"
    )


@pytest.mark.parametrize(
    "other",
    [
        pytest.param("for $i in //item where $i/@sku != 'C' return <sku>{$i/@sku}</sku>", id="where"),
        pytest.param("for $i in //item return <sku>{$i/@sku}</sku>", id="no where"),
        pytest.param("for $n in //note where $n = 'c' return <n>{$n}</n>", id="inside of what is bound"),
        pytest.param("for $o in /order return <o>{$o/item/note}</o>", id="around what is bound"),
        pytest.param("for $o in /order where not($o/item/@sku = 'B') return <o/>", id="not, outside"),
        pytest.param("for $o in /order, $i in $o/item where $i/@sku = 'C' return <o>{$i}</o>", id="joint"),
    ],
)
def test_another_query_reads_what_a_binding_does_not_select(other: str) -> None:
    both = [GIFTS, other]
    assert results(both, cut(ORDER, united(*both))) == results(both, ORDER)
    if result(other, ORDER) or "not(" in other:
        assert results(both, cut(ORDER, united(GIFTS))) != results(both, ORDER)
    assert not covers(united(GIFTS), read(other))


def test_what_is_not_selected_keeps_what_tells_so_if_anything_is_read_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The outer section of title T is not bound; without its title, it would be."""
    untitled = "for $s in //section where not($s/title) return <s>{$s/p}</s>"
    reads = united(untitled)
    pruned = cut(SECTIONS, reads)
    assert pruned == b"<doc><section><title>T</title><section><p>1</p></section></section></doc>"
    assert result(untitled, pruned) == result(untitled, SECTIONS)
    monkeypatch.setattr(BindingSelection, "_follow", lambda *arguments: False)
    assert result(untitled, cut(SECTIONS, reads)) != result(untitled, SECTIONS)


def test_variables_inside_of_bound_elements() -> None:
    query = (
        "for $o in /orders/order[@for = 'x'], $i in $o/item where $i/@n > 1 and $o/@urgent "
        "return <i>{$o/@id}{$i/@n}</i>"
    )
    body = (
        b"<orders><order for='x' id='1' urgent=''><item n='1'/><item n='2'/></order>"
        b"<order for='y' id='2' urgent=''><item n='3'/></order>"
        b"<order for='x' id='3'><item n='4'/></order></orders>"
    )
    pruned = cut(body, united(query))
    assert result(query, pruned) == result(query, body) == [b'<i id="1" n="2"/>']
    assert b"id='1'" in pruned and b"id='2'" not in pruned


def test_a_message_that_was_cut_by_bindings_is_cut_further() -> None:
    other = "for $o in /order return <o>{$o/note}</o>"
    first, second = united(GIFTS, other), united(GIFTS)
    assert covers(first, second) and not covers(second, first)
    assert cut(cut(ORDER, first), second) == cut(ORDER, second)


def test_of_many_bindings_none_counts() -> None:
    queries = [
        f"for $i in //item where $i/@sku = '{number}' return <i>{{$i/note}}</i>"
        for number in range(MOST_BINDINGS + 1)
    ]
    reads = united(*queries)
    assert all(path.binding is None for path in reads)
    assert all(covers(reads, read(query)) for query in queries)
    some = united(*queries[:MOST_BINDINGS])
    assert all(path.binding is not None for path in some)
    assert covers(reads, some) and not covers(some, reads)


def test_bindings_are_encoded() -> None:
    plan = PruningPlan(united(GIFTS, "for $o in /order return <o>{$o/note}</o>"))
    assert decode_plan(plan.encoded).reads == plan.reads
    assert [str(path) for path in sorted(plan.reads, key=str)] == [
        "//item[@gift]",
        "//item[@gift]/note//node()",
        "/order",
        "/order/note//node()",
    ]


@pytest.mark.parametrize("steps", [[[False, "item"]], [[True, "other"]], [[False, "order"], [True, "item"]]])
def test_a_binding_that_is_not_the_beginning_of_its_path_is_refused(steps: list[object]) -> None:
    ((path, *_),) = [sorted(united(GIFTS), key=str)]
    assert path.binding is not None
    form = [False, to_form(Has(path.binding)), *steps]
    with pytest.raises(RouteError, match="the beginning of its read path"):
        reads_from_form([form])
