"""Plans: the thesis's cases by number, and all nine of random queries against nested loops."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from lxml import etree

from sapwood import Broker, Failure, FailureKind, Tuning
from sapwood.engine.message.document import ContextNode
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.transform import nested_loops
from sapwood.transform.per_query.operator_plan import plan
from sapwood.transform.per_query.path_streams import PathStreams, TooManyTuples
from sapwood.transform.per_query.stream_conditions import conforms
from sapwood.transform.result_groups import Group
from sapwood.workload import MessageGenerator, TransformationGenerator, load_dtd
from tests.support.cases.transforms import (
    D1,
    SHARINGS,
    answers,
    fwr,
    graph,
    graph_of,
    kinds,
    path,
    plans,
    query,
    read,
    run,
)
from tests.support.generators import path_strategies
from tests.support.generators.path_strategies import RANDOMS
from tests.support.requirements import FULL

SECTIONS = graph(
    "section", "section section", "section figure", "section title", "figure title", "figure image"
)


def group(bound: int, *lists: list[ContextNode]) -> Group:
    return Group((bound,), lists)


# -- the acceptance tests of the notes, by number ------------------------------------------------------


def test_3_groups_and_lists() -> None:
    text = """for $s in //section[@difficulty="easy"] where $s/title="Pub-Sub"
    return <new_section>{$s/title}{$s//figure}</new_section>"""
    assert answers(fwr(text), D1) == [group(2, [3], [5, 7])]
    assert answers(fwr(text.replace("$s//figure", "$s/figure")), D1) == [group(2, [3], [7])]


def test_4_a_node_is_bound_once() -> None:
    document = read("<a><a><b/></a></a>")
    assert PathStreams(document).of(path("//a//b")) == [(1, 3), (2, 3)]
    assert answers(query("//a//b", ""), document) == [group(3, [3])]


@pytest.mark.parametrize(("outer", "inner"), [(3, 2), (1, 2)])
def test_18_selection_comes_before_duplicate_elimination(outer: int, inner: int) -> None:
    message = f'<section id="{outer}"><section id="{inner}"><figure/></section></section>'
    assert answers(query("//section[@id<=2]//figure", ""), message) == [group(3, [3])]
    assert kinds(plan(query("//section[@id<=2]//figure", ""), "F", "none"))[:2] == [
        ("Selection", "scan"),
        ("DupElim", "scan"),
    ]


FIGURE = "<figure><title>T</title></figure>"
NESTED = f"<section><section>{FIGURE}</section>{FIGURE}</section>"


def test_19_bindings_nest_so_streams_are_hashed() -> None:
    transformation = fwr('for $s in //section where $s/figure/title="T" return $s/figure')
    assert PathStreams(read(NESTED)).of(path("//section/figure/title")) == [(2, 3, 4), (1, 5, 6)]
    assert answers(transformation, NESTED) == [group(1, [5]), group(2, [3])]
    for planned in (plan(transformation), plan(transformation, "FWR", "dtd", SECTIONS)):
        assert kinds(planned) == [("Selection", "scan"), ("SemiJoin", "hash"), ("OuterJoinSelect", "hash")]


def test_20_a_node_is_returned_once() -> None:
    message = "<section><section><section><title/></section></section></section>"
    transformation = query("//section", "//section//title")
    assert answers(transformation, message) == [group(1, [4]), group(2, [4]), group(3, [])]


def test_21_lists_stand_in_the_order_of_the_query() -> None:
    message = "<r><b><y/><x/></b><b/></r>"
    assert answers(query("//b", "/x", "/y"), message) == [group(2, [4], [3]), group(5, [], [])]


def test_22_the_traps_are_hashed() -> None:
    strong = graph("x", "xy", "yx", "yz", "zy", "zc")
    message = "<x><y><z><y><x><y><z><c/></z></y></x></y><c/></z></y></x>"
    planned = plan(query("//x/y/z[c]", "/c"), "FWR", "dtd", strong)
    assert kinds(planned) == [("SemiJoin", "hash"), ("OuterJoinSelect", "hash")]
    assert run(planned, message, conforming=True) == [group(3, [9]), group(7, [8])]

    wild = graph("a", "aa", "ab", "bb", "bc")
    planned = plan(query("//a/*/b[c]", "/c"), "FWR", "dtd", wild)
    assert kinds(planned) == [("SemiJoin", "hash"), ("OuterJoinSelect", "hash")]
    message = "<a><a><b><b><c/></b><c/></b></a></a>"
    assert run(planned, message, conforming=True) == [group(3, [6]), group(4, [5])]


def test_22_query_8_keeps_duplicate_elimination_and_merges() -> None:
    transformation = fwr("""<figures>{for $f in //section[@id<=2]//figure where $f/title = "XML processing"
        return <figure>{ $f/image }</figure>}</figures>""")
    assert kinds(plan(transformation, "FWR", "dtd", SECTIONS)) == [
        ("Selection", "scan"),
        ("DupElim", "scan"),
        ("Selection", "scan"),
        ("SemiJoin", "merge"),
        ("DupElim", "scan"),
        ("OuterJoinSelect", "merge"),
    ]


def test_22_query_9_keeps_one_duplicate_elimination() -> None:
    transformation = fwr("""<sections>{for $s in //section
        where $s/title="XML" and $s/figure/title = "XML processing"
        return <section>{ $s//section//title }{ $s/figure }</section>}</sections>""")
    planned = plan(transformation, "FWR", "dtd", SECTIONS)
    (kept,) = [operator for operator in planned.operators if operator.kind == "DupElim"]
    assert "//section//section//title" in kept.about
    assert kept.implementation == "hash"
    assert [removed.verdict.condition for removed in planned.removed] == [1, 3]


# -- what plans consist of -----------------------------------------------------------------------------


def test_operators_of_each_sharing() -> None:
    transformation = query("/a/b[@x = 1][c = 2]", "/d")
    shared = {sharing: kinds(plan(transformation, sharing, "query")) for sharing in SHARINGS}
    bound, select = ("Selection", "scan"), ("ReturnSelect", "tree search")
    semi_join = [bound, ("Selection", "scan"), ("SemiJoin", "merge")]
    assert shared == {
        "F": [bound, ("WhereFilter", "tree search"), select],
        "FW": [*semi_join, select],
        "FWR": [*semi_join, ("OuterJoinSelect", "merge")],
    }


def test_without_optimisation_everything_is_hashed() -> None:
    planned = plan(query("/a/b[c]", "/d", "/e"), "FWR", "none")
    assert kinds(planned) == [
        ("DupElim", "scan"),
        ("SemiJoin", "hash"),
        ("DupElim", "hash"),
        ("DupElim", "hash"),
        ("OuterJoinSelect", "hash"),
    ]
    assert not planned.removed


@pytest.mark.parametrize(
    "where", ["b or c", "not(b)", "b[1] = 2", "b[c]/d", "string(b) = 'x'", "b[@x = 1]", ".//text() = 'x'"]
)
def test_other_predicates_become_a_tree_search(where: str) -> None:
    planned = plan(query(f"//a[{where}]", "/b"), "FW", "none")
    assert ("WhereFilter", "tree search") in kinds(planned)
    assert not [operator for operator in planned.operators if operator.kind == "SemiJoin"]


@pytest.mark.parametrize("where", ["@x", "@x = 1", "text() = 'x'", ". = 'x'", "@x or not(@y)", "self::a"])
def test_predicates_on_the_bound_node_are_selections(where: str) -> None:
    planned = plan(query(f"//a[{where}]", "/b"), "F", "query")
    assert kinds(planned) == [("Selection", "scan"), ("ReturnSelect", "tree search")]


def test_positions_are_counted_in_the_tree_and_the_rest_is_joined() -> None:
    transformation = query("//a[2][b = 1]", "/b")
    assert kinds(plan(transformation, "FWR", "query")) == [
        ("BindingSearch", "tree search"),
        ("Selection", "scan"),
        ("SemiJoin", "hash"),
        ("OuterJoinSelect", "hash"),
    ]
    message = "<r><a><b>1</b></a><a><b>1</b></a><a><b>1</b></a></r>"
    assert answers(transformation, message) == [group(4, [5])]


def test_holes_of_all_sorts_in_one_query() -> None:
    message = '<r><a x="1">u<b y="2">v</b>w<b>z</b></a></r>'
    transformation = query("//a", "/b", "/@x", "//text()", "/b[2]", "", "/b/@y", "/b | /c", "/b/text()")
    ((bound,), lists) = answers(transformation, message)[0]
    document = read(message)
    texts = [[document.string_value(node) for node in found] for found in lists]
    assert bound == 2
    assert texts == [
        ["v", "z"],
        ["1"],
        ["u", "v", "w", "z"],
        ["z"],
        ["uvwz"],
        ["2"],
        ["v", "z"],
        ["v", "z"],
    ]
    assert kinds(plan(transformation, "FWR", "query"))[-1] == ("ReturnSelect", "tree search")
    assert ("OuterJoinSelect", "hash") in kinds(plan(transformation, "FWR", "query"))


def test_text_below_nested_elements_comes_in_document_order() -> None:
    message = "<a>1<p>2<p>3</p>4</p>5</a>"
    ((_, (found,)),) = answers(query("/a", "//p/text()"), message)
    document = read(message)
    assert [document.string_value(node) for node in found] == ["2", "3", "4"]


def test_bindings_that_are_in_no_stream() -> None:
    message = '<r><a x="1">u</a><b x="2">v</b></r>'
    for binding, values in {"//@x": ["1", "2"], "//text()": ["u", "v"], "//b | //a": ["u", "v"]}.items():
        found = answers(query(binding, "", "/a"), message)
        assert [read(message).string_value(bound[0]) for bound, _ in found] == values
    assert answers(query("(/)", "//b"), message) == [group(0, [3])]


def test_a_template_without_holes() -> None:
    assert answers(query("//b"), "<r><b/><b/></r>") == [group(2), group(3)]


def test_holes_that_start_at_the_document() -> None:
    transformation = fwr("for $a in //a return <g>{$a/b}{//c}</g>")
    assert answers(transformation, "<r><a><b/></a><c/><a/></r>") == [group(2, [3], [4]), group(5, [], [4])]


def test_several_variables_and_joints_are_nested_loops() -> None:
    transformation = fwr("""for $a in //a, $b in $a/b where $a/c or ($b = 1 and not($a/c))
        return <g>{$b}{$a/c}</g>""")
    message = "<r><a><b/><b/><c/></a><a><b>1</b><b>2</b></a></r>"
    expected = [Group((2, 3), ([3], [5])), Group((2, 4), ([4], [5])), Group((6, 7), ([7], []))]
    assert answers(transformation, message) == expected
    assert kinds(plan(transformation)) == [("NestedLoops", "tree search")]


# -- what plans can rely on ----------------------------------------------------------------------------


def test_a_message_that_does_not_conform_gets_the_twin() -> None:
    flat = graph("r", "ra", "ab")
    transformation = query("//a[b]", "/b", "//a//b")
    planned = plan(transformation, "FWR", "dtd", flat)
    assert {how for _, how in kinds(planned)} == {"merge"}
    nested = read("<r><a><a><a><b/></a></a><b/></a></r>")
    expected = nested_loops.groups(transformation, PatternEvaluator(nested), nested)
    assert run(planned, nested, conforming=False) == expected
    assert run(planned, nested, conforming=True) != expected  # which is why
    assert planned.twin is not None
    assert kinds(planned.twin) == kinds(plan(transformation, "FWR", "query"))


def test_no_twin_where_the_graph_makes_no_difference() -> None:
    assert plan(query("/a/b[c]", "/d"), "FWR", "dtd", SECTIONS).twin is None


def test_a_graph_is_needed() -> None:
    with pytest.raises(ValueError, match="element graph"):
        plan(query("//a", "/b"), "FWR", "dtd")


def test_too_many_tuples_fall_back_to_the_tree() -> None:
    document = read("<a>" * 40 + "</a>" * 40)
    transformation = query("//a//a//a//a//a", "//a//a//a//a")
    streams = PathStreams(document, most=1_000)
    with pytest.raises(TooManyTuples):
        streams.of(path("//a//a//a//a//a"))
    with pytest.raises(TooManyTuples):  # known by now
        streams.of(path("//a//a//a//a//a//a"))
    assert len(PathStreams(document).of(path("//a//a"))) == 40 * 39 / 2
    expected = nested_loops.groups(transformation, PatternEvaluator(document), document)
    assert len(expected) == 36
    assert plan(transformation).run(streams, PatternEvaluator(document)) == expected


def test_six_nested_elements_make_twenty_tuples() -> None:
    document = read("<a>" * 6 + "</a>" * 6)
    assert len(PathStreams(document).of(path("//a//a//a"))) == 20
    assert answers(query("//a//a//a"), document) == [group(3), group(4), group(5), group(6)]


def test_costs_are_kept_by_kind_if_asked_for() -> None:
    document = read(D1)
    planned = plan(query("//section[@difficulty='easy'][title]//figure", "/title"), "FWR", "none")
    costs: Counter[str] = Counter()
    planned.run(PathStreams(document), PatternEvaluator(document), costs=costs)
    assert set(costs) == {"Matching", "Selection", "DupElim", "OuterJoinSelect"}
    assert all(spent > 0 for spent in costs.values())


def test_a_plan_describes_itself() -> None:
    lines = plan(query("//section[title='T']", "/figure"), "FWR", "query").describe()
    assert "SemiJoin (hash) with //section/title: // down to the binding: bound elements may nest" in lines
    assert "no DupElim on //section: at most one //: no element is reached twice (1)" in lines


# -- random queries ------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=300 if FULL else 150, deadline=None)
@given(RANDOMS)
def test_all_plans_agree_with_nested_loops(rng: Random) -> None:
    whole, other = path_strategies.element_graph(rng), path_strategies.element_graph(rng)
    document = read(path_strategies.document(rng, whole))
    evaluator, streams = PatternEvaluator(document), PathStreams(document)
    for element_graph in (whole, graph_of(document), other) * 3:
        conforming = conforms(document, element_graph)
        transformation = path_strategies.transformation(rng, document)
        expected = nested_loops.groups(transformation, evaluator, document)
        for planned in plans(transformation, element_graph):
            assert planned.run(streams, evaluator, conforming) == expected


@settings(max_examples=200, deadline=None)
@given(RANDOMS)
def test_nested_loops_agree_with_lxml(rng: Random) -> None:
    message = path_strategies.document(rng, path_strategies.element_graph(rng))
    document = read(message)
    binding, returned = path_strategies.binding(rng, document), path_strategies.navigation(rng, 2)
    root: Any = etree.fromstring(message)
    numbers = {element: number for number, element in enumerate(root.iter(), 1)}
    expected = [
        group(numbers[bound], [numbers[element] for element in bound.xpath("." + returned)])
        for bound in root.getroottree().xpath(binding)
    ]
    assert nested_loops.groups(query(binding, returned), PatternEvaluator(document), document) == expected


# -- the bibliography, where nothing nests -------------------------------------------------------------


@pytest.mark.parametrize("predicates", [0, 1, 2])
def test_a_dtd_without_loops_needs_neither_hashing_nor_duplicate_elimination(predicates: int) -> None:
    dtd = load_dtd("bibliography")
    messages = MessageGenerator(dtd, seed=6, max_repeats=5, values=2).take(5)
    streams = [(PathStreams(document), PatternEvaluator(document)) for document in map(read, messages)]
    texts = TransformationGenerator(dtd, seed=6, predicate_paths=predicates, descendant=0.4, values=2)
    hashed, found = 0, 0
    for transformation in map(fwr, texts.take(200)):
        planned = plan(transformation, "FWR", "dtd", dtd)
        hashed += any(how == "hash" for _, how in kinds(plan(transformation, "FWR", "query")))
        assert all(kind != "DupElim" and how in ("scan", "merge") for kind, how in kinds(planned))
        for stream, evaluator in streams:
            assert conforms(stream.document, dtd)
            groups = planned.run(stream, evaluator, conforming=True)
            assert groups == nested_loops.groups(transformation, evaluator, stream.document)
            found += len(groups)
    assert hashed > 50  # or the graph would have had nothing to show
    assert found > 100


def test_a_failure_of_one_plan_leaves_the_others_alone() -> None:
    broker = Broker(tuning=Tuning(share_plans=False))
    broker.subscribe("product", "for $x in //b, $y in //b, $z in //b return <r/>")
    broker.subscribe("single", "for $x in /a return <r/>")
    deliveries = broker.publish("<a>" + "<b/>" * 60 + "</a>", 1)
    assert [d.subscription for d in deliveries] == ["single"]
    assert deliveries.failures == [Failure("product", FailureKind.FAILED, "more than 100,000 groups", 1)]
