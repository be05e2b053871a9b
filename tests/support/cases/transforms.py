"""Documents, queries and element graphs for tests of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sapwood.engine.index import Index
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.message.document import Document
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.lang.fwr.compiler import compile_transformation
from sapwood.lang.fwr.model import Transformation
from sapwood.lang.pattern import Axis, Path
from sapwood.lang.query import compile_query
from sapwood.transform.per_query.operator_plan import OperatorPlan, Optimise, Sharing, plan
from sapwood.transform.per_query.path_streams import PathStreams
from sapwood.transform.result_groups import Group
from sapwood.workload.dtd import element_graph

SHARINGS: tuple[Sharing, ...] = ("F", "FW", "FWR")
OPTIMISES: tuple[Optimise, ...] = ("none", "query", "dtd")

# The book of the XQuery use cases, as far as it matters here: sections nest, figures do not.
D1 = """<report><section id="intro" difficulty="easy"><title>Pub-Sub</title><section difficulty="easy">
<figure><title>XML Processing</title></figure></section><figure><title>Scalability</title></figure>
</section></report>"""


@dataclass(frozen=True)
class Graph:
    """An element graph, from its edges."""

    root: str
    children: Mapping[str, tuple[str, ...]]

    @property
    def cycles(self) -> tuple[frozenset[str], ...]:
        return element_graph.cycles(self.children)


def graph(root: str, *edges: str) -> Graph:
    """`graph("a", "ab", "bb")`: a holds b, b holds itself. Longer names: "section figure"."""
    pairs = [tuple(edge.split()) if " " in edge else tuple(edge) for edge in edges]
    names = dict.fromkeys((root, *(name for pair in pairs for name in pair)))
    return Graph(root, {n: tuple(child for parent, child in pairs if parent == n) for n in names})


def graph_of(document: Document) -> Graph:
    """The least graph that a message conforms to."""
    edges = {(document.names[document.parents[e]], document.names[e]) for e in range(2, len(document))}
    names = sorted(set(document.names[1:]))
    return Graph(document.names[1], {n: tuple(sorted(c for p, c in edges if p == n)) for n in names})


def read(message: str | bytes) -> Document:
    return Index(Limits(), Tuning(), {}).read(Message(message), all=True)


def path(text: str) -> Path:
    """An absolute path of the algebra."""
    (found,) = compile_query(text).paths
    return found


def query(binding: str, *returns: str) -> Transformation:
    """`for $v in binding return {$v…}{$v…}`; the where clause is a predicate of the binding."""
    unions = (" | ".join("$v" + text for text in hole.split(" | ")) for hole in returns)
    holes = "".join(f"<h>{{{union}}}</h>" for union in unions)  # attributes go to the start tag around them
    return fwr(f"for $v in {binding} return <g>{holes}</g>")


def fwr(text: str) -> Transformation:
    compiled = compile_transformation(text)
    assert compiled.exact
    return compiled


def run(query_plan: OperatorPlan, message: str | Document, conforming: bool = False) -> list[Group]:
    document = read(message) if isinstance(message, str) else message
    return query_plan.run(PathStreams(document), PatternEvaluator(document), conforming)


def answers(transformation: Transformation, message: str | Document) -> list[Group]:
    """The groups, by the one plan that all nine agree with on this message."""
    document = read(message) if isinstance(message, str) else message
    all_plans = plans(transformation, graph_of(document))
    first, *others = (run(each, document, conforming=True) for each in all_plans)
    assert all(other == first for other in others)
    return first


def plans(transformation: Transformation, element_graph: Graph) -> list[OperatorPlan]:
    """All nine."""
    return [
        plan(transformation, s, o, element_graph if o == "dtd" else None) for s in SHARINGS for o in OPTIMISES
    ]


def kinds(query_plan: OperatorPlan) -> list[tuple[str, str]]:
    return [(operator.kind, operator.implementation) for operator in query_plan.operators]


def brute_tuples(document: Document, steps: Path) -> list[tuple[int, ...]]:
    """The stream of a path, by trying every chain of ancestors."""
    found: list[tuple[int, ...]] = [()]
    for step in steps.steps:
        found = [
            (*matched, element)
            for matched in found
            for element in range(1, len(document))
            if step.test in ("*", document.names[element])
            and (matched[-1] if matched else 0) in _above(document, element, step.axis)
        ]
    return found


def _above(document: Document, element: int, axis: Axis) -> list[int]:
    above = [document.parents[element]]
    while above[-1] and axis is Axis.DESCENDANT:
        above.append(document.parents[above[-1]])
    return above


def is_ordered(numbers: Sequence[int]) -> bool:
    return all(a <= b for a, b in pairwise(numbers))
