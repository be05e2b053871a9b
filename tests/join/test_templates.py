"""Which messages meet, case by case."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.support.cases.joins import Row, broker_of, check

PAIR = "S//a->x[b->y] FOLLOWED BY{y=w, 10 s} S//c->z[b->w]"
EITHER = PAIR.replace("FOLLOWED BY", "JOIN")
A, A2, C = "<a><b>1</b></a>", "<a><b>2</b></a>", "<c><b>1</b></c>"
CHAIN = "S/a->x[b->y] FOLLOWED BY{y=w, 10 s} S/c->z[b->w][e->v] FOLLOWED BY{v=u, 10 s} S/d->t[e->u]"
ITEMS = "S//i->i[id->x][n->p] FOLLOWED BY{x=y AND p < q, 10 s} S//i->j[id->y][n->q]"


@dataclass(frozen=True)
class Case:
    point: str
    query: str | dict[str, str]
    rows: list[Row]
    lateness: float = 0
    namespaces: dict[str, str] = field(default_factory=dict)


TIMES = [
    Case(
        "one follows the other",
        PAIR,
        [(0, "S", A, ""), (1, "S", C, "1+2"), (2, "S", C, "1+3"), (3, "S", A, ""), (4, "S", C, "1+5 4+5")],
    ),
    Case("but not the other the one", PAIR, [(0, "S", C, ""), (1, "S", A, "")]),
    Case("at the same time, nobody follows", PAIR, [(5, "S", A, ""), (5, "S", C, ""), (5, "S", A, "")]),
    Case("JOIN has no order", EITHER, [(0, "S", C, ""), (1, "S", A, "2+1"), (2, "S", C, "2+3")]),
    Case("JOIN takes the same time", EITHER, [(5, "S", A, ""), (5, "S", C, "1+2"), (5, "S", A, "3+2")]),
    Case(
        "the window is inclusive",
        PAIR,
        [
            (0, "S", A, ""),
            (0.5, "S", A, ""),
            (10, "S", C, "1+3 2+3"),
            (10.25, "S", C, "2+4"),
            (11, "S", C, ""),
        ],
    ),
    Case(
        "on both sides of JOIN",
        EITHER,
        [(0, "S", A, ""), (10, "S", C, "1+2"), (20, "S", A, "3+2"), (30.5, "S", C, "")],
    ),
    Case("INF", PAIR.replace("10 s", "INF"), [(0, "S", A, ""), (4e9, "S", C, "1+2"), (9e9, "S", C, "1+3")]),
    Case(
        "milliseconds are kept even in times since the epoch",
        PAIR.replace("10 s", "100 ms"),
        [
            (1_753_000_000.5, "S", A, ""),
            (1_753_000_000.59375, "S", C, "1+2"),
            (1_753_000_000.625, "S", C, ""),
        ],
    ),
    Case(
        "negative times", PAIR, [(-5, "S", A, ""), (-1, "S", C, "1+2"), (5, "S", C, "1+3"), (5.5, "S", C, "")]
    ),
    Case(
        "a message out of order completes what came before it",
        PAIR,
        [(4, "S", C, ""), (1, "S", A, "2+1"), (4, "S", A, ""), (3, "S", C, "2+4")],
        lateness=5,
    ),
    Case(
        "neither order nor window change with the order of arrival",
        PAIR,
        [(20, "S", C, ""), (9.5, "S", A, ""), (10, "S", A, "3+1"), (20, "S", A, "")],
        lateness=15,
    ),
    Case(
        "late is what is more than the lateness behind the latest of all streams",
        EITHER,
        [
            (1, "S", A, ""),
            (10, "T", A, ""),
            (5, "S", C, "1+3"),
            (4.5, "S", C, "late"),
            (5, "S", C, "1+5"),
            (10.5, "other", A, ""),
            (5, "S", C, "late"),
            (5.5, "S", C, "1+8"),
        ],
        lateness=5,
    ),
    Case(
        "without lateness, times must not decrease",
        EITHER,
        [(1, "S", A, ""), (1, "S", C, "1+2"), (0.5, "S", C, "late"), (1, "S", C, "1+4")],
    ),
]

VALUES = [
    Case(
        "no message meets itself", "S//b->x JOIN{x=y, INF} S//b->y", [(0, "S", "<a><b>1</b><b>1</b></a>", "")]
    ),
    Case(
        "the same block on both sides: both orders",
        "S//b->x JOIN{x=y, INF} S//b->y",
        [(0, "S", A, ""), (0, "S", C, "1+2 2+1"), (1, "S", A2, "")],
    ),
    Case(
        "one after the other: one order",
        "S//b->x FOLLOWED BY{x=y, INF} S//b->y",
        [(0, "S", A, ""), (0, "S", C, ""), (1, "S", A, "1+3 2+3")],
    ),
    Case(
        "one of several will do, and gives one result",
        PAIR,
        [
            (0, "S", "<a><b>1</b><b>2</b><b>2</b></a>", ""),
            (1, "S", "<c><b>3</b><b>2</b><b>2</b></c>", "1+2"),
            (2, "S", "<c><b>3</b><b>4</b></c>", ""),
        ],
    ),
    Case(
        "the value of an element is all its text",
        PAIR,
        [
            (0, "S", "<a><b>1<i>2<i>3</i></i>4</b></a>", ""),
            (1, "S", "<c><b>12<!--0-->3<![CDATA[4]]></b></c>", "1+2"),
            (2, "S", "<c><b>1<i>2</i>4</b></c>", ""),
            (3, "S", "<c><b>&#49;234</b></c>", "1+4"),
        ],
    ),
    Case(
        "equality is of strings, white space included",
        PAIR,
        [(0, "S", A, ""), (1, "S", "<c><b>1.0</b></c>", ""), (2, "S", "<c><b> 1</b></c>", "")],
    ),
    Case("nothing equals nothing", PAIR, [(0, "S", "<a><b/></a>", ""), (1, "S", "<c><b></b></c>", "1+2")]),
    Case("but what is not there", PAIR, [(0, "S", "<a/>", ""), (1, "S", "<c><b></b></c>", "")]),
    Case(
        "attributes",
        "S//a->x[@k->y] JOIN{y=w, 1 s} S//c->z[.//*/@id->w]",
        [(0, "S", "<a k='1'/>", ""), (1, "S", "<c><d id='0'/><d id='1'/></c>", "1+2")],
    ),
    Case(
        "attributes with text",
        "S//a->x/@k->y JOIN{y=w, 1 s} S//text()->w",
        [
            (0, "S", "<a k='x&amp;1'/>", ""),
            (1, "S", "<c>x&amp;1<d/>x&amp;</c>", "1+2"),
            (1, "S", "<c>x</c>", ""),
        ],
    ),
    Case(
        "an inequality beside an equality",
        ITEMS,
        [
            (0, "S", "<i><id>1</id><n>5</n></i>", ""),
            (1, "S", "<i><id>1</id><n>4</n></i>", ""),
            (2, "S", "<i><id>1</id><n> 4.50 </n></i>", "2+3"),
            (3, "S", "<i><id>2</id><n>9</n></i>", ""),
        ],
    ),
    Case(
        "both of the same binding",
        ITEMS,
        [
            (0, "S", "<s><i><id>1</id><n>5</n></i><i><id>2</id><n>1</n></i></s>", ""),
            (1, "S", "<i><id>1</id><n>3</n></i>", ""),
            (2, "S", "<i><id>2</id><n>3</n></i>", "1+3"),
        ],
    ),
    Case(
        "what is no number is neither less nor more, nor as much",
        "S/a->x[b->y][c->p] FOLLOWED BY{y=w AND p <= q, INF} S/a->z[b->w][c->q]",
        [
            (0, "S", "<a><b/><c>x</c></a>", ""),
            (1, "S", "<a><b/><c>x</c></a>", ""),
            (2, "S", "<a><b/><c/></a>", ""),
            (3, "S", "<a><b/><c>1</c></a>", ""),
            (4, "S", "<a><b/><c>1.0</c></a>", "4+5"),
        ],
    ),
    Case(
        "different",
        "S/a->x[b->y] JOIN{y=w AND x/@k != z/@k, INF} S/a->z[b->w]",
        [
            (0, "S", "<a k='1'><b/></a>", ""),
            (1, "S", "<a k='1'><b/></a>", ""),
            (2, "S", "<a k='1.0'><b/></a>", "1+3 3+1 2+3 3+2"),
            (3, "S", "<a><b/></a>", ""),
        ],
    ),
    Case(
        "a variable is one node; a path is any, each time it is written",
        {
            "variable": "S/a->x[b->y] FOLLOWED BY{y=w AND y!=w, 9 s} S/c->z[b->w]",
            "path": "S/a->x FOLLOWED BY{x/b=z/b AND x/b!=z/b, 9 s} S/c->z",
        },
        [
            (0, "S", A, ""),
            (1, "S", C, ""),
            (2, "S", "<c><b>1</b><b>2</b></c>", "path:1+3"),
        ],
    ),
    Case(
        "streams are apart",
        {"q": PAIR, "r": PAIR.replace("S//c", "T//c"), "none": PAIR.replace("S//", "//")},
        [
            (0, "S", A, ""),
            (1, "T", C, "r:1+2"),
            (2, "", C, ""),
            (3, "", A, ""),
            (4, "", C, "none:4+5"),
            (5, "S", C, "1+6"),
        ],
    ),
]

CONDITIONS = [
    Case(
        "constants in the predicate",
        PAIR.replace("y=w", "y=w AND x/k > 1 AND 'o' != z/@k"),
        [
            (0, "S", "<a><b>1</b><k>1</k></a>", ""),
            (0, "S", "<a><b>1</b><k>2</k></a>", ""),
            (1, "S", "<c k='o'><b>1</b></c>", ""),
            (2, "S", "<c><b>1</b></c>", ""),
            (3, "S", "<c k='p'><b>1</b></c>", "2+5"),
        ],
    ),
    Case(
        "constants in the pattern",
        "S//a->x[b->y = 2][@k] JOIN{y=w, 9 s} S//c->z[.//b->w != 'x' and not(@k)]",
        [
            (0, "S", "<a k='1'><b>1</b><b>x</b></a>", ""),
            (0, "S", "<a k='1'><b>1</b><b>2</b></a>", ""),
            (0, "S", "<a><b>2</b></a>", ""),
            (1, "S", "<c><b>1</b></c>", ""),
            (1, "S", "<c><d><b>2</b></d></c>", "2+5"),
            (1, "S", "<c k='1'><b>2</b></c>", ""),
        ],
    ),
    Case(
        "a constant holds of the node that is compared",
        PAIR.replace("y=w", "y=w AND y > 1"),
        [(0, "S", "<a><b>1</b><b>2</b></a>", ""), (1, "S", C, ""), (2, "S", "<c><b>2</b></c>", "1+3")],
    ),
    Case(
        "functions of one variable",
        PAIR.replace("y=w", "contains(y, ', ') AND y=w AND not(z/k)"),
        [
            (0, "S", "<a><b>1</b><b>1, 2</b></a>", ""),
            (1, "S", C, ""),
            (2, "S", "<c><b>1, 2</b></c>", "1+3"),
            (3, "S", "<c><b>1, 2</b><k/></c>", ""),
        ],
    ),
    Case(
        "paths that go on after a binding, and steps without one",
        "S/s//a->x[@k->k]/b->y JOIN{y=w AND k=l, 9 s} S//c[@k->l]/b->w",
        [
            (0, "S", "<s><a k='1'><b>1</b></a><a k='2'><b>2</b></a></s>", ""),
            (1, "S", "<c k='2'><b>1</b></c>", ""),
            (2, "S", "<c k='2'><b>1</b><b>2</b></c>", "1+3"),
        ],
    ),
    Case(
        "elements in themselves",
        "S//a->x[a->y] JOIN{y=w AND x=z, 9 s} T//a->z[.//a->w]",
        [
            (0, "S", "<a>1<a>2<a>3</a></a></a>", ""),
            (1, "T", "<a>2<a>3</a></a>", "1+2"),
            (1, "T", "<a>1<a>2<a>3</a></a></a>", "1+3"),
            (1, "T", "<a>12<a>3</a></a>", ""),
        ],
    ),
    Case(
        "variables below variables below variables",
        "S/c->c[a->p][d->o] JOIN{x=p AND z=p AND y=o, INF} S/*->r[.//a->x][.//b->y[a->z]]",
        [
            (0, "S", "<c><a>2</a><d>12</d></c>", ""),
            (1, "S", "<a><b>x</b><b><a>1</a><a>2</a></b></a>", "1+2"),
            (2, "S", "<a><b>12</b><b><a>2</a></b></a>", ""),
            (3, "S", "<a><a>2</a><s><b>1<a>2</a></b></s></a>", "1+4"),
        ],
    ),
    Case(
        "names in namespaces",
        "S//p:a->x[@p:k->y] JOIN{y=w, 9 s} S//p:*->z[b->w]",
        [
            (0, "S", "<a k='1' xmlns='urn:p'/>", ""),
            (0, "S", "<q:a q:k='1' xmlns:q='urn:p'/>", ""),
            (1, "S", "<a xmlns='urn:p'><b>1</b></a>", ""),
            (1, "S", "<a xmlns='urn:p'><b xmlns=''>1</b></a>", "2+4"),
        ],
        namespaces={"p": "urn:p"},
    ),
    Case(
        "keywords in any case, names with primes, $ or not",
        "from S//a AS x\n[b as y'] Followed\n By { $y'=w and w=y' , 0.5 MIN }S//c[b->w]->z",
        [(0, "S", A, ""), (30, "S", C, "1+2"), (31, "S", C, "")],
    ),
]

D = "<d><e>7</e></d>"
CE = "<c><b>1</b><e>7</e></c>"
CHAINS = [
    Case(
        "three in a row",
        CHAIN,
        [(0, "S", A, ""), (1, "S", CE, ""), (2, "S", D, "1+2+3"), (3, "S", D, "1+2+4")],
    ),
    Case("in no other", CHAIN, [(0, "S", CE, ""), (1, "S", A, ""), (2, "S", D, ""), (3, "S", CE, "")]),
    Case(
        "as if they had arrived in order",
        CHAIN,
        [(9, "S", D, ""), (3, "S", CE, ""), (1, "S", A, "3+2+1"), (4, "S", CE, "3+4+1"), (4, "S", A, "")],
        lateness=20,
    ),
    Case(
        "the second window starts at the later of the first two",
        CHAIN,
        [(0, "S", A, ""), (10, "S", CE, ""), (20, "S", D, "1+2+3"), (20.5, "S", D, "")],
    ),
    Case(
        "which may be the first of them",
        CHAIN.replace("FOLLOWED BY", "JOIN", 1),
        [(0, "S", CE, ""), (5, "S", D, ""), (10, "S", A, ""), (11, "S", D, "3+1+4"), (20.5, "S", D, "")],
    ),
    Case(
        "JOIN twice: the last may be the first",
        CHAIN.replace("FOLLOWED BY", "JOIN"),
        [
            (0, "S", D, ""),
            (8, "S", CE, ""),
            (9, "S", A, "3+2+1"),
            (9.5, "S", D, "3+2+4"),
            (10.5, "S", A, "5+2+4"),
        ],
    ),
    Case(
        "back to the first block",
        "S/a->x[b->y][e->e] JOIN{y=w, 9 s} S/c->z[b->w] JOIN{w=v AND e=u, 9 s} S/d->t[b->v][e->u]",
        [
            (0, "S", "<a><b>1</b><e>5</e></a>", ""),
            (0, "S", "<a><b>1</b><e>7</e></a>", ""),
            (1, "S", C, ""),
            (2, "S", "<d><b>1</b><e>7</e></d>", "2+3+4"),
            (2, "S", "<d><b>2</b><e>7</e></d>", ""),
        ],
    ),
    Case(
        "one binding for both links",
        "S/a->x[b->y] JOIN{y=w, 9 s} S//c->z[b->w][e->v] JOIN{v=u, 9 s} S/d->t[e->u]",
        [
            (0, "S", A, ""),
            (1, "S", "<s><c><b>1</b><e>0</e></c><c><b>2</b><e>7</e></c></s>", ""),
            (2, "S", D, ""),
            (3, "S", A2, "4+2+3"),
        ],
    ),
    Case(
        "of the first block, too",
        "S//a->x[b->y][e->e] JOIN{y=w, 9 s} S/c->z[b->w] JOIN{e=u, 9 s} S/d->t[e->u]",
        [
            (0, "S", "<s><a><b>1</b><e>0</e></a><a><b>2</b><e>7</e></a></s>", ""),
            (1, "S", C, ""),
            (2, "S", D, ""),
            (3, "S", "<c><b>2</b></c>", "1+4+3"),
        ],
    ),
    Case(
        "all three are different messages",
        "S//b->x JOIN{x=y, 9 s} S//b->y JOIN{y=z, 9 s} S//b->z",
        [
            (0, "S", A, ""),
            (0, "S", A, ""),
            (0, "S", A, "1+2+3 1+3+2 2+1+3 2+3+1 3+1+2 3+2+1"),
            (9.5, "S", A, ""),
        ],
    ),
    Case(
        "a chain of an inequality",
        "S//i->i[id->x][n->p] FOLLOWED BY{x=y AND p < q, INF} S//i->j[id->y][n->q] "
        "FOLLOWED BY{x=z AND q < r AND p != 1, INF} S//i->k[id->z][n->r]",
        [
            (0, "S", "<i><id>1</id><n>1</n></i>", ""),
            (1, "S", "<i><id>1</id><n>2</n></i>", ""),
            (2, "S", "<i><id>1</id><n>3</n></i>", ""),
            (3, "S", "<i><id>1</id><n>4</n></i>", "2+3+4"),
            (4, "S", "<i><id>1</id><n>4</n></i>", "2+3+5"),
        ],
    ),
]


@pytest.mark.parametrize("case", [*TIMES, *VALUES, *CONDITIONS, *CHAINS], ids=lambda case: case.point)
def test_meetings(case: Case) -> None:
    check(broker_of(case.query, case.lateness, namespaces=case.namespaces), case.rows)
