"""The example of the paper: two messages, three queries, one template, and every relation as printed."""

from __future__ import annotations

import numpy as np
import pytest

from sapwood import Broker, Delivery

BOOK = """<book><publisher/><author>Danny Ayers</author><author>Andrew Watt</author>\
<title>Beginning RSS and Atom Programming</title><category>Scripting &amp; Programming</category>\
<category>Web Site Development</category></book>"""
BLOG = """<blog><url/><author>Danny Ayers</author><title>Beginning RSS and Atom Programming</title>\
<category>Book Announcement</category><category>Scripting &amp; Programming</category></blog>"""

QUERIES = {
    "Q1": "S//book->x1[.//author->x2][.//title->x3] FOLLOWED BY{x2=x5 AND x3=x6, 1 day} "
    "S//blog->x4[.//author->x5][.//title->x6]",
    "Q2": "S//book->x1[.//author->x2][.//category->x7] FOLLOWED BY{x2=x5 AND x7=x8, 1 day} "
    "S//blog->x4[.//author->x5][.//category->x8]",
    "Q3": "S//blog->x4[.//author->x5][.//title->x6] FOLLOWED BY{x5=x5' AND x6=x6', 1 day} "
    "S//blog->x4'[.//author->x5'][.//title->x6']",
}


def published(queries: dict[str, str]) -> tuple[Broker, list[Delivery]]:
    broker = Broker()
    for id, query in queries.items():
        broker.subscribe(id, query)
    assert broker.publish(BOOK, "d1", stream="S", time=0) == []
    return broker, broker.publish(BLOG, "d2", stream="S", time=3_600)


def test_q1_and_q2_fire_once_and_q3_does_not() -> None:
    _, deliveries = published(QUERIES)
    assert [(d.subscription, d.meeting.messages) for d in deliveries if d.meeting] == [
        ("Q1", ("d1", "d2")),
        ("Q2", ("d1", "d2")),
    ]
    bodies = {delivery.body.decode() for delivery in deliveries}
    assert bodies == {f"<joined>{BOOK}{BLOG}</joined>"}


def test_all_three_share_one_template_of_six_variables() -> None:
    broker, _ = published(QUERIES)
    [template] = broker.state().templates
    assert template.shape == "l0(l1 l2)  r0(r1 r2)  l1 = r1, l2 = r2"
    assert template.queries == 3


def rows(broker: Broker) -> set[tuple[str, int, int, str]]:
    """What is kept: variable, node and parent's node as the paper numbers them, value."""
    joins = broker.network_of_joins
    state = joins._state
    found = set()
    for run in np.flatnonzero(state.live).tolist():
        definition = joins.witnesses.definition(int(state.run_variable[run]))
        first, count = int(state.run_row[run]), int(state.run_count[run])
        for node, parent in state.nodes[first : first + count].tolist():
            found.add((str(definition.path), node - 1, parent - 1, state.run_value[run]))
    return found


def test_the_relations_after_the_book() -> None:
    broker = Broker()
    for id, query in QUERIES.items():
        broker.subscribe(id, query)
    broker.publish(BOOK, "d1", stream="S", time=0)
    assert rows(broker) == {
        ("//author", 2, 0, "Danny Ayers"),
        ("//author", 3, 0, "Andrew Watt"),
        ("//title", 4, 0, "Beginning RSS and Atom Programming"),
        ("//category", 5, 0, "Scripting & Programming"),
        ("//category", 6, 0, "Web Site Development"),
    }


@pytest.mark.parametrize(
    ("id", "names", "nodes"),
    [
        ("Q1", "x1 x2 x3 x4 x5 x6", [0, 2, 4, 0, 2, 3]),
        ("Q2", "x1 x2 x7 x4 x5 x8", [0, 2, 5, 0, 2, 5]),
    ],
)
def test_the_output_relation(id: str, names: str, nodes: list[int]) -> None:
    holes = "".join(f"{{${name}}}" for name in names.split())
    _, [delivery] = published({id: f"SELECT <out>{holes}</out> FROM {QUERIES[id]}"})
    assert delivery.meeting is not None
    [way] = delivery.meeting.nodes
    assert [way[name] - 1 for name in names.split()] == nodes
