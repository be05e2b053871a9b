"""The output of joins, and the subscriptions that it is delivered to."""

from __future__ import annotations

import pytest

from tests.support.cases.joins import bodies, broker_of, check
from tests.support.oracles.saxon import canonical

PAIR = "S//a->x[b->y] JOIN{y=w, 10 s} S//c->z[.//b->w]"
A, C = "<a><b>1</b></a>", "<c><b>1</b></c>"


def made(query: str, *messages: str, **options: object) -> str:
    """What the last of some messages of S completes."""
    broker = broker_of(query, **options)  # type: ignore[arg-type]
    for message in messages[:-1]:
        broker.publish(message, stream="S", time=1)
    return bodies(broker.publish(messages[-1], stream="S", time=1))["q"]


@pytest.mark.parametrize(
    ("query", "messages", "expected"),
    [
        pytest.param(PAIR, (A, C), f"<joined>{A}{C}</joined>", id="what the blocks select"),
        pytest.param(
            f"SELECT * FROM {PAIR}", (C, A), f"<joined>{A}{C}</joined>", id="in the order of blocks"
        ),
        pytest.param(
            "S/s/a[b->y]/d->x JOIN{y=w, 1 s} S/c->z[b->w]",
            ("<s><a><b>1</b><d>5</d><d>6</d></a></s>", C),
            f"<joined><d>5</d>{C}</joined><joined><d>6</d>{C}</joined>",
            id="the last step is selected",
        ),
        pytest.param(
            PAIR,
            ("<s><a><b>1</b></a><a k='2'><b>2</b><b>1</b></a><a><b>3</b></a></s>", "<c><c><b>1</b></c></c>"),
            "<joined><a><b>1</b></a><c><c><b>1</b></c></c></joined>"
            "<joined><a><b>1</b></a><c><b>1</b></c></joined>"
            "<joined><a k='2'><b>2</b><b>1</b></a><c><c><b>1</b></c></c></joined>"
            "<joined><a k='2'><b>2</b><b>1</b></a><c><b>1</b></c></joined>",
            id="each combination, the last block's fastest",
        ),
        pytest.param(
            PAIR,
            ("<a><b>1</b><b>1</b></a>", C),
            f"<joined><a><b>1</b><b>1</b></a>{C}</joined>",
            id="once for all ways to bind what is not shown",
        ),
        pytest.param(
            f"{PAIR} JOIN{{w=v, 9 s}} S/d->t[b->v]",
            (A, C, "<d><b>1</b></d>"),
            f"<joined>{A}{C}<d><b>1</b></d></joined>",
            id="three blocks",
        ),
        pytest.param(
            "SELECT <r n='{$x/@k}'>{$z/@k}{$y}{string($w)} {count($x/b)}</r> FROM " + PAIR,
            ("<a k='7'><b>2</b><b>1</b></a>", "<c k='8'><b>1</b></c>"),
            "<r n='7' k='8'><b>1</b>12</r>",
            id="holes of both sides",
        ),
        pytest.param(
            "SELECT <r>{$y}</r> FROM S/a->x[b->y][d->e] JOIN{e=w, 9 s} S/c->z[b->w]",
            ("<a><b>2</b><b>3</b><d>1</d><d>1</d></a>", C),
            "<r><b>2</b></r><r><b>3</b></r>",
            id="variables that are shown but not compared",
        ),
        pytest.param(
            "SELECT <r>{string($w)}{string($y)}</r> FROM S/a->x[b->y] JOIN{x/@k=z/@k, 9 s} S/c->z[b->w]",
            ("<a k='1'><b>1</b><b>2</b></a>", "<c k='1'><b>3</b><b>4</b></c>"),
            "<r>31</r><r>41</r><r>32</r><r>42</r>",
            id="in the order of variables, not of holes",
        ),
        pytest.param(f"SELECT <r>{{{{ok}}}}</r> FROM {PAIR}", (A, C), "<r>{ok}</r>", id="no holes"),
        pytest.param(
            "SELECT <r>{$x/none}<s>{string($x/none)}{count($x/none)}</s></r> FROM " + PAIR,
            (A, C),
            "<r><s>0</s></r>",
            id="holes that nothing fills",
        ),
        pytest.param(
            "SELECT <r>{$y}{$w}</r> FROM S//a->x/@k->y JOIN{y=w, 1 s} S//c->z/text()->w",
            ("<a k='&lt;'/>", "<c>&lt;</c>"),
            "<r k='&lt;'>&lt;</r>",
            id="attributes and text",
        ),
    ],
)
def test_bodies(query: str, messages: tuple[str, ...], expected: str) -> None:
    assert made(query, *messages) == canonical(expected)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (PAIR, '<joined><a><b>1</b><p:d xmlns:p="urn:1"/></a><c><b>1</b><p:d xmlns:p="urn:2"/></c></joined>'),
        (
            "SELECT <p:r>{$x}{$w}</p:r> FROM " + PAIR,
            '<n:r xmlns:n="urn:n"><a><b>1</b><p:d xmlns:p="urn:1"/></a><b>1</b></n:r>',
        ),
        (
            'SELECT <r xmlns="urn:r" k="{$w}">{$y}</r> FROM ' + PAIR,
            '<r xmlns="urn:r" k="1"><b xmlns="">1</b></r>',
        ),
    ],
)
def test_copies_keep_the_namespaces_that_they_had(query: str, expected: str) -> None:
    messages = [
        f'<{name}:s xmlns:{name}="urn:s" xmlns:p="urn:{n}"><{root}><b>1</b><p:d/></{root}></{name}:s>'
        for n, (name, root) in enumerate([("m", "a"), ("n", "c")], 1)
    ]
    assert made(query, *messages, namespaces={"p": "urn:n"}) == canonical(expected)


def test_output_is_utf_8_whatever_the_messages_are() -> None:
    broker = broker_of(PAIR)
    broker.publish(
        '<?xml version="1.0" encoding="latin-1"?><a><b>é</b></a>'.encode("latin-1"), stream="S", time=1
    )
    (delivery,) = broker.publish("<c><b>é</b></c>".encode("utf-16"), stream="S", time=1)
    assert delivery.body.decode() == "<joined><a><b>é</b></a><c><b>é</b></c></joined>"


def test_entities_and_defaults_of_a_doctype_count() -> None:
    doctype = '<!DOCTYPE a [<!ENTITY e "1"><!ATTLIST a k CDATA "2">]>'
    query = "S/a->x[b->y][@k->k] JOIN{y=w AND k=v, 9 s} S/c->z[b->w][@k->v]"
    assert made(query, f"{doctype}<a><b>&e;</b></a>", "<c k='2'><b>1</b></c>") == canonical(
        "<joined><a k='2'><b>1</b></a><c k='2'><b>1</b></c></joined>"
    )


def test_says_which_messages_met_and_which_completed_it() -> None:
    broker = broker_of(PAIR, lateness=5)
    broker.publish(C, "late", stream="S", time=3)
    (delivery,) = broker.publish(A, "early", stream="S", time=1)
    assert (delivery.subscription, delivery.message) == ("q", "early")
    assert delivery.meeting is not None
    assert delivery.meeting.messages == ("early", "late")


def test_says_which_nodes_met() -> None:
    """By the number of the element, in document order; once for each copy."""
    broker = broker_of("SELECT <r>{$y}{string($k)}</r> FROM S//a->x[b->y][@k->k] JOIN{k=w, 9 s} S/c->z[b->w]")
    broker.publish(C, stream="S", time=1)
    (delivery,) = broker.publish("<s><a k='1'><b>1</b><b>2</b></a><a/></s>", stream="S", time=1)
    assert delivery.meeting is not None
    assert delivery.meeting.nodes == ({"y": 3, "k": 2}, {"y": 4, "k": 2})


def test_an_answer_counts_without_writing_anything() -> None:
    broker = broker_of({"q": PAIR, "same": PAIR, "other": PAIR.replace("10 s", "5 s"), "filter": "//c"})
    none = broker.answer(A, stream="S", time=1)
    assert none.joined is not None
    assert (len(none.joined), none.joined.deliveries) == (0, 0)
    some = broker.answer(C, stream="S", time=2)
    assert some.joined is not None
    assert (len(some.joined), some.joined.deliveries) == (2, 3)
    assert list(some.matches) == ["filter"]
    far = broker.answer(C, stream="S", time=11)
    assert far.joined is not None
    assert (len(far.joined), far.joined.deliveries) == (1, 2)


def test_deliveries_are_in_the_order_subscribed() -> None:
    queries = {
        "made": "for $a in //a return $a/b",
        "q": PAIR,
        "filter": "//a",
        "again": PAIR,
        "one": "FROM S//a->x",
        "other": "//c",
    }
    broker = broker_of(queries)
    broker.publish(C, stream="S", time=1)
    assert [d.subscription for d in broker.publish(A, stream="S", time=1)] == [
        *("made", "q", "filter", "again", "one")
    ]


# -- single blocks -----------------------------------------------------------------------------------------


def test_a_block_alone_is_a_filter_on_its_stream() -> None:
    broker = broker_of({"q": "FROM S//a->x[b = 1]", "all": "SELECT * FROM S", "none": "FROM //a->x"})
    check(broker, [(0, "S", A, "1 all:1"), (0, "T", A, ""), (0, "", A, "none:3"), (0, "S", C, "all:4")])
    message = b"<!--x--><a><b>1</b></a>\n"
    assert {d.body for d in broker.publish(message, stream="S", time=1)} == {message}


def test_a_block_alone_with_output_is_a_transformation_of_its_stream() -> None:
    broker = broker_of("SELECT <r>{$y/text()}</r> FROM S//a->x[b->y > 0]")
    check(broker, [(0, "S", A, "1"), (0, "T", A, "")])
    (delivery,) = broker.publish("<a><b>0</b><b>2</b><b>x</b><b>3</b></a>", stream="S", time=1)
    assert delivery.body == b"<r>2</r><r>3</r>"
